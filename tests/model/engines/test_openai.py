"""The endpoint engine against a real HTTP server on loopback that misbehaves in every way a server can."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from model.engines.engine import EngineError, Message, Prompt, PromptRefused, Sampling
from model.engines.openai import OpenAI

Answer = Callable[[BaseHTTPRequestHandler, dict, int], None]


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes, **headers: str) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def good(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
    text = request["messages"][-1]["content"].upper()
    answer = {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    }
    reply(handler, 200, json.dumps(answer).encode(), Content_Type="application/json")


class Server:
    """Counts requests and the most that were in flight; `answer` decides what each gets."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[dict] = []
        self.headers: list[dict] = []
        self.flying = self.most = 0
        lock, outer = threading.Lock(), self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    number = len(outer.requests)
                    outer.requests.append(body | {"path": self.path})
                    outer.headers.append(dict(self.headers))
                    outer.flying += 1
                    outer.most = max(outer.most, outer.flying)
                try:
                    answer(self, body, number)
                except OSError:
                    self.close_connection = True  # the client gave up, as it should
                finally:
                    with lock:
                        outer.flying -= 1

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"


@contextmanager
def serving(answer: Answer) -> Iterator[Server]:
    server = Server(answer)
    thread = threading.Thread(target=server.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.http.shutdown()
        server.http.server_close()
        thread.join()


def prompt(text: str = "hello", session: str = "") -> Prompt:
    return Prompt((Message("system", "Be kind."), Message("user", text)), Sampling(), 16, seed=5, session=session)


def engine(server: Server, pauses: list[float] | None = None, **options) -> OpenAI:
    return OpenAI(server.url, "tiny", sleep=(pauses if pauses is not None else []).append, **options)


def test_a_request_carries_what_decides_its_answer() -> None:
    with serving(good) as server, engine(server) as some:
        answer = some.complete([prompt()])[0]
    assert (answer.text, answer.finish) == ("HELLO", "stop")
    assert (answer.prompt_tokens, answer.generated_tokens, answer.cached_tokens) == (7, 3, 2)
    assert answer.seconds > 0
    sent = server.requests[0]
    assert sent["path"] == "/v1/chat/completions"
    assert sent["messages"] == [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello"}]
    assert (sent["model"], sent["seed"], sent["max_tokens"]) == ("tiny", 5, 16)
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.7, 0.95, 40)


def test_a_schema_goes_with_the_request_that_has_one_and_with_no_other() -> None:
    schema = {"type": "object", "properties": {"coherence": {"enum": [0, 1]}}}
    with serving(good) as server, engine(server) as some:
        some.complete([replace(prompt(), schema=json.dumps(schema))])
        some.complete([prompt()])
    held, free = server.requests
    assert held["response_format"]["type"] == "json_schema"
    assert held["response_format"]["json_schema"]["schema"] == schema
    assert "response_format" not in free


def test_answers_come_in_order_and_no_more_requests_fly_than_allowed() -> None:
    def slow(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        time.sleep(0.02 if number % 2 else 0.05)
        good(handler, request, number)

    with serving(slow) as server, engine(server, slots=4) as some:
        answers = some.complete([prompt(f"n{number}") for number in range(20)])
    assert [answer.text for answer in answers] == [f"N{number}" for number in range(20)]
    assert 2 <= server.most <= 4


@pytest.mark.parametrize("status", [429, 500, 502, 503, 408])
def test_what_may_pass_is_tried_again_with_growing_pauses(status: int) -> None:
    def twice(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        good(handler, request, number) if number == 2 else reply(handler, status, b"later")

    pauses: list[float] = []
    with serving(twice) as server, engine(server, pauses, backoff=1.0) as some:
        assert some.complete([prompt()])[0].text == "HELLO"
    assert len(pauses) == 2
    assert 0.5 <= pauses[0] <= 1.0
    assert 1.0 <= pauses[1] <= 2.0


def test_the_pause_that_the_server_asks_for_is_kept() -> None:
    def busy(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        good(handler, request, number) if number else reply(handler, 429, b"", Retry_After="7")

    pauses: list[float] = []
    with serving(busy) as server, engine(server, pauses) as some:
        some.complete([prompt()])
    assert pauses == [7.0]


def test_a_server_that_stays_broken_is_given_up_in_one_sentence() -> None:
    with (
        serving(lambda handler, request, number: reply(handler, 500, b"out of memory")) as server,
        engine(server, attempts=3) as some,
        pytest.raises(EngineError, match=r"failed 3 times.*status 500.*out of memory.*run the same command again"),
    ):
        some.complete([prompt()])
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "body",
    [
        b"<html>proxy error</html>",
        b"",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b'{"choices": [{"message": ',
        b"\xff\xfe\x00",
    ],
)
def test_garbage_is_tried_again_and_then_an_error(body: bytes) -> None:
    def garbage(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        good(handler, request, number) if number == 1 else reply(handler, 200, body)

    with serving(garbage) as server, engine(server) as some:
        assert some.complete([prompt()])[0].text == "HELLO"
    with (
        serving(lambda handler, request, number: reply(handler, 200, body)) as server,
        engine(server, attempts=2) as some,
        pytest.raises(EngineError, match=r"no (JSON|object|chat completion)"),
    ):
        some.complete([prompt()])


def test_a_server_that_hangs_is_left() -> None:
    release = threading.Event()
    try:
        with (
            serving(lambda handler, request, number: (release.wait(20), None)[1]) as server,
            engine(server, timeout=0.2, attempts=2) as some,
        ):
            began = time.monotonic()
            with pytest.raises(EngineError, match="Timeout"):
                some.complete([prompt()])
            assert time.monotonic() - began < 5
            assert len(server.requests) == 2
            release.set()
    finally:
        release.set()


def test_a_server_that_drips_is_left_too() -> None:
    def drip(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", "1000")
        handler.end_headers()
        for _ in range(60):
            handler.wfile.write(b" ")
            handler.wfile.flush()
            time.sleep(0.05)

    with serving(drip) as server, engine(server, timeout=0.3, attempts=1) as some:
        began = time.monotonic()
        with pytest.raises(EngineError, match="no whole answer within"):
            some.complete([prompt()])
        assert time.monotonic() - began < 2


def test_a_lost_connection_is_tried_again() -> None:
    def drop(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        if number:
            good(handler, request, number)
        else:
            handler.connection.shutdown(socket.SHUT_RDWR)
            handler.close_connection = True

    with serving(drop) as server, engine(server) as some:
        assert some.complete([prompt()])[0].text == "HELLO"
    assert len(server.requests) == 2


def test_nobody_listens() -> None:
    with serving(good) as server:
        pass
    with engine(server, attempts=2) as some, pytest.raises(EngineError, match=r"failed 2 times.*Connect"):
        some.complete([prompt()])


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_prompt_that_is_refused_is_not_asked_again(status: int) -> None:
    with (
        serving(lambda handler, request, number: reply(handler, status, b"context too long")) as server,
        engine(server) as some,
        pytest.raises(PromptRefused, match="context too long"),
    ):
        some.complete([prompt()])
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_wrong_address_or_key_stops_at_once(status: int) -> None:
    with (
        serving(lambda handler, request, number: reply(handler, status, b"no")) as server,
        engine(server) as some,
        pytest.raises(EngineError, match="check the URL") as caught,
    ):
        some.complete([prompt()])
    assert not isinstance(caught.value, PromptRefused)
    assert len(server.requests) == 1


def test_a_session_keeps_to_its_replica_and_sessions_are_spread() -> None:
    with serving(good) as one, serving(good) as other, OpenAI(f"{one.url}, {other.url}/", "tiny") as some:
        for session in range(16):
            some.complete([prompt(session=f"s{session}")])
            before = len(one.requests), len(other.requests)
            some.complete([prompt(session=f"s{session}")])
            after = len(one.requests), len(other.requests)
            assert sorted((after[0] - before[0], after[1] - before[1])) == [0, 1]
    assert len(one.requests) % 2 == 0
    assert min(len(one.requests), len(other.requests)) >= 4


def test_the_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENK2_ENGINE_KEY", "secret")
    with serving(good) as server, engine(server) as some:
        some.complete([prompt()])
        assert "secret" not in repr(vars(some).get("urls"))
    assert server.headers[0]["Authorization"] == "Bearer secret"


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(EngineError, match="http://host:8000/v1"):
        OpenAI("localhost:8000", "tiny")


def test_the_key_of_a_request_is_all_that_decides_it_and_no_more() -> None:
    base = prompt()
    assert base.key("e", "m") == prompt(session="elsewhere").key("e", "m")
    others = [
        prompt("other").key("e", "m"),
        base.key("f", "m"),
        base.key("e", "n"),
        Prompt(base.messages, Sampling(temperature=0), 16, 5).key("e", "m"),
        Prompt(base.messages, base.sampling, 17, 5).key("e", "m"),
        Prompt(base.messages, base.sampling, 16, 6).key("e", "m"),
        Prompt(base.messages[::-1], base.sampling, 16, 5).key("e", "m"),
        Prompt(base.messages, base.sampling, 16, 5, schema="{}").key("e", "m"),
    ]
    assert len({base.key("e", "m"), *others}) == 9
