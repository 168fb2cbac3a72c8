"""Servers behind an address: honest ones answer as JSON and as a stream, the others end in one clear error."""

from __future__ import annotations

import gzip
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tasks.agentic.mcp.client import toolbox
from tasks.agentic.mcp.config import ServerConfig, ServerError

TOOL = {"name": "echo", "description": "Says it again", "inputSchema": {"type": "object"}}
SSE = "text/event-stream"
STREAMS = {
    "drips": (SSE, b": still here\n\n", 0.05),
    "tells": (SSE, b'data: {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}\n\n', 0.0),
    "asks": (SSE, b'data: {"jsonrpc": "2.0", "id": "q", "method": "ping"}\n\n', 0.0),
}
"""Answers of 5,000 pieces: content type, what is written again and again, seconds between."""


class Handler(BaseHTTPRequestHandler):
    kind = "json"
    seen: list[tuple[str, str, str | None]] = []

    def log_message(self, *_: Any) -> None:
        return

    def do_GET(self) -> None:
        self.seen.append((self.command, self.path, None))
        self.reply(405, "text/plain", b"")

    do_DELETE = do_GET

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, params = message.get("method"), message.get("params", {})
        self.seen.append(("POST", method, self.headers.get("authorization")))
        if "id" not in message or "method" not in message:
            return self.reply(202, "text/plain", b"")
        calls = method == "tools/call"
        if self.kind == "html" or (self.kind == "html_later" and calls):
            return self.reply(200, "text/html", b"<h1>Log in</h1>")
        if self.kind.startswith("http://"):
            return self.reply(307, "text/plain", b"", location=self.kind)
        if self.kind == "round":
            return self.reply(307, "text/plain", b"", location=f"{self.path}x")
        if self.kind == "headers":
            return self.reply(200, "application/json", b"{}", **{f"x-{number}": "y" * 1000 for number in range(1000)})
        if self.kind == "pages" and method == "tools/list":
            following = str(int(params.get("cursor") or 0) + 1)
            found = {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": [TOOL], "nextCursor": following}}
            return self.reply(200, "application/json", json.dumps(found).encode())
        if self.kind in STREAMS and calls:
            return self.stream(*STREAMS[self.kind])
        if self.kind == "broken":
            return self.reply(500, "text/plain", b"no")
        if self.kind == "drops" and calls:
            return self.connection.close()
        says = params.get("arguments", {}).get("text", "")
        if says == "slow":
            time.sleep(600)
        if says == "drops":
            return self.connection.close()
        if says == "cut":
            self.reply(200, "application/json", b"{}", **{"content-length": "99"})
            return self.connection.close()
        if self.kind == "no_json":
            return self.reply(200, "application/json", b"{{{")
        results = {
            "initialize": {
                "protocolVersion": params.get("protocolVersion"),
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "web", "version": "2"},
            },
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": params.get("arguments", {}).get("text", "")}]},
        }
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        answer |= {"result": results[method]} if method in results else {"error": {"code": -32601, "message": "no"}}
        if says == "refuses":
            answer = {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": "bad argument"}}
        data = json.dumps(answer).encode()
        if "endless" in (self.kind, says) and calls:
            return self.endless()
        if "packed" in (self.kind, says) and calls:
            bomb = gzip.compress(b" " * 50_000_000)
            return self.reply(200, "application/json", bomb, **{"content-encoding": "gzip"})
        if self.kind == "stream":
            return self.reply(200, "text/event-stream", b"event: message\ndata: " + data + b"\n\n")
        return self.reply(200, "application/json", data, **{"mcp-session-id": "one", "content-encoding": "identity"})

    def reply(self, code: int, kind: str, body: bytes, **headers: str) -> None:
        self.send_response(code)
        for name, value in {"content-type": kind, "content-length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def endless(self) -> None:
        self.stream("application/json", b" " * 65536, 0.0)

    def stream(self, kind: str, piece: bytes, pause: float) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.end_headers()
        try:
            for _ in range(5000):
                self.wfile.write(piece)
                time.sleep(pause)
        except OSError:
            return


@contextmanager
def web(kind: str) -> Iterator[tuple[ServerConfig, list[tuple[str, str, str | None]]]]:
    """A server of a kind, as the file would name it, and what it was asked."""
    handler = type("OneHandler", (Handler,), {"kind": kind, "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/mcp"
        limits = {"answer_bytes": 1 << 20, "call_seconds": 300, "start_seconds": 300}
        given = {"name": "web", "url": url, "headers": {"Authorization": "WEB_TOKEN"}, "licence": "MIT"}
        yield ServerConfig.model_validate({**given, "limits": limits}), handler.seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def token(monkeypatch):
    monkeypatch.setenv("WEB_TOKEN", "Bearer t0ken")


@pytest.mark.parametrize("kind", ["json", "stream"])
def test_an_honest_server_answers(kind):
    with web(kind) as (server, seen):
        with toolbox([server]) as tools:
            assert tools.rows[0].announced == "web 2"
            assert tools.call("web_echo", {"text": "hello"}).text == "hello"
        assert {authorization for method, _, authorization in seen if method == "POST"} == {"Bearer t0ken"}
        assert "GET" not in {method for method, _, _ in seen}  # nobody may speak to us unasked


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("html", "Unexpected content type: text/html"),
        ("broken", "error response"),
        ("no_json", "Failed to parse JSON response"),
        ("round", "Redirect to http://127.0.0.1:.* not followed"),
        ("headers", "no answer from its address: RemoteProtocolError"),
        ("pages", r"more than limits.pages \(100\) pages"),
    ],
)
def test_what_is_no_server_of_tools(kind, says):
    with web(kind) as (server, _):
        with pytest.raises(ServerError, match=says) as error, toolbox([server]):
            pass
        assert "t0ken" not in str(error.value)


def test_redirects_to_another_origin_are_not_followed():
    with web("json") as (other, seen):
        with web(other.url) as (server, _):
            with pytest.raises(ServerError, match=r"Redirect to http://127.0.0.1:\d+/mcp not followed"):
                with toolbox([server]):
                    pass
        assert seen == []


@pytest.mark.parametrize(
    ("kind", "says"),
    [("endless", r"more than limits.answer_bytes"), ("packed", "is packed"), ("drops", "no answer from its address")],
)
def test_a_call_that_goes_wrong_takes_nothing_with_it(kind, says):
    with web(kind) as (server, _), web("json") as (honest, _):
        other = honest.model_copy(update={"name": "other"})
        with toolbox([server, other]) as tools:
            result = tools.call("web_echo", {"text": "hello"})
            assert result.error == "unavailable"
            assert re.search(says, result.text)
            assert tools.call("other_echo", {"text": "hello"}).text == "hello"


@pytest.mark.parametrize(
    ("kind", "error", "says"),
    [
        ("drips", "timeout", "no answer within 3 s"),
        ("tells", "unavailable", "more than limits.answer_bytes"),
        ("asks", "unavailable", "more than limits.answer_bytes"),
    ],
)
def test_an_answer_of_many_pieces_ends_early(kind, error, says):
    with web(kind) as (server, _):
        seconds = 3.0 if kind == "drips" else 300.0
        brief = server.model_copy(update={"limits": server.limits.model_copy(update={"call_seconds": seconds})})
        with toolbox([brief]) as tools:
            result = tools.call("web_echo", {"text": "hello"})
            assert result.error == error
            assert says in result.text


def test_a_call_that_goes_wrong_is_forgotten_by_the_next_one():
    """A slow answer, a lost connection or a packed one is the fault of one call, not the end of the server."""
    with web("json") as (server, _):
        brief = server.model_copy(update={"limits": server.limits.model_copy(update={"call_seconds": 6.0})})
        with toolbox([brief]) as tools:
            for text, error in {
                "slow": "timeout",
                "drops": "unavailable",
                "cut": "unavailable",
                "packed": "unavailable",
                "endless": "unavailable",
            }.items():
                assert tools.call("web_echo", {"text": text}).error == error
                assert tools.call("web_echo", {"text": "refuses"}).error == "invalid_arguments"
                assert tools.call("web_echo", {"text": "hello"}).text == "hello"


def test_a_page_instead_of_a_result_is_the_call_s_error():
    with web("html_later") as (server, _), toolbox([server]) as tools:
        result = tools.call("web_echo", {})
        assert result.error == "refused"
        assert "Unexpected content type: text/html" in result.text


def test_nobody_at_the_address():
    with web("json") as (server, _):
        pass
    with pytest.raises(ServerError, match="no answer from its address"), toolbox([server]):
        pass
