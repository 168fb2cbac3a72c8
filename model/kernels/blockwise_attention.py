"""Attention on a CPU, block by block: nothing is S x S, later keys cost nothing, and the maximum comes for nothing.

Blocks that fit a core's cache are multiplied one after the other; the maximum costs one look at what is there anyway.
torch's own kernel for CPUs gains nothing from bfloat16 and hides its logits. In bfloat16 softmax and its gradient are
one pass over a block each.

Shape suffixes: B batch, H heads, S sequence, Q query/key dimensions, V value dimensions; within a block R = rows x
heads, I queries, J keys, N = R x I.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.attention import Mask
from model.kernels.one_pass import exp, flat, kernel, largest, narrow, rows, run, widen

BLOCK_QUERIES = 128
BLOCK_LOGITS = 1 << 20  # logits held at once, two megabytes in bfloat16


def causal_attention(
    q_BHSQ: Tensor, k_BHSQ: Tensor, v_BHSV: Tensor, scale: float, mask: Mask | None = None, max_logits: bool = False
) -> tuple[Tensor, Tensor | None]:
    """`model.attention.causal_attention`."""
    bias, real = (mask.bias_BSS, mask.real_BS) if mask else (None, None)
    y_BHSV, maxima_H = _Blockwise.apply(q_BHSQ, k_BHSQ, v_BHSV, scale, bias, real, max_logits)
    return y_BHSV, maxima_H if max_logits else None


class _Blockwise(torch.autograd.Function):
    """Attention block by block; backward computes each block's logits again rather than keeping them.

    In bfloat16 the exponentials are divided by their sums after the product with the values, and backward has of each
    query the log of its sum (below); other dtypes take torch's softmax.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, real: Tensor | None, top: bool
    ):
        batch, heads, seq, _ = q.shape
        y_BHSV = q.new_empty(batch, seq, heads, v.shape[-1]).transpose(1, 2)
        best_H = torch.full((heads,), -torch.inf)
        log_BHS = q.new_empty(batch, heads, seq, dtype=torch.float32) if q.dtype == torch.bfloat16 else None
        with torch.autocast("cpu", enabled=False):
            for group, blocks in _blocks(q):
                # keys transposed in memory: products with them are 40 % faster than with the view
                q_RSQ, k_RQS, v_RSV = (_side_by_side(t[group]) for t in (q, k.mT, v))
                q_RSQ = q_RSQ * scale  # a pass over the queries instead of one over all logits
                for start, stop in blocks:
                    z_RIJ = _logits(q_RSQ, k_RQS, bias, heads, group, start, stop)
                    if log_BHS is None:
                        top_RI = z_RIJ.amax(-1) if top else None
                        y_RIV = torch.bmm(z_RIJ.softmax(-1), v_RSV[:, :stop])
                    else:
                        top_RI, total_RI = softmax(z_RIJ, start if bias is None else stop)
                        log_BHS[group, :, start:stop] = (top_RI + total_RI.log()).unflatten(0, (-1, heads))
                        y_RIV = divide_rows(torch.bmm(z_RIJ, v_RSV[:, :stop]), total_RI)
                    y_BHSV[group, :, start:stop] = y_RIV.unflatten(0, (-1, heads))
                    if top and top_RI is not None:
                        top_BHI = top_RI.unflatten(0, (-1, heads))
                        if real is not None:
                            top_BHI = top_BHI.masked_fill(~real[group, None, start:stop], -torch.inf)
                        best_H = torch.maximum(best_H, top_BHI.amax((0, 2)))
        ctx.save_for_backward(q, k, v, bias, *(() if log_BHS is None else (y_BHSV, log_BHS)))
        ctx.scale = scale
        maxima_H = best_H.float()
        ctx.mark_non_differentiable(maxima_H)
        return y_BHSV, maxima_H

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        q, k, v, bias, *kept = ctx.saved_tensors
        heads = q.shape[1]
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        with torch.autocast("cpu", enabled=False):
            for group, blocks in _blocks(q):
                q_RSQ, k_RSQ, v_RSV, dy_RSV = (_side_by_side(t[group]) for t in (q, k, v, grads[0]))
                q_RSQ = q_RSQ * ctx.scale
                k_RQS, v_RVS = k_RSQ.mT.contiguous(), v_RSV.mT.contiguous()
                sums = [_side_by_side(t[group]) for t in kept]
                dk_RSQ, dv_RSV = torch.empty_like(k_RSQ), torch.empty_like(v_RSV)
                for start, stop in reversed(blocks):  # the last one sees every key: the others add to what it gives
                    z_RIJ = _logits(q_RSQ, k_RQS, bias, heads, group, start, stop)
                    dy_RIV, seen = dy_RSV[:, start:stop], slice(0, stop)
                    dp_RIJ = torch.bmm(dy_RIV, v_RVS[..., seen])
                    if kept:
                        y_RSV, log_RS = sums
                        before = start if bias is None else stop
                        softmax_backward(z_RIJ, dp_RIJ, start, before, log_RS, dy_RSV, y_RSV)
                        p_RIJ, dz_RIJ = z_RIJ, dp_RIJ
                    else:
                        p_RIJ = z_RIJ.softmax(-1)
                        dz_RIJ = torch.ops.aten._softmax_backward_data(dp_RIJ, p_RIJ, -1, p_RIJ.dtype)
                    added = int(stop < q.shape[2])
                    torch.baddbmm(dv_RSV[:, seen], p_RIJ.mT, dy_RIV, beta=added, out=dv_RSV[:, seen])
                    torch.baddbmm(dk_RSQ[:, seen], dz_RIJ.mT, q_RSQ[:, start:stop], beta=added, out=dk_RSQ[:, seen])
                    dq_RIQ = torch.bmm(dz_RIJ, k_RSQ[:, seen]).mul_(ctx.scale)
                    dq[group, :, start:stop] = dq_RIQ.unflatten(0, (-1, heads))
                dk[group], dv[group] = dk_RSQ.unflatten(0, (-1, heads)), dv_RSV.unflatten(0, (-1, heads))
        return dq, dk, dv, None, None, None, None


def _side_by_side(x_BHSQ: Tensor) -> Tensor:
    """Rows and heads as one dimension, sequences in one piece: products of strided ones copy them block by block."""
    return x_BHSQ.flatten(0, 1).contiguous()


def _blocks(q_BHSQ: Tensor) -> list[tuple[slice, list[tuple[int, int]]]]:
    """Groups of batch rows, and within each the ranges of queries."""
    batch, heads, seq, _ = q_BHSQ.shape
    size = max(1, BLOCK_LOGITS // (heads * min(BLOCK_QUERIES, seq) * seq))
    queries = [(start, min(start + BLOCK_QUERIES, seq)) for start in range(0, seq, BLOCK_QUERIES)]
    return [(slice(row, min(row + size, batch)), queries) for row in range(0, batch, size)]


def _logits(
    q_RSQ: Tensor, k_RQS: Tensor, bias: Tensor | None, heads: int, group: slice, start: int, stop: int
) -> Tensor:
    """Logits of one block of scaled queries over the keys up to its end; the invisible ones at -inf, but where the
    kernels, which begin by looking, leave out the later keys themselves."""
    z_RIJ = torch.bmm(q_RSQ[:, start:stop], k_RQS[..., :stop])
    if bias is not None:
        z_RIJ.unflatten(0, (-1, heads)).add_(bias[group, None, start:stop, :stop])
    elif z_RIJ.dtype != torch.bfloat16:
        size = stop - start
        z_RIJ[..., start:] += z_RIJ.new_full((size, size), -torch.inf).triu_(1)
    return z_RIJ


def softmax(z_RIJ: Tensor, seen: int) -> tuple[Tensor, Tensor]:
    """Makes logits, in place, the exponentials over each row's largest one, not yet divided by their sums.

    Args:
        z_RIJ: bfloat16, contiguous.
        seen: keys before the block's first query; the query i sees i + 1 more of the J, where there are so many.

    Returns:
        Each row's largest logit and sum, float32 (R, I).
    """
    top_RI, total_RI = torch.empty(2, *z_RIJ.shape[:2]).unbind()
    run(_softmax, *rows(z_RIJ), flat(z_RIJ), seen, z_RIJ.shape[1], top_RI.view(-1), total_RI.view(-1))
    return top_RI, total_RI


def divide_rows(y_RIV: Tensor, by_RI: Tensor) -> Tensor:
    """Rows over a float32 each, in place, both contiguous."""
    run(_divide_rows, *rows(y_RIV), flat(y_RIV), by_RI.view(-1))
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
    blocks = (flat(z_RIJ), flat(dp_RIJ))
    run(_softmax_backward, *rows(z_RIJ), *blocks, start, seen, z_RIJ.shape[1], log_RS, dy_RSV, y_RSV)


@kernel
def _softmax(first, last, z_NJ, start, queries, top_N, total_N):
    for row in range(first, last):
        seen = min(start + row % queries + 1, z_NJ.shape[1])
        z_J = z_NJ[row]
        top, total = largest(z_J[:seen]), np.float32(0)
        for place in range(seen):
            e = exp(widen(z_J[place]) - top)
            total += e
            z_J[place] = narrow(e, z_J[place])
        z_J[seen:] = 0
        top_N[row], total_N[row] = (total if np.isnan(total) else top), total  # a negative NaN would not be the largest


@kernel
def _divide_rows(first, last, y_NW, by_N):
    for row in range(first, last):
        y_W, share = y_NW[row], np.float32(1) / by_N[row]
        for place in range(len(y_W)):
            y_W[place] = narrow(widen(y_W[place]) * share, y_W[place])


@kernel
def _softmax_backward(first, last, z_NJ, dp_NJ, start, seen_first, queries, log_RS, dy_RSV, y_RSV):
    for row in range(first, last):
        sequence, query = row // queries, row % queries
        seen = min(seen_first + query + 1, z_NJ.shape[1])
        z_J, dp_J, log = z_NJ[row], dp_NJ[row], log_RS[sequence, start + query]
        dy_V, y_V, delta = dy_RSV[sequence, start + query], y_RSV[sequence, start + query], np.float32(0)
        for place in range(len(y_V)):
            delta += widen(dy_V[place]) * widen(y_V[place])
        for place in range(seen):
            p = exp(widen(z_J[place]) - log)
            z_J[place] = narrow(p, z_J[place])
            dp_J[place] = narrow(p * (widen(dp_J[place]) - delta), z_J[place])
        z_J[seen:] = 0
        dp_J[seen:] = 0
