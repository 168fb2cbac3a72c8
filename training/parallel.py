"""Data parallelism: who this process is, which samples are its own, and the collectives of a training step.

The ranks come from the environment that torchrun and the DeepSpeed launcher set alike (RANK, WORLD_SIZE, LOCAL_RANK,
MASTER_ADDR, MASTER_PORT); without it the process is a world of one and every collective is the identity. Every
collective has a timeout: a lost rank ends the others with an error and never hangs them.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from training.schedule import share

T = TypeVar("T")
BUCKET_ELEMENTS = 1 << 24  # gradients travel in buckets of 64 MiB: few calls, little extra memory


class RankError(RuntimeError):
    """Another rank is gone or silent, or replicas that must be equal are not: the run is not one run any more."""


@contextlib.contextmanager
def _answered() -> Iterator[None]:
    """Tell a lost rank apart from an error of our own."""
    try:
        yield
    except RuntimeError as error:
        raise lost(error) from error


def lost(error: RuntimeError) -> RankError:
    """What a failed collective means."""
    return RankError(
        "another rank has ended or did not answer in time: look for the first error in the other ranks' logs, then "
        f"start the same command again ({str(error).splitlines()[0][:200]})"
    )


@dataclass(frozen=True)
class World:
    """This process among all ranks, or among some that share something."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0
    group: dist.ProcessGroup | None = None
    """The process group; None is that of all ranks."""

    def share(self, count: int) -> range:
        """This rank's samples of a global batch of `count`: consecutive, and uneven where the world does not divide
        it."""
        offset, size = share(count, self.rank, self.size)
        return range(offset, offset + size)

    def all_reduce(self, tensor: Tensor, operation: Literal["sum", "max"] = "sum") -> Tensor:
        """`tensor`, reduced in place over the ranks."""
        if self.size > 1:
            with _answered():
                dist.all_reduce(tensor, dist.ReduceOp.SUM if operation == "sum" else dist.ReduceOp.MAX, self.group)
        return tensor

    def all_to_all(self, rows: Tensor, sends: list[int] | None = None, arrivals: list[int] | None = None) -> Tensor:
        """What all ranks send to this one, by rank: `rows` holds `sends[r]` rows for rank r, one after the other, and
        `arrivals[r]` come from it; without numbers all are equal."""
        if self.size == 1:
            return rows
        arrived = rows.new_empty(len(rows) if arrivals is None else sum(arrivals), *rows.shape[1:])
        with _answered():
            dist.all_to_all_single(arrived, rows.contiguous(), arrivals, sends, self.group)
        return arrived

    def all_reduce_gradients(self, parameters: Sequence[torch.nn.Parameter]) -> None:
        """Sum the gradients over the ranks, in a few flat buckets; a rank without samples counts as zero."""
        if self.size == 1:
            return
        bucket: list[torch.nn.Parameter] = []
        for at, parameter in enumerate(parameters):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter, dtype=parameter.grad_dtype)
            bucket.append(parameter)
            if at + 1 == len(parameters) or sum(p.numel() for p in bucket) >= BUCKET_ELEMENTS:
                gradients = [p.grad for p in bucket if p.grad is not None]
                flat = torch.cat([gradient.flatten() for gradient in gradients])
                self.all_reduce(flat)
                for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
                    gradient.copy_(part.view_as(gradient))
                bucket = []

    def broadcast(self, tensor: Tensor, source: int) -> Callable[[], None]:
        """Begin to fill `tensor` with that of rank `source`; the function returned waits until it is there."""
        if self.size == 1:
            return lambda: None
        with _answered():
            work = dist.broadcast(tensor, group=self.group, group_src=source, async_op=True)

        def wait() -> None:
            with _answered():
                work.wait()

        return wait

    def from_first(self, value: int) -> int:
        """Rank 0's `value`, on every rank."""
        return self.gather(value)[0]

    def gather(self, value: T) -> list[T]:
        """What every rank gives, pickled on its way, by rank, on every rank."""
        values: list[T] = [value] * self.size
        if self.size > 1:
            with _answered():
                dist.all_gather_object(values, value, self.group)
        return values

    def barrier(self) -> None:
        """Wait for every rank."""
        if self.size > 1:
            with _answered():
                dist.barrier(self.group)

    def assert_equal(self, what: str, tensors: Sequence[Tensor]) -> None:
        """Raise `RankError` unless `tensors` have the same sums, in float64, on every rank."""
        if self.size == 1 or not tensors:
            return
        sums = torch.stack([tensor.detach().double().sum() for tensor in tensors])
        highest, lowest = self.all_reduce(sums.clone(), "max"), -self.all_reduce(-sums, "max")
        different = int((highest != lowest).sum())
        if different:
            raise RankError(
                f"{what}: {different} of {len(tensors)} tensors differ between ranks; resume from the last checkpoint"
            )


@contextlib.contextmanager
def join(device: Literal["cpu", "cuda"] = "cpu", timeout_seconds: float = 600) -> Iterator[World]:
    """The world that the launcher made, for the length of a `with` block. The ranks meet in the file OPENK2_STORE;
    without it at MASTER_ADDR and MASTER_PORT, where torch listens to the whole network.

    Raises `RuntimeError` when a rank does not appear or does not answer a collective within `timeout_seconds`.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if device == "cuda":
        torch.cuda.set_device(local_rank)
    if size == 1:
        yield World(0, 1, local_rank)
        return
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo",
        rank=rank,
        world_size=size,
        timeout=datetime.timedelta(seconds=timeout_seconds),
        store=dist.FileStore(meeting, size) if (meeting := os.environ.get("OPENK2_STORE")) else None,
    )
    try:
        yield World(rank, size, local_rank)
    finally:
        dist.destroy_process_group()
