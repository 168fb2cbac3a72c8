"""A Prefect server of ours obeys its owner alone: what other pages, other names and other users get of it."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from prefect.workers.process import ProcessJobConfiguration
from starlette.applications import Starlette
from starlette.types import Message
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from flows.guard import SignIn
from flows.server import Server
from tests.flows import api

pytestmark = pytest.mark.prefect
EVIL = "https://evil.example"
POOL = json.loads((Path(__file__).resolve().parents[2] / "infra" / "pool.json").read_text())
REPLACEMENTS = {
    "command": "touch /tmp/owned",
    "working_dir": "/",
    "env": {"LD_PRELOAD": "/tmp/evil.so"},
    "env.LD_PRELOAD": "/tmp/evil.so",
    "stream_output": False,
    "name": "other",
}
SOCKETS = [
    "/api/events/in",
    "/api/events/out",
    "/api/logs/out",
    "/api/task_runs/subscriptions/scheduled",
    "/api/work_pools/any/workers/connect",
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with api.started(tmp_path_factory.mktemp("server"), {"PREFECT_UI_API_URL": "/api"}) as server:
        yield server


@pytest.fixture
def stranger(server: Server) -> Iterator[httpx.Client]:
    """Somebody who reaches the port and has no key."""
    with httpx.Client(base_url=server.address, trust_env=False, timeout=60, transport=api.Again()) as client:
        yield client


@pytest.fixture
def owner(server: Server) -> Iterator[httpx.Client]:
    client = api.owner(server.address, server.key)
    yield client
    client.close()


@pytest.fixture
def deployment(owner: httpx.Client) -> dict[str, Any]:
    """A deployment in a pool with our template."""
    if owner.get("/api/work_pools/openk2").status_code == 404:
        pool = {"name": "openk2", "type": "process", "base_job_template": POOL}
        owner.post("/api/work_pools/", json=pool).raise_for_status()
    flow = owner.post("/api/flows/", json={"name": "flow"}).raise_for_status().json()["id"]
    body = {"name": "plain", "flow_id": flow, "work_pool_name": "openk2"}
    return owner.post("/api/deployments/", json=body).raise_for_status().json()


def runs(owner: httpx.Client) -> int:
    return owner.post("/api/flow_runs/count", json={}).raise_for_status().json()


def test_it_listens_on_loopback_alone(server):
    child = psutil.Process(server._child.pid)
    listening = [entry for entry in child.net_connections() if entry.status == psutil.CONN_LISTEN]
    assert {entry.laddr.ip for entry in listening} == {"127.0.0.1"}
    assert len(listening) == 1


def test_neither_key_nor_ticket_stands_on_a_command_line_or_in_the_log(server, stranger, owner):
    stranger.get("/api/admin/settings", headers={"Authorization": "Basic wrong"})
    owner.get("/api/admin/settings").raise_for_status()
    lines = " ".join(" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"]))
    for secret in (server.key.split(":")[1], server.ticket):
        assert secret not in lines
        assert secret not in server.log.read_text()
        assert secret not in owner.get("/api/admin/settings").text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:4200", "127.0.0.1.evil.example", "localhost.", "[::1]"])
def test_another_host_name_is_refused_even_with_the_key(owner, host):
    """DNS rebinding: the attacker's name leads to 127.0.0.1, and the browser takes its page for the server's own."""
    for path in ("/", "/deployments", "/ui-settings", "/sign-in", "/api/admin/version", "/api/health"):
        assert owner.get(path, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://127.0.0.1:9", "http://localhost", "https://{host}", "file://"]
)
def test_a_page_of_another_origin_is_refused_even_with_the_key(server, owner, deployment, origin):
    origin = origin.format(host=server.address.removeprefix("http://"))
    headers = {"Origin": origin}
    before = runs(owner)
    run = f"/api/deployments/{deployment['id']}/create_flow_run"
    for answer in (
        owner.get("/api/admin/version", headers=headers),
        owner.post("/api/deployments/filter", headers=headers, json={}),
        owner.post(run, headers=headers, json={}),
        owner.post(run, headers={**headers, "Content-Type": "text/plain"}, content="{}"),
    ):
        assert answer.status_code == 403
        assert "access-control-allow-origin" not in answer.headers
    asked = {**headers, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    preflight = owner.options(run, headers=asked)
    assert preflight.status_code >= 400
    assert not [name for name in preflight.headers if name.startswith("access-control-allow")]
    assert runs(owner) == before


def test_the_own_pages_and_programs_with_the_key_are_served(server, owner, deployment):
    run = f"/api/deployments/{deployment['id']}/create_flow_run"
    before = runs(owner)
    owner.post(run, json={}).raise_for_status()
    owner.post(run, json={}, headers={"Origin": server.address}).raise_for_status()
    assert runs(owner) == before + 2
    forwarded = {"Host": "localhost:9999", "Origin": "http://localhost:9999"}  # ssh -L 9999:127.0.0.1:PORT
    owner.post("/api/deployments/filter", json={}, headers=forwarded).raise_for_status()


@pytest.mark.parametrize("headers", [{}, {"Origin": EVIL}], ids=["without origin", "with origin"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_form_of_any_page_starts_nothing(stranger, owner, deployment, kind, headers):
    """What a browser sends without asking the server first."""
    before = runs(owner)
    body = json.dumps({"job_variables": {"command": "touch /tmp/owned"}})
    for path in (f"/api/deployments/{deployment['id']}/create_flow_run", "/api/flow_runs/", "/api/deployments/filter"):
        answer = stranger.post(path, headers={**headers, "Content-Type": kind}, content=body)
        assert answer.status_code in (401, 403)
    assert runs(owner) == before


def test_the_key_alone_changes_nothing_without_a_csrf_token(server, deployment):
    user, password = server.key.split(":")
    answer = httpx.post(f"{server.address}/api/deployments/filter", auth=(user, password), json={}, trust_env=False)
    assert answer.status_code == 403


def test_without_the_key_no_route_of_the_api_answers(stranger):
    """Another user of the machine. Whether the server lives is all that is told."""
    routes = stranger.get("/openapi.json").json()["paths"]
    answered = set()
    for path, methods in routes.items():
        for method in set(methods) & {"get", "post", "put", "patch", "delete"}:
            answer = stranger.request(method, "/api" + path.replace("{", "").replace("}", ""))
            assert answer.status_code in (200, 401, 403), (method, path)
            if answer.status_code == 200:
                answered.add((method, path))
    assert len(routes) > 100
    assert answered == {("get", "/health"), ("get", "/ready")}
    for user, password in (("", ""), ("openk2", ""), ("openk2", "x")):
        assert stranger.get("/api/admin/version", auth=(user, password)).status_code == 401


@pytest.mark.parametrize("path", SOCKETS)
def test_a_socket_needs_the_key_and_the_own_origin(server, path):
    url = server.address.replace("http", "ws") + path

    def greet(token: str | None, origin: str | None) -> str:
        with connect(url, subprotocols=["prefect"], origin=origin, proxy=None) as socket:  # type: ignore[arg-type,list-item]
            socket.send(json.dumps({"type": "auth", "token": token}))
            return json.loads(socket.recv(timeout=60))["type"]

    assert greet(server.key, None) == "auth_success"
    assert greet(server.key, server.address) == "auth_success"
    for token in (None, "", "openk2:"):
        with pytest.raises(ConnectionClosed):
            greet(token, None)
    with pytest.raises(InvalidStatus, match="403"):
        greet(server.key, EVIL)
    with pytest.raises(InvalidStatus, match="403"), connect(url, proxy=None):  # without Prefect's own protocol
        pass


def test_pages_load_nothing_from_elsewhere_and_stand_in_no_frame(stranger):
    for path in ("/", "/deployments", "/v2/dashboard", "/sign-in"):
        answer = stranger.get(path, headers={"Accept": "text/html"}, follow_redirects=True).raise_for_status()
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'self' " in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_the_server_refuses_a_run_that_replaces_its_process(owner, deployment, name):
    """With the key, too: `infra/pool.json` leaves nothing to choose."""
    chosen = {"job_variables": {name: REPLACEMENTS[name]}}
    before = runs(owner)
    run = f"/api/deployments/{deployment['id']}/create_flow_run"
    body = {"name": f"evil {name}", "flow_id": deployment["flow_id"], "work_pool_name": "openk2", **chosen}
    assert owner.post(run, json=chosen).status_code == 422
    assert owner.post("/api/deployments/", json=body).status_code == 422
    # What got into a deployment otherwise is refused with its next run.
    owner.patch(f"/api/deployments/{deployment['id']}", json=chosen)
    assert owner.post(run, json={}).status_code == 422
    owner.patch(f"/api/deployments/{deployment['id']}", json={"job_variables": {}}).raise_for_status()
    assert runs(owner) == before


@pytest.mark.parametrize("name", REPLACEMENTS)
def test_the_worker_ignores_what_would_replace_its_process(name, monkeypatch):
    """Where the server did not see it: variables of a run that is in no deployment, or of an older database."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    values = {name: REPLACEMENTS[name]}
    made = asyncio.run(ProcessJobConfiguration.from_template_and_values(POOL, values, client=object()))
    assert made == asyncio.run(ProcessJobConfiguration.from_template_and_values(POOL, {}, client=object()))
    assert made.command is None
    stock = {"job_configuration": {"command": "{{ command }}"}, "variables": {"properties": {}}}
    if name == "command":  # the attack: with Prefect's own template the run decides
        theirs = asyncio.run(ProcessJobConfiguration.from_template_and_values(stock, values, client=object()))
        assert theirs.command == REPLACEMENTS["command"]


def test_the_ticket_signs_one_browser_in(server, tmp_path):
    """No other test of the file uses the ticket up."""
    at = f"{server.address}/sign-in"
    page = httpx.get(at, trust_env=False).text
    assert server.ticket not in page
    assert server.key not in page
    for wrong in ("", "x", server.ticket[:-1], server.key):
        assert httpx.post(at, content=wrong, trust_env=False).status_code == 403
    elsewhere = {"Origin": EVIL}
    assert httpx.post(at, content=server.ticket, headers=elsewhere, trust_env=False).status_code == 403
    if chromium := shutil.which("chromium"):
        assert "Deployments" in page_of(chromium, f"{at}#{server.ticket}", tmp_path / "browser")
    else:
        given = httpx.post(at, content=server.ticket, trust_env=False).raise_for_status()
        assert base64.b64decode(given.text).decode() == server.key
    assert httpx.post(at, content=server.ticket, trust_env=False).status_code == 403


def test_of_a_long_body_without_a_key_little_is_read():
    page, read, sent = SignIn(Starlette(), "ticket", "openk2:key"), [], []

    async def receive() -> Message:
        read.append(512)
        return {"type": "http.request", "body": b"x" * 512, "more_body": len(read) < 1000}

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/sign-in", "headers": []}
    asyncio.run(page(scope, receive, send))
    assert sent[0]["status"] == 413
    assert sum(read) <= 2048


def page_of(chromium: str, address: str, profile: Path) -> str:
    """What a browser shows there."""
    quiet = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync", "--no-sandbox"]
    wait = ["--virtual-time-budget=30000", "--dump-dom", f"--user-data-dir={profile}"]
    command = [chromium, "--headless", *quiet, *wait, address]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
