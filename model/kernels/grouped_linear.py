"""Linear layers of experts, each over its own rows, in bfloat16: on a CPU group by group, on a GPU in one kernel.

On a CPU oneDNN prepares a kernel for every new shape, which costs seven times the product itself, and expert loads are
new in every step: so each group's number of rows is rounded up. Of the rows beyond a group's end nothing is used.

Shape suffixes: N rows sorted by expert, I input and O output width, E experts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

Product = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of rows and of each group's counts: (N, I), (E, I, O) give (N, O); (O, N), (N, I) give (E, O, I)."""


def padded(x_NI: Tensor, w_EOI: Tensor, counts_E: Tensor) -> Tensor:
    """`model.moe.grouped_linear` on a CPU."""
    y_NO: Tensor = _GroupedLinear.apply(x_NI, w_EOI, counts_E, padded_product)
    return y_NO


def grouped_mm(x_NI: Tensor, w_EOI: Tensor, counts_E: Tensor) -> Tensor:
    """`model.moe.grouped_linear` on a GPU."""
    y_NO: Tensor = _GroupedLinear.apply(x_NI, w_EOI, counts_E, one_kernel)
    return y_NO


class _GroupedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, w_EOI: Tensor, counts_E: Tensor, product: Product) -> Tensor:
        ctx.save_for_backward(x_NI, w_EOI, counts_E)
        ctx.product = product
        return product(x_NI, w_EOI.mT, counts_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        x_NI, w_EOI, counts_E = ctx.saved_tensors
        dy_NO = grads[0].contiguous()
        dx_NI = ctx.product(dy_NO, w_EOI, counts_E) if ctx.needs_input_grad[0] else None
        dw_EOI = ctx.product(dy_NO.mT, x_NI, counts_E) if ctx.needs_input_grad[1] else None
        return dx_NI, dw_EOI, None, None


def one_kernel(a: Tensor, b: Tensor, counts_E: Tensor) -> Tensor:
    """torch's grouped product."""
    return F.grouped_mm(a, b, offs=counts_E.cumsum(0, dtype=torch.int32))


def padded_product(a: Tensor, b: Tensor, counts_E: Tensor) -> Tensor:
    """Group by group, the number of rows rounded up."""
    ends_E = counts_E.cumsum(0)
    spans = zip((ends_E - counts_E).tolist(), ends_E.tolist(), strict=True)
    groups = [(expert, start, end) for expert, (start, end) in enumerate(spans) if start < end]
    if b.dim() == 3:
        out = a.new_empty(len(a), b.shape[-1])
        for expert, start, end in groups:
            stop = start + _bucket(end - start)
            if stop <= len(a):  # beyond `end` the next group writes over it
                torch.mm(a[start:stop], b[expert], out=out[start:stop])
            else:
                out[start:end] = torch.mm(F.pad(a[start:end], (0, 0, 0, stop - end)), b[expert])[: end - start]
        return out
    sums, left = a.new_zeros(len(counts_E), len(a), b.shape[-1]), a.mT
    for expert, start, end in groups:
        stop = start + _bucket(end - start)
        right = b[start:stop] if stop <= len(b) else F.pad(b[start:end], (0, 0, 0, stop - end))
        torch.mm(F.pad(left[start:end], (0, 0, 0, stop - end)).mT, right, out=sums[expert])
    return sums


def _bucket(rows: int) -> int:
    """`rows` rounded up to a power of two, above 16 to a multiple of 16."""
    return 1 << (rows - 1).bit_length() if rows <= 16 else -(-rows // 16) * 16
