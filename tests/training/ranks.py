"""Ranks as forked processes of the tests: real gloo process groups, and how each rank ended."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.posttraining import go
from tests.training.test_checkpoint import full_disk
from training.metrics import Metrics
from training.objective import Objective
from training.parallel import World, join

GIVEN: set[int] = set()
"""Ports that `free_ports` has given away in this process."""


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on; below those that the kernel gives away, which another process could be given before
    the ranks take them."""
    draw, found = random.SystemRandom(), list[int]()
    while len(found) < count:
        port = draw.randrange(10_000, 32_000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("127.0.0.1", port))
            if port not in GIVEN:
                GIVEN.add(port)
                found.append(port)
    return found


@contextlib.contextmanager
def among(rank: int, size: int, port: int, timeout: float = 300) -> Iterator[World]:
    """A gloo process group."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with join(timeout_seconds=timeout) as world:
        yield world


def start(ranks: int, work: Callable[[int], Any]) -> tuple[list[ForkProcess], multiprocessing.Queue[tuple[int, Any]]]:
    """`work` on so many processes, and the queue into which each puts its rank and what it returned or raised."""
    context = multiprocessing.get_context("fork")
    results = context.Queue()

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        try:
            outcome = work(rank)
        except BaseException as error:  # pytest's own are no Exceptions
            results.put((rank, f"{type(error).__name__}: {error}"))
            raise
        results.put((rank, outcome))

    processes = [context.Process(target=run, args=(rank,), daemon=True) for rank in range(ranks)]
    for process in processes:
        process.start()
    return processes, results


def outcomes(processes: Sequence[ForkProcess], results: multiprocessing.Queue[tuple[int, Any]]) -> dict[int, Any]:
    """What each of `processes` returned, or its error as text, by rank, once they have ended."""
    found = dict(sorted(results.get(timeout=400) for _ in processes))
    for process in processes:
        process.join(120)
    return found


def run_ranks(ranks: int, work: Callable[[World], Any]) -> list[Any]:
    """What `work` returned, or its error as text, on each rank of a process group of so many."""
    (port,) = free_ports(1)

    def run(rank: int) -> Any:
        with among(rank, ranks, port) as world:
            return work(world)

    return [*outcomes(*start(ranks, run)).values()]


class Launched(ForkProcess):
    """One rank of a job as a launcher starts it: the rank in the environment, what it says in a log. But it is forked:
    it has torch from here, whose import takes longer than most of these runs."""

    def __init__(self, kind: type[Objective], job: Path, variables: Mapping[str, str], log: Path, most: int) -> None:
        super().__init__(daemon=True)
        self.kind, self.job, self.variables, self.log, self.most = kind, job, variables, log, most

    def run(self) -> None:
        output = self.log.open("a", buffering=1)
        for number, name in ((1, "stdout"), (2, "stderr")):
            os.dup2(output.fileno(), number)
            for place in (name, f"__{name}__"):  # pytest has put files of its own there
                setattr(sys, place, output)
        logging.root.handlers.clear()
        os.environ.update(self.variables)
        with full_disk(self.most):
            code = go(self.kind, self.job)
        output.flush()
        os._exit(code)  # what the tests before this one left to be done at the interpreter's end is not the rank's

    def poll(self) -> int | None:
        return self.exitcode

    def wait(self, timeout: float = 500) -> int:
        self.join(timeout)
        assert self.exitcode is not None, f"not ended in {timeout} s: {self.log.read_text()}"
        return self.exitcode

    def send_signal(self, number: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)


def stop_itself() -> None:
    """Stop this process. The signal is sent to the thread that calls: sent to the process, another thread may take it
    while this one goes on for a while."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def wait_stopped(process: ForkProcess) -> None:
    """Wait until a child has stopped itself; the test's own timeout ends it."""
    assert process.pid is not None
    met = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    assert met is not None
    assert met.si_code == os.CLD_STOPPED, "it ended before it was stopped"


def stop_after(
    patch: pytest.MonkeyPatch, step: int, ready: Callable[[], Any] = lambda: True, event: str = "update"
) -> None:
    """Rank 0 of a job that is launched from now on stops itself (SIGSTOP) after that line of its metrics, once `ready`.
    What a test does then meets it there, however busy the machine; SIGCONT lets it go on."""
    write = Metrics.write

    def stopping(metrics: Metrics, kind: Any, number: int, **values: Any) -> None:
        write(metrics, kind, number, **values)
        if metrics.file and (kind, number) == (event, step):
            while not ready():
                time.sleep(0.01)
            stop_itself()

    patch.setattr(Metrics, "write", stopping)


def launch(
    kind: type[Objective], job: Path, ranks: int = 1, file_limits: Mapping[int, int] | None = None
) -> list[Launched]:
    """The processes of a job, one per rank. A rank in `file_limits` can write no longer file than so many bytes, as on
    a disk that is full."""
    (port,) = free_ports(1)
    world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    launched = []
    for rank in range(ranks):
        variables = {**world, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        log, most = job.with_name(f"rank{rank}.log"), (file_limits or {}).get(rank, 1 << 40)
        launched.append(Launched(kind, job, variables, log, most))
        launched[-1].start()
    return launched
