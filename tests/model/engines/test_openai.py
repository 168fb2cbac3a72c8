"""The endpoint engine against a real HTTP server on loopback that misbehaves in every way a server can."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from benchmarks.endpoint import Behaviour
from benchmarks.endpoint import serving as simulating
from model.dialogue import tool_result
from model.engines.engine import Completion, EngineError, Message, Prompt, PromptRefused, RequestLimits, Sampling
from model.engines.openai import REFUSALS_IN_A_ROW, OpenAI

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
        self.models = b""
        """What `/models` answers."""
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

            def do_GET(self) -> None:
                with suppress(OSError):
                    reply(self, 200, outer.models)

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


def limits(**changes: float) -> RequestLimits:
    """Those of a test that must not give up; one that must says by what."""
    return RequestLimits.model_validate(
        {"backoff_seconds": 0.01, "patience_seconds": 60, "answer_seconds": 60} | changes
    )


def engine(server: Server, slots: int = 64, **changes: float) -> OpenAI:
    return OpenAI(server.url, "tiny", slots=slots, limits=limits(**changes))


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
    second = threading.Event()

    def slow(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        if number:
            second.set()
        assert second.wait(60), "the second request waited for the first one's answer"
        time.sleep(0.02 if number % 2 else 0.05)
        good(handler, request, number)

    with serving(slow) as server, engine(server, slots=4) as some:
        answers = some.complete([prompt(f"n{number}") for number in range(20)])
    assert [answer.text for answer in answers] == [f"N{number}" for number in range(20)]
    assert 2 <= server.most <= 4


@pytest.mark.parametrize("status", [429, 500, 502, 503, 408])
def test_what_may_pass_is_tried_again(status: int) -> None:
    def twice(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        good(handler, request, number) if number == 2 else reply(handler, status, b"later")

    with serving(twice) as server, engine(server) as some:
        assert some.complete([prompt()])[0].text == "HELLO"
    assert len(server.requests) == 3


def test_the_pause_that_the_server_asks_for_is_kept_and_one_of_a_day_ends_the_stage() -> None:
    def busy(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        good(handler, request, number) if number else reply(handler, 429, b"", Retry_After="0.2")

    with serving(busy) as server, engine(server) as some:
        began = time.monotonic()
        some.complete([prompt()])
        assert time.monotonic() - began >= 0.2
    with (
        serving(lambda handler, request, number: reply(handler, 429, b"quota", Retry_After="86400")) as server,
        engine(server) as some,
        pytest.raises(EngineError, match=r"left alone for 86,400 s .*quota.*run the same command again"),
    ):
        some.complete([prompt()])


def test_a_server_that_stays_broken_is_given_up_in_one_sentence() -> None:
    with (
        serving(lambda handler, request, number: reply(handler, 500, b"out of memory")) as server,
        engine(server, attempts=3, patience_seconds=0.3) as some,
        pytest.raises(EngineError, match=rf"{server.url} answered nothing for .*status 500: out of memory.*finished"),
    ):
        some.complete([prompt(str(number)) for number in range(5)])
    with pytest.raises(EngineError, match="not open"):
        some.complete([prompt()])


def test_a_prompt_that_fails_while_others_are_answered_is_given_up_alone() -> None:
    def poisoned(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        bad = request["messages"][-1]["content"] == "poison"
        reply(handler, 500, b"assertion failed") if bad else good(handler, request, number)

    with serving(poisoned) as server, engine(server, attempts=3) as some:
        with pytest.raises(PromptRefused, match=r"failed 4 times.*assertion failed"):
            some.complete([prompt("poison")])
        assert some.complete([prompt()])[0].text == "HELLO"
    assert sum(request["messages"][-1]["content"] == "poison" for request in server.requests) == 4


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
        engine(server, attempts=2, patience_seconds=0.05) as some,
        pytest.raises(EngineError, match=r"no (JSON|object|chat completion)"),
    ):
        some.complete([prompt()])


def test_a_page_instead_of_an_answer_says_what_the_url_should_be() -> None:
    page = lambda handler, request, number: reply(handler, 200, b"<html>hi</html>", Content_Type="text/html")  # noqa: E731
    with (
        serving(page) as server,
        engine(server, patience_seconds=0.05) as some,
        pytest.raises(EngineError, match=r"text/html.*usually ends in /v1"),
    ):
        some.complete([prompt()])


def test_a_server_that_hangs_or_drips_is_left_and_closing_waits_for_nobody() -> None:
    for way in ("hang", "drip", "endless_headers"):
        with (
            simulating(Behaviour(fail={way: 1.0})) as server,
            OpenAI(server.url, "simulated", limits=limits(answer_seconds=0.1, patience_seconds=0.05)) as some,
        ):
            began = time.monotonic()
            with pytest.raises(EngineError, match=r"no whole answer within 0\.1 s"):
                some.complete([prompt()])
            assert time.monotonic() - began < 60  # the server would let it wait for ever
        told: list[BaseException] = []

        def ask(some: OpenAI, told: list[BaseException]) -> None:
            try:
                some.complete([prompt()])
            except EngineError as error:
                told.append(error)

        with simulating(Behaviour(fail={way: 1.0})) as server, OpenAI(server.url, "simulated") as some:
            thread = threading.Thread(target=ask, args=(some, told))
            thread.start()
            while not server.flying:
                time.sleep(0.01)
            began = time.monotonic()
            some.__exit__()
            thread.join()
            assert time.monotonic() - began < 60  # and not the time that an answer may take
        assert "closed" in str(told[0])


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.engines.openai.MOST_BYTES", 1 << 20)
    with (
        simulating(Behaviour(fail={"huge": 1.0})) as server,
        OpenAI(server.url, "simulated", limits=limits(patience_seconds=0.05)) as some,
        pytest.raises(EngineError, match="the answer has over 1,048,576 bytes"),
    ):
        some.complete([prompt()])


@pytest.mark.parametrize("way", ["die", "truncated", "empty", "html", "error_in_200", "no_choices", "wrong_type"])
def test_every_document_is_answered_by_a_server_that_fails_a_third_of_the_time(way: str) -> None:
    with (
        simulating(Behaviour(fail={way: 0.35})) as server,
        OpenAI(server.url, "simulated", slots=8, limits=limits(attempts=50)) as some,
    ):
        answers = some.complete([prompt(f"the text {number}") for number in range(40)])
    assert [answer.text for answer in answers] == [f"that text {number}" for number in range(40)]
    assert server.counts[way] >= 5
    assert server.counts["repeated"] == 0


def test_what_an_answer_lacks_is_said_or_estimated() -> None:
    def answer(way: str):
        with simulating(Behaviour(fail={way: 1.0})) as server, OpenAI(server.url, "simulated", limits=limits()) as some:
            return some.complete([prompt("the old text")])[0]

    assert (answer("null").text, answer("null").finish) == ("", "stop")
    assert (answer("filtered").text, answer("filtered").finish) == ("", "filtered")
    assert answer("cut").finish == "length"
    told, guessed = answer("refusal"), answer("no_usage")
    assert not told.estimated
    assert guessed.estimated
    assert (guessed.prompt_tokens, guessed.generated_tokens) == (2 + 4 + 3 + 4, 4)


def test_candidates_of_the_first_token_are_asked_for_and_told_where_they_can_be_read() -> None:
    told: list[object] = [{"token": "Yes", "logprob": -0.5}, {"token": " no", "logprob": -1}]

    def asked(logprobs: object) -> Completion:
        choice = {"message": {"content": "Yes"}, "finish_reason": "length", "logprobs": logprobs}
        body = json.dumps({"choices": [choice]}).encode()
        with serving(lambda handler, request, number: reply(handler, 200, body)) as server, engine(server) as some:
            answer = some.complete([replace(prompt(), likeliest=4)])[0]
        assert (server.requests[0]["logprobs"], server.requests[0]["top_logprobs"]) == (True, 4)
        return answer

    assert asked({"content": [{"top_logprobs": told}]}).likeliest == {"Yes": -0.5, " no": -1.0}
    for nothing in (None, {}, {"content": []}):
        assert asked(nothing).likeliest == {}
    for chance in ("high", -(10**400)):
        assert asked({"content": [{"top_logprobs": [{"token": "Yes", "logprob": chance}]}]}).likeliest == {}


def test_a_turn_that_ends_with_calls_is_whole() -> None:
    call = {"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    choice = {"message": {"content": None, "tool_calls": [call]}, "finish_reason": "tool_calls"}
    body = json.dumps({"choices": [choice]}).encode()
    with serving(lambda handler, request, number: reply(handler, 200, body)) as server, engine(server) as some:
        answer = some.complete([prompt()])[0]
    assert (answer.finish, json.loads(answer.calls)) == ("stop", [call])


def test_a_result_keeps_the_name_of_its_function() -> None:
    turn = tool_result("weather", "functions.weather:0", "18")
    assert Message.of(turn).wire() == turn
    assert Message.of({"role": "user", "name": "Ann", "content": "hi"}).wire() == {"role": "user", "content": "hi"}


@pytest.mark.parametrize("usage", [{"prompt_tokens": 10**400, "completion_tokens": -1}, [], {"prompt_tokens": "x"}, 5])
def test_usage_that_cannot_be_is_estimated(usage: object) -> None:
    body = {"choices": [{"message": {"content": "a\ud800b"}, "finish_reason": "stop"}], "usage": usage}
    with serving(lambda handler, request, number: reply(handler, 200, json.dumps(body).encode())) as server:
        with engine(server) as some:
            answer = some.complete([prompt()])[0]
    assert answer.estimated
    assert 0 < answer.prompt_tokens < 100
    assert answer.text == "a\ufffdb"


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
    with (
        engine(server, patience_seconds=0.3) as some,
        pytest.raises(EngineError, match=r"answered nothing for .* no connection"),
    ):
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


def test_a_server_that_refuses_every_prompt_from_the_start_is_set_up_wrongly() -> None:
    with (
        serving(lambda handler, request, number: reply(handler, 400, b"unknown parameter")) as server,
        engine(server) as some,
    ):
        for _ in range(REFUSALS_IN_A_ROW - 1):
            with pytest.raises(PromptRefused):
                some.complete([prompt()])
        with pytest.raises(
            EngineError, match=f"answered none of {REFUSALS_IN_A_ROW} prompts in a row.*unknown parameter"
        ) as caught:
            some.complete([prompt()])
        assert not isinstance(caught.value, PromptRefused)


def test_a_server_that_answers_nothing_but_the_plain_prompt_is_set_up_wrongly() -> None:
    def plain(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        alone = len(request["messages"]) == 1
        good(handler, request, number) if alone else reply(handler, 500, b"no grammar backend")

    # One at a time: of many at once each would wait while the server rests, and patience may end before them.
    with serving(plain) as server, engine(server, attempts=2) as some:
        for _ in range(REFUSALS_IN_A_ROW - 1):
            with pytest.raises(PromptRefused, match="a prompt failed 3 times"):
                some.complete([prompt()])
        with pytest.raises(
            EngineError, match=f"answered none of {REFUSALS_IN_A_ROW} prompts in a row.*no grammar backend"
        ) as caught:
            some.complete([prompt()])
    assert not isinstance(caught.value, PromptRefused)


def test_a_crowd_of_bad_prompts_among_good_ones_ends_nothing() -> None:
    def picky(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        bad = request["messages"][-1]["content"].startswith("bad")
        reply(handler, 400, b"filtered") if bad else good(handler, request, number)

    crowd = [prompt(f"bad {number}") for number in range(2 * REFUSALS_IN_A_ROW + 4)]
    with serving(picky) as server, engine(server, slots=1) as some:
        assert some.complete([prompt()])[0].text == "HELLO"
        assert some.answered(crowd) == [None] * len(crowd)
        assert some.complete([prompt()])[0].text == "HELLO"
    asked = [request["messages"][-1]["content"] for request in server.requests]
    assert asked.count("hello") == 4, "once for each row of refusals it is asked whether it is still answered"


def test_a_server_that_refuses_what_it_answered_before_ends_the_stage() -> None:
    def changed(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        reply(handler, 400, b"no such adapter") if number else good(handler, request, number)

    with serving(changed) as server, engine(server, slots=1) as some:
        some.complete([prompt()])
        with pytest.raises(EngineError, match=r"refuses the one that it answered before.*no such adapter") as caught:
            some.answered([prompt(str(number)) for number in range(2 * REFUSALS_IN_A_ROW)])
        assert not isinstance(caught.value, PromptRefused)


@pytest.mark.parametrize(
    ("status", "words"),
    [(401, "OPENK2_ENGINE_KEY"), (403, "OPENK2_ENGINE_KEY"), (404, "ends in /v1"), (307, "redirects")],
)
def test_a_wrong_address_or_key_stops_at_once(status: int, words: str) -> None:
    with (
        serving(lambda handler, request, number: reply(handler, status, b"no", Location="http://x/")) as server,
        engine(server) as some,
        pytest.raises(EngineError, match=words) as caught,
    ):
        some.complete([prompt()])
    assert not isinstance(caught.value, PromptRefused)
    assert len(server.requests) == 1


def test_a_wrong_model_name_is_told_with_those_that_are_served() -> None:
    with (
        simulating(Behaviour(model="other-8b")) as server,
        OpenAI(server.url, "tiny") as some,
        pytest.raises(EngineError, match=r"serves other-8b and no 'tiny'"),
    ):
        some.complete([prompt()])


@pytest.mark.parametrize("models", [b"[" * 200_000, b'{"data": [{"id": "' + b"x" * (9 << 20) + b'"}]}', b"null"])
def test_a_list_of_models_that_is_none_hides_nothing_of_what_went_wrong(models: bytes) -> None:
    with serving(lambda handler, request, number: reply(handler, 404, b"no")) as server, engine(server) as some:
        server.models = models
        with pytest.raises(EngineError, match="answered status 404: no: check the URL"):
            some.complete([prompt()])


def test_a_request_that_had_not_begun_is_told_what_ended_all_of_them() -> None:
    with serving(good) as server, engine(server) as some:
        line = some._line
        assert line is not None
        submit = line.submit

        def late(asked: Prompt, body: bytes, made: bool) -> Future[Completion]:
            futures: list[Future[Completion]] = []
            begun = threading.Event()

            def take() -> None:  # in the loop's thread: what it submits begins after what it calls next
                futures.append(submit(asked, body, made))
                line._loop.call_soon(end)

            def end() -> None:
                with suppress(EngineError):
                    line._stop(EngineError("the key is wrong"))
                begun.set()

            line._loop.call_soon_threadsafe(take)
            begun.wait()
            return futures[0]

        line.submit = late  # type: ignore[method-assign]
        with pytest.raises(EngineError, match="the key is wrong"):
            some.complete([prompt()])


def test_what_ends_all_requests_leaves_their_parts_to_them() -> None:
    """A connection is made in a task of its own: cancelled before its first step, it was never awaited."""
    with warnings.catch_warnings(record=True) as told, serving(good) as server, engine(server) as some:
        warnings.simplefilter("always")
        line = some._line
        assert line is not None

        def born(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(work, loop=loop, **options)
            if asyncio.current_task() is not None:  # a request's
                with suppress(EngineError):
                    line._stop(EngineError("the key is wrong"))
            return task

        line._loop.set_task_factory(born)
        with suppress(EngineError):
            some.complete([prompt()])
        gc.collect()
    assert not [each for each in told if "never awaited" in str(each.message)]


def test_a_request_that_comes_while_the_engine_closes_is_refused_and_waits_for_nobody() -> None:
    with serving(good) as server, ThreadPoolExecutor(1) as pool:
        some = engine(server)
        some.__enter__()
        line = some._line
        assert line is not None
        close, ended, go = line._close, threading.Event(), threading.Event()

        async def slowly() -> None:
            await close()
            ended.set()
            await asyncio.to_thread(go.wait)

        line._close = slowly  # type: ignore[method-assign]
        closing = pool.submit(line.close)
        ended.wait()
        try:
            with pytest.raises(EngineError, match="closed while a request"):
                some.complete([prompt()])
        finally:
            go.set()
        closing.result()


def test_a_replica_that_dies_is_left_and_taken_again_when_it_is_back() -> None:
    down = threading.Event()
    down.set()

    def moody(handler: BaseHTTPRequestHandler, request: dict, number: int) -> None:
        reply(handler, 500, b"") if down.is_set() else good(handler, request, number)

    with serving(moody) as one, serving(good) as other:
        with OpenAI([one.url, other.url], "tiny", limits=limits()) as some:
            for number in range(12):
                assert some.complete([prompt(session=f"s{number}")])[0].text == "HELLO"
            failed = len(one.requests)
            assert 1 <= failed < 12
            down.clear()
            deadline = time.monotonic() + 120
            while len(one.requests) < failed + 3 and time.monotonic() < deadline:
                some.complete([prompt(session=f"t{time.monotonic()}")])
            assert len(one.requests) >= failed + 3


def test_a_busy_server_is_asked_less_until_it_answers() -> None:
    with (
        simulating(Behaviour(first=0.005, most=4)) as server,
        OpenAI(server.url, "simulated", slots=32, limits=limits()) as some,
    ):
        answers = some.complete([prompt(f"n{number}") for number in range(200)])
    assert len(answers) == server.counts["answered"] == 200
    assert server.counts["repeated"] == 0
    assert server.counts["error_429"] < 150


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


def test_the_line_break_that_a_key_file_ends_in_is_no_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENK2_ENGINE_KEY", " secret\r\n")
    with serving(good) as server, engine(server) as some:
        some.complete([prompt()])
    assert server.headers[0]["Authorization"] == "Bearer secret"


@pytest.mark.parametrize("key", ["schl\u00fcssel", "first\nsecond", "nul\x01"])
def test_a_key_that_no_header_holds_is_refused_before_any_request_and_not_repeated(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENK2_ENGINE_KEY", key)
    with pytest.raises(EngineError, match="OPENK2_ENGINE_KEY") as told:
        OpenAI("http://127.0.0.1:1/v1", "tiny")
    assert key[:3] not in str(told.value)


@pytest.mark.parametrize("url", ["http://localhost:80a/v1", "http://[::1/v1"])
def test_what_is_no_url_is_refused_before_any_request(url: str) -> None:
    with pytest.raises(EngineError, match="is no URL"):
        OpenAI(f"http://good:80/v1, {url}", "tiny")


def test_a_request_that_cannot_be_made_stops_at_once_and_its_error_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(good) as server, engine(server) as some:
        monkeypatch.setattr(some, "key", "abc\n")  # as of a header that nobody checked
        with pytest.raises(EngineError, match="LocalProtocolError") as told:
            some.complete([prompt()])
    assert "abc" not in str(told.value) + caplog.text
    assert not server.requests


def test_an_address_without_a_scheme_is_refused() -> None:
    with pytest.raises(EngineError, match="http://host:8000/v1"):
        OpenAI("localhost:8000", "tiny")
    with pytest.raises(EngineError, match="http://host:8000/v1"):
        OpenAI(" , ", "tiny")


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
        Prompt(base.messages, base.sampling, 16, 5, likeliest=4).key("e", "m"),
    ]
    assert len({base.key("e", "m"), *others}) == 10
