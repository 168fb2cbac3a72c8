"""Multi-head latent attention (DeepSeek-V2 report 2.1): keys and values are read off a small latent per token.

Shape suffixes: B batch, S sequence, D hidden, H heads, N = qk_nope_head_dim, R = qk_rope_head_dim, Q = N + R, V =
v_head_dim, C = kv_lora_rank.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model import kernels
from model.config import ModelConfig
from model.memory import PLAIN, Keep
from model.precision import compute_dtype
from model.rope import Rotation, rotate, softmax_scale
from model.softmax_attention import Mask, causal_attention

LATENT_EPS = 1e-6  # transformers' q_a and kv_a norms take this whatever rms_norm_eps says


class Linear(nn.Linear):
    """A linear layer without bias that leaves its weight for `Transformer.init_weights` to fill."""

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__(in_features, out_features, bias=False)

    def reset_parameters(self) -> None:
        """Nothing: one seeded pass fills every weight."""


class RMSNorm(nn.Module):
    """x / rms(x) * weight (arXiv 1910.07467), in float32; leaves in the dtype that the layers after it compute in."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Normalises the last dimension; leaves in `dtype`, by default autocast's within autocast, else the input's."""
        dtype = dtype or compute_dtype(x)
        if not x.is_cuda:
            return _RMSNorm.apply(x, self.weight, self.eps, dtype)
        with torch.autocast("cuda", enabled=False):
            x = x.to(torch.promote_types(x.dtype, dtype))
            return F.rms_norm(x, self.weight.shape, self.weight.to(x.dtype), self.eps).to(dtype)


class _RMSNorm(torch.autograd.Function):
    """RMSNorm in few passes over memory: torch has no fused one for CPUs (docs/model.md)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        if kernels.takes_rows(x, dtype):
            y, inverse = kernels.rms_norm(x, weight, eps)
            ctx.save_for_backward(x, weight, inverse)
            return y
        x32 = x.float()
        inverse = torch.linalg.vector_norm(x32, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight, inverse)
        return (x32 * inverse).mul_(weight).to(dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight, inverse = ctx.saved_tensors
        if kernels.takes_rows(x, grads[0].dtype):
            dx, dweight = kernels.rms_norm_backward(grads[0], x, weight, inverse)
            return dx, dweight.to(weight.dtype), None, None
        w32, normed = weight.float(), x.float() * inverse
        by_weight = grads[0].float() * normed
        shared = (by_weight @ w32)[..., None].div_(x.shape[-1])
        dx = (grads[0].float() * w32).sub_(normed.mul_(shared)).mul_(inverse)
        return dx.to(x.dtype), by_weight.flatten(0, -2).sum(0).to(weight.dtype), None, None


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

    @property
    def has_query_latent(self) -> bool:
        """Whether queries come from a latent of their own, and not from the hidden state."""
        return self.query_name == "q_b_proj"

    def query_latent(self, x_BSD: Tensor, keep: Keep = PLAIN) -> Tensor:
        """What the queries are read off: their normed latent (B, S, q_lora_rank), or the hidden state itself."""
        if not self.has_query_latent:
            return x_BSD
        return keep.recomputed("norms", self.q_a_layernorm, self.q_a_proj(x_BSD))

    def queries(self, latent: Tensor, by: Rotation) -> tuple[Tensor, Tensor]:
        """Queries without position (B, S, H, N) and rotated ones (B, S, H, R), of their latent."""
        q = self.query_heads(latent).unflatten(-1, (self.heads, -1))
        q_nope, q_rope = q.split([self.nope, self.rope], dim=-1)
        return q_nope, rotate(q_rope, by)

    def latent(self, x_BSD: Tensor, by: Rotation, keep: Keep = PLAIN) -> tuple[Tensor, Tensor]:
        """What a cache keeps of each token: the normed latent (B, S, C) and the shared rotated key (B, S, R)."""
        latent, k_rope = self.kv_a_proj_with_mqa(x_BSD).split([self.kv_a_layernorm.weight.numel(), self.rope], dim=-1)
        return keep.recomputed("norms", self.kv_a_layernorm, latent), rotate(k_rope[:, :, None], by)[:, :, 0]

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
