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

from model import kernels
from model.attention import Linear
from model.config import ModelConfig
from model.fused import fused
from model.memory import PLAIN, Keep
from model.precision import compute_dtype

FEW_ROWS = 16  # rows of an expert up to which a CPU multiplies all experts in one batch


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


class _Scores(torch.autograd.Function):
    """sigmoid(x @ w^T) in float32, which keeps x in its own dtype: the copy in float32 is made again."""

    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, w_ED: Tensor) -> Tensor:
        with torch.autocast(x_TD.device.type, enabled=False):
            scores_TE = F.linear(x_TD.float(), w_ED.float()).sigmoid_()
        ctx.save_for_backward(x_TD, w_ED, scores_TE)
        return scores_TE

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        x_TD, w_ED, scores_TE = ctx.saved_tensors
        d_TE = grads[0] * scores_TE * (1 - scores_TE)
        return (d_TE @ w_ED.float()).to(x_TD.dtype), (d_TE.mT @ x_TD.float()).to(w_ED.dtype)


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

    def forward(self, x_TD: Tensor) -> Routing:
        """Chooses each token's experts, in float32 whatever the autocast."""
        scores_TE = _Scores.apply(x_TD, self.weight)
        experts_TK = (scores_TE.detach() + self.e_score_correction_bias).topk(self.top_k, dim=-1).indices
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


def _aligned(*tensors: Tensor) -> bool:
    """Whether grouped_mm takes them: bfloat16 matrices whose rows, or columns, lie multiples of 16 bytes apart."""
    return all(t.dtype == torch.bfloat16 and max(t.stride()[-2:]) % 8 == 0 for t in tensors)


def _bucket(rows: int) -> int:
    """`rows` rounded up to a power of two, above 16 to a multiple of 16."""
    return 1 << (rows - 1).bit_length() if rows <= 16 else -(-rows // 16) * 16


def _places(ends_E: Tensor, begins_E: Tensor) -> Tensor:
    """Where the rows of groups that lie one after the other go, when each group begins at its `begins_E`."""
    starts_E = F.pad(ends_E[:-1], (1, 0))
    rows_N = torch.arange(int(ends_E[-1]), device=ends_E.device)
    return rows_N + (begins_E - starts_E).repeat_interleave(ends_E - starts_E)


def _padded_matmul(a_NI: Tensor, b_EIO: Tensor, ends_E: Tensor, most: int) -> Tensor:
    """Groups of at most `most` rows in one batched product, each filled up with zeros."""
    place_N = _places(ends_E, torch.arange(len(b_EIO), device=ends_E.device) * most)
    filled = a_NI.new_zeros(len(b_EIO) * most, a_NI.shape[1]).index_copy_(0, place_N, a_NI)
    return torch.bmm(filled.unflatten(0, (-1, most)), b_EIO).flatten(0, 1).index_select(0, place_N)


def grouped_matmul(a: Tensor, b: Tensor, ends_E: Tensor) -> Tensor:
    """Products of groups of rows: (N, I) @ (E, I, O) by group gives (N, O); (O, N) @ (N, I) by group gives (E, O, I).

    `ends_E` holds the end row of each group, int32. A GPU takes one grouped kernel; a CPU multiplies group by group.
    In bfloat16 it rounds the number of rows up, because oneDNN prepares a kernel for every new shape, which costs seven
    times the product itself, and expert loads are new in every step; groups of few rows, as decoding has them, go in
    one batch, where the calls would cost more than the products.
    """
    if a.is_cuda and _aligned(a, b):
        return F.grouped_mm(a, b, offs=ends_E)
    if not a.numel():
        return a.new_zeros(*([] if b.dim() == 3 else [len(ends_E)]), len(a), b.shape[-1])
    ends = ends_E.tolist()
    groups = list(zip([0, *ends[:-1]], ends, strict=True))
    size = (lambda rows: rows) if a.dtype == torch.float32 else _bucket
    if b.dim() == 3:
        most = max(end - start for start, end in groups)
        if a.dtype == torch.bfloat16 and 0 < most <= FEW_ROWS:
            return _padded_matmul(a, b, ends_E, FEW_ROWS if most > FEW_ROWS // 2 else FEW_ROWS // 2)
        out = a.new_empty(len(a) + 64, b.shape[-1])
        for (start, end), weight in zip(groups, b.unbind(), strict=True):
            if start < end:
                stop = start + size(end - start)
                rows = a[start:stop] if stop <= len(a) else F.pad(a[start:end], (0, 0, 0, stop - end))
                torch.mm(rows, weight, out=out[start:stop])  # beyond `end` the next group writes over it
        return out[: len(a)]
    sums = a.new_empty(len(groups), len(a), b.shape[-1])
    left, begins = a.mT, [start for start, _ in groups]
    if a.dtype != torch.float32:  # each group of rows at a place of its own, zeros between what it has and its size
        size_E = torch.tensor([size(end - start) for start, end in groups])
        begins = (size_E.cumsum(0) - size_E).tolist()
        place_N = _places(ends_E, torch.tensor(begins, device=a.device))
        source = torch.zeros(int(size_E.sum()), dtype=torch.int64, device=a.device)
        source[place_N] = torch.arange(len(place_N), device=a.device)
        left = left.index_select(0, source)  # five times as fast as index_copy_
    for (start, end), begin, total in zip(groups, begins, sums.unbind(), strict=True):
        if start < end:
            stop = start + size(end - start)
            right = b[start:stop] if stop <= len(b) else F.pad(b[start:], (0, 0, 0, stop - len(b)))
            if a.dtype != torch.float32:
                left[begin + end - start : begin + len(right)].zero_()
            torch.mm(left[begin : begin + len(right)].mT, right, out=total)
        else:
            total.zero_()
    return sums


class _GroupedLinear(torch.autograd.Function):
    """y_i = x_i @ w[e(i)]^T for rows sorted by expert; `ends_E` holds each expert's end row."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, w_EOI: Tensor, ends_E: Tensor) -> Tensor:
        ctx.save_for_backward(x_NI, w_EOI, ends_E)
        return grouped_matmul(x_NI, w_EOI.mT, ends_E)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        x_NI, w_EOI, ends_E = ctx.saved_tensors
        dy_NO = grads[0].contiguous()
        dx_NI = grouped_matmul(dy_NO, w_EOI, ends_E) if ctx.needs_input_grad[0] else None
        dw_EOI = grouped_matmul(dy_NO.mT, x_NI, ends_E) if ctx.needs_input_grad[1] else None
        return dx_NI, dw_EOI, None


class _GroupedPair(torch.autograd.Function):
    """Two `_GroupedLinear` of the same rows as one: on a CPU a call costs as much as the product of 40 rows."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, gate_EOI: Tensor, up_EOI: Tensor, ends_E: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x_NI, gate_EOI, up_EOI, ends_E)
        gate_NO, up_NO = grouped_matmul(x_NI, torch.cat([gate_EOI, up_EOI], 1).mT, ends_E).chunk(2, -1)
        return gate_NO.contiguous(), up_NO.contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_NI, gate_EOI, up_EOI, ends_E = ctx.saved_tensors
        d_NO, dx_NI, dgate_EOI, dup_EOI = torch.cat(grads, -1), None, None, None
        if ctx.needs_input_grad[0]:
            dx_NI = grouped_matmul(d_NO, torch.cat([gate_EOI, up_EOI], 1), ends_E)
        if any(ctx.needs_input_grad[1:3]):
            dgate_EOI, dup_EOI = (half.contiguous() for half in grouped_matmul(d_NO.mT, x_NI, ends_E).chunk(2, 1))
        return dx_NI, dgate_EOI, dup_EOI, None


def _sum_rows(y_ND: Tensor, rank_N: Tensor, top_k: int) -> Tensor:
    """Sums the rows of each token, which lie at rank_N[t * K : (t + 1) * K], in a fixed order."""
    if y_ND.is_cuda:
        return y_ND.index_select(0, rank_N).unflatten(0, (-1, top_k)).sum(1)
    first, *rest = rank_N.unflatten(0, (-1, top_k)).unbind(1)  # three times as fast as a sum over dimension 1 on a CPU
    total_TD = y_ND.index_select(0, first)
    for rank_T in rest:
        total_TD += y_ND.index_select(0, rank_T)
    return total_TD


class _Dispatch(torch.autograd.Function):
    """Copies each token to its K rows; backward sums the K rows in a fixed order, so that a GPU repeats itself."""

    @staticmethod
    def forward(ctx: Any, x_TD: Tensor, order_N: Tensor, rank_N: Tensor) -> Tensor:
        ctx.save_for_backward(rank_N)
        ctx.top_k = len(order_N) // max(len(x_TD), 1)
        return x_TD.index_select(0, order_N // ctx.top_k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (rank_N,) = ctx.saved_tensors
        return _sum_rows(grads[0], rank_N, ctx.top_k), None, None


class _Combine(torch.autograd.Function):
    """Sums each token's K rows; the adjoint of `_Dispatch`."""

    @staticmethod
    def forward(ctx: Any, y_ND: Tensor, order_N: Tensor, rank_N: Tensor, top_k: int) -> Tensor:
        ctx.save_for_backward(order_N)
        ctx.top_k = top_k
        return _sum_rows(y_ND, rank_N, top_k)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        (order_N,) = ctx.saved_tensors
        return grads[0].index_select(0, order_N // ctx.top_k), None, None, None


class _SwiGLUActivation(torch.autograd.Function):
    """silu(gate) * up, which keeps its two inputs and no product of theirs."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return kernels.silu_times(gate, up) if kernels.takes(gate, up) else _silu_times(gate, up)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        given = (grads[0], *ctx.saved_tensors)
        return kernels.silu_times_backward(*given) if kernels.takes(*given) else _silu_times_backward(*given)


@fused
def _silu_times(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


@fused
def _silu_times_backward(dy: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    return torch.ops.aten.silu_backward(dy * up, gate), F.silu(gate) * dy


def swiglu(gate: Tensor, up: Tensor, keep: Keep = PLAIN) -> Tensor:
    """silu(gate) * up (arXiv 2002.05202), elementwise."""
    keep.in_fp8("swiglu_inputs", gate, up)
    return keep.recomputed("swiglu", _SwiGLUActivation.apply, gate, up)


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
        ends_E = counts_E.cumsum(0, dtype=torch.int32)
        x_ND = x_ND.to(dtype)
        keep.in_fp8("expert_inputs", x_ND)
        if kernels.takes(x_ND) and torch.is_grad_enabled():  # decoding would copy more weights than it multiplies
            gate_NF, up_NF = _GroupedPair.apply(x_ND, gate_EFD.to(dtype), up_EFD.to(dtype), ends_E)
        else:
            gate_NF = _GroupedLinear.apply(x_ND, gate_EFD.to(dtype), ends_E)
            up_NF = _GroupedLinear.apply(x_ND, up_EFD.to(dtype), ends_E)
        # the weight before the projection: its gradient then needs no output of the projection
        a_NF, w_N1 = swiglu(gate_NF, up_NF, keep), weights_N[:, None].to(dtype)
        h_NF = keep.recomputed("moe_down", torch.mul, a_NF, w_N1)
        return _GroupedLinear.apply(h_NF, down_EDF.to(dtype), ends_E)


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
        self, x_BSD: Tensor, real_BS: Tensor | None = None, keep: Keep = PLAIN
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the output (B, S, D), the balance loss without alpha, and the tokens per expert (E,), int64.

        The counts are returned, not stored: a recomputed forward cannot count twice. Padding is not counted.
        """
        y_BSD, routing, counts_E = self.mix(x_BSD, keep)
        top_k = self.gate.top_k
        balance = sequence_balance_loss(routing.scores_TE, top_k, len(x_BSD), real_BS)
        if real_BS is not None:
            chosen = routing.experts_TK[real_BS.flatten()].flatten()
            counts_E = chosen.bincount(minlength=len(counts_E))
        return y_BSD, balance, counts_E

    def mix(self, x_BSD: Tensor, keep: Keep = PLAIN) -> tuple[Tensor, Routing, Tensor]:
        """The output (B, S, D), the routing behind it, and how many tokens each expert took."""
        x_TD = x_BSD.flatten(0, 1)
        routing = self.gate(x_TD)
        chosen_N = routing.experts_TK.flatten()
        order_N = chosen_N.argsort(stable=True)
        rank_N = torch.empty_like(order_N)
        rank_N[order_N] = torch.arange(len(order_N), device=order_N.device)
        counts_E = chosen_N.bincount(minlength=len(self.gate.weight))
        x_ND = keep.recomputed("dispatch", lambda x: _Dispatch.apply(x, order_N, rank_N), x_TD)
        y_ND = self.experts(x_ND, routing.weights_TK.flatten()[order_N], counts_E, keep)
        y_TD = _Combine.apply(y_ND, order_N, rank_N, self.gate.top_k)
        return self.shared_experts(x_BSD, keep) + y_TD.view_as(x_BSD), routing, counts_E
