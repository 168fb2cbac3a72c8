"""Cross-entropy whose gradients are computed in the forward, chunk by chunk, while a chunk's logits are there.

The plain form makes every chunk's logits again in the backward: a product more. On a CPU in bfloat16 the loss and the
gradient of a chunk are one pass over its logits.

Shape suffixes: T tokens, C tokens of a chunk, D hidden, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.head import chunk_size
from model.kernels.one_pass import exp, kernel, largest, narrow, run, widen


def cross_entropy(hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, ignore: int, dtype: torch.dtype) -> Tensor:
    """`model.head.cross_entropy`."""
    total: Tensor = _CrossEntropy.apply(hidden_TD, weight_VD, targets_T, ignore, dtype)
    return total


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, ignore: int, dtype: torch.dtype):
        wrong_T = (targets_T < 0) & (targets_T != ignore)
        if targets_T.device.type == "cpu" and wrong_T.any():  # below, what is ignored is negative
            raise IndexError(f"target {int(targets_T[wrong_T][0])} is no id: what is ignored is {ignore} alone")
        wants = hidden_TD.requires_grad or weight_VD.requires_grad
        w_VD = weight_VD.to(dtype)
        loss = hidden_TD.new_zeros((), dtype=torch.float32)
        d_hidden = torch.empty_like(hidden_TD) if wants else None
        d_weight = torch.zeros_like(weight_VD, dtype=torch.float32) if wants and not len(hidden_TD) else None
        size = chunk_size(weight_VD)
        for start in range(0, len(hidden_TD), size):
            rows = slice(start, start + size)
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


def _loss_and_gradient(logits_CV: Tensor, target_C: Tensor) -> tuple[Tensor, Tensor]:
    """-log p(target) of each row, float32 (C,), and its gradient by the logits; both 0 where a target is below 0."""
    if logits_CV.dtype == torch.bfloat16 and logits_CV.device.type == "cpu" and logits_CV.numel():
        return in_one_pass(logits_CV, target_C), logits_CV
    kept_C1, target_C1 = target_C[:, None] >= 0, target_C[:, None].clamp(min=0)
    p_CV = logits_CV.softmax(-1, dtype=torch.float32)
    # log sum exp without another pass of exponentials: the largest p is exp(largest logit - log sum exp)
    log_z_C1 = logits_CV.amax(-1, keepdim=True).float() - p_CV.amax(-1, keepdim=True).log()
    loss_C1 = (log_z_C1 - logits_CV.gather(1, target_C1)) * kept_C1
    d_CV = p_CV.scatter_add_(1, target_C1, torch.full_like(log_z_C1, -1.0)).mul_(kept_C1)
    return loss_C1[:, 0], d_CV.to(logits_CV.dtype)


def in_one_pass(z_CV: Tensor, targets_C: Tensor) -> Tensor:
    """-log p(target) of each row, float32 (C,); its logits become their gradients. Both are 0 for a target below 0.

    Raises:
        IndexError: a target beyond the vocabulary, where the kernel would write outside of the row.
    """
    if (most := int(targets_C.max())) >= z_CV.shape[1]:
        raise IndexError(f"target {most} is no id of a vocabulary of {z_CV.shape[1]}; use the model's tokenizer")
    loss_C = torch.empty(len(z_CV))
    run(_cross_entropy, len(z_CV), z_CV.numel(), z_CV, targets_C, loss_C)
    return loss_C


@kernel
def _cross_entropy(first, last, z_NV, target_N, loss_N):
    for row in range(first, last):
        z_V, target = z_NV[row], target_N[row]
        if target < 0:
            z_V[:] = 0
            loss_N[row] = 0
            continue
        top, total = largest(z_V), np.float32(0)
        for place in range(len(z_V)):
            total += exp(widen(z_V[place]) - top)
        log, own = np.log(total) + top, widen(z_V[target])
        loss_N[row] = log - own
        for place in range(len(z_V)):
            z_V[place] = narrow(exp(widen(z_V[place]) - log), z_V[place])
        z_V[target] = narrow(exp(own - log) - np.float32(1), z_V[target])
