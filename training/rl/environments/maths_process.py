"""Equality of mathematical answers, asked of a process that can be killed (`maths_worker.py`).

math-verify bounds its time by SIGALRM, which only a main thread can use; SymPy takes gigabytes and hours over what a
model may write. So it runs in a process of its own with a limit of memory, which is killed when it takes too long.
"""

from __future__ import annotations

import sys
from pathlib import Path

from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.line_process import LineProcess, LineProcessError, OnDemand

WORKER = Path(__file__).with_name("maths_worker.py")
START_SECONDS = 120.0  # SymPy and the parser are some thousand files
ANSWER_SECONDS = 120.0
"""On the clock: what ends a comparison is its CPU time, on a machine however busy."""
CPU_SECONDS = 5
MEMORY_MIB = 2048
LONGEST = 2000
"""Letters of an answer; what is longer is no answer."""


class MathProcess(OnDemand):
    """The worker that compares."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        super().__init__()
        self.seconds = seconds

    def equal(self, gold: str, answer: str) -> tuple[bool, str]:
        """(whether `answer` says what `gold` says, why not). Both are LaTeX or plain numbers.

        Raises:
            EnvironmentUnavailable: math-verify is not installed, its process does not start, or the machine is too
                busy to judge an answer.
        """
        if len(answer) > LONGEST:
            return False, "no answer but a long text"
        try:
            # its own limits end it otherwise: somebody else killed it, the kernel that had no memory perhaps
            found = self._answer({"gold": gold, "answer": answer}, self.seconds, lambda process: process.killed)
        except LineProcessError as error:
            if error.what == "late":
                raise EnvironmentUnavailable(
                    f"comparing an answer of the environment 'math' had no {CPU_SECONDS} CPU-seconds in "
                    f"{self.seconds:g} s: too much else runs on this machine for a verdict on it"
                ) from None
            return False, "comparing the answer took too long or too much memory"
        return bool(found["equal"]), str(found["reason"])

    def _begin(self) -> LineProcess:
        self._process = process = LineProcess([sys.executable, "-I", str(WORKER), str(MEMORY_MIB), str(CPU_SECONDS)])
        try:
            ready = process.ask({"gold": "1", "answer": "1"}, START_SECONDS)
        except LineProcessError as error:
            ready = {"equal": False, "reason": str(error)}
        if not ready["equal"]:
            self._kill()
            raise EnvironmentUnavailable(
                "answers of the environment 'math' are compared by math-verify, which does not start: "
                f"{ready['reason']}; install it with pip install 'openk2[rl]', or leave the environment out"
            )
        return process
