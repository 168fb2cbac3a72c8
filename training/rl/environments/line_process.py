"""A process that answers one JSON object a line, and that can be killed.

For libraries that bound their time by signals, or not at all, or that want an interpreter of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Self

LONGEST_ANSWER = 1 << 20
"""Bytes of an answer."""
LONGEST_QUESTION = 60_000
"""Bytes of a question: what the pipe to a process that reads nothing takes without blocking."""


class LineProcessError(RuntimeError):
    """No answer, or none that can be read; the process is dead then. `what` says which."""

    def __init__(self, what: Literal["late", "ended", "unreadable"], text: str) -> None:
        super().__init__(text)
        self.what = what


class LineProcess:
    """One process, one question at a time."""

    def __init__(self, command: Sequence[str], keep: Sequence[str] = ()) -> None:
        """Starts it; raises OSError where it cannot be.

        Args:
            keep: variables of the environment that it gets beside the path and the language. No credentials of ours go
                into a process that reads what a model wrote.
        """
        kept = ("PATH", "LANG", "LD_LIBRARY_PATH", *keep)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**{name: value for name, value in os.environ.items() if name in kept}, "PYTHONHASHSEED": "0"},
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def killed(self) -> bool:
        """Whether it was ended by SIGKILL, which none of its own limits sends."""
        return self._process.poll() == -signal.SIGKILL

    def ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """Its answer.

        Raises:
            LineProcessError: none came in time, the process ended, or what came is no JSON object of at most
                LONGEST_ANSWER bytes. ValueError where the question is too long.
        """
        asked = json.dumps(question).encode() + b"\n"
        if len(asked) > LONGEST_QUESTION:
            raise ValueError(f"a question of {len(asked):,} bytes: at most {LONGEST_QUESTION:,}")
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(asked)
            self._process.stdin.flush()
        except BrokenPipeError:
            self.kill()
            raise LineProcessError("ended", "it has ended") from None
        return self.hear(seconds)

    def hear(self, seconds: float) -> dict[str, Any]:
        """Its next line, which it may write unasked when it is ready. Raises as `ask` does."""
        try:
            return self._line(time.monotonic() + seconds, seconds)
        except LineProcessError:
            self.kill()
            raise

    def _line(self, deadline: float, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                if not selector.select(max(0.0, deadline - time.monotonic())):
                    raise LineProcessError("late", f"it did not answer within {seconds:g} s")
                piece = os.read(self._process.stdout.fileno(), 65536)
                if not piece:
                    raise LineProcessError("ended", "it ended without an answer")
                line += piece
                if len(line) > LONGEST_ANSWER:
                    raise LineProcessError("unreadable", f"its answer has more than {LONGEST_ANSWER:,} bytes")
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            shown = line[:60].decode(errors="replace")
            raise LineProcessError("unreadable", f"its answer is no line with a JSON object: {shown!r}")
        return found

    def kill(self) -> None:
        """End it, and what it has started: a child could hold the pipes open."""
        if self.alive:
            os.killpg(self.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        self._process.wait()


class OnDemand(ABC):
    """One such process, begun for the first question and again where it has ended. Who asks holds `_lock`: questions
    from several threads wait for each other."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: LineProcess | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._kill()

    @abstractmethod
    def _begin(self) -> LineProcess:
        """Begin it and hear that it is ready; what was begun is `_process` from then on, ready or not."""

    def _answer(
        self, question: Mapping[str, Any], seconds: float, again: Callable[[LineProcess], bool]
    ) -> dict[str, Any]:
        """What the process answers. Where it ends over the question and `again` says so of it, another one is asked,
        once. Raises as its `ask` does."""
        with self._lock:
            process = self._started()
            try:
                return process.ask(question, seconds)
            except LineProcessError as error:
                if error.what != "ended" or not again(process):
                    raise
            return self._started().ask(question, seconds)

    def _started(self) -> LineProcess:
        if self._process is not None and self._process.alive:
            return self._process
        self._kill()
        return self._begin()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process = None
