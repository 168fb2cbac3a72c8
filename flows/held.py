"""What people may change while a run is under way, a preset's file or their verdicts on dialogues, as the run first
read it: its later stages follow the same recipe as its first."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

T = TypeVar("T")
_READ: ContextVar[dict[Hashable, Any] | None] = ContextVar("read by the run under way", default=None)


@contextmanager
def held() -> Iterator[None]:
    """A run: within it each thing is read `once`. The stages of a recipe belong to the recipe's run."""
    if _READ.get() is not None:
        yield
        return
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def once(what: Hashable, read: Callable[[], T]) -> T:
    """What `read` gives, which a run asks the first time only; outside of runs every time."""
    seen = _READ.get()
    if seen is None:
        return read()
    if what not in seen:
        seen[what] = read()
    return seen[what]
