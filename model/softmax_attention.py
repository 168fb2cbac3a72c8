"""Causal softmax attention, with each head's largest logit as a by-product.

Shape suffixes: B batch, H heads, S sequence, Q query/key dimensions, V value dimensions; within a block R = rows x
heads, I queries, J keys.

A GPU takes torch's fused kernels: flash attention, and FlexAttention (`model/flex.py`) where there are documents or the
maximum is asked for. On a CPU torch's own kernel gains nothing from bfloat16 (84 ms against 42 for 8,192
tokens of 4 heads, forward and backward; docs/model.md) and hides its logits; so here blocks that fit a core's cache are
multiplied one after the other, and the maximum costs one look at what is there anyway.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from model import kernels
from model.flex import block_mask, blockwise_attention, causal_blocks

BLOCK_QUERIES = 128
BLOCK_LOGITS = 1 << 20  # logits held at once on a CPU, two megabytes in bfloat16


class Mask(NamedTuple):
    """Which keys a query sees.

    Attributes:
        real_BS: False at padding, whose queries no maximum sees.
        bias_BSS: on a CPU, 0 where a query sees a key, -inf elsewhere (causality included).
        blocks: elsewhere, the blocks of keys that each block of queries visits.
    """

    real_BS: Tensor
    bias_BSS: Tensor | None = None
    blocks: BlockMask | None = None


def document_mask(segments_BS: Tensor, dtype: torch.dtype = torch.float32, shared_prompt: bool = False) -> Mask:
    """The mask of packed documents: causal, and only within one segment; ids below 0 mark padding.

    Args:
        segments_BS: an id per position.
        dtype: of the bias.
        shared_prompt: segment 0 is a prompt that all later segments, its answers, see as well.
    """
    if segments_BS.device.type != "cpu":
        return Mask(segments_BS >= 0, blocks=block_mask(segments_BS, shared_prompt))
    query_BS1, key_B1S = segments_BS[:, :, None], segments_BS[:, None, :]
    seen_BSS = query_BS1 == key_B1S
    if shared_prompt:
        seen_BSS |= (key_B1S == 0) & (query_BS1 > 0)
    seen_BSS &= torch.ones(seen_BSS.shape[1:], dtype=torch.bool).tril()
    bias_BSS = torch.zeros(seen_BSS.shape, dtype=dtype).masked_fill_(~seen_BSS, -torch.inf)
    return Mask(segments_BS >= 0, bias_BSS)


def causal_attention(
    q_BHSQ: Tensor, k_BHSQ: Tensor, v_BHSV: Tensor, scale: float, mask: Mask | None = None, max_logits: bool = False
) -> tuple[Tensor, Tensor | None]:
    """softmax(scale * q k^T) v over the keys that each query sees.

    Returns:
        The output (B, H, S, V), and when asked each head's largest logit as softmax sees it, float32 (H,): after the
        scale, over visible keys of queries that are not padding; -inf where there is no such query. On a CPU NaN stays
        NaN.
    """
    if q_BHSQ.device.type == "cpu":
        bias, real = (mask.bias_BSS, mask.real_BS) if mask else (None, None)
        y_BHSV, maxima_H = _Blockwise.apply(q_BHSQ, k_BHSQ, v_BHSV, scale, bias, real, max_logits)
        return y_BHSV, maxima_H if max_logits else None
    if mask is not None or max_logits:
        blocks = mask.blocks if mask else causal_blocks(q_BHSQ.shape[2], q_BHSQ.device)
        assert blocks is not None  # `document_mask` made them for this device
        return blockwise_attention(q_BHSQ, k_BHSQ, v_BHSV, scale, blocks, mask.real_BS if mask else None, max_logits)
    # the flash kernels want values as wide as the keys: zeros beside them cost less than the plain kernel
    keys, values = k_BHSQ.shape[-1], v_BHSV.shape[-1]
    wide_BHSV = F.pad(v_BHSV, (0, max(keys - values, 0)))
    y_BHSV = F.scaled_dot_product_attention(q_BHSQ, k_BHSQ, wide_BHSV, is_causal=True, scale=scale)
    return y_BHSV[..., :values], None


class _Blockwise(torch.autograd.Function):
    """Attention block by block; backward computes each block's logits again rather than keeping them.

    In bfloat16 the exponentials are divided by their sums after the product with the values, and backward has of each
    query the log of its sum (`model/kernels.py`); other dtypes take torch's softmax.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, bias: Tensor | None, real: Tensor | None, top: bool
    ):
        batch, heads, seq, _ = q.shape
        y_BHSV = q.new_empty(batch, seq, heads, v.shape[-1]).transpose(1, 2)
        best_H = torch.full((heads,), -torch.inf)
        log_BHS = q.new_empty(batch, heads, seq, dtype=torch.float32) if kernels.takes(q, k, v) else None
        with torch.autocast("cpu", enabled=False):
            for rows, blocks in _blocks(q):
                # keys transposed in memory: products with them are 40 % faster than with the view
                q_RSQ, k_RQS, v_RSV = (_side_by_side(t[rows]) for t in (q, k.mT, v))
                q_RSQ = q_RSQ * scale  # a pass over the queries instead of one over all logits
                for start, stop in blocks:
                    z_RIJ = _logits(q_RSQ, k_RQS, bias, heads, rows, start, stop)
                    if log_BHS is None:
                        top_RI = z_RIJ.amax(-1) if top else None
                        y_RIV = torch.bmm(z_RIJ.softmax(-1), v_RSV[:, :stop])
                    else:
                        top_RI, total_RI = kernels.softmax(z_RIJ, start if bias is None else stop)
                        log_BHS[rows, :, start:stop] = (top_RI + total_RI.log()).unflatten(0, (-1, heads))
                        y_RIV = kernels.divide_rows(torch.bmm(z_RIJ, v_RSV[:, :stop]), total_RI)
                    y_BHSV[rows, :, start:stop] = y_RIV.unflatten(0, (-1, heads))
                    if top and top_RI is not None:
                        top_BHI = top_RI.unflatten(0, (-1, heads))
                        if real is not None:
                            top_BHI = top_BHI.masked_fill(~real[rows, None, start:stop], -torch.inf)
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
            for rows, blocks in _blocks(q):
                q_RSQ, k_RSQ, v_RSV, dy_RSV = (_side_by_side(t[rows]) for t in (q, k, v, grads[0]))
                q_RSQ = q_RSQ * ctx.scale
                k_RQS, v_RVS = k_RSQ.mT.contiguous(), v_RSV.mT.contiguous()
                sums = [_side_by_side(t[rows]) for t in kept]
                dk_RSQ, dv_RSV = torch.empty_like(k_RSQ), torch.empty_like(v_RSV)
                for start, stop in reversed(blocks):  # the last one sees every key: the others add to what it gives
                    z_RIJ = _logits(q_RSQ, k_RQS, bias, heads, rows, start, stop)
                    dy_RIV, seen = dy_RSV[:, start:stop], slice(0, stop)
                    dp_RIJ = torch.bmm(dy_RIV, v_RVS[..., seen])
                    if kept:
                        y_RSV, log_RS = sums
                        before = start if bias is None else stop
                        kernels.softmax_backward(z_RIJ, dp_RIJ, start, before, log_RS, dy_RSV, y_RSV)
                        p_RIJ, dz_RIJ = z_RIJ, dp_RIJ
                    else:
                        p_RIJ = z_RIJ.softmax(-1)
                        dz_RIJ = torch.ops.aten._softmax_backward_data(dp_RIJ, p_RIJ, -1, p_RIJ.dtype)
                    added = int(stop < q.shape[2])
                    torch.baddbmm(dv_RSV[:, seen], p_RIJ.mT, dy_RIV, beta=added, out=dv_RSV[:, seen])
                    torch.baddbmm(dk_RSQ[:, seen], dz_RIJ.mT, q_RSQ[:, start:stop], beta=added, out=dk_RSQ[:, seen])
                    dq_RIQ = torch.bmm(dz_RIJ, k_RSQ[:, seen]).mul_(ctx.scale)
                    dq[rows, :, start:stop] = dq_RIQ.unflatten(0, (-1, heads))
                dk[rows], dv[rows] = dk_RSQ.unflatten(0, (-1, heads)), dv_RSV.unflatten(0, (-1, heads))
        return dq, dk, dv, None, None, None, None


def _side_by_side(x_BHSQ: Tensor) -> Tensor:
    """Rows and heads as one dimension, sequences in one piece: products of strided ones copy them block by block."""
    return x_BHSQ.flatten(0, 1).contiguous()


def _blocks(q_BHSQ: Tensor) -> list[tuple[slice, list[tuple[int, int]]]]:
    """Groups of batch rows, and within each the ranges of queries."""
    batch, heads, seq, _ = q_BHSQ.shape
    rows = max(1, BLOCK_LOGITS // (heads * min(BLOCK_QUERIES, seq) * seq))
    queries = [(start, min(start + BLOCK_QUERIES, seq)) for start in range(0, seq, BLOCK_QUERIES)]
    return [(slice(row, min(row + rows, batch)), queries) for row in range(0, batch, rows)]


def _logits(
    q_RSQ: Tensor, k_RQS: Tensor, bias: Tensor | None, heads: int, rows: slice, start: int, stop: int
) -> Tensor:
    """Logits of one block of scaled queries over the keys up to its end; the invisible ones at -inf, but where the
    kernels, which begin by looking, leave out the later keys themselves."""
    z_RIJ = torch.bmm(q_RSQ[:, start:stop], k_RQS[..., :stop])
    if bias is not None:
        z_RIJ.unflatten(0, (-1, heads)).add_(bias[rows, None, start:stop, :stop])
    elif not kernels.takes(z_RIJ):
        size = stop - start
        z_RIJ[..., start:] += z_RIJ.new_full((size, size), -torch.inf).triu_(1)
    return z_RIJ
