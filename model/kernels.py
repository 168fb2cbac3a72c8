"""Passes over bfloat16 numbers on a CPU: one over memory where torch makes one for each operation.

Compiled by numba when first called, and kept on disk from then on. Numbers are widened to float32 and rounded to
nearest even at the end. Products stay torch's; every kernel has its peer in torch operations, which other dtypes and
devices take, beside the place that calls it.

Shape suffixes: N rows that are computed one by one (threads share them); R sequences, S their length, I queries of a
block, J keys, V dimensions of a value, in the cross-entropy the vocabulary; W width, F inner width.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from torch import Tensor

from model.threads import share

I16, I32, F32 = ir.IntType(16), ir.IntType(32), ir.FloatType()
FEW = 1 << 14  # numbers a thread takes at least
SUMMED_ROWS = 128  # rows added up in one go, however many threads there are: the same bits

SUMS = {"reassoc", "contract", "nsz", "arcp"}  # sums in any order, so in vectors; NaN and infinity stay what they are
_instruction: Any = intrinsic  # its stubs ask callers for the compiler's context
_inlined = numba.njit(forceinline=True, error_model="numpy", fastmath={"contract"})


@_instruction
def _widen(context: Any, number: Any) -> Any:
    """A bfloat16's bits, or a float32, as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.float32:
            return arguments[0]
        return builder.bitcast(builder.shl(builder.zext(arguments[0], I32), I32(16)), F32)

    return types.float32(number), generate


@_instruction
def _narrow(context: Any, number: Any, like: Any) -> Any:
    """A float32 as what `like` is: itself, or the nearest bfloat16's bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.return_type == types.float32:
            return arguments[0]
        bits = builder.bitcast(arguments[0], I32)
        odd = builder.and_(builder.lshr(bits, I32(16)), I32(1))
        return builder.trunc(builder.lshr(builder.add(builder.add(bits, odd), I32(0x7FFF)), I32(16)), I16)

    return like(types.float32, like), generate


@_instruction
def _usual(context: Any, number: Any) -> Any:
    """A float32, NaN in its usual bits: `_narrow` carries one of all ones, which float32 numbers may hold, to 0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        nan = builder.fcmp_unordered("uno", arguments[0], arguments[0])
        bits = builder.select(nan, I32(0x7FC00000), builder.bitcast(arguments[0], I32))
        return builder.bitcast(bits, F32)

    return types.float32(types.float32), generate


@_instruction
def _ordered(context: Any, bits: Any) -> Any:
    """A bfloat16's bits as an integer of the same order; its own inverse."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.xor(arguments[0], builder.and_(builder.ashr(arguments[0], I16(15)), I16(0x7FFF)))

    return (types.int16 if bits == types.uint16 else types.uint16)(bits), generate


@_instruction
def _two_to(context: Any, shifted: Any) -> Any:
    """2^n of the whole number n that was added to 1.5 * 2^23: its bits, moved into a float32's exponent."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        exponent = builder.shl(builder.bitcast(arguments[0], I32), I32(23))
        return builder.bitcast(builder.add(exponent, I32(0x3F800000)), F32)

    return types.float32(types.float32), generate


def _kernel(function: Callable[..., None]) -> Any:
    """Compiled at its first call, and kept on disk unless neither this folder nor the user's cache can be written."""
    compiled = partial(numba.njit, nogil=True, error_model="numpy", fastmath=SUMS)
    try:
        return compiled(cache=True)(function)
    except RuntimeError:  # no place to keep it: every process compiles its own
        return compiled()(function)


@_inlined
def _exp(x):
    """e^x to 3e-6 of itself, a hundredth of bfloat16's rounding; 0 below -87.7, infinite above 88.4, NaN of NaN."""
    t = x * np.float32(1.44269504)
    t = np.float32(-127) if t < np.float32(-127) else t
    t = np.float32(128) if t > np.float32(128) else t
    shifted = t + np.float32(12582912)
    f = t - (shifted - np.float32(12582912))
    p = np.float32(0.00958282) * f + np.float32(0.05590637)
    p = (p * f + np.float32(0.24024099)) * f + np.float32(0.6931242)
    return (p * f + np.float32(1)) * _two_to(shifted)


@_inlined
def _sigmoid(x):
    return np.float32(1) / (np.float32(1) + _exp(-x))


@_inlined
def _largest(row):
    """Of bfloat16 numbers, as integers: comparing floats would go one by one."""
    best = np.int16(-32768)
    for place in range(len(row)):
        one = _ordered(row[place])
        best = one if one > best else best
    return _widen(_ordered(best))


@_kernel
def _softmax(first, last, z_NJ, start, queries, top_N, total_N):
    for row in range(first, last):
        seen = min(start + row % queries + 1, z_NJ.shape[1])
        z_J = z_NJ[row]
        top, total = _largest(z_J[:seen]), np.float32(0)
        for place in range(seen):
            e = _exp(_widen(z_J[place]) - top)
            total += e
            z_J[place] = _narrow(e, z_J[place])
        z_J[seen:] = 0
        top_N[row], total_N[row] = (total if np.isnan(total) else top), total  # a negative NaN would not be the largest


@_kernel
def _divide_rows(first, last, y_NW, by_N):
    for row in range(first, last):
        y_W, share = y_NW[row], np.float32(1) / by_N[row]
        for place in range(len(y_W)):
            y_W[place] = _narrow(_widen(y_W[place]) * share, y_W[place])


@_kernel
def _softmax_backward(first, last, z_NJ, dp_NJ, start, seen_first, queries, log_RS, dy_RSV, y_RSV):
    for row in range(first, last):
        sequence, query = row // queries, row % queries
        seen = min(seen_first + query + 1, z_NJ.shape[1])
        z_J, dp_J, log = z_NJ[row], dp_NJ[row], log_RS[sequence, start + query]
        dy_V, y_V, delta = dy_RSV[sequence, start + query], y_RSV[sequence, start + query], np.float32(0)
        for place in range(len(y_V)):
            delta += _widen(dy_V[place]) * _widen(y_V[place])
        for place in range(seen):
            p = _exp(_widen(z_J[place]) - log)
            z_J[place] = _narrow(p, z_J[place])
            dp_J[place] = _narrow(p * (_widen(dp_J[place]) - delta), z_J[place])
        z_J[seen:] = 0
        dp_J[seen:] = 0


@_kernel
def _cross_entropy(first, last, z_NV, target_N, loss_N):
    for row in range(first, last):
        z_V, target = z_NV[row], target_N[row]
        if target < 0:
            z_V[:] = 0
            loss_N[row] = 0
            continue
        top, total = _largest(z_V), np.float32(0)
        for place in range(len(z_V)):
            total += _exp(_widen(z_V[place]) - top)
        log, own = np.log(total) + top, _widen(z_V[target])
        loss_N[row] = log - own
        for place in range(len(z_V)):
            z_V[place] = _narrow(_exp(_widen(z_V[place]) - log), z_V[place])
        z_V[target] = _narrow(_exp(own - log) - np.float32(1), z_V[target])


@_kernel
def _silu_times(first, last, gate_NF, up_NF, y_NF):
    for row in range(first, last):
        gate_F, up_F, y_F = gate_NF[row], up_NF[row], y_NF[row]
        for place in range(len(y_F)):
            gate = _widen(gate_F[place])
            y_F[place] = _narrow(gate * _sigmoid(gate) * _widen(up_F[place]), y_F[place])


@_kernel
def _silu_times_backward(first, last, dy_NF, gate_NF, up_NF, dgate_NF, dup_NF):
    for row in range(first, last):
        dy_F, gate_F, up_F = dy_NF[row], gate_NF[row], up_NF[row]
        dgate_F, dup_F = dgate_NF[row], dup_NF[row]
        for place in range(len(dy_F)):
            dy, gate, up = _widen(dy_F[place]), _widen(gate_F[place]), _widen(up_F[place])
            s = _sigmoid(gate)
            dgate_F[place] = _narrow(dy * up * s * (np.float32(1) + gate * (np.float32(1) - s)), dgate_F[place])
            dup_F[place] = _narrow(dy * gate * s, dup_F[place])


@_kernel
def _rms_norm(first, last, x_NW, weight_W, eps, y_NW, inverse_N):
    for row in range(first, last):
        x_W, y_W = x_NW[row], y_NW[row]
        total = np.float32(0)
        for place in range(len(x_W)):
            total += _widen(x_W[place]) * _widen(x_W[place])
        inverse = np.float32(1) / np.sqrt(total / np.float32(len(x_W)) + np.float32(eps))
        inverse_N[row] = inverse
        for place in range(len(x_W)):
            y_W[place] = _narrow(_usual(_widen(x_W[place]) * inverse * weight_W[place]), y_W[place])


@_kernel
def _rms_norm_backward(first, last, dy_NW, x_NW, weight_W, inverse_N, dx_NW, dweight_W):
    """Here a row of `first` to `last` is a group of SUMMED_ROWS, with a row of dweight_W of its own."""
    for group in range(first, last):
        sums_W = dweight_W[group]
        for row in range(group * SUMMED_ROWS, min((group + 1) * SUMMED_ROWS, len(x_NW))):
            dy_W, x_W, dx_W, inverse = dy_NW[row], x_NW[row], dx_NW[row], inverse_N[row]
            shared = np.float32(0)
            for place in range(len(x_W)):
                by_weight = _widen(dy_W[place]) * (_widen(x_W[place]) * inverse)
                shared += by_weight * weight_W[place]
                sums_W[place] += by_weight
            shared *= inverse / np.float32(len(x_W))
            for place in range(len(x_W)):
                dx = (_widen(dy_W[place]) * weight_W[place] - _widen(x_W[place]) * shared) * inverse
                dx_W[place] = _narrow(_usual(dx), dx_W[place])


def _array(tensor: Tensor) -> np.ndarray:
    tensor = tensor.detach()
    return (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()


def _run(kernel: Callable[..., None], rows: int, size: int, *arguments: Any) -> None:
    """`kernel` over all rows, which hold `size` numbers, in as many threads as torch takes."""
    given = [_array(one) if isinstance(one, Tensor) else one for one in arguments]
    share(rows, min(size // FEW, rows), lambda first, end: kernel(first, end, *given))


def takes(*tensors: Tensor) -> bool:
    """Whether these kernels are for such tensors: in bfloat16 on a CPU, something in them."""
    return all(t.dtype == torch.bfloat16 and t.device.type == "cpu" and t.numel() > 0 for t in tensors)


def takes_rows(x: Tensor, dtype: torch.dtype) -> bool:
    """Whether the norm's kernels are for x, on a CPU in float32 or bfloat16, with an output in `dtype`."""
    known = dtype == torch.bfloat16 and x.dtype in (torch.float32, torch.bfloat16)
    return known and x.device.type == "cpu" and x.numel() > 0


def softmax(z_RIJ: Tensor, seen: int) -> tuple[Tensor, Tensor]:
    """Makes logits, in place, the exponentials over each row's largest one, not yet divided by their sums.

    Args:
        z_RIJ: bfloat16, contiguous.
        seen: keys before the block's first query; the query i sees i + 1 more of the J, where there are so many.

    Returns:
        Each row's largest logit and sum, float32 (R, I).
    """
    top_RI, total_RI = torch.empty(2, *z_RIJ.shape[:2]).unbind()
    flat = _flat(z_RIJ)
    _run(_softmax, *_rows(z_RIJ), flat, seen, z_RIJ.shape[1], top_RI.view(-1), total_RI.view(-1))
    return top_RI, total_RI


def divide_rows(y_RIV: Tensor, by_RI: Tensor) -> Tensor:
    """Rows over a float32 each, in place, both contiguous."""
    _run(_divide_rows, *_rows(y_RIV), _flat(y_RIV), by_RI.view(-1))
    return y_RIV


def softmax_backward(
    z_RIJ: Tensor, dp_RIJ: Tensor, start: int, seen: int, log_RS: Tensor, dy_RSV: Tensor, y_RSV: Tensor
) -> None:
    """Makes logits probabilities p, and the gradients of p those of the logits, both in place.

    Args:
        z_RIJ, seen: as in `softmax`.
        dp_RIJ: gradients of the probabilities, bfloat16, contiguous.
        start: place of the block's first query among the S.
        log_RS: log sum exp of every query's logits, float32, contiguous.
        dy_RSV, y_RSV: the attention's output and its gradient, contiguous: their product is the sum of p * dp.
    """
    flat, grads = _flat(z_RIJ), _flat(dp_RIJ)
    _run(_softmax_backward, *_rows(z_RIJ), flat, grads, start, seen, z_RIJ.shape[1], log_RS, dy_RSV, y_RSV)


def cross_entropy(z_CV: Tensor, targets_C: Tensor) -> Tensor:
    """-log p(target) of each row, float32 (C,); its logits become their gradients. Both are 0 for a target below 0.

    Raises:
        IndexError: a target beyond the vocabulary, where the kernel would write outside of the row.
    """
    if (largest := int(targets_C.max())) >= z_CV.shape[1]:
        raise IndexError(f"target {largest} is no id of a vocabulary of {z_CV.shape[1]}; use the model's tokenizer")
    loss_C = torch.empty(len(z_CV))
    _run(_cross_entropy, len(z_CV), z_CV.numel(), z_CV, targets_C, loss_C)
    return loss_C


def silu_times(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up."""
    gate, up = gate.contiguous(), up.contiguous()
    y = torch.empty_like(gate)
    _run(_silu_times, *_rows(gate), *(_flat(t) for t in (gate, up, y)))
    return y


def silu_times_backward(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of gate and up."""
    dy, gate, up = dy.contiguous(), gate.contiguous(), up.contiguous()
    dgate, dup = torch.empty_like(gate), torch.empty_like(gate)
    _run(_silu_times_backward, *_rows(gate), *(_flat(t) for t in (dy, gate, up, dgate, dup)))
    return dgate, dup


def rms_norm(x: Tensor, weight_W: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x / rms(x) * weight in bfloat16, and 1 / rms(x), float32 (..., 1); x is float32 or bfloat16."""
    x = x.contiguous()
    y, inverse = torch.empty_like(x, dtype=torch.bfloat16), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)
    _run(_rms_norm, *_rows(x), _flat(x), weight_W.float(), eps, _flat(y), inverse.view(-1))
    return y, inverse


def rms_norm_backward(dy: Tensor, x: Tensor, weight_W: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x, in its dtype, and of the weight, float32."""
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    rows, size = _rows(x)
    groups = -(-rows // SUMMED_ROWS)
    sums = torch.zeros(groups, x.shape[-1])
    _run(_rms_norm_backward, groups, size, _flat(dy), _flat(x), weight_W.float(), inverse.view(-1), _flat(dx), sums)
    return dx, sums.sum(0)


def _flat(x: Tensor) -> Tensor:
    return x.view(-1, x.shape[-1])


def _rows(x: Tensor) -> tuple[int, int]:
    return x.numel() // x.shape[-1], x.numel()
