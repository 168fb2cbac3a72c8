"""Cross-entropy and log-probabilities from hidden states, some hundred tokens at a time.

Shape suffixes: T tokens, C tokens of a chunk, D hidden, V vocabulary.

The full logits of a batch (T x V float32) are the largest tensor of a small model and of a large vocabulary alike; none
of these functions holds more than a chunk of them.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from model.kernels.table import operation
from model.precision import compute_dtype

CHUNK_NUMBERS = 1 << 23  # logits held at once on a CPU; fewer cost more passes over the weight's gradient
GPU_CHUNK_NUMBERS = 1 << 27  # on a GPU, 0.5 GB in float32: 800 tokens of K2's vocabulary, enough to fill it


def chunk_size(weight_VD: Tensor) -> int:
    """Tokens of a chunk."""
    return max(1, (GPU_CHUNK_NUMBERS if weight_VD.is_cuda else CHUNK_NUMBERS) // len(weight_VD))


def log_probs(
    hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, temperature: float, dtype: torch.dtype
) -> Tensor:
    """log softmax(hidden @ weight^T / temperature) at each target, float32 (T,); backward makes each chunk's logits
    again."""

    def of_chunk(hidden_CD: Tensor, targets_C: Tensor) -> Tensor:
        logits_CV = (hidden_CD.to(dtype) @ weight_VD.to(dtype).T).float() / temperature
        return logits_CV.gather(1, targets_C[:, None])[:, 0] - logits_CV.logsumexp(-1)

    size = chunk_size(weight_VD)
    chunks = zip(hidden_TD.split(size), targets_T.split(size), strict=True)
    return torch.cat([checkpoint(of_chunk, *one, use_reentrant=False, preserve_rng_state=False) for one in chunks])


@operation
def cross_entropy(hidden_TD: Tensor, weight_VD: Tensor, targets_T: Tensor, ignore: int, dtype: torch.dtype) -> Tensor:
    """The sum of -log p(target) over the targets that are not `ignore`, float32."""
    kept_T = targets_T != ignore
    return -log_probs(hidden_TD, weight_VD, targets_T.where(kept_T, 0), 1.0, dtype).where(kept_T, 0.0).sum()


def token_cross_entropy(
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
        total = cross_entropy(hidden_TD, weight_VD, targets_T, ignore_index, dtype)
    return total / (targets_T != ignore_index).sum().clamp(min=1) if reduction == "mean" else total


def token_log_probs(
    hidden_TD: Tensor,
    weight_VD: Tensor,
    targets_T: Tensor,
    temperature: float = 1.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """log softmax(hidden @ weight^T / temperature) at each target, float32 (T,); a negative target counts as id 0.

    `dtype` as in `token_cross_entropy`.
    """
    if temperature <= 0:
        raise ValueError(f"temperature = {temperature}: a distribution needs one above 0")
    dtype = dtype or compute_dtype(hidden_TD)
    with torch.autocast(hidden_TD.device.type, enabled=False):
        return log_probs(hidden_TD, weight_VD, targets_T.clamp(min=0), temperature, dtype)
