"""torch's own kernels for GPUs: RMSNorm, flash attention, and FlexAttention over the blocks that hold a visible pair.

None of these has run on a GPU yet (docs/model.md, "Limits").

Shape suffixes: B batch, H heads, S sequence, Q query/key dimensions, V value dimensions, N blocks of 128 positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, flex_attention

from model.attention import Mask

BLOCK = 128  # FlexAttention's own default


def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """`model.attention.rms_norm`: the kernel computes in float32 whatever the dtype, and keeps 1 / rms(x)."""
    with torch.autocast(x.device.type, enabled=False):
        x = x.to(torch.promote_types(x.dtype, dtype))
        return F.rms_norm(x, weight.shape, weight.to(x.dtype), eps).to(dtype)


def flash_attention(
    q_BHSQ: Tensor, k_BHSQ: Tensor, v_BHSV: Tensor, scale: float, mask: Mask | None = None, max_logits: bool = False
) -> tuple[Tensor, None]:
    """`model.attention.causal_attention` of single documents without maxima.

    The kernels want values as wide as the keys: zeros beside them cost less than the plain form.
    """
    keys, values = k_BHSQ.shape[-1], v_BHSV.shape[-1]
    wide_BHSV = F.pad(v_BHSV, (0, max(keys - values, 0)))
    y_BHSV = F.scaled_dot_product_attention(q_BHSQ, k_BHSQ, wide_BHSV, is_causal=True, scale=scale)
    return y_BHSV[..., :values], None


def document_mask(segments_BS: Tensor, dtype: torch.dtype = torch.float32, shared_prompt: bool = False) -> Mask:
    """`model.attention.document_mask`, as the blocks that FlexAttention visits."""
    return Mask(segments_BS >= 0, blocks=block_mask(segments_BS, shared_prompt))


def document_attention(
    q_BHSQ: Tensor, k_BHSQ: Tensor, v_BHSV: Tensor, scale: float, mask: Mask | None = None, max_logits: bool = False
) -> tuple[Tensor, Tensor | None]:
    """`model.attention.causal_attention` over packed documents, or with the maxima."""
    blocks = mask.blocks if mask else causal_blocks(q_BHSQ.shape[2], q_BHSQ.device)
    return blockwise_attention(q_BHSQ, k_BHSQ, v_BHSV, scale, blocks, mask.real_BS if mask else None, max_logits)


def block_mask(segments_BS: Tensor, shared_prompt: bool = False) -> BlockMask:
    """Which blocks of keys hold something that a block of queries sees; `document_mask` says who sees what.

    Read off each block's least and greatest segment: (S / 128)^2 comparisons, where torch's `create_block_mask` asks
    for every pair of positions. A block may be entered in vain where segments do not ascend; none is left out.
    """
    seq = segments_BS.shape[1]
    fill = -seq % BLOCK
    # the last block is filled with its last position's segment, which widens no range
    blocks_BNb = F.pad(segments_BS.double()[:, None], (0, fill), mode="replicate")[:, 0].unflatten(1, (-1, BLOCK))
    low_BN, high_BN = blocks_BNb.amin(-1), blocks_BNb.amax(-1)
    q_low, q_high, k_low, k_high = low_BN[:, :, None], high_BN[:, :, None], low_BN[:, None], high_BN[:, None]
    order = torch.arange(low_BN.shape[1], device=segments_BS.device)
    met_BNN = (k_low <= q_high) & (q_low <= k_high)
    whole_BNN = (q_low == q_high) & (k_low == k_high) & (q_low == k_low)
    if shared_prompt:
        met_BNN |= (k_low <= 0) & (k_high >= 0) & (q_high > 0)
        whole_BNN |= (k_low == 0) & (k_high == 0) & (q_low > 0)
    met_BNN &= order[:, None] >= order
    whole_BNN &= order[:, None] > order

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        query, key = segments_BS[b, q], segments_BS[b, k]
        same = (query == key) | ((key == 0) & (query > 0)) if shared_prompt else query == key
        return (q >= k) & same

    return _from_blocks(met_BNN & ~whole_BNN, whole_BNN, visible, seq)


def causal_blocks(seq: int, device: torch.device) -> BlockMask:
    """The blocks of one plain causal sequence, for every row of a batch."""
    order = torch.arange(-(-seq // BLOCK), device=device)

    def visible(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return q >= k

    return _from_blocks((order[:, None] == order)[None], (order[:, None] > order)[None], visible, seq)


def _from_blocks(part_BNN: Tensor, whole_BNN: Tensor, visible: Callable[..., Tensor], seq: int) -> BlockMask:
    def listed(blocks_BNN: Tensor) -> tuple[Tensor, Tensor]:
        flags = blocks_BNN[:, None].to(torch.int32)
        return flags.sum(-1, dtype=torch.int32), flags.argsort(dim=-1, descending=True, stable=True).to(torch.int32)

    return BlockMask.from_kv_blocks(
        *listed(part_BNN), *listed(whole_BNN), BLOCK_SIZE=BLOCK, mask_mod=visible, seq_lengths=(seq, seq)
    )


@cache
def _compiled() -> Any:
    # Uncompiled it would hold all logits, and torch runs uncompiled what it had to compile more often than its limit of
    # 8: there are three kinds of mask, with and without gradients and maxima, in any number of shapes.
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, 64)
    return torch.compile(flex_attention)


def blockwise_attention(
    q_BHSQ: Tensor, k_BHSQ: Tensor, v_BHSV: Tensor, scale: float, blocks: BlockMask, real_BS: Tensor | None,
    max_logits: bool,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """`causal_attention` over `blocks`; the kernel hands out each query's largest logit as it goes.

    A NaN among the logits spoils the output; the maximum may pass over it.
    """
    kernel: Any = _compiled() if q_BHSQ.is_cuda else flex_attention
    aux = AuxRequest(max_scores=True) if max_logits else None
    result = kernel(q_BHSQ, k_BHSQ, v_BHSV, scale=scale, block_mask=blocks, return_aux=aux)
    if not max_logits:
        return result, None
    y_BHSV, found = result
    largest_BHS = found.max_scores.detach()
    if real_BS is not None:
        largest_BHS = largest_BHS.masked_fill(~real_BS[:, None], -torch.inf)
    return y_BHSV, largest_BHS.amax((0, 2))
