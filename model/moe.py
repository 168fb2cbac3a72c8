"""The mixture of experts of DeepSeek-V3 and K2: sigmoid router, balance by a selection bias, experts stacked.

Shape suffixes: T tokens, D hidden, E routed experts, F expert width, K experts per token, N = T * K assignments sorted
by expert, B sequences, S their length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Linear
from model.config import ModelConfig
from model.kernels.table import operation
from model.memory import PLAIN, Keep
from model.precision import compute_dtype


class Routing(NamedTuple):
    """The router's decision for T tokens.

    Attributes:
        experts_TK: the chosen experts.
        weights_TK: their weights, float32: scores renormalised over the K, times routed_scaling_factor.
        scores_TE: every expert's sigmoid score, float32, without bias.
    """

    experts_TK: Tensor
    weights_TK: Tensor
    scores_TE: Tensor


@operation
def router_scores(x_TD: Tensor, w_ED: Tensor) -> Tensor:
    """sigmoid(x @ w^T), in float32 whatever the autocast."""
    with torch.autocast(x_TD.device.type, enabled=False):
        return F.linear(x_TD.float(), w_ED.float()).sigmoid()


class Router(nn.Module):
    """Scores, a bias that steers the selection and never the weights, top-k ("noaux_tc"; DeepSeek-V3 report 2.1.2)."""

    e_score_correction_bias: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.top_k, self.scaling = config.num_experts_per_tok, config.routed_scaling_factor
        self.weight = nn.Parameter(torch.empty(config.n_routed_experts, config.hidden_size))
        self.register_buffer("e_score_correction_bias", torch.zeros(config.n_routed_experts, dtype=torch.float32))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> nn.Module:
        # `.to(bfloat16)` would round the bias, whose steps of 0.001 are below bfloat16's resolution: it stays float32
        bias = self.e_score_correction_bias
        super()._apply(fn, recurse)
        if self.e_score_correction_bias.dtype != torch.float32:
            self.e_score_correction_bias = bias.to(self.e_score_correction_bias.device)
        return self

    def forward(self, x_TD: Tensor, given_TK: Tensor | None = None) -> Routing:
        """Chooses each token's experts; where they are given and not below 0, it scores those."""
        scores_TE = router_scores(x_TD, self.weight)
        experts_TK = (scores_TE.detach() + self.e_score_correction_bias).topk(self.top_k, dim=-1).indices
        if given_TK is not None:
            experts_TK = given_TK.to(experts_TK.dtype).where(given_TK >= 0, experts_TK)
        weights_TK = scores_TE.gather(1, experts_TK)
        weights_TK = weights_TK / (weights_TK.sum(-1, keepdim=True) + 1e-20) * self.scaling
        return Routing(experts_TK, weights_TK, scores_TE)


def sequence_balance_loss(scores_TE: Tensor, top_k: int, sequences: int, real_BS: Tensor | None = None) -> Tensor:
    """The sequence-wise balance loss without its alpha (DeepSeek-V3 report, eqs. 17 to 20), mean over the sequences.

    For each sequence: sum over experts of f_e * P_e, with f_e = E / (K S) * (how often e is among the K largest
    unbiased scores) and P_e the mean share of e in a token's scores. It is 1 at perfect balance.

    Args:
        scores_TE: sigmoid scores of B * S tokens, sequence after sequence.
        top_k: K.
        sequences: B.
        real_BS: False at padding, which counts neither in the sums nor in the lengths.
    """
    experts = scores_TE.shape[-1]
    scores_BSE = scores_TE.unflatten(0, (sequences, -1))
    share_BSE = scores_BSE / scores_BSE.sum(-1, keepdim=True)
    chosen_BSK = scores_BSE.detach().topk(top_k, dim=-1).indices
    real = torch.ones_like(scores_BSE[..., 0]) if real_BS is None else real_BS.to(scores_BSE.dtype)
    length_B1 = real.sum(-1, keepdim=True).clamp(min=1)
    counts_BE = torch.zeros_like(scores_BSE[:, 0]).detach()
    counts_BE.scatter_add_(1, chosen_BSK.flatten(1), real.repeat_interleave(top_k, dim=1))
    f_BE = counts_BE * experts / (top_k * length_B1)
    p_BE = (share_BSE * real[..., None]).sum(1) / length_B1
    return (f_BE * p_BE).sum(-1).mean()


@operation
def grouped_linear(x_NI: Tensor, w_EOI: Tensor, counts_E: Tensor) -> Tensor:
    """Each expert's linear layer over its own rows, which lie one behind the other; (N, O)."""
    rows = x_NI.split(counts_E.tolist())
    return torch.cat([F.linear(x, w) for x, w in zip(rows, w_EOI.unbind(), strict=True)])


@operation
def silu_times(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, elementwise."""
    return F.silu(gate) * up


def swiglu(gate: Tensor, up: Tensor, keep: Keep = PLAIN) -> Tensor:
    """silu(gate) * up (arXiv 2002.05202), kept for the backward as `keep` says."""
    keep.in_fp8("swiglu_inputs", gate, up)
    return keep.recomputed("swiglu", silu_times, gate, up)


class _Permuted(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, order_N: Tensor, place_N: Tensor) -> Tensor:
        ctx.save_for_backward(place_N)
        return x.index_select(0, order_N)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (place_N,) = ctx.saved_tensors
        return grads[0].index_select(0, place_N), None, None


def permuted(x: Tensor, order_N: Tensor, place_N: Tensor) -> Tensor:
    """The N rows of x in the order `order_N`, whose inverse is `place_N`: the backward adds nothing up, for which a GPU
    that has to repeat itself would sort."""
    rows: Tensor = _Permuted.apply(x, order_N, place_N)
    return rows


class Experts(nn.Module):
    """The routed experts of a layer, stacked: each slice [e] is one linear layer of the Hugging Face layout."""

    def __init__(self, config: ModelConfig, held: range | None = None) -> None:
        """All experts, or those of the indices `held`."""
        super().__init__()
        self.held = range(config.n_routed_experts) if held is None else held
        shape = (len(self.held), config.moe_intermediate_size, config.hidden_size)
        self.gate_EFD = nn.Parameter(torch.empty(shape))
        self.up_EFD = nn.Parameter(torch.empty(shape))
        self.down_EDF = nn.Parameter(torch.empty(shape[0], shape[2], shape[1]))
        self.view: Callable[[Tensor, str], Tensor] | None = None
        """(weight, name) -> the weight as the forward sees it, for quantisation-aware training; None: as it is."""

    def matrices(self) -> tuple[Tensor, Tensor, Tensor]:
        """Gate, up and down as the forward multiplies with them."""
        if self.view is None:
            return self.gate_EFD, self.up_EFD, self.down_EDF
        named = ((self.gate_EFD, "gate_EFD"), (self.up_EFD, "up_EFD"), (self.down_EDF, "down_EDF"))
        gate_EFD, up_EFD, down_EDF = (self.view(weight, f"the experts' {name}") for weight, name in named)
        return gate_EFD, up_EFD, down_EDF

    def forward(self, x_ND: Tensor, weights_N: Tensor, counts_E: Tensor, keep: Keep = PLAIN) -> Tensor:
        """SwiGLU of rows sorted by expert, each scaled by its weight; (N, D)."""
        dtype = compute_dtype(x_ND)
        gate_EFD, up_EFD, down_EDF = self.matrices()
        x_ND = x_ND.to(dtype)
        keep.in_fp8("expert_inputs", x_ND)
        gate_NF = grouped_linear(x_ND, gate_EFD.to(dtype), counts_E)
        up_NF = grouped_linear(x_ND, up_EFD.to(dtype), counts_E)
        # the weight before the projection: its gradient then needs no output of the projection
        a_NF, w_N1 = swiglu(gate_NF, up_NF, keep), weights_N[:, None].to(dtype)
        h_NF = keep.recomputed("moe_down", torch.mul, a_NF, w_N1)
        return grouped_linear(h_NF, down_EDF.to(dtype), counts_E)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x)): the dense feed-forward network and the shared expert."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = Linear(width, inner)
        self.up_proj = Linear(width, inner)
        self.down_proj = Linear(inner, width)

    def forward(self, x: Tensor, keep: Keep = PLAIN) -> Tensor:
        """Keeps the shape."""
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x), keep))


class MixtureOfExperts(nn.Module):
    """Routed experts beside a shared one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Router(config)
        self.experts = Experts(config)
        self.shared_experts = SwiGLU(config.hidden_size, config.n_shared_experts * config.moe_intermediate_size)

    def forward(
        self, x_BSD: Tensor, real_BS: Tensor | None = None, keep: Keep = PLAIN, given_BSK: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the output (B, S, D), the balance loss without alpha, and the tokens per expert (E,), int64.

        The counts are returned, not stored: a recomputed forward cannot count twice. Padding is not counted.
        `given_BSK`: as in `Router.forward`.
        """
        y_BSD, routing, counts_E = self.mix(x_BSD, keep, given_BSK)
        top_k = self.gate.top_k
        balance = sequence_balance_loss(routing.scores_TE, top_k, len(x_BSD), real_BS)
        if real_BS is not None:
            # not `bincount`, which on a GPU waits for all that was begun before
            counted_N = real_BS.flatten().repeat_interleave(top_k).long()
            counts_E = torch.zeros_like(counts_E).scatter_add_(0, routing.experts_TK.flatten(), counted_N)
        return y_BSD, balance, counts_E

    def mix(self, x_BSD: Tensor, keep: Keep = PLAIN, given_BSK: Tensor | None = None) -> tuple[Tensor, Routing, Tensor]:
        """The output (B, S, D), the routing behind it, and how many tokens each expert took."""
        x_TD, top_k = x_BSD.flatten(0, 1), self.gate.top_k
        routing = self.gate(x_TD, None if given_BSK is None else given_BSK.flatten(0, 1))
        chosen_N = routing.experts_TK.flatten()
        sorted_N, order_N = chosen_N.sort(stable=True)
        rank_N = torch.empty_like(order_N)
        rank_N[order_N] = torch.arange(len(order_N), device=order_N.device)
        each_E = torch.arange(len(self.gate.weight), device=sorted_N.device)
        counts_E = torch.searchsorted(sorted_N, each_E, right=True).diff(prepend=each_E.new_zeros(1))

        def dispatch(x_TD: Tensor) -> Tensor:
            # copies first, so that the rest is a permutation
            return permuted(x_TD[:, None].expand(-1, top_k, -1).flatten(0, 1), order_N, rank_N)

        x_ND = keep.recomputed("dispatch", dispatch, x_TD)
        y_ND = self.experts(x_ND, permuted(routing.weights_TK.flatten(), order_N, rank_N), counts_E, keep)
        y_TD = permuted(y_ND, rank_N, order_N).unflatten(0, (-1, top_k)).sum(1)
        return self.shared_experts(x_BSD, keep) + y_TD.view_as(x_BSD), routing, counts_E
