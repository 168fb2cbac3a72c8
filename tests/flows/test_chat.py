"""`openk2 chat`: a dialogue, its tools, and what a terminal gets to see of a stranger's text."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from flows.chat import MOST_ROUNDS, ChatEnded, Dialogue, Endpoint, converse, in_process
from flows.options import RequestError
from flows.serve_commands import chat
from model.chat import Chat, tool_result
from model.transformer import Transformer
from tasks.evaluate.generation import Released
from tests.model.serve.test_api import TOOLS
from tests.posttraining import byte_tokenizer, tiny_config


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    model = Transformer(tiny_config(initializer_range=0.15, max_position_embeddings=8192), seed=5).eval()
    with in_process(Released(model, Chat(byte_tokenizer()))) as endpoint:
        yield endpoint


@dataclass(frozen=True)
class Answer:
    text: str


class Clock:
    """Tools that note what they are asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any]] = []

    def tools(self) -> list[dict[str, Any]]:
        return TOOLS

    def call(self, name: str, arguments: Any) -> Answer:
        self.asked.append((name, arguments))
        return Answer("noon \x1b[31m")


def plain(text: str) -> bool:
    return text.replace("\n", "").isprintable()


def test_a_dialogue_goes_on_until_it_is_ended(endpoint, capsys, monkeypatch):
    lines = iter(["/help", "", "Hello", "again", "/nothing", "/reset", "Hello", "/quit"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(lines))
    dialogue = Dialogue(endpoint, {"max_tokens": 60, "seed": 1}, [{"role": "system", "content": "Be brief."}])
    converse(dialogue)
    assert [message["role"] for message in dialogue.messages] == ["system", "user", "assistant"]
    said = capsys.readouterr().out
    assert "/reset" in said
    assert "There is no /nothing" in said
    assert plain(said)  # a model of random weights writes every control character there is
    assert not plain(dialogue.messages[-1]["content"])


def test_calls_are_answered_by_the_tools_and_no_model_calls_for_ever(endpoint, capsys):
    clock = Clock()
    sampling = {"max_tokens": 600, "seed": 2, "tool_choice": "required", "parallel_tool_calls": False}
    dialogue = Dialogue(endpoint, sampling, [], clock)
    dialogue.say("What time is it?")
    assert len(clock.asked) == MOST_ROUNDS
    assert {name for name, _ in clock.asked} <= {"weather.now", "time"}
    assert [one["role"] for one in dialogue.messages] == ["user", *["assistant", "tool"] * MOST_ROUNDS]
    call = dialogue.messages[1]["tool_calls"][0]
    # as training has it, and in the tool's own words
    assert dialogue.messages[2] == tool_result(call["function"]["name"], call["id"], "noon \x1b[31m")
    shown = capsys.readouterr().out
    assert "gives noon ␛[31m" in shown
    assert f"called tools {MOST_ROUNDS} times" in shown
    assert plain(shown)


def test_a_turn_that_fails_leaves_the_dialogue_as_it_was(endpoint, capsys):
    dialogue = Dialogue(endpoint, {"max_tokens": 9000}, [])
    dialogue.say("Hello")
    assert dialogue.messages == []
    assert "over the 8192 of the model's window" in " ".join(capsys.readouterr().out.split())


def test_what_is_no_endpoint_is_told_in_a_sentence(endpoint, capsys):
    with pytest.raises(ChatEnded, match="nothing answers"), Endpoint.at("http://127.0.0.1:9/v1", ""):
        pass
    with (
        pytest.raises(ChatEnded, match="answered 401: its key goes into"),
        Endpoint.at(str(endpoint.client.base_url), "wrong"),
    ):
        pass


def test_a_proxy_of_the_environment_sees_nothing_of_a_chat_in_this_process(endpoint, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    model = Transformer(tiny_config(), seed=5).eval()
    with in_process(Released(model, Chat(byte_tokenizer()))) as endpoint:
        assert endpoint.model == "openk2"


@contextmanager
def streaming(body: bytes) -> Iterator[Endpoint]:
    """An endpoint whose every answer is `body`."""

    class Streaming(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Streaming)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with Endpoint.at(f"http://127.0.0.1:{server.server_port}/v1", "", "x") as there:
            yield there
    finally:
        server.shutdown()
        server.server_close()


def delta(**fields: Any) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": fields}]}
    return f"data:{json.dumps(chunk, ensure_ascii=False)}\r\n\r\n".encode()


def test_a_stream_is_read_as_events_are_written(capsys):
    """Lines end at a line feed and at nothing else that Python takes for one; the space behind `data:` may be left."""
    said = "one\u2028two\x85three\x0b"
    with streaming(b": warm\n" + delta(content=said) + delta(content="!") + b"data: [DONE]") as there:
        dialogue = Dialogue(there, {}, [])
        dialogue.say("Hello \udcff")
    assert dialogue.messages[0]["content"] == "Hello \ufffd"  # of a terminal that sent bytes
    assert dialogue.messages[-1]["content"] == said + "!"


def test_a_character_that_two_chunks_share_is_one(capsys):
    halves = b"".join(delta(content="PLACE").replace(b"PLACE", half) for half in (b"\\ud83d", b"\\ude00"))
    with streaming(halves) as there:
        dialogue = Dialogue(there, {}, [])
        dialogue.say("Hello")
        dialogue.say("Again")
    assert [message["content"] for message in dialogue.messages] == ["Hello", "\U0001f600", "Again", "\U0001f600"]


@pytest.mark.parametrize(("places", "ids"), [((0, 1), ("a", None)), ((0, 1), ("a", "a")), ((0, 0), ("a", "a"))])
def test_the_parts_of_calls_are_put_together_by_their_index(places, ids, capsys):
    """Servers send parts of calls in any order, repeat the id in each part, or give every call the index 0."""
    clock = Clock()
    first, second = places
    parts = [
        {"index": first, "id": ids[0], "function": {"name": "time", "arguments": ""}},
        {"index": first, "id": ids[1], "function": {"arguments": '{"x": 1}'}},
        {"index": second, "id": "b", "function": {"name": "date", "arguments": ""}},
        {"index": second, "function": {"arguments": "{}"}},
    ]
    if first != second:
        parts[1], parts[2] = parts[2], parts[1]
    with streaming(b"".join(delta(tool_calls=[part]) for part in parts)) as there:
        dialogue = Dialogue(there, {}, [], clock)
        dialogue.say("Hello")
    assert clock.asked[:2] == [("time", {"x": 1}), ("date", {})]


@pytest.mark.parametrize(
    "chunk",
    [
        "[1]",
        "{",
        "[" * 100_000,
        '{"choices": [{"delta": {"tool_calls": [{}]}}]}',
        '{"choices": 3}',
        '{"error": {"message": "no"}}',
    ],
)
def test_an_endpoint_that_streams_nonsense_ends_the_turn_alone(chunk, capsys):
    with streaming(f"data: {json.dumps({'choices': []})}\n\ndata: {chunk}\n\n".encode()) as there:
        dialogue = Dialogue(there, {}, [])
        dialogue.say("Hello")
    assert dialogue.messages == []
    assert "No answer: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"model": "kimi-k2"}, "say --url too"),
        ({"url": "http://127.0.0.1:1/v1", "int4": True}, "--int4 is for a model in this process"),
        ({"url": "http://127.0.0.1:1/v1", "device": "cuda"}, "--device is for a model in this process"),
    ],
)
def test_a_chat_with_another_model_than_was_meant_is_refused(asked, told):
    with pytest.raises(RequestError, match=told):
        chat(**asked)
