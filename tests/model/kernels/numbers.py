"""Random bfloat16 numbers, and how near their rounding lets results be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

ROUNDING = 2**-8  # half of bfloat16's last place, twice: of a number and of its parts


def drawn(*shape: int, seed: int = 0, size: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size).bfloat16()


def close(mine: Tensor, exact: Tensor, by: float = ROUNDING, noise: float = 1e-30) -> None:
    """As near as `by` of the largest number, and `noise`."""
    torch.testing.assert_close(mine.double(), exact.double(), rtol=by, atol=by * float(exact.abs().max()) + noise)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
