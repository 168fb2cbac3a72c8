"""Threads that answer beside the rollout, and that a process which ends does not wait for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
Job = tuple[Future[Any], Callable[[], Any]]


class DaemonThreads:
    """What `ThreadPoolExecutor` is, with daemon threads: the interpreter joins an executor's threads when it ends, and
    one that is stuck in a call would keep a failed job alive, unwatched, for as long as the call takes."""

    def __init__(self, count: int, name: str) -> None:
        """At most `count` threads, of which each begins with a submission."""
        self._count, self._name, self._started = count, name, 0
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()

    def submit(self, work: Callable[..., T], *given: Any) -> Future[T]:
        """`work(*given)` in one of the threads, in the order of submissions; for one caller at a time."""
        future: Future[T] = Future()
        self._jobs.put((future, partial(work, *given)))
        if self._started < self._count:
            name = f"{self._name}_{self._started}"
            threading.Thread(target=_serve, args=(self._jobs,), name=name, daemon=True).start()
            self._started += 1
        return future

    def close(self) -> None:
        """Cancel what has not begun, and let each thread end with what it is at; nothing is waited for."""
        while (job := self._next()) is not None:
            job[0].cancel()
        for _ in range(self._started):
            self._jobs.put(None)

    def _next(self) -> Job | None:
        try:
            return self._jobs.get_nowait()
        except Empty:
            return None


def _serve(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        _do(*job)
        del job  # what it holds need not live until the next one comes


def _do(future: Future[Any], work: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        found = work()
    except BaseException as error:  # whoever asks for the result is to have it, as with an executor
        future.set_exception(error)
    else:
        future.set_result(found)
