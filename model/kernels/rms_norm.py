"""RMSNorm on a CPU, bfloat16 or float32, one pass for the forward and one for the backward; it keeps x and 1 / rms(x).

Shape suffixes: N rows, W width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.kernels.one_pass import flat, kernel, narrow, rows, run, usual, widen

SUMMED_ROWS = 128  # rows added up in one go, however many threads there are: the same bits


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """`model.attention.rms_norm`."""
    y: Tensor = _RMSNorm.apply(x, weight, eps, dtype)
    return y


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        y, inverse = normed(x, weight, eps, dtype)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, inverse = ctx.saved_tensors
        dx, dweight = gradients(grads[0], x, weight, inverse)
        return dx, dweight.to(weight.dtype), None, None


def normed(x: Tensor, weight_W: Tensor, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x / rms(x) * weight in `dtype`, and 1 / rms(x), float32 (..., 1)."""
    x = x.contiguous()
    y, inverse = torch.empty_like(x, dtype=dtype), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)
    run(_rms_norm, *rows(x), flat(x), weight_W.float(), eps, flat(y), inverse.view(-1))
    return y, inverse


def gradients(dy: Tensor, x: Tensor, weight_W: Tensor, inverse: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of x, in its dtype, and of the weight, float32."""
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    count, size = rows(x)
    groups = -(-count // SUMMED_ROWS)
    sums = torch.zeros(groups, x.shape[-1])
    run(_rms_norm_backward, groups, size, flat(dy), flat(x), weight_W.float(), inverse.view(-1), flat(dx), sums)
    return dx, sums.sum(0)


@kernel
def _rms_norm(first, last, x_NW, weight_W, eps, y_NW, inverse_N):
    for row in range(first, last):
        x_W, y_W = x_NW[row], y_NW[row]
        total = np.float32(0)
        for place in range(len(x_W)):
            total += widen(x_W[place]) * widen(x_W[place])
        inverse = np.float32(1) / np.sqrt(total / np.float32(len(x_W)) + np.float32(eps))
        inverse_N[row] = inverse
        for place in range(len(x_W)):
            y_W[place] = narrow(usual(widen(x_W[place]) * inverse * weight_W[place]), y_W[place])


@kernel
def _rms_norm_backward(first, last, dy_NW, x_NW, weight_W, inverse_N, dx_NW, dweight_W):
    """Here a row of `first` to `last` is a group of SUMMED_ROWS, with a row of dweight_W of its own."""
    for group in range(first, last):
        sums_W = dweight_W[group]
        for row in range(group * SUMMED_ROWS, min((group + 1) * SUMMED_ROWS, len(x_NW))):
            dy_W, x_W, dx_W, inverse = dy_NW[row], x_NW[row], dx_NW[row], inverse_N[row]
            shared = np.float32(0)
            for place in range(len(x_W)):
                by_weight = widen(dy_W[place]) * (widen(x_W[place]) * inverse)
                shared += by_weight * weight_W[place]
                sums_W[place] += by_weight
            shared *= inverse / np.float32(len(x_W))
            for place in range(len(x_W)):
                dx = (widen(dy_W[place]) * weight_W[place] - widen(x_W[place]) * shared) * inverse
                dx_W[place] = narrow(usual(dx), dx_W[place])
