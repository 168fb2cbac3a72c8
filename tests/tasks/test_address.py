"""No address that holds a secret is taken, and none is ever repeated."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from flows.request import Request
from tasks.address import HIDDEN, redacted
from tasks.corpus.sources import FolderSource
from tasks.launch import Execution

SECRET = "geheim"
HELD = [
    f"s3://me:{SECRET}@bucket/x",
    f"s3://me:{SECRET}/with/slash@bucket/x",
    f"https://{SECRET}@host/v1",
    f"http://host/v1?token={SECRET}",
    f"http://host/v1?a=1&api_key={SECRET}",
    f"http://host/v1?%74oken={SECRET}",
    f"http://host/v1#access_token={SECRET}",
    f"https://b.blob.core.windows.net/c?sv=1&SIG={SECRET}",
    f"https://b.s3.amazonaws.com/k?X-Amz-Signature={SECRET}&x=1",
    f"simplecache::https://user:{SECRET}@host/a.jsonl",
]
PLAIN = [
    "data",
    "/data/a:b@c",
    "s3://bucket/openk2",
    "http://127.0.0.1:8000/v1",
    "http://host:8000/models/a@main",
    "https://host/a?max_tokens=3&page=2",
    "sftp://me@host/folder",
    "abfs://container@account.dfs.core.windows.net/x",
    "tls://host:8786",
]


@pytest.mark.parametrize("address", HELD)
def test_an_address_with_a_secret_is_refused_by_every_field_and_not_repeated(address):
    folder = {"name": "a", "kind": "folder", "domain": "web", "language": "en", "licence": "MIT"}
    attempts = [
        lambda: Request(root=address),
        lambda: Request(preset_file=address),
        lambda: Request(overrides=[f"execution.engine_url={address}"]),
        lambda: Execution(engine_url=address),
        lambda: Execution(judge_url=address),
        lambda: Execution(executor="dask", dask_address=address),
        lambda: FolderSource(**folder, path=address),
        lambda: FolderSource(**folder, path="x", listing=address),
    ]
    for attempt in attempts:
        with pytest.raises(ValidationError, match=r"must not hold credentials.*environment") as refused:
            attempt()
        assert SECRET not in str(refused.value)
    assert SECRET not in redacted(f"could not reach {address}: timeout")
    assert HIDDEN in redacted(address)


def test_an_aws_key_is_a_secret_wherever_it_stands():
    with pytest.raises(ValidationError, match="must not hold credentials"):
        Request(root="s3://AKIAIOSFODNN7EXAMPLE@bucket")


@pytest.mark.parametrize("address", PLAIN)
def test_an_address_without_a_secret_is_left_alone(address):
    assert redacted(address) == address
    assert Request(root=address).root == address


def test_an_engine_is_a_web_address():
    assert Execution(engine_url="http://a/v1,https://b/v1").engine_url == "http://a/v1,https://b/v1"
    with pytest.raises(ValidationError, match="begins with http"):
        Execution(judge_url="localhost:8000")


@pytest.mark.parametrize(("address", "told"), [("s3:/bucket", "two slashes"), ("a\0b", "no NUL")])
def test_an_address_that_is_none_is_refused(address, told):
    with pytest.raises(ValidationError, match=told):
        Request(root=address)
