"""Where the jobs of curation run: in worker processes, on a Dask cluster or, for tests and benchmarks, in this process.
The bytes do not depend on it.

The process that calls answers signals at any moment: it only waits. A worker that a document takes beyond its budget
dies alone (`watch`), and its job is done again without that document.
"""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from typing import Any, Protocol, Self

from tasks.corpus.watch import PLACE_BYTES
from tasks.corpus.worker import NO_MEMORY

LOOK = 1.0  # seconds between two looks for what is to stop a thread that waits


class WorkerError(RuntimeError):
    """A worker died with the jobs it had."""


@dataclass(frozen=True)
class Death:
    """How a worker died in the middle of a job."""

    place: int
    """The place within the job (`Watch`); 0 where it was at none."""
    code: int
    """Its exit code, or the signal that ended it as a negative number."""

    @property
    def kind(self) -> str:
        """`over_time`, `over_memory` or `crashed`."""
        return {-signal.SIGPROF: "over_time", NO_MEMORY: "over_memory"}.get(self.code, "crashed")


Again = Callable[[tuple[Any, ...], Death], tuple[Any, ...] | None]
"""The arguments to do a job with again, from those that it had when its worker died; None where that would not help."""


class Executor(Protocol):
    """Runs many independent jobs of one function."""

    spent: float
    """CPU seconds that jobs took in other processes of this machine, as far as that is known."""

    def map(
        self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], again: Again | None = None
    ) -> Iterator[tuple[str, Any]]:
        """(name, result) of every job as it ends; they begin in the order given. `function` is a module's own and
        arguments and results are small: data pass through files. The first exception of a job ends the rest.

        again: for jobs that may end their worker. `function` then takes `slot` too, which it gives to its Watch.
        """
        ...


class Serial:
    """One job after the other, here: no job has a budget, and no signal is heard within C code."""

    spent = 0.0

    def map(
        self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], again: Again | None = None
    ) -> Iterator[tuple[str, Any]]:
        for name, arguments in jobs.items():
            yield name, function(*arguments)


class Processes:
    """Worker processes of this machine.

    with Processes(2) as workers: they are kept from one `map` to the next; without the block each ends its own.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.spent = 0.0
        self._idle: list[_Worker] = []
        self._kept = False

    def __enter__(self) -> Self:
        self._kept = True
        return self

    def __exit__(self, *_: object) -> None:
        self._kept = False
        self._end_idle()

    def _end_idle(self) -> None:
        while self._idle:
            self._idle.pop().end()

    def map(
        self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]], again: Again | None = None
    ) -> Iterator[tuple[str, Any]]:
        left = deque(jobs.items())
        busy: dict[Any, tuple[_Worker, str, tuple[Any, ...]]] = {}
        try:
            while left or busy:
                while left and len(busy) < self.workers:
                    name, arguments = left.popleft()
                    worker = self._idle.pop() if self._idle else _Worker()
                    busy[worker.connection] = (worker, name, arguments)
                    worker.begin(function, arguments, watched=again is not None)
                for ready in wait(list(busy), LOOK):
                    worker, name, arguments = busy.pop(ready)
                    try:
                        succeeded, result, seconds = worker.connection.recv()
                    except (EOFError, ConnectionResetError):
                        left.appendleft((name, self._again(worker.end(), name, arguments, again)))
                        continue
                    self._idle.append(worker)
                    self.spent += seconds
                    if not succeeded:
                        raise result
                    yield name, result
        finally:
            # Whoever cancels does not want to wait for the jobs under way.
            for worker, _, _ in busy.values():
                worker.end()
            if not self._kept:
                self._end_idle()

    def _again(self, death: Death, name: str, arguments: tuple[Any, ...], again: Again | None) -> tuple[Any, ...]:
        changed = again(arguments, death) if again else None
        if changed is None:
            cause = f"exit code {death.code}" if death.code >= 0 else f"signal {-death.code}"
            raise WorkerError(
                f"a worker process died ({cause}) while working on {name} (out of memory?): run the same command with "
                "fewer workers; what was finished is kept"
            )
        return changed


class _Worker:
    """One worker process, started here: not forked, as this process may run threads, and not by `multiprocessing`,
    which refuses to start one from within a Dask worker."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        with tempfile.TemporaryFile() as file, theirs:
            file.truncate(PLACE_BYTES)
            self._slot = mmap.mmap(file.fileno(), PLACE_BYTES)
            passed = (theirs.fileno(), file.fileno())
            command = [sys.executable, "-P", "-m", "tasks.corpus.worker", *map(str, passed), str(os.getpid())]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=passed, env=environment)

    def begin(self, function: Callable[..., Any], arguments: tuple[Any, ...], watched: bool) -> None:
        self._slot[:] = bytes(PLACE_BYTES)
        with suppress(BrokenPipeError):  # it is dead already, which shows where its answer is waited for
            self.connection.send((function, arguments, watched))

    def end(self) -> Death:
        """End it, where it has not died by itself."""
        self.connection.close()
        self._process.kill()
        return Death(int.from_bytes(self._slot[:], "little"), self._process.wait())
