"""A form that no run could follow is refused when it is submitted, with the sentence that a run would end with."""

from __future__ import annotations

import json

import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from flows.form import Forms


async def _took(request: Request) -> JSONResponse:
    return JSONResponse({"body": (await request.body()).decode()}, 201)


@pytest.fixture
def client():
    """The API's addresses, taken by whoever stands behind the check."""
    routes = [Route("/api/{rest:path}", _took, methods=["POST", "GET"])]
    transport = httpx.ASGITransport(Forms(Starlette(routes=routes), "openk2:key"))
    return httpx.AsyncClient(transport=transport, base_url="http://server", auth=("openk2", "key"))


def submit(client: httpx.AsyncClient, body: bytes, path: str = "/api/deployments/1/create_flow_run") -> httpx.Response:
    import asyncio

    return asyncio.run(client.post(path, content=body))


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"overrides": ["rephrase.documens=4"]}, "rephrase.documens"),
        ({"overrides": ["rephrase.documents=many"]}, "rephrase.documents"),
        ({"overrides": ["mix.epochs=1", "pretrain"]}, "'pretrain' is not of the form stage.field=value"),
        ({"preset_file": "nowhere.yaml"}, "there is no preset file nowhere.yaml"),
        ({"preset": "test", "overrides": ["tokenizer.vocabulary=1000"]}, "vocab"),
    ],
)
def test_what_cannot_be_followed_is_refused_with_the_reason(client, form, said):
    answer = submit(client, json.dumps({"parameters": {"request": form}}).encode())
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"parameters": {"request": {"preset": "test", "overrides": ["mix.epochs=2"]}}}',
        b'{"parameters": {"request": {"preset": "no such preset"}}}',  # the schema's to refuse
        b'{"parameters": {"another": 1}}',
        b"{}",
        b"no JSON",
        b"[1]",
        b'{"parameters": null}',
    ],
)
def test_everything_else_is_passed_on_as_it_came(client, body):
    answer = submit(client, body)
    assert (answer.status_code, answer.json()["body"]) == (201, body.decode())


def test_other_addresses_are_not_looked_at(client):
    body = b'{"parameters": {"request": {"preset_file": "nowhere.yaml"}}}'
    assert submit(client, body, "/api/flow_runs/filter").status_code == 201


@pytest.mark.parametrize("auth", [None, ("openk2", "another")])
def test_no_file_is_looked_into_for_somebody_without_the_key(client, auth):
    client.auth = auth
    body = b'{"parameters": {"request": {"preset_file": "nowhere.yaml"}}}'
    answer = submit(client, body)
    assert (answer.status_code, answer.json()["body"]) == (201, body.decode())  # Prefect's app says no to it
