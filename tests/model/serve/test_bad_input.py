"""What strangers send: a right status, a message of OpenAI's shape, and the next one is served as ever."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from model.generate import Batch
from model.serve import app as serving
from model.serve import guard, server, trial
from model.serve.app import BODY_BYTES, application
from model.serve.grammar import Grammars, Matching
from model.serve.guard import Impatient
from model.serve.protocol import ApiError, ChatRequest, CompletionRequest, read
from model.serve.server import in_background
from model.serve.trial import Untried
from model.transformer import Transformer
from tests.model.serve.conftest import KEY, ROWS, WAITING, Running, together
from tests.model.serve.test_api import CHAT, HELLO, PLACE, TEXT, TOOLS

LONG = {"prompt": "ab", "max_tokens": 1000, "seed": 3}


MINUTES = {"type": "string", "allOf": [{"pattern": f"^.*{number}.*$"} for number in range(200)]}
"""llguidance would take so long."""


def nested(depth: int) -> Any:
    found: Any = {"type": "object"}
    for _ in range(depth):
        found = {"type": "object", "properties": {"a": found}}
    return found


def refused(answer: httpx.Response, status: int, words: str, param: str | None = None) -> None:
    error = answer.json()["error"]
    assert (answer.status_code, set(error)) == (status, {"message", "type", "param", "code"})
    assert words in error["message"]
    assert param is None or error["param"] == param


@pytest.mark.parametrize(
    ("body", "words", "param"),
    [
        (b"", "no JSON", None),
        (b"{", "no JSON", None),
        (b"[]", "JSON object", None),
        (b"\xff\xfe", "no JSON", None),
        (b"[" * 100_000, "no JSON", None),
        ({}, "'messages': it is missing", "messages"),
        ({"messages": []}, "'messages'", "messages"),
        ({"messages": "hello"}, "'messages'", "messages"),
        ({"messages": [3]}, "'messages.0'", "messages.0"),
        ({"messages": [{"role": "king", "content": "x"}]}, "turn 0: role 'king' is unknown", "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "cannot be read", "messages"),
        ({"messages": [{"role": "user", "content": "\ud800"}]}, "no JSON", None),
        ({"messages": [{"role": "tool", "tool_call_id": "x", "content": ""}]}, "answers no open call", "messages"),
        ({"messages": [{"role": "user", "content": "ab" * 600}]}, "the 1024 of the model's window", "messages"),
        ({"max_tokens": 1020}, "with 1020 more over the 1024", "messages"),
        ({"max_tokens": 0}, "'max_tokens'", "max_tokens"),
        ({"max_tokens": "many"}, "'max_tokens'", "max_tokens"),
        ({"max_tokens": True}, "'max_tokens'", "max_tokens"),
        ({"temperature": -1}, "'temperature'", "temperature"),
        ({"temperature": 1e-40}, "temperature", None),
        ({"top_p": 0}, "'top_p'", "top_p"),
        ({"n": 10**30}, "'n'", "n"),
        ({"n": 100}, "ask for fewer", "n"),
        ({"seed": 10**40}, "'seed'", "seed"),
        ({"stop": [""]}, "'stop'", "stop"),
        ({"logit_bias": {"5": 100}}, "`logit_bias` is not supported", None),
        ({"frequency_penalty": 1}, "`frequency_penalty` is not supported", None),
        ({"max_tokns": 5}, "did you mean `max_tokens`?", "max_tokns"),
        ({"top_logprobs": 3}, "wants logprobs", None),
        ({"tool_choice": "required"}, "no tools", None),
        ({"tools": [{"type": "function"}]}, "tool 0: 'function': it is missing", "tools"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tool 0: 'function.name'", "tools"),
        ({"tools": TOOLS + TOOLS[:1]}, "same name", None),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "x"}}}, "none of the tools", None),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "exclude each other", None),
        ({"response_format": {"type": "json_schema"}}, "`json_schema` is given", "response_format"),
        ({"max_completion_tokens": 0}, "'max_completion_tokens'", "max_completion_tokens"),
        ({"max_tokens": 9, "max_completion_tokens": 8}, "max_tokens and max_completion_tokens differ", None),
        ({"tool_choice": "f"}, "'tool_choice': give", "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "time"}}, "'tool_choice': give", "tool_choice"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": 5}}},
            "a schema is an object",
            "response_format.json_schema.schema",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tool 0: 'function.parameters': a schema is an object",
            "tools",
        ),
        (
            {
                "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": ["string"]}}}],
                "tool_choice": "required",
            },
            "arguments of `f` are an object",
            "tools",
        ),
    ],
)
def test_a_malformed_request_is_refused_in_a_sentence(client, body, words, param):
    if isinstance(body, dict) and body and "messages" not in body:
        body = {"messages": HELLO, **body}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    refused(client.post(CHAT, content=content), 400, words, param)


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ([], "something in it"),
        ([[]], "something in it"),
        ([1, "a"], "'prompt"),
        (None, "it is missing"),
        ([99_999], "outside 0..272"),
        ([-1], "outside"),
        ("a" * 1100, "the 1024 of the model's window"),
        (["a"] * 40, "ask for fewer"),
        ({}, "'prompt': a prompt is a text"),
    ],
)
def test_a_prompt_that_is_none_is_refused(client, prompt, words):
    refused(client.post(TEXT, json={"prompt": prompt}), 400, words)


@pytest.mark.parametrize("token", [-1, 273])
def test_a_text_cannot_end_with_a_token_that_is_none(client, token):
    refused(client.post(TEXT, json={"prompt": "ab", "stop_token_ids": [token]}), 400, "a stop token is outside 0..272")


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"$ref": "http://127.0.0.1:9/schema.json"},
        {"$ref": "file:///etc/passwd"},
        {"type": "nope"},
        {"properties": 3},
        {"type": "string", "pattern": "^((a{1000}){1000}){1000}$"},
        {"type": "string", "pattern": "(("},
        {"enum": [str(number) for number in range(20_000)]},
        {"allOf": [{"anyOf": [{"required": [f"{i}{j}"]} for j in range(3)]} for i in range(14)]},
        {"type": "array", "items": {"type": "string", "format": "path"}, "uniqueItems": True},
        {"properties": {"x": {"not": {"type": "string"}}}},
        nested(60),
        False,
        {"const": -(2**63)},
        {"const": 2**53 + 1},  # llguidance writes ...992
        {"properties": {"x": {"enum": ["a", {"y": [-(2**63)]}]}}},
        {"type": "integer", "const": -float(2**63)},  # overflows llguidance's stack
        {"type": "integer", "minimum": -1e19, "maximum": -1e19},
        MINUTES,
        {"type": "object", "patternProperties": {"x*" * 20_000: {}}},  # gigabytes
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_a_hostile_schema_is_refused_before_a_row_is_taken(client, schema):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    answer = client.post(CHAT, json={"messages": HELLO, "response_format": form, "max_tokens": 4})
    if schema == nested(60):  # deep and yet a schema
        assert answer.status_code == 200
    else:
        refused(answer, 400, "")
        assert answer.json()["error"]["code"] == "invalid_schema"
        tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
        as_tool = {"messages": HELLO, "tools": [tool], "tool_choice": "required"}
        assert client.post(CHAT, json=as_tool).status_code == 400


def of_schema(grammars: Grammars, schema: Any) -> Matching:
    try:
        return grammars.json(schema, "x")
    except Untried as new:
        grammars.trial.run(new.grammar)
        return grammars.json(schema, "x")


@pytest.fixture
def grammars(running: Running, monkeypatch) -> Iterator[Grammars]:
    monkeypatch.setattr(trial, "SECONDS", 0.3)
    made = Grammars(running.chat, running.model.config.vocab_size, (running.chat.stop,))
    yield made
    made.trial.close()


def test_a_process_of_trials_that_was_ended_is_begun_again(grammars):
    of_schema(grammars, {"const": 1})
    process = grammars.trial._process
    assert process is not None
    process.kill()
    process.wait()
    of_schema(grammars, {"const": 1})  # known: nothing is begun for it
    assert grammars.trial._process is process
    of_schema(grammars, {"const": 2})
    assert grammars.trial._process is not process


def test_a_schema_that_ends_its_trial_ends_a_copy_of_the_process_and_is_tried_again(grammars):
    of_schema(grammars, {"const": 1})
    process = grammars.trial._process
    for _ in range(2):  # it might have been the machine, which was busy
        with pytest.raises(Untried):
            grammars.json(MINUTES, "x")
        with pytest.raises(ApiError, match="takes too long"):
            of_schema(grammars, MINUTES)
    of_schema(grammars, {"const": 2})
    assert grammars.trial._process is process


def test_who_brings_no_new_schema_does_not_wait_for_those_that_take_minutes(running: Running, client, monkeypatch):
    """Eight at once, of which the first holds the trial until others have been served, and then takes all of its time;
    which the rest do not have either."""
    form = {"type": "json_schema", "json_schema": {"schema": PLACE}}
    known = {"messages": HELLO, "response_format": form, "max_tokens": 3}
    client.post(CHAT, json=known)
    hostile = [{"schema": {**MINUTES, "minLength": number}} for number in range(8)]
    bodies = [{"messages": HELLO, "response_format": {"type": "json_schema", "json_schema": one}} for one in hostile]
    monkeypatch.setattr(serving, "TRIAL_SECONDS", 0.5)
    begun, go, run = threading.Event(), threading.Event(), trial.Trial.run

    def held(tried: trial.Trial, grammar: str) -> None:
        begun.set()
        assert go.wait(120)
        run(tried, grammar)

    monkeypatch.setattr(trial.Trial, "run", held)
    with ThreadPoolExecutor() as pool:
        attack = pool.submit(lambda: asyncio.run(together(running, bodies, CHAT)))
        try:
            assert begun.wait(120)
            for _ in range(2):
                assert client.post(CHAT, json=known).status_code == 200
                assert client.post(TEXT, json={"prompt": "a", "max_tokens": 1}).status_code == 200
            assert not attack.done()
        finally:
            go.set()
    statuses = [answer.status_code for answer in attack.result()]
    assert set(statuses) == {400, 429}
    assert client.post(CHAT, json=known).status_code == 200


def test_a_schema_that_nests_too_deep_for_json_is_refused(client):
    schema = '{"a":' * 3000 + "1" + "}" * 3000
    text = json.dumps({"messages": HELLO})[:-1] + (
        ', "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": ' + schema + "}}}"
    )
    refused(client.post(CHAT, content=text), 400, "")


def test_schemas_that_go_on_for_ever_end_with_their_budget(client):
    form = {"type": "json_schema", "json_schema": {"schema": {"type": "array", "minItems": 10**9}}}
    body = {"messages": HELLO, "response_format": form, "max_tokens": 5}
    assert client.post(CHAT, json=body).json()["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("key", ["", "Bearer", "Bearer wrong", f"Basic {KEY}", f"Bearer {KEY}x", "Bearer \xe9"])
def test_without_the_key_nothing_is_told(client, key):
    for path in ("/v1/models", "/metrics", "/nothing"):
        refused(client.get(path, headers={"Authorization": key.encode("latin-1")}), 401, "wrong or missing key")
    refused(client.post(TEXT, json=LONG, headers={"Authorization": key.encode("latin-1")}), 401, "key")


def test_other_hosts_origins_paths_and_methods_are_refused(running, client):
    for host in ("evil.example", "127.0.0.1.evil.example", "", "[::2]"):
        refused(client.get("/", headers={"Host": host}), 400, "--allow-host")
    for host in ("127.0.0.1:9", "[::1]:9", "[::1]"):
        assert client.get("/health", headers={"Host": host}).status_code == 200
    for origin in ("https://evil.example", "null", f"https://127.0.0.1:{running.port}", "http://127.0.0.1:1"):
        refused(client.post(TEXT, json=LONG, headers={"Origin": origin}), 403, "another origin")
        answer = client.get("/v1/models", headers={"Origin": origin})
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert client.get("/v1/models", headers={"Origin": running.url}).status_code == 200
    # behind TLS the page's own origin is https, as the proxy on this machine says; a page elsewhere cannot say so
    behind = {"Host": "127.0.0.1", "X-Forwarded-Proto": "https"}
    for origin, status in (("https://127.0.0.1", 200), ("http://127.0.0.1", 403), ("https://evil.example", 403)):
        assert client.get("/v1/models", headers={**behind, "Origin": origin}).status_code == status
    refused(client.get("/v1/nothing"), 404, "no such path")
    refused(client.get(CHAT), 405, "another method")


def test_a_body_that_is_too_long_or_too_slow_is_not_waited_for(running, client, monkeypatch):
    refused(client.post(CHAT, content=b" " * (2 << 20)), 413, "bytes")
    # of this test alone: a busy machine may let any other body wait as long
    monkeypatch.setattr(serving, "BODY_SECONDS", 0.5)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 99\r\n\r\n{{"
    with socket.create_connection(("127.0.0.1", running.port), timeout=120) as slow:
        slow.sendall(head.encode())
        assert slow.recv(4096).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": ["a", 1] * 170_000},
        {"prompt": [{}] * 340_000},
        {"prompt": [[1]] * 250_000},
        {"prompt": "a", "stop": [1] * 500_000},
        {"prompt": "a", **{f"field{number}": 1 for number in range(60_000)}},
        {"messages": [3] * 500_000},
    ],
    ids=lambda body: ", ".join(list(body)[:2]),
)
def test_a_body_of_nothing_but_faults_is_refused_by_the_first(body):
    """Every fault that is written down costs the event loop, and so everybody, 10 microseconds and 2 KiB."""
    kind = ChatRequest if "messages" in body else CompletionRequest
    content = json.dumps(body, separators=(",", ":")).encode()
    assert len(content) > BODY_BYTES // 2
    with pytest.raises(ApiError) as refusal:
        read(kind, content)
    found = refusal.value.__context__
    assert isinstance(found, ValidationError)
    assert found.error_count() <= 4  # of a prompt's four kinds at most one each


def test_a_body_of_tiny_chunks_is_read_a_little_at_a_time(running, monkeypatch):
    """Each chunk is work for the loop before anybody else has a turn, and before the key is looked at."""
    sizes = []

    class Watched(Impatient):
        def data_received(self, data: bytes) -> None:
            sizes.append(len(data))
            super().data_received(data)

    monkeypatch.setattr(server, "Impatient", Watched)
    app = application(running.model, running.chat, "tiny", KEY, ["127.0.0.1"], rows=4, waiting=9)
    head = f"POST {TEXT} HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    with in_background(app) as url, socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), 30) as keyless:
        with suppress(ConnectionError):  # it is refused while it sends
            keyless.sendall(head.encode() + b"1\r\n \r\n" * 50_000)
            keyless.recv(4096)
    assert max(sizes) <= guard.READ_BYTES


def test_a_model_that_breaks_is_told_to_all_who_wait(running: Running):
    """Its thread ends by a fault of the program; nobody hangs, and /health says so."""
    broken = Transformer(running.model.config, seed=5).eval()
    app = application(broken, running.chat, "tiny", KEY, ["127.0.0.1"], rows=2, waiting=9)
    with in_background(app) as url:
        other = Running(broken, running.chat, url)
        with other.client() as client:
            assert client.post(TEXT, json={"prompt": "a", "max_tokens": 1}).status_code == 200
            del broken.norm
            for answer in asyncio.run(together(other, [LONG] * 5, TEXT)):
                refused(answer, 503, "the model has stopped")
            assert client.get("/health").status_code == 503
            refused(client.post(TEXT, json=LONG), 503, "start the server again")


def test_a_head_that_never_ends_is_cut_off(running, monkeypatch):
    """Slow loris: a byte now and then buys no time."""
    monkeypatch.setattr(guard, "HEAD_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", running.port), timeout=120) as slow:
        slow.sendall(b"GET /health HTTP/1.1\r\n")
        with pytest.raises(ConnectionError):  # noqa: PT012
            while True:
                time.sleep(0.1)
                slow.sendall(b"X: 1\r\n")
                slow.settimeout(0.01)
                try:
                    if not slow.recv(10):
                        raise ConnectionResetError
                except TimeoutError:
                    pass


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_reads_nothing_is_cut_off(running, monkeypatch, stream):
    """Whatever it sends meanwhile, and also where its answer is complete and lies in our memory."""
    paused, lost = threading.Event(), threading.Event()

    class Watched(Impatient):
        def connection_made(self, transport: Any) -> None:
            transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
            super().connection_made(transport)

        def pause_writing(self) -> None:
            super().pause_writing()
            paused.set()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    monkeypatch.setattr(guard, "STALLED_SECONDS", 1)
    monkeypatch.setattr(server, "Impatient", Watched)
    app = application(running.model, running.chat, "tiny", KEY, ["127.0.0.1"], rows=4, waiting=9)
    answers = {"max_tokens": 200, "n": 4, "ignore_eos": True, "logprobs": 20, "stream": stream}
    body = json.dumps({**LONG, **answers}).encode()
    head = (
        f"POST {TEXT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with in_background(app) as url, socket.socket() as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        stalled.sendall(head.encode() + body)
        assert paused.wait(60)
        if stream:
            stalled.sendall(b"G")
        assert lost.wait(120)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_away_frees_its_rows(running, client, stream):
    gone = running.measured("openk2_cancelled_total")
    body = json.dumps({**LONG, "n": ROWS, "stream": stream, "temperature": 2}).encode()
    head = (
        f"POST {TEXT} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", running.port), timeout=120) as leaving:
        leaving.sendall(head.encode() + body)
        while not running.measured("openk2_open"):
            time.sleep(0.005)
    running.until_free()
    assert running.measured("openk2_cancelled_total") == gone + 1
    assert client.post(TEXT, json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_who_comes_when_all_is_taken_is_told_to_come_again(running: Running, client):
    many = [{"prompt": "ab", "seed": seed, "max_tokens": 30, "n": 4} for seed in range(40)]
    answers = asyncio.run(together(running, many, TEXT))
    served = [answer for answer in answers if answer.status_code == 200]
    turned = [answer for answer in answers if answer.status_code == 429]
    assert len(served) + len(turned) == 40
    assert len(served) >= (ROWS + WAITING) // 4
    assert turned
    for answer in turned:
        refused(answer, 429, "busy")
        assert int(answer.headers["retry-after"]) >= 1


def test_a_request_of_everything_costs_no_other_one_anything(client):
    """A bad request among good ones: the good ones are served as before."""
    want = client.post(TEXT, json={"prompt": "ab", "seed": 1, "max_tokens": 20}).json()["choices"]
    form = {"type": "json_schema", "json_schema": {"schema": PLACE}}
    client.post(CHAT, json={"messages": HELLO, "response_format": form, "max_tokens": 7})
    client.post(CHAT, content=b"{")
    assert client.post(TEXT, json={"prompt": "ab", "seed": 1, "max_tokens": 20}).json()["choices"] == want


def test_an_answer_that_takes_too_long_is_ended_and_says_so(running: Running, monkeypatch):
    """Whole it is a status; in a stream, whose status is gone, the last event."""
    monkeypatch.setattr("model.serve.app.ANSWER_SECONDS", 0.02)
    app = application(running.model, running.chat, "tiny", KEY, ["127.0.0.1"], rows=1, waiting=9)
    with in_background(app) as url:
        other = Running(running.model, running.chat, url)
        with other.client() as client:
            body = {**LONG, "n": 4}
            refused(client.post(TEXT, json=body), 504, "within 0.02 s")
            with client.stream("POST", TEXT, json={**body, "stream": True}) as answer:
                events = [line for line in answer.iter_lines() if line]
            assert json.loads(events[-2].removeprefix("data: "))["error"]["code"] == "timeout"
            assert events[-1] == "data: [DONE]"
            other.until_free()


def test_a_request_that_the_model_cannot_take_in_is_told_so(running: Running, client, monkeypatch):
    """Not left to wait until its time is up; and those that come after it are answered."""
    add = Batch.add

    def full(batch, number, request):
        monkeypatch.setattr(Batch, "add", add)
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Batch, "add", full)
    body = {"messages": HELLO, "max_tokens": 2}
    refused(client.post(CHAT, json=body), 500, "the model failed (RuntimeError)")
    assert client.post(CHAT, json=body).status_code == 200
