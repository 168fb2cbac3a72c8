"""Where the jobs of curation run: in this process, in worker processes or on a Dask cluster. The bytes do not depend on
it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, Protocol

from tasks.launch import Execution
from tasks.logs import plain_logs
from tasks.process import die_with_pool


class WorkerError(RuntimeError):
    """A worker died with the jobs it had."""


class Executor(Protocol):
    """Runs many independent jobs of one function."""

    def map(self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, Any]]:
        """(name, result) of every job as it ends; they begin in the order given. `function` is a module's own and
        arguments and results are small: data pass through files. The first exception of a job ends the rest."""
        ...


class Serial:
    """One job after the other, here."""

    def map(self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, Any]]:
        for name, arguments in jobs.items():
            yield name, function(*arguments)


class Processes:
    """Worker processes of this machine."""

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def map(self, function: Callable[..., Any], jobs: Mapping[str, tuple[Any, ...]]) -> Iterator[tuple[str, Any]]:
        if self.workers == 1 or len(jobs) < 2:
            yield from Serial().map(function, jobs)
            return
        others = set(active_children())
        # Spawned, not forked: the parent may run threads (Prefect's do).
        spawn = get_context("spawn")
        with ProcessPoolExecutor(min(self.workers, len(jobs)), mp_context=spawn, initializer=_worker) as pool:
            waiting = {pool.submit(function, *arguments): name for name, arguments in jobs.items()}
            try:
                while waiting:
                    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
                    for future in done:
                        yield waiting.pop(future), future.result()
            except BrokenProcessPool as error:
                raise WorkerError(
                    f"a worker process died while working on one of {', '.join(sorted(waiting.values())[:8])} (out of "
                    "memory?): run the same command with fewer workers; what was finished is kept"
                ) from error
            except BaseException:
                # Leaving the block waits for the workers: whoever cancels does not want to wait for the jobs they have.
                pool.shutdown(wait=False, cancel_futures=True)
                for worker in set(active_children()) - others:
                    worker.terminate()
                raise


def _worker() -> None:
    die_with_pool()
    plain_logs()


@contextmanager
def executor(execution: Execution) -> Iterator[Executor]:
    """The executor that a preset asks for; what was started for it ends with the block."""
    if execution.executor == "processes":
        yield Processes(execution.workers)
        return
    from tasks.corpus.cluster import cluster

    with cluster(execution.dask_address, execution.workers) as dask:
        yield dask
