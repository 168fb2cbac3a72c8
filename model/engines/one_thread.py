"""Small networks on one thread a text: what they say then depends neither on the machine's cores nor on neighbours."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

T = TypeVar("T")


class OneThread:
    """Runs `work` for as many threads as ask, each piece of it on one. All networks of a process share one of these:
    each would else take another's one thread for the process's own number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._working, self._threads = 0, torch.get_num_threads()
        # Few threads work, however many ask: each that ever did would keep some megabytes of scratch.
        self._pool = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="reading")

    def run(self, work: Callable[..., T], *given: object) -> T:
        """What `work(*given)` returns, under `torch.inference_mode`."""
        return self._pool.submit(self._run, work, given).result()

    def _run(self, work: Callable[..., T], given: tuple[object, ...]) -> T:
        with self._alone():
            return work(*given)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with torch.inference_mode():
            with self._lock:
                self._working += 1
                torch.set_num_threads(1)  # partly the process's, partly the calling thread's: so every time
            try:
                yield
            finally:
                with self._lock:
                    self._working -= 1
                    if not self._working:
                        torch.set_num_threads(self._threads)
