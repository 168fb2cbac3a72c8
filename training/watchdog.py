"""A run that stands still ends with every thread's stack in its log, and never hangs.

Each rank watches itself: where one hangs, the others wait for it in a collective, and all of them see no progress. The
watch is a thread, and a second one in C that the first keeps putting off: it takes over where the interpreter itself is
held by a call that never returns.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import sys
import threading
import time
from collections.abc import Iterator

LOOKS = 8  # times that the watch looks in each of its periods


class Watchdog:
    """Ends the process with exit code 1 when a `beat` is not followed by another within `seconds`; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds
        self._doing, self._since = "", math.inf
        self._over = threading.Event()

    def beat(self, doing: str) -> None:
        """Progress was made; `doing` names what comes now, for the error."""
        self._doing, self._since = doing, time.monotonic()

    def prolong(self) -> None:
        """What was told last goes on and has come further: it may take as long again. At rest, nothing."""
        if self._since < math.inf:
            self._since = time.monotonic()

    def rest(self) -> None:
        """Watch no more until the next beat: what comes now may take as long as it takes."""
        self._since = math.inf

    @contextlib.contextmanager
    def watch(self) -> Iterator[Watchdog]:
        """Watch for the length of a `with` block."""
        if self.seconds is None:
            yield self
            return
        self._over.clear()
        thread = threading.Thread(target=self._look, args=(self.seconds,), name="watchdog", daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._over.set()
            thread.join()
            faulthandler.cancel_dump_traceback_later()

    def _look(self, seconds: float) -> None:
        while True:
            faulthandler.dump_traceback_later(2 * seconds, exit=True, file=sys.__stderr__ or 2)
            if self._over.wait(seconds / LOOKS):
                return
            if (silent := time.monotonic() - self._since) >= seconds:
                self._end(silent)

    def _end(self, silent: float) -> None:
        error = sys.__stderr__
        assert error is not None
        faulthandler.dump_traceback(error, all_threads=True)
        error.write(
            f"StallError: rank {os.environ.get('RANK', '0')} made no progress for {silent:.0f} seconds in "
            f"{self._doing} (run.stall_seconds); the stacks above show where it stands. Start the same command again, "
            "it resumes from its newest checkpoint\n"
        )
        error.flush()
        os._exit(1)  # threads, collectives and finalisers may be what hangs
