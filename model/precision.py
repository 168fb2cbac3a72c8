"""Which dtype a layer computes in, and which one this machine multiplies fast."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

SHAPE = (128, 256, 256)  # rows, inner and outer width of the products that are timed: as large as a small model's
SECONDS = 0.01  # of products in each precision, one at least, after the first, which prepares a kernel; the best counts
FASTER = 1.25  # bfloat16 rounds: it has to be worth it. Measured: 4 with AMX, 0.2 to 0.6 without, 0.01 on AVX2
CAPABILITY = 8  # CUDA's compute capability from which tensor cores multiply bfloat16


def compute_dtype(x: Tensor) -> torch.dtype:
    """Autocast's dtype where autocast is on for the tensor's device, else the tensor's own."""
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return x.dtype


def dtype_of(precision: str, device: torch.device) -> torch.dtype:
    """The dtype that `precision` names; of `auto`, the one that the device multiplies fast."""
    return getattr(torch, speed(device.type).fast if precision == "auto" else precision)


@dataclass(frozen=True)
class Speed:
    """How fast a device multiplies in either precision."""

    device: str
    """As in "this CPU"."""
    fast: str
    """`bfloat16` or `float32`."""
    rates: Mapping[str, float] | None = None
    """FLOP/s of one core by precision; None where it was not measured."""

    def of(self, precision: str) -> str:
        """What becomes of products in `precision` here, in one clause."""
        other = "float32" if precision == "bfloat16" else "bfloat16"
        if self.rates is None:
            how = "fastest" if precision == self.fast else "without tensor cores"
            return f"this {self.device} multiplies {precision} {how}"
        own, others = self.rates[precision], self.rates[other]
        factor = f"{own / others:.3g} times faster" if own >= others else f"{others / own:.3g} times slower"
        return (
            f"this {self.device} multiplies {precision} {factor} than {other} "
            f"({own / 1e9:.3g} against {others / 1e9:.3g} GFLOP/s a core)"
        )


@cache
def speed(device: str) -> Speed:
    """What `device` (auto, cpu or cuda, as a training job takes it) multiplies fast.

    A CPU is timed, some milliseconds in each precision: what its flags promise is one thing, and what torch's libraries
    make of them another. A GPU is asked for its compute capability; one that is elsewhere is taken for one that has
    bfloat16.
    """
    if device == "cuda" or (device == "auto" and torch.cuda.is_available()):
        old = torch.cuda.is_available() and not torch.version.hip and torch.cuda.get_device_capability()[0] < CAPABILITY
        return Speed("GPU", "float32" if old else "bfloat16")
    rates = {"float32": _rate(torch.float32), "bfloat16": _rate(torch.bfloat16)}
    return Speed("CPU", "bfloat16" if rates["bfloat16"] >= FASTER * rates["float32"] else "float32", rates)


def _rate(dtype: torch.dtype) -> float:
    """FLOP/s of one core, in the time of this thread alone: others on the machine do not change the answer."""
    rows, inner, outer = SHAPE
    a, b = (torch.ones(size, dtype=dtype, device="cpu") for size in ((rows, inner), (inner, outer)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        taken: list[float] = []
        while len(taken) < 2 or sum(taken[1:]) < SECONDS:
            began = time.thread_time()
            with torch.autocast("cpu", enabled=False):
                torch.mm(a, b)
            taken.append(max(time.thread_time() - began, 1e-9))
    finally:
        torch.set_num_threads(threads)
    return 2 * rows * inner * outer / min(taken)
