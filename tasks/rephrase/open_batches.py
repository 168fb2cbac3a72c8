"""The jobs between the corpus and the written batches: several batches open at once, each written when it is done."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tasks.rephrase.choice import DocumentBatch
from tasks.rephrase.document import Outcome


@dataclass
class Open:
    """A batch whose documents are being rewritten."""

    batch: DocumentBatch
    outcomes: list[Outcome | None]
    left: int
    """Jobs that are not done."""


class OpenBatches:
    """The jobs between the corpus and the written batches: so many at work, as many again waiting, no more."""

    def __init__(self, slots: int, write: Callable[[DocumentBatch, list[Outcome]], None]) -> None:
        """`write` is given each batch as soon as its last job is done, in the thread of `begin` and `settle`."""
        self.slots, self._write = slots, write
        self.stop = threading.Event()
        self._unfinished = 0
        self._done: deque[Open] = deque()
        self._failure: BaseException | None = None
        self._changed = threading.Condition()

    def begin(self, batch: DocumentBatch, jobs: int) -> Open:
        """Take `batch` in once there is room for it, writing what has been finished meanwhile."""
        self.settle(2 * self.slots)
        with self._changed:
            self._unfinished += jobs
            some = Open(batch, [None] * jobs, jobs)
            if not jobs:
                self._done.append(some)
        return some

    def finish(self, some: Open, place: int, outcome: Outcome) -> None:
        with self._changed:
            some.outcomes[place] = outcome
            some.left -= 1
            self._unfinished -= 1
            if not some.left:
                self._done.append(some)
            self._changed.notify()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            # Before the others are told to stop: what they then end with is no cause.
            self._failure = self._failure or error
            self.stop.set()
            self._changed.notify()

    def settle(self, most: int) -> None:
        """Write every finished batch until at most `most` jobs are unfinished. Raises what a job failed with."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._done or self._failure or self._unfinished <= most)
                if self._failure:
                    raise self._failure
                ready = list(self._done)
                self._done.clear()
                if not ready and self._unfinished <= most:
                    return
            for some in ready:
                self._write(some.batch, [outcome for outcome in some.outcomes if outcome is not None])
