"""QK-Clip: attention logits kept under a threshold by shrinking the weights that make them (K2 report 2.1).

Every head whose largest logit S_max of a step's forwards passed tau gets gamma = tau / S_max, and its query and key
weights shrink so that the same forwards would have given exactly tau. A head's share of a weight are some of its rows,
so a clip is one factor per row: it can be applied to a working weight, to its float32 master, or to the part of
either that a rank holds.

Shapes: L layers, H heads, K key heads, J = H / K heads that share a key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.owners import MuonClipError

Clip = Callable[[Tensor], Sequence[tuple[Tensor, Tensor]]]
"""One attention layer's rule: from gamma [H] to its parameters, each with a factor for every row."""


def qk_gamma(max_logits_LH: Tensor, tau: float) -> Tensor:
    """gamma = min(1, tau / S_max) per head; exactly 1 where nothing is to be done, S_max <= 0 included.

    Raises `MuonClipError` for a NaN or an infinity, with its layer and head.
    """
    bad = (~torch.isfinite(max_logits_LH)).nonzero()
    if len(bad):
        where = ", ".join(f"layer {place[0]} head {place[-1]}" for place in bad[:4].tolist())
        raise MuonClipError(
            f"the largest attention logit is NaN or infinite in {where}; resume from the last checkpoint with a lower "
            "learning rate, or skip the batch"
        )
    return torch.where(max_logits_LH > tau, tau / max_logits_LH.clamp(min=tau), 1.0)


def mla_factors(gamma_H: Tensor, nope: int, rope: int, value: int) -> tuple[Tensor, Tensor]:
    """Row factors of q_b_proj [H (nope + rope)] and of kv_b_proj [H (nope + value)] that turn every logit of head h
    into gamma_h times itself.

    q_nope and k_nope take sqrt(gamma) each; q_rope takes gamma whole, because its partner, k_rope, is one for all heads
    and must stay as it is (K2 report 2.1). Values stay.
    """
    gamma_H1 = gamma_H[:, None]
    root_HN = gamma_H1.sqrt().expand(-1, nope)
    q_HD = torch.cat([root_HN, gamma_H1.expand(-1, rope)], dim=1)
    kv_HD = torch.cat([root_HN, torch.ones_like(gamma_H1).expand(-1, value)], dim=1)
    return q_HD.flatten(), kv_HD.flatten()


def by_row(factor: Tensor, parameter: Tensor) -> Tensor:
    """A factor per row, as a view of the shape of `parameter` [rows, ...]."""
    return factor.to(parameter.device).view(-1, *[1] * (parameter.ndim - 1)).expand_as(parameter)
