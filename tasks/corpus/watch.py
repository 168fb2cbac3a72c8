"""A document's budget of CPU time and memory, held by the kernel: no parser and no pattern can ignore it.

A worker process notes the place that it comes to (a document, or what is read next) in memory that its parent sees.
Where a place takes more than its budget the kernel ends the process, whatever C code it is in; the parent does the job
again without that place (`executor`), and the reason becomes the document's.
"""

from __future__ import annotations

import mmap
import resource
import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PLACE_BYTES = 8


@dataclass(frozen=True)
class Loss:
    """A place that ended a worker."""

    place: int
    kind: str
    """`over_time`, `over_memory` or `crashed`: the reason of its rejected row; `suspected` where it is tried again."""
    reason: str = ""


class Watch:
    """Counts the places of one job. Only a worker process has a `slot` to note them in; without one nothing is limited,
    as the kernel would end whoever called."""

    def __init__(
        self,
        slot: mmap.mmap | None = None,
        seconds: float = 0.0,
        memory_bytes: int = 0,
        lost: Iterable[Loss] = (),
    ) -> None:
        """seconds, memory_bytes: what one place may take, the latter on top of what the process holds now.
        lost: the places that ended workers before."""
        self.place = 0
        self._slot, self._seconds = slot, seconds
        self._lost = {loss.place: loss for loss in lost if loss.kind != "suspected"}
        if slot is not None:
            _limit_memory(memory_bytes)

    def come(self) -> Loss | None:
        """Begin the next place; the loss where it is to be left out. The same input has the same places."""
        self.place += 1
        if self._slot is not None:
            self._slot[:PLACE_BYTES] = self.place.to_bytes(PLACE_BYTES, "little")
            # Its signal's default action ends the process at once, also within C code that holds Python's lock.
            signal.setitimer(signal.ITIMER_PROF, self._seconds)
        return self._lost.get(self.place)

    def end(self) -> None:
        """No place is under way any more."""
        if self._slot is not None:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._slot[:PLACE_BYTES] = bytes(PLACE_BYTES)
            _limit_memory(None)


def _limit_memory(more: int | None) -> None:
    """Let this process take so many bytes more than it holds; None lifts the limit. Only Linux counts mappings."""
    if sys.platform != "linux":
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard
    if more is not None:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        soft = 1024 * int(status.partition("VmData:")[2].split()[0]) + more
        soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
