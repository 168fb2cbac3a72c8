"""Progress of a long piece of work: how much is done, how fast, how long it will take; shown wherever somebody looks.

A stage reports through `Progress`; who listens (the terminal's bar, Prefect's progress artifacts, a log) is decided by
the flow that runs it, through `listen`. Nothing here may ever fail a stage: a broken listener is logged and dropped.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tick:
    """One observation of one piece of work."""

    label: str
    done: float
    total: float
    unit: str
    note: str
    elapsed: float
    """Seconds since the work began in this attempt."""
    first: float
    """What an earlier attempt had done already, in `unit`: the rate leaves it out."""

    @property
    def rate(self) -> float:
        """Units per second of this attempt; 0 until something was done."""
        return (self.done - self.first) / self.elapsed if self.elapsed > 0 else 0.0

    @property
    def eta(self) -> float | None:
        """Seconds left at the rate so far, or None while unknown."""
        return (self.total - self.done) / self.rate if self.rate > 0 else None

    @property
    def finished(self) -> bool:
        return self.total > 0 and self.done >= self.total

    def sentence(self) -> str:
        """`tokens: 3,000 of 10,000 documents (30 %), 250/s, 0:28 left`."""
        share = f" ({100 * self.done / self.total:.0f} %)" if self.total else ""
        left = "" if self.eta is None or self.finished else f", {clock(self.eta)} left"
        note = f" | {self.note}" if self.note else ""
        return f"{self.label}: {self.done:,.0f} of {self.total:,.0f} {self.unit}{share}, {self.rate:,.1f}/s{left}{note}"


def clock(seconds: float) -> str:
    """`m:ss`, or `h:mm:ss` from an hour on."""
    whole = int(seconds + 0.5)
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours}:{minutes:02}:{whole % 60:02}" if hours else f"{minutes}:{whole % 60:02}"


Listener = Callable[[Tick], None]
_listeners: list[Listener] = []


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Let `listener` hear every tick of this process while the block runs."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _drop(listener)


def _drop(listener: Listener) -> None:
    if listener in _listeners:
        _listeners.remove(listener)


class Progress:
    """Counts one piece of work; safe to call from threads.

    with Progress("rephrase", total=120, unit="segments") as progress:
        progress.advance(1, note="61 % accepted")
    """

    def __init__(self, label: str, total: float, unit: str, first: float = 0.0, every: float = 0.5) -> None:
        self.label, self.total, self.unit, self.first, self.every = label, total, unit, first, every
        self.done, self.note = first, ""
        self._began = time.monotonic()
        self._last = 0.0
        self._lock = threading.Lock()

    def __enter__(self) -> Progress:
        self._emit()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._emit()

    def advance(self, amount: float = 1.0, note: str | None = None) -> None:
        self._go(lambda: self.done + amount, note)

    def set(self, done: float, note: str | None = None) -> None:
        self._go(lambda: done, note)

    def _go(self, done: Callable[[], float], note: str | None) -> None:
        with self._lock:  # held where the sum is read: of two threads that add to one, one would be lost
            self.done = done()
            self.note = self.note if note is None else note
            now = time.monotonic()
            due = now - self._last >= self.every or self.done >= self.total
            if due:
                self._last = now
        if due:
            self._emit()

    def _emit(self) -> None:
        elapsed = time.monotonic() - self._began
        tick = Tick(self.label, self.done, self.total, self.unit, self.note, elapsed, self.first)
        for listener in list(_listeners):
            try:
                listener(tick)
            except Exception:
                log.exception("a progress listener failed and was dropped; the work goes on")
                _drop(listener)


def each(work: Callable[[T], R], items: Sequence[T], slots: int, label: str, unit: str) -> list[R]:
    """What `work` makes of every item, in their order; `slots` of them are under way at a time."""
    found: list[R] = []
    with Progress(label, total=len(items), unit=unit) as progress, ThreadPoolExecutor(slots) as pool:
        for one in pool.map(work, items):
            found.append(one)
            progress.advance(1)
    return found
