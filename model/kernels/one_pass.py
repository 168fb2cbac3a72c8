"""What the one-pass kernels of this folder share: bfloat16 numbers in numba, and rows shared by threads.

torch makes one pass over memory for each operation; these kernels make one for a chain of them. Compiled by numba when
first called, and kept on disk from then on. bfloat16 numbers are widened to float32 and rounded to nearest even at the
end; products stay torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from model.compiled import compiled
from model.kernels.threads import share

I16, I32, F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()
FEW = 1 << 14  # numbers a thread takes at least

SUMS = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order, so in vectors; NaN and infinity stay what they are
_instruction: Any = intrinsic  # its stubs ask callers for the compiler's context
_inlined = numba.njit(forceinline=True, error_model="numpy", fastmath={"contract"})


@_instruction
def widen(context: Any, number: Any) -> Any:
    """A bfloat16's bits, or a float32, as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.float32:
            return arguments[0]
        return builder.bitcast(builder.shl(builder.zext(arguments[0], I32), I32(16)), F32)

    return types.float32(number), generate


@_instruction
def narrow(context: Any, number: Any, like: Any) -> Any:
    """A float32 as what `like` is: itself, or the nearest bfloat16's bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.return_type == types.float32:
            return arguments[0]
        bits = builder.bitcast(arguments[0], I32)
        odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
        return builder.trunc(builder.lshr(builder.add(builder.add(bits, odd), I32(0x7FFF)), I32(16)), I16)

    return like(types.float32, like), generate


@_instruction
def usual(context: Any, number: Any) -> Any:
    """A float32, NaN in its usual bits: `narrow` carries one of all ones, which float32 numbers may hold, to 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        bits = builder.select(nan, I32(0x7FC00000), builder.bitcast(arguments[0], I32))
        return builder.bitcast(bits, F32)

    return types.float32(types.float32), generate


@_instruction
def ordered(context: Any, bits: Any) -> Any:
    """A bfloat16's bits as an integer of the same order; its own inverse."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.xor(arguments[0], builder.and_(builder.ashr(arguments[0], I16(15)), I16(0x7FFF)))

    return (types.int16 if bits == types.uint16 else types.uint16)(bits), generate


@_instruction
def two_to(context: Any, shifted: Any) -> Any:
    """2^n of the whole number n that was added to 1.5 * 2^23: its bits, moved into a float32's exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        exponent = builder.shl(builder.bitcast(arguments[0], I32), I32(23))
        return builder.bitcast(builder.add(exponent, I32(0x3F800000)), F32)

    return types.float32(types.float32), generate


kernel = compiled(nogil=True, error_model="numpy", fastmath=SUMS)


@_inlined
def exp(x):
    """e^x to 3e-6 of itself, a hundredth of bfloat16's rounding; 0 below -87.7, infinite above 88.4, NaN of NaN."""
    t = x * np.float32(1.44269504)
    t = np.float32(-127) if t < np.float32(-127) else t
    t = np.float32(128) if t > np.float32(128) else t
    shifted = t + np.float32(12582912)
    f = t - (shifted - np.float32(12582912))
    p = np.float32(0.00958282) * f + np.float32(0.05590637)
    p = (p * f + np.float32(0.24024099)) * f + np.float32(0.6931242)
    return (p * f + np.float32(1)) * two_to(shifted)


@_inlined
def largest(row):
    """Of bfloat16 numbers, as integers: comparing floats would go one by one."""
    best = np.int16(-32768)
    for place in range(len(row)):
        one = ordered(row[place])
        best = one if one > best else best
    return widen(ordered(best))


def array(tensor: Tensor) -> np.ndarray:
    """The tensor's memory; bfloat16 numbers as their bits."""
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def run(function: Callable[..., None], rows: int, size: int, *arguments: Any) -> None:
    """A kernel over all rows, which hold `size` numbers, in as many threads as torch takes."""
    given = [array(one) if isinstance(one, Tensor) else one for one in arguments]
    share(rows, min(size // FEW, rows), lambda first, end: function(first, end, *given))


def flat(x: Tensor) -> Tensor:
    """Rows one below the other."""
    return x.view(-1, x.shape[-1])


def rows(x: Tensor) -> tuple[int, int]:
    """How many rows there are, and numbers in all of them."""
    return x.numel() // x.shape[-1], x.numel()
