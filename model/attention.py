"""Multi-head latent attention (DeepSeek-V2 report 2.1): keys and values are read off a small latent per token.

Shape suffixes: B batch, S sequence, D hidden, H heads, N = qk_nope_head_dim, R = qk_rope_head_dim, Q = N + R, V =
v_head_dim, C = kv_lora_rank.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.kernels.table import operation
from model.memory import PLAIN, Keep
from model.precision import compute_dtype
from model.rope import Rotation, rotate_pairs, softmax_scale

LATENT_EPS = 1e-6  # transformers' q_a and kv_a norms take this whatever rms_norm_eps says


class Linear(nn.Linear):
    """A linear layer without bias that leaves its weight for `Transformer.init_weights` to fill."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def reset_parameters(self) -> None:
        """Nothing: one seeded pass fills every weight."""


@operation
def rms_norm(x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    """x / rms(x) * weight over the last dimension (arXiv 1910.07467), computed in float32 at least; in `dtype`."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    inverse = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * inverse * weight).to(dtype)


class RMSNorm(nn.Module):
    """`rms_norm` by a learned weight."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Leaves in `dtype`, by default that in which the layers after it compute."""
        return rms_norm(x, self.weight, self.eps, dtype or compute_dtype(x))


class Mask(NamedTuple):
    """Which keys a query sees, as the form of `causal_attention` that runs here wants it.

    Attributes:
        real_BS: False at padding, whose queries no maximum sees.
        bias_BSS: 0 where a query sees a key, -inf elsewhere (causality included).
        blocks: on a GPU instead, the blocks of keys that each block of queries visits.
    """

    real_BS: Tensor
    bias_BSS: Tensor | None = None
    blocks: Any = None


@operation
def document_mask(segments_BS: Tensor, dtype: torch.dtype = torch.float32, shared_prompt: bool = False) -> Mask:
    """The mask of packed documents: causal, and only within one segment; ids below 0 mark padding.

    Args:
        segments_BS: an id per position.
        dtype: of the bias.
        shared_prompt: segment 0 is a prompt that all later segments, its answers, see as well.
    """
    query_BS1, key_B1S = segments_BS[:, :, None], segments_BS[:, None, :]
    seen_BSS = query_BS1 == key_B1S
    if shared_prompt:
        seen_BSS |= (key_B1S == 0) & (query_BS1 > 0)
    seen_BSS &= torch.ones_like(seen_BSS[0]).tril()
    bias_BSS = torch.zeros(seen_BSS.shape, dtype=dtype, device=segments_BS.device).masked_fill_(~seen_BSS, -torch.inf)
    return Mask(segments_BS >= 0, bias_BSS)


@operation
def causal_attention(
    q_BHSQ: Tensor, k_BHSQ: Tensor, v_BHSV: Tensor, scale: float, mask: Mask | None = None, max_logits: bool = False
) -> tuple[Tensor, Tensor | None]:
    """softmax(scale * q k^T) v over the keys that each query sees.

    Returns:
        The output (B, H, S, V), and when asked each head's largest logit as softmax sees it, float32 (H,): after the
        scale, over visible keys of queries that are not padding; -inf where there is no such query. On a CPU NaN stays
        NaN.
    """
    with torch.autocast(q_BHSQ.device.type, enabled=False):
        z_BHSS = q_BHSQ * scale @ k_BHSQ.mT
        if mask is None:
            z_BHSS = z_BHSS + torch.full_like(z_BHSS[0, 0], -torch.inf).triu(1)
        else:
            assert mask.bias_BSS is not None  # as `document_mask` made it
            z_BHSS = z_BHSS + mask.bias_BSS[:, None]
        wide = torch.promote_types(z_BHSS.dtype, torch.float32)
        y_BHSV = z_BHSS.softmax(-1, dtype=wide).to(v_BHSV.dtype) @ v_BHSV
    if not max_logits:
        return y_BHSV, None
    counted_BHSS = z_BHSS.detach()
    if mask is not None:
        counted_BHSS = counted_BHSS.masked_fill(~mask.real_BS[:, None, :, None], -torch.inf)
    return y_BHSV, counted_BHSS.amax((0, 2, 3)).float()


class MultiHeadLatentAttention(nn.Module):
    """MLA with the parameters of K2's checkpoints, one per linear layer."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        c = config
        self.heads, self.nope, self.rope, self.value = (
            c.num_attention_heads,
            c.qk_nope_head_dim,
            c.qk_rope_head_dim,
            c.v_head_dim,
        )
        self.scale = softmax_scale(c)
        if c.q_lora_rank is None:
            self.q_proj = Linear(c.hidden_size, self.heads * c.qk_head_dim)
        else:
            self.q_a_proj = Linear(c.hidden_size, c.q_lora_rank)
            self.q_a_layernorm = RMSNorm(c.q_lora_rank, LATENT_EPS)
            self.q_b_proj = Linear(c.q_lora_rank, self.heads * c.qk_head_dim)
        self.query_name = "q_proj" if c.q_lora_rank is None else "q_b_proj"
        self.kv_a_proj_with_mqa = Linear(c.hidden_size, c.kv_lora_rank + self.rope)
        self.kv_a_layernorm = RMSNorm(c.kv_lora_rank, LATENT_EPS)
        self.kv_b_proj = Linear(c.kv_lora_rank, self.heads * (self.nope + self.value))
        self.o_proj = Linear(self.heads * self.value, c.hidden_size)

    @property
    def query_heads(self) -> Linear:
        """The linear layer whose rows are the heads' queries."""
        return cast(Linear, getattr(self, self.query_name))

    def query_latent(self, x_BSD: Tensor, keep: Keep = PLAIN) -> Tensor:
        """What the queries are read off: their normed latent (B, S, q_lora_rank), or the hidden state itself."""
        if self.query_name == "q_proj":
            return x_BSD
        return keep.recomputed("norms", self.q_a_layernorm, self.q_a_proj(x_BSD))

    def queries(self, latent: Tensor, by: Rotation) -> tuple[Tensor, Tensor]:
        """Queries without position (B, S, H, N) and rotated ones (B, S, H, R), of their latent."""
        q = self.query_heads(latent).unflatten(-1, (self.heads, -1))
        q_nope, q_rope = q.split([self.nope, self.rope], dim=-1)
        return q_nope, rotate_pairs(q_rope, *by)

    def latent(self, x_BSD: Tensor, by: Rotation, keep: Keep = PLAIN) -> tuple[Tensor, Tensor]:
        """What a cache keeps of each token: the normed latent (B, S, C) and the shared rotated key (B, S, R)."""
        latent, k_rope = self.kv_a_proj_with_mqa(x_BSD).split([self.kv_a_layernorm.weight.numel(), self.rope], dim=-1)
        return keep.recomputed("norms", self.kv_a_layernorm, latent), rotate_pairs(k_rope[:, :, None], *by)[:, :, 0]

    def attend(
        self,
        query_latent: Tensor,
        latent: tuple[Tensor, Tensor],
        by: Rotation,
        mask: Mask | None,
        max_logits: bool = False,
        keep: Keep = PLAIN,
    ) -> tuple[Tensor, Tensor | None]:
        """Causal attention over one sequence's own latents; returns (B, S, D), and the maxima (H,) when asked."""

        def project(query_latent: Tensor, latent_BSC: Tensor, k_rope_BSR: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            kv = self.kv_b_proj(latent_BSC).unflatten(-1, (self.heads, -1))
            k_nope, v_BSHV = kv.split([self.nope, self.value], dim=-1)
            k_rope = k_rope_BSR[:, :, None].expand(-1, -1, self.heads, -1)
            q_BSHQ = torch.cat(self.queries(query_latent, by), dim=-1)
            k_BSHQ = torch.cat([k_nope, k_rope], dim=-1)
            return q_BSHQ.transpose(1, 2), k_BSHQ.transpose(1, 2), v_BSHV.transpose(1, 2)

        q_BHSQ, k_BHSQ, v_BHSV = keep.recomputed("mla_up", project, query_latent, *latent)
        y_BHSV, maxima_H = causal_attention(q_BHSQ, k_BHSQ, v_BHSV, self.scale, mask, max_logits)
        return self.o_proj(y_BHSV.transpose(1, 2).flatten(2)), maxima_H

    def forward(
        self, x_BSD: Tensor, by: Rotation, mask: Mask | None = None, max_logits: bool = False, keep: Keep = PLAIN
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of a training forward; see `attend`."""
        query_latent, latent = self.query_latent(x_BSD, keep), self.latent(x_BSD, by, keep)
        return self.attend(query_latent, latent, by, mask, max_logits, keep)
