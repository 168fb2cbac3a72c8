"""Ranks as forked processes of the tests: real gloo process groups, and how each rank ended."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import ForkProcess
from typing import Any

import torch

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
