"""Equality of mathematical answers, asked of a process that can be killed (`maths_worker.py`).

math-verify bounds its time by SIGALRM, which only a main thread can use; SymPy takes gigabytes and hours over what a
model may write. So it runs in a process of its own with a limit of memory, which is killed when it takes too long.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from training.rl.environments.errors import EnvironmentUnavailable

WORKER = Path(__file__).with_name("maths_worker.py")
START_SECONDS = 120.0  # SymPy and the parser are some thousand files
ANSWER_SECONDS = 5.0
MEMORY_MIB = 2048
LONGEST = 2000
"""Letters of an answer; what is longer is no answer."""


class MathProcess:
    """One worker, one question at a time; questions from several threads wait for each other."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._kill()

    def equal(self, gold: str, answer: str) -> tuple[bool, str]:
        """(whether `answer` says what `gold` says, why not). Both are LaTeX or plain numbers.

        Raises:
            EnvironmentUnavailable: math-verify is not installed, or its process does not start.
        """
        if len(answer) > LONGEST:
            return False, "no answer but a long text"
        with self._lock:
            process = self._process if self._process is not None and self._process.poll() is None else self._start()
            found = self._ask(process, {"gold": gold, "answer": answer}, self.seconds)
            if found is None:
                self._kill()
                return False, "comparing the answer took too long or too much memory"
        return bool(found["equal"]), str(found["reason"])

    def _start(self) -> subprocess.Popen[bytes]:
        self._kill()
        # No credentials of ours go into a process that reads what a model wrote.
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LD_LIBRARY_PATH")}
        self._process = process = subprocess.Popen(
            [sys.executable, "-I", str(WORKER), str(MEMORY_MIB)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**kept, "PYTHONHASHSEED": "0"},
        )
        ready = self._ask(process, {"gold": "1", "answer": "1"}, START_SECONDS)
        if ready is None or not ready["equal"]:
            self._kill()
            said = f": {ready['reason']}" if ready else ""
            raise EnvironmentUnavailable(
                f"answers of the environment 'math' are compared by math-verify, which does not start{said}; install "
                "it with pip install 'openk2[rl]', or leave the environment out"
            )
        return process

    def _ask(self, process: subprocess.Popen[bytes], question: dict[str, str], seconds: float) -> dict[str, str] | None:
        """Its answer; None where none came in time."""
        assert process.stdin is not None
        assert process.stdout is not None
        deadline, line = time.monotonic() + seconds, b""
        try:
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
            with selectors.DefaultSelector() as selector:
                selector.register(process.stdout, selectors.EVENT_READ)
                while not line.endswith(b"\n"):
                    if not selector.select(max(0.0, deadline - time.monotonic())):
                        return None
                    piece = os.read(process.stdout.fileno(), 65536)
                    if not piece:
                        return None
                    line += piece
        except BrokenPipeError:
            return None
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None
