"""Elementwise functions in one pass over memory where a compiler pays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, wraps
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


def fused(fn: Callable[..., Result]) -> Callable[..., Result]:
    """`fn` compiled into one kernel on a GPU, for any number of rows; as it is on a CPU.

    A CPU would gain as well (docs/memory.md), but every process would begin with seconds of compiling, and need a C++
    compiler.
    """

    @cache
    def compiled() -> Any:
        return torch.compile(fn, dynamic=True)

    @wraps(fn)
    def call(first: torch.Tensor, *others: Any) -> Result:
        return compiled()(first, *others) if first.is_cuda else fn(first, *others)

    return call
