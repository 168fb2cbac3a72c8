"""Cross-entropy and log-probabilities from hidden states, some hundred tokens at a time.

Shape suffixes: T tokens, C tokens of a chunk, D hidden, V vocabulary.

The full logits of a batch (T x V float32) are the largest tensor of a small model and of a large vocabulary alike; none
of these functions holds more than a chunk of them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from model import kernels
from model.precision import compute_dtype

CHUNK_NUMBERS = 1 << 23  # logits held at once on a CPU; fewer cost more passes over the weight's gradient
GPU_CHUNK_NUMBERS = 1 << 27  # on a GPU, 0.5 GB in float32: 800 tokens of K2's vocabulary, enough to fill it


def _chunk(weight_VD: Tensor) -> int:
    """Tokens of a chunk."""
    return max(1, (GPU_CHUNK_NUMBERS if weight_VD.is_cuda else CHUNK_NUMBERS) // len(weight_VD))


def _loss_and_gradient(logits_CV: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
    """-log p(target) of each row, float32 (C,), and its gradient by the logits; both 0 where a target is below 0."""
    if kernels.takes(logits_CV):
        return kernels.cross_entropy(logits_CV, target_C), logits_CV
    kept_C1, target_C1 = target_C[:, None] >= 0, target_C[:, None].clamp(min=0)
    p_CV = logits_CV.softmax(-1, dtype=torch.float32)
    # log sum exp without another pass of exponentials: the largest p is exp(largest logit - log sum exp)
    log_z_C1 = logits_CV.amax(-1, keepdim=True).float() - p_CV.amax(-1, keepdim=True).log()
    loss_C1 = (log_z_C1 - logits_CV.gather(1, target_C1)) * kept_C1
    d_CV = p_CV.scatter_add_(1, target_C1, torch.full_like(log_z_C1, -1.0)).mul_(kept_C1)
    return loss_C1[:, 0], d_CV.to(logits_CV.dtype)


class _CrossEntropy(torch.autograd.Function):
    """Sum of -log p(target), whose gradients are computed in forward, while the logits are there."""

    @staticmethod
    def forward(ctx: Any, hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, ignore: int, dtype: torch.dtype):
        wants = hidden_TD.requires_grad or weight_VD.requires_grad
        w_VD = weight_VD.to(dtype)
        loss = hidden_TD.new_zeros((), dtype=torch.float32)
        d_hidden = torch.empty_like(hidden_TD) if wants else None
        d_weight = torch.zeros_like(weight_VD, dtype=torch.float32) if wants and not len(hidden_TD) else None
        for start in range(0, len(hidden_TD), _chunk(weight_VD)):
            rows = slice(start, start + _chunk(weight_VD))
            h_CD = hidden_TD[rows].to(dtype)
            loss_C, d_CV = _loss_and_gradient(h_CD @ w_VD.T, targets_T[rows].where(targets_T[rows] != ignore, -1))
            loss += loss_C.sum()
            if d_hidden is None:
                continue
            d_hidden[rows] = d_CV @ w_VD
            product = d_CV.T @ h_CD
            d_weight = product.float() if d_weight is None else d_weight.add_(product)
        ctx.save_for_backward(d_hidden, d_weight)
        ctx.weight_dtype = weight_VD.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        d_hidden, d_weight = ctx.saved_tensors
        scale = grads[0]
        scaled = torch.empty_like(d_weight, dtype=ctx.weight_dtype)
        torch.mul(d_weight, scale, out=scaled)  # the product in float32, without a tensor for it
        return d_hidden * scale.to(d_hidden.dtype), scaled, None, None, None


def fused_cross_entropy(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    ignore_index: int = -100,
    reduction: str = "mean",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Cross-entropy of softmax(hidden @ weight^T), float32; the mean over the targets that count, or their sum.

    With no target that counts the mean is 0, and so are the gradients. `dtype` is that of the products, by default what
    layers compute in.
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction = {reduction!r}: choose mean or sum")
    dtype = dtype or compute_dtype(hidden_TD)
    with torch.autocast(hidden_TD.device.type, enabled=False):
        total: Tensor = _CrossEntropy.apply(hidden_TD, weight_VD, targets_T, ignore_index, dtype)
    return total / (targets_T != ignore_index).sum().clamp(min=1) if reduction == "mean" else total


class _LogProbs(torch.autograd.Function):
    """log p(target) of each token; backward computes each chunk's logits again."""

    @staticmethod
    def forward(ctx: Any, hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, heat: float, dtype: torch.dtype):
        ctx.save_for_backward(hidden_TD, weight_VD, targets_T)
        ctx.heat, ctx.dtype = heat, dtype
        w_VD = weight_VD.to(dtype)
        pieces = []
        for rows in torch.arange(len(hidden_TD), device=hidden_TD.device).split(_chunk(weight_VD)):
            logits_CV = (hidden_TD[rows].to(dtype) @ w_VD.T).float() / heat
            pieces.append(logits_CV.gather(1, targets_T[rows, None])[:, 0] - logits_CV.logsumexp(-1))
        return torch.cat(pieces) if pieces else hidden_TD.new_zeros(0, dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor):
        hidden_TD, weight_VD, targets_T = ctx.saved_tensors
        w_VD = weight_VD.to(ctx.dtype)
        d_hidden, d_weight = torch.empty_like(hidden_TD), torch.zeros_like(weight_VD, dtype=torch.float32)
        for rows in torch.arange(len(hidden_TD), device=hidden_TD.device).split(_chunk(weight_VD)):
            h_CD, up_C1 = hidden_TD[rows].to(ctx.dtype), grads[0][rows, None] / ctx.heat
            d_CV = -((h_CD @ w_VD.T).float() / ctx.heat).softmax(-1) * up_C1
            d_CV.scatter_add_(1, targets_T[rows, None], up_C1)
            d_CV = d_CV.to(ctx.dtype)
            d_hidden[rows] = (d_CV @ w_VD).to(d_hidden.dtype)
            d_weight += d_CV.T @ h_CD
        return d_hidden, d_weight.to(weight_VD.dtype), None, None, None


def token_log_probs(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    temperature: float = 1.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """log softmax(hidden @ weight^T / temperature) at each target, float32 (T,); a negative target counts as id 0.

    `dtype` as in `fused_cross_entropy`.
    """
    if temperature <= 0:
        raise ValueError(f"temperature = {temperature}: a distribution needs one above 0")
    dtype = dtype or compute_dtype(hidden_TD)
    with torch.autocast(hidden_TD.device.type, enabled=False):
        return _LogProbs.apply(hidden_TD, weight_VD, targets_T.clamp(min=0), temperature, dtype)
