"""Ranks as forked processes of the tests: real gloo process groups, and how each rank ended."""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch

from tests.posttraining import go
from tests.training.test_checkpoint import full_disk
from training.objective import Objective
from training.parallel import World, join


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


@contextlib.contextmanager
def among(rank: int, size: int, port: int, timeout: float = 60) -> Iterator[World]:
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
    found = dict(sorted(results.get(timeout=150) for _ in processes))
    for process in processes:
        process.join(30)
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

    def wait(self, timeout: float = 240) -> int:
        self.join(timeout)
        assert self.exitcode is not None, f"not ended in {timeout} s: {self.log.read_text()}"
        return self.exitcode

    def send_signal(self, number: int) -> None:
        assert self.pid is not None
        os.kill(self.pid, number)


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
