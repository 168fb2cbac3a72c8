"""A simulated OpenAI-compatible endpoint: realistic latency, every way to fail, the same rewrite for the same request.

    python -m benchmarks.endpoint --port 8000 --first 0.3 --token 0.01 --fail hang=0.01,error_429=0.05 --log asked.jsonl

A request takes `first` seconds and `token` seconds for each generated token, times a log-normal factor drawn from its
content, and longer the more requests are in flight. Its answer is the last user message's part in other function words
(or the rewrite that `--pairs` holds of it); where there are tools, what the user says is answered by a call of the
first of them, without arguments. `GET /stats` tells what was asked: a request that comes again after it was
answered is `repeated`. One process and one thread; some thousands of requests a second.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import math
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

WORDS = dict(
    pair.split(":")
    for pair in (
        "the:that a:one an:one is:remains are:remain was:became were:became and:plus of:from to:towards in:within "
        "on:upon for:regarding with:alongside by:through as:like it:this which:that that:which or:alternatively "
        "from:since at:near has:holds have:hold be:become this:the these:such can:may may:can also:too but:yet "
        "into:inside than:over its:their their:its they:those such:these one:a when:once where:wherever "
        "if:provided then:afterwards so:thus"
    ).split()
)
PART = re.compile(r"<part>\n(.*)\n</part>", re.S)
FAILURES = (
    *("hang", "die", "drip", "garbage", "html", "truncated", "empty", "error_in_200", "huge", "endless_headers"),
    *("null", "filtered", "no_usage", "no_choices", "wrong_type", "refusal", "loop", "cut"),
    *("error_400", "error_401", "error_403", "error_404", "error_429", "error_500", "error_503"),
)


@dataclass
class Behaviour:
    """How the endpoint answers. Shares in `fail` are drawn from content and repetition, so that a retry may succeed."""

    first: float = 0.0
    """Median seconds to the first token."""
    token: float = 0.0
    """Median seconds for each generated token."""
    spread: float = 0.3
    """Standard deviation of the logarithm of the latency."""
    batch: int = 64
    """Requests in flight from which on each is slowed in proportion."""
    most: int = 0
    """Requests in flight above which 429 is answered; 0: never."""
    retry_after: float = 0.0
    """Seconds of the Retry-After header that goes with 429 and 503; 0: none."""
    model: str = "simulated"
    """The one model it knows; another name gets 404."""
    fail: dict[str, float] = field(default_factory=dict)
    """Share of the requests that fail, by way (`FAILURES`)."""
    dies_after: int = 0
    """Answers after which every request dies; 0: it lives."""
    pairs: dict[str, str] = field(default_factory=dict)
    """Rewrites by source (blanks squeezed)."""
    log: Path | None = None
    """File with one JSON line for each answered request: its content's hash."""

    def __post_init__(self) -> None:
        if unknown := sorted(set(self.fail) - set(FAILURES)):
            raise ValueError(f"no way to fail is called {', '.join(unknown)}: there are {', '.join(FAILURES)}")


class Endpoint:
    """The server; `counts` is what `/stats` shows."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.counts: Counter[str] = Counter()
        self.asked: Counter[bytes] = Counter()
        """How often each content was asked for."""
        self.answered: set[bytes] = set()
        self.flying = 0
        self.url = ""
        self._log = behaviour.log.open("a") if behaviour.log else None

    async def serve(self, port: int = 0) -> asyncio.Server:
        server = await asyncio.start_server(self._connection, "127.0.0.1", port, backlog=4096)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return server

    def stats(self) -> dict[str, int]:
        known = {"requests": 0, "answered": 0, "repeated": 0, "most": 0, **self.counts}
        return known | {"distinct": len(self.asked), "flying": self.flying}

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)
        with suppress(*left):  # the client went, or the server is closed
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?im)^content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                method, path, _ = head.split(b"\r\n")[0].decode("latin-1").split(" ", 2)
                if method == "GET":
                    self._get(writer, path)
                elif not await self._post(writer, body):
                    break
                await writer.drain()
                if re.search(rb"(?im)^connection: *close\r?$", head):
                    break
        writer.close()

    def _get(self, writer: asyncio.StreamWriter, path: str) -> None:
        if path.endswith("/models"):
            _send(writer, 200, {"object": "list", "data": [{"id": self.behaviour.model, "object": "model"}]})
        elif path.endswith("/stats"):
            _send(writer, 200, self.stats())
        else:
            _send(writer, 404, {"error": {"message": "no such path"}})

    async def _post(self, writer: asyncio.StreamWriter, body: bytes) -> bool:
        """Answer one request; False where the connection must be closed."""
        behaviour, counts = self.behaviour, self.counts
        request = json.loads(body)
        content = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()[:16]
        counts["requests"] += 1
        self.asked[content] += 1
        counts["repeated"] += content in self.answered
        if request["model"] != behaviour.model:
            return _send(writer, 404, {"error": {"message": f"The model `{request['model']}` does not exist."}})
        self.flying += 1
        counts["most"] = max(counts["most"], self.flying)
        try:
            if behaviour.most and self.flying > behaviour.most:
                counts["error_429"] += 1
                return self._refuse(writer, 429)
            way = self._way(content)
            if way:
                counts[way] += 1
            answer = self._answer(request, way)
            await asyncio.sleep(self._seconds(content, answer["usage"]["completion_tokens"]))
            if way:
                return await self._fail(writer, way, answer)
            self._done(content)
            return _send(writer, 200, answer)
        finally:
            self.flying -= 1

    def _done(self, content: bytes) -> None:
        self.counts["answered"] += 1
        self.answered.add(content)
        if self._log:
            self._log.write(json.dumps({"content": content.hex(), "at": round(time.time(), 3)}) + "\n")
            self._log.flush()

    def _way(self, content: bytes) -> str:
        """How this request fails, "" where it does not."""
        if 0 < self.behaviour.dies_after <= self.counts["answered"]:
            return "die"
        place = _uniform(content + self.asked[content].to_bytes(4, "big"))
        for way, share in self.behaviour.fail.items():
            if place < share:
                return way
            place -= share
        return ""

    def _seconds(self, content: bytes, tokens: int) -> float:
        behaviour = self.behaviour
        median = behaviour.first + behaviour.token * tokens
        crowd = max(1.0, self.flying / behaviour.batch)
        return median * crowd * math.exp(behaviour.spread * NormalDist().inv_cdf(_uniform(content)))

    def _answer(self, request: dict[str, Any], way: str) -> dict[str, Any]:
        said = request["messages"][-1]["content"]
        part = found[1] if (found := PART.search(said)) else said
        text = self.behaviour.pairs.get(" ".join(part.split())) or reworded(part)
        if way == "refusal":
            text = "I'm sorry, but I can't help with rewriting this text."
        elif way == "loop":
            text = " ".join([*text.split()[:5]] * 200)
        prompt = sum(len(message["content"]) for message in request["messages"]) // 4
        tokens = max(1, len(text) // 4)
        longest = request.get("max_tokens", 1 << 20)
        if way == "cut":
            longest = min(longest, tokens // 2)
        finish = "stop" if tokens <= longest else "length"
        usage = {
            "prompt_tokens": prompt,
            "completion_tokens": min(tokens, longest),
            "prompt_tokens_details": {"cached_tokens": prompt - len(said) // 4},
        }
        message: dict[str, Any] = {"role": "assistant", "content": text[: 4 * longest]}
        if request.get("tools") and request["messages"][-1]["role"] == "user":
            called = {"name": request["tools"][0]["function"]["name"], "arguments": "{}"}
            message["tool_calls"] = [{"id": "call_0", "type": "function", "function": called}]
        choice = {"index": 0, "message": message, "finish_reason": finish}
        return {"object": "chat.completion", "model": request["model"], "choices": [choice], "usage": usage}

    def _refuse(self, writer: asyncio.StreamWriter, status: int) -> bool:
        pause = self.behaviour.retry_after
        headers = {"Retry-After": f"{pause:g}"} if pause else {}
        return _send(writer, status, {"error": {"message": f"simulated status {status}", "code": status}}, headers)

    async def _fail(self, writer: asyncio.StreamWriter, way: str, answer: dict[str, Any]) -> bool:
        whole = json.dumps(answer).encode()
        if way.startswith("error_") and way != "error_in_200":
            return self._refuse(writer, int(way[-3:]))
        if way == "hang":
            await asyncio.sleep(3600)
        elif way == "die":
            writer.write(_head(200, len(whole)) + whole[: len(whole) // 2])
            await writer.drain()
            return False
        elif way in ("drip", "endless_headers"):
            writer.write(_head(200, 1 << 20) if way == "drip" else b"HTTP/1.1 200 OK\r\nX-Long: ")
            while True:
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.05)
        elif way == "huge":
            writer.write(_head(200, 1 << 40))
            while True:
                writer.write(b'{"choices": "' + b"x" * (1 << 16))
                await writer.drain()
        elif way == "garbage":
            return _send(writer, 200, b"\xff\xfe\x00 not json")
        elif way == "html":
            return _send(writer, 200, b"<html><body>502 proxy error</body></html>", {"Content-Type": "text/html"})
        elif way == "truncated":
            return _send(writer, 200, whole[: len(whole) // 2])
        elif way == "empty":
            return _send(writer, 200, b"")
        elif way == "error_in_200":
            return _send(writer, 200, {"error": {"message": "simulated: the engine is gone", "code": 500}})
        elif way == "null":
            answer["choices"][0]["message"]["content"] = None
        elif way == "filtered":
            answer["choices"][0] |= {"finish_reason": "content_filter", "message": {"role": "assistant"}}
        elif way == "no_usage":
            del answer["usage"]
        elif way == "no_choices":
            answer["choices"] = []
        elif way == "wrong_type":
            answer["choices"][0]["message"]["content"] = {"text": 5}
        return _send(writer, 200, answer)


def reworded(text: str) -> str:
    """`text` with its function words changed: names, numbers, formulas and negations stay, runs of words do not."""

    def change(match: re.Match[str]) -> str:
        word = match[0]
        new = WORDS.get(word.lower(), word)
        return new.capitalize() if word[0].isupper() else new

    return re.sub(r"(?<![\w$\\`/])[A-Za-z]+(?![\w$\\`/(])", change, text)


def _uniform(data: bytes) -> float:
    """A number strictly between 0 and 1 that depends on `data` alone."""
    return (int.from_bytes(hashlib.sha256(data).digest()[:6], "big") + 0.5) / (1 << 48)


def _head(status: int, length: int, headers: dict[str, str] | None = None) -> bytes:
    fields = {"Content-Type": "application/json", "Content-Length": str(length), **(headers or {})}
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Simulated\r\n{lines}\r\n".encode()


def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes | dict[str, Any], headers: dict[str, str] | None = None
) -> bool:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    writer.write(_head(status, len(data), headers) + data)
    return True


@contextmanager
def serving(behaviour: Behaviour | None = None, port: int = 0) -> Iterator[Endpoint]:
    """The endpoint in a thread of this process, for tests; `.url` is its base URL."""
    endpoint = Endpoint(behaviour or Behaviour())
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(endpoint.serve(port), loop).result()

    async def end() -> None:
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    try:
        yield endpoint
    finally:
        asyncio.run_coroutine_threadsafe(end(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _behaviour(args: argparse.Namespace) -> Behaviour:
    pairs: dict[str, str] = {}
    for path in args.pairs:
        for line in path.read_text(encoding="utf-8").splitlines():
            pair = json.loads(line)
            pairs[" ".join(pair["source"].split())] = pair["rewrites"][0]
    fail = dict(item.split("=") for item in args.fail.split(",") if item)
    names = ("first", "token", "spread", "batch", "most", "retry_after", "model", "log")
    shares = {way: float(share) for way, share in fail.items()}
    return Behaviour(**{name: getattr(args, name) for name in names}, fail=shares, pairs=pairs)


async def _main(args: argparse.Namespace) -> None:
    endpoint = Endpoint(_behaviour(args))
    server = await endpoint.serve(args.port)
    print(endpoint.url, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--first", type=float, default=0.3, help="median seconds to the first token")
    parser.add_argument("--token", type=float, default=0.01, help="median seconds for each generated token")
    parser.add_argument("--spread", type=float, default=0.3, help="spread of the latency (log-normal sigma)")
    parser.add_argument("--batch", type=int, default=64, help="requests in flight from which on it slows down")
    parser.add_argument("--most", type=int, default=0, help="requests in flight above which it answers 429")
    parser.add_argument("--retry-after", type=float, default=0.0)
    parser.add_argument("--model", default="simulated")
    parser.add_argument("--fail", default="", help=f"way=share,...: {', '.join(FAILURES)}")
    parser.add_argument("--pairs", type=Path, nargs="*", default=[], help="JSONL files with `source` and `rewrites`")
    parser.add_argument("--log", type=Path, help="JSON lines: the content's hash of every answered request")
    with suppress(KeyboardInterrupt):
        asyncio.run(_main(parser.parse_args()))
