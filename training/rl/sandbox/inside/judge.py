"""Hidden tests: they run in init, where the program cannot reach, and call its function over a socket.

The program never holds the tests, nor they an object of the program's: arguments and results pass as plain data. So
whatever it does to builtins, frames, `__eq__`, exits or descriptors, it does to itself, and all it can do towards a
verdict is to answer calls.
"""

from __future__ import annotations

import builtins
import json
import socket
from typing import Any

from training.rl.sandbox.inside import plain

LONGEST = 1 << 24
"""Bytes of one answer."""
ENDS_LOOPS = (StopIteration, StopAsyncIteration)
"""Raised in a test's `map`, these would end it early and quietly: they arrive as RuntimeError."""


class Ended(BaseException):
    """The program can answer no more; not an Exception, which tests may expect."""


class Candidate:
    """The program's function, as the tests see it."""

    def __init__(self, calls: socket.socket, in_place: bool) -> None:
        self._in_place = in_place
        self._calls, self._answers = calls, calls.makefile("rb")
        self.called = 0
        self.broken = ""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        request = json.dumps(plain.pack([list(arguments), named])).encode()
        self.called += 1
        try:
            self._calls.sendall(request + b"\n")
            line = self._answers.readline(LONGEST)
            if not line.endswith(b"\n"):
                raise ValueError("the program ended, or answered without end")
            reply = json.loads(line)
            if not (isinstance(reply, dict) and reply.keys() & {"value", "error"}):
                raise ValueError("the program sent something that is no answer")
            if "error" in reply:
                error = self._error(str(reply["error"]), str(reply["text"]))
            else:
                value = plain.unpack(reply["value"])
                if self._in_place:
                    for one, after in zip(arguments, reply["arguments"], strict=True):
                        self._work_on(one, plain.unpack(after))
                return value
        except Exception as reason:
            said = "the program ended" if isinstance(reason, OSError) else reason
            self.broken = f"call {self.called}: {said}"[:300]
            raise Ended from None
        raise error

    @staticmethod
    def _error(name: str, text: str) -> Exception:
        kind = getattr(builtins, name, RuntimeError)
        if not (isinstance(kind, type) and issubclass(kind, Exception)) or issubclass(kind, ENDS_LOOPS):
            kind = RuntimeError
        try:
            return kind(text)
        except TypeError:  # UnicodeDecodeError and its like want more than a text
            return RuntimeError(f"{name}: {text}")

    @staticmethod
    def _work_on(one: Any, after: Any) -> None:
        """Do to an argument what the function did to its copy."""
        if type(one) is not type(after) or type(one) not in plain.MUTABLE:
            return
        one.clear()
        (one.extend if type(one) is list else one.update)(after)


def verdict(tests: int, calls: socket.socket) -> dict[str, Any]:
    """Run the tests in descriptor `tests`: {passed, reason}."""
    with open(tests, encoding="utf-8") as file:
        given = json.load(file)
    candidate = Candidate(calls, given["in_place"])
    space: dict[str, Any] = {"__name__": "tests"}
    step = "the prompt does not run by itself"
    try:
        exec(compile(given["prompt"], "prompt", "exec", dont_inherit=True), space)  # noqa: S102 - within the sandbox
        space[given["entry_point"]] = candidate
        step = "the tests failed"
        exec(compile(given["check"], "tests", "exec", dont_inherit=True), space)  # noqa: S102 - within the sandbox
        if "check" in space:
            space["check"](candidate)
    except BaseException as error:
        reason = candidate.broken or f"{type(error).__name__}: {error}".removesuffix(": ")
        return {"passed": False, "reason": f"{step}: {reason}"[:1000]}
    if candidate.broken:
        return {"passed": False, "reason": f"the tests failed: {candidate.broken}"}
    if not candidate.called:
        return {"passed": False, "reason": "the tests never called the function"}
    return {"passed": True, "reason": ""}
