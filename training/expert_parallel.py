"""Expert parallelism: the experts of a layer lie on several ranks, and tokens travel to them and back by all-to-all.

Each rank routes its own tokens among all experts; router, shared expert and everything else are on every rank. Rows
sorted by expert are sorted by rank too, because a rank holds consecutive experts: they are sent as they lie. What
arrives from the ranks is sorted by expert again, goes through the same products as on one rank, and returns the way it
came. Sums over a token's experts are made where the token is, in the order of one rank alone.

Shape suffixes: N rows of this rank's tokens and M rows that arrive, sorted by expert; D hidden, E experts, R ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from model.config import ModelConfig
from model.memory import PLAIN, Keep
from model.moe import Experts, MixtureOfExperts, permuted
from model.precision import compute_dtype
from model.transformer import Transformer
from training.job import JobError
from training.parallel import World


class _Exchanged(torch.autograd.Function):
    """Rows sent to the ranks; backward sends their gradients home."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, sends_R: list[int], arrivals_R: list[int], ranks: World) -> Tensor:
        ctx.sends_R, ctx.arrivals_R, ctx.ranks = sends_R, arrivals_R, ranks
        return ranks.all_to_all(x, sends_R, arrivals_R)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        return ctx.ranks.all_to_all(grads[0], ctx.arrivals_R, ctx.sends_R), None, None, None


class ParallelExperts(Experts):
    """This rank's part of a layer's experts. Every rank of the group calls it as often as the others, in one order."""

    def __init__(self, config: ModelConfig, ranks: World) -> None:
        """Consecutive experts, the first ones on the first of `ranks`, whose number divides that of the experts."""
        each = config.n_routed_experts // ranks.size
        super().__init__(config, range(ranks.rank * each, (ranks.rank + 1) * each))
        self.ranks, self.total = ranks, config.n_routed_experts

    def forward(self, x_ND: Tensor, weights_N: Tensor, counts_E: Tensor, keep: Keep = PLAIN) -> Tensor:
        """As `Experts.forward`, for this rank's rows among all experts; raises `RankError` where a rank is lost."""
        size, dtype = self.ranks.size, compute_dtype(x_ND)
        counts_RE = counts_E.view(size, -1)
        arriving_RE = self.ranks.all_to_all(counts_RE)
        sends_R, arrivals_R = torch.stack([counts_RE.sum(1), arriving_RE.sum(1)]).tolist()
        expert_M = torch.arange(len(self.held), device=counts_E.device).repeat(size)
        order_M = expert_M.repeat_interleave(arriving_RE.flatten(), output_size=sum(arrivals_R)).argsort(stable=True)
        place_M = torch.empty_like(order_M)
        place_M[order_M] = torch.arange(len(order_M), device=order_M.device)

        def arrive(rows: Tensor) -> Tensor:
            return permuted(_Exchanged.apply(rows, sends_R, arrivals_R, self.ranks), order_M, place_M)

        # recomputed, rows travel once more in the backward, on all ranks at the same place
        x_MD = keep.recomputed("dispatch", lambda x: arrive(x.to(dtype)), x_ND)
        y_MD = super().forward(x_MD, arrive(weights_N), arriving_RE.sum(0), keep)
        return _Exchanged.apply(permuted(y_MD, place_M, order_M), arrivals_R, sends_R, self.ranks)


def outline(config: ModelConfig, ranks: World, layers: Sequence[int] | None = None) -> Transformer:
    """The network, or these of its layers, with this rank's part of the experts among `ranks`, on the meta device: its
    names and shapes without numbers."""
    with torch.device("meta"):
        model = Transformer(config, layers=layers)
        for module in list(model.modules()):
            if isinstance(module, MixtureOfExperts) and ranks.size > 1:
                module.experts = ParallelExperts(config, ranks)
    return model


def network(
    config: ModelConfig,
    seed: int | None,
    ranks: World,
    device: torch.device,
    layers: Sequence[int] | None = None,
    weights: torch.dtype = torch.float32,
) -> Transformer:
    """What `outline` describes, on `device`; the weights drawn from `seed` are those of one rank, and without one they
    are for the caller to set.

    Gradients are summed in float32 whatever the `weights` are. Raises `JobError` where torch cannot do that.
    """
    if not _sums_in_float32(weights, device):
        raise JobError(
            f"torch {torch.__version__} sums gradients of {weights} in {weights}: install torch 2.13 or newer"
        )
    model = outline(config, ranks, layers).to(weights).to_empty(device=device)
    if seed is not None:
        model.init_weights(seed)
    for parameter in model.parameters():
        parameter.grad_dtype = torch.float32
    return model


def _sums_in_float32(weights: torch.dtype, device: torch.device) -> bool:
    """Whether torch keeps to a parameter's `grad_dtype`; versions before 2.13 may not, and say nothing."""
    if weights == torch.float32:
        return True
    weight = nn.Parameter(torch.ones((), dtype=weights, device=device))
    weight.grad_dtype = torch.float32
    for scale in (256, 1):  # in bfloat16, 256
        (weight * scale).backward()
    assert weight.grad is not None
    return float(weight.grad) == 257


def pieces(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Parameters of which this rank holds a part: {name: (first index of dimension 0, its size over all ranks)}."""
    return {
        f"{name}.{inner}": (module.held.start, module.total)
        for name, module in model.named_modules()
        if isinstance(module, ParallelExperts)
        for inner, _ in module.named_parameters()
    }
