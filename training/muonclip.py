"""MuonClip: Muon for matrices, AdamW for the rest, QK-Clip for attention (Kimi K2 report, Algorithm 1).

For every weight matrix W of shape (n, m) with gradient G:

    M <- mu M + G                                     momentum, summed and not averaged
    O <- NewtonSchulz(G + mu M) 0.2 sqrt(max(n, m))   Nesterov; the update's RMS is that of AdamW
    W <- W - lr (O + 0.1 W)                           decoupled weight decay

and then, for every attention head whose largest logit S_max of this step's forwards passed tau, its query and key
weights shrink so that the same forwards would have given exactly tau (`training.qk_clip`). All matrices of one shape,
whatever layer or expert they come from, go through one batched Newton-Schulz; each is still orthogonalised by itself.

Over several ranks each matrix has one owner (`training.owners`). An owner's results are on their way to the other
holders while its next stack computes; nothing is applied, by anyone, before all ranks agree that all is well.

Muon fails silently: a step whose Newton-Schulz never ran still lowers the loss. So every step counts the
orthogonalised matrices of the whole model and holds each update's RMS against bounds that are proved, not tuned
(`training.newton_schulz.rms_bounds`).

Sources: K2 report (arXiv 2507.20534); Moonlight, "Muon is scalable for LLM training" (arXiv 2502.16982) for mu,
Nesterov, the 0.2 and the decay; K. Jordan, "Muon: an optimizer for hidden layers" (2024) for the quintic.

Shapes: G matrices in a stack, each N x M with N <= M (turned where it stands upright), E experts, L layers, H heads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from model.attention import MultiHeadLatentAttention
from model.precision import dtype_of
from training import expert_parallel
from training.adamw import AdamW
from training.config import MuonClipConfig
from training.mesh import Mesh
from training.newton_schulz import (
    COEFFICIENTS,
    NORM_FLOOR,
    RMS_MATCH,
    newton_schulz_cost,
    newton_schulz_wide,
    rms_bounds,
)
from training.owners import MuonClipError, Pieces, Roll, Stack, stack_up
from training.qk_clip import Clip, by_row, mla_factors, qk_gamma

NOT_FINITE, LEFT = "has a gradient that is NaN or infinite", "the step was not applied"


@dataclass(frozen=True)
class StepReport:
    """What one optimizer step did, the same on every rank and counted over all of them."""

    matrices: int
    """Matrices orthogonalised, each exactly once."""
    idle: int
    """Of those, matrices without momentum (experts that never got a token): they are only decayed."""
    update_rms: float
    """RMS over the elements of all updates of matrices that were not idle, learning rate apart: near 0.2."""
    update_rms_lowest: float
    """The smallest RMS of a single matrix that was not idle."""
    gamma_LH: Tensor | None = None
    """QK-Clip's factor, float32 [L, H] on the CPU, 1 where a head was left alone; None for a step without logits."""

    @property
    def clipped_heads(self) -> int:
        """Heads that QK-Clip scaled in this step."""
        return 0 if self.gamma_LH is None else int((self.gamma_LH < 1).sum())


class MuonClip(torch.optim.Optimizer):
    """The optimizer of Kimi K2.

    `muon` and `adamw` name the parameters of either rule by their global names; a parameter [E, n, m] is E matrices.
    `attention` holds the QK-Clip of each attention layer on this rank (`training.qk_clip.Clip`) by the layer's row in
    the maxima.

    A float32 parameter is its own master (a forward may run under bfloat16 autocast). A bfloat16 parameter is a working
    weight: its owner alone keeps a float32 master, updates it and sends the rounded weight. Its gradient should still
    be summed in float32: set `parameter.grad_dtype = torch.float32` before the first backward.

    `mesh` says who holds what: dense parameters are the same on the ranks of `mesh.data`, those named in `experts`
    (with the global index of this rank's first expert) on the ranks of `mesh.expert_data`. Gradients must come already
    summed over those ranks. Every holder owns a share of the matrices, even in Newton-Schulz cost: it alone keeps
    their momentum and orthogonalises them (ZeRO-1 by matrix); AdamW's state is cut by flat ranges.

    `heads` names weights whose heads are orthogonalised apart, with the rows of each part of one head's block.

    The learning rate is `param_groups[i]["lr"]`, as in any torch optimizer; group 0 is Muon's, group 1 AdamW's.
    """

    def __init__(
        self,
        muon: Mapping[str, nn.Parameter],
        adamw: Mapping[str, nn.Parameter],
        config: MuonClipConfig | None = None,
        attention: Mapping[int, Clip] | None = None,
        lr: float = 0.0,
        mesh: Mesh | None = None,
        experts: Mapping[str, int] | None = None,
        heads: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        self.config = config or MuonClipConfig()
        self.mesh = mesh or Mesh()
        self.attention = dict(attention or {})
        groups = [{"params": list(group.values())} for group in (muon, adamw)]
        super().__init__([group for group in groups if group["params"]], {"lr": lr})
        self._named = {**muon, **adamw}
        for name, parameter in self._named.items():
            if parameter.dtype not in (torch.float32, torch.bfloat16):
                raise MuonClipError(f"{name} is {parameter.dtype}: MuonClip takes float32 or bfloat16 weights")
        for name, parameter in muon.items():
            if parameter.ndim < 2:
                raise MuonClipError(f"{name} has shape {tuple(parameter.shape)}: Muon takes matrices, AdamW the rest")
        self.coefficients = COEFFICIENTS[self.config.coefficients]
        self.steps = 0
        self._device = next(iter(self._named.values())).device
        sharded = set(experts or {}) if self.mesh.expert.size > 1 else set()
        ratio = self.config.gram_ratio
        self._stacks = stack_up(
            muon,
            experts or {},
            heads or {},
            self.mesh,
            lambda n, m: newton_schulz_cost(n, m, self.coefficients, ratio),
        )
        kept = [{name: p for name, p in adamw.items() if (name in sharded) == part} for part in (False, True)]
        self._adamw = [
            AdamW(kept[0], self.config, self.mesh.data),
            AdamW(kept[1], self.config, self.mesh.expert_data, experts),
        ]
        self.clips_LH = torch.zeros(0, dtype=torch.int64)  # how often each head was clipped, over the whole run
        self.last_report: StepReport | None = None

    @classmethod
    def for_model(cls, model: nn.Module, config: MuonClipConfig | None = None, mesh: Mesh | None = None) -> MuonClip:
        """The optimizer of one of our models, or of the part of one that this rank holds: Muon on its linear layers
        unless `MuonClipConfig` says otherwise. The names of its parameters tell them apart (`model.transformer`).

        Parameters that do not require a gradient are left out.
        """
        config, mesh = config or MuonClipConfig(), mesh or Mesh()
        apart = {"embed_tokens.weight", "lm_head.weight"}
        muon: dict[str, nn.Parameter] = {}
        adamw: dict[str, nn.Parameter] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                router = name.endswith(".mlp.gate.weight") and config.router == "adamw"
                keeps_adamw = config.matrices == "adamw" or router or parameter.ndim < 2 or name in apart
                (adamw if keeps_adamw else muon)[name] = parameter

        def clip(layer: MultiHeadLatentAttention) -> Clip:
            def factors(gamma_H: Tensor) -> list[tuple[Tensor, Tensor]]:
                q_b, kv_b = mla_factors(gamma_H, layer.nope, layer.rope, layer.value)
                return [(layer.query_heads.weight, q_b), (layer.kv_b_proj.weight, kv_b)]

            return factors

        attention: dict[int, Clip] = {}
        heads: dict[str, Sequence[int]] = {}
        for name, module in model.named_modules():
            if isinstance(module, MultiHeadLatentAttention):
                attention[int(re.findall(r"\d+", name)[0])] = clip(module)
                if config.per_head:
                    heads[f"{name}.{module.query_name}.weight"] = [module.nope + module.rope]
                    heads[f"{name}.kv_b_proj.weight"] = [module.nope, module.value]
        experts = {name: first for name, (first, _) in expert_parallel.pieces(model).items()}
        return cls(muon, adamw, config, attention, mesh=mesh, experts=experts, heads=heads)

    @property
    def matrices(self) -> int:
        """How many matrices Muon updates on this rank and on those that hold the same, every expert's by itself."""
        return sum(stack.size for stack in self._stacks)

    @property
    def shares(self) -> tuple[Sequence[Stack], Sequence[AdamW]]:
        """Muon's matrices by shape and AdamW's ranges, each cut over the ranks that hold them."""
        return self._stacks, self._adamw

    # -------------------------------------------------------------------------------------------------------- step

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, max_logits_LH: Tensor | None = None
    ) -> float | None:
        """One update from the parameters' gradients; `last_report` then tells what it did.

        `max_logits_LH` [layers, heads] are the largest attention logits of the forwards that made these gradients, of
        all layers of the model and over the whole global batch, the same on every rank; without them QK-Clip is left
        out. Raises `MuonClipError`, on every rank alike and before weights or state have changed, for a logit or a
        gradient that is missing, NaN or infinite, an update out of bounds, or ranks that disagree.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gamma_LH, factors = self._clip(max_logits_LH)
        rates = [group["lr"] for group in self.param_groups]
        updates = [self._orthogonalise(stack, rates[0], factors) for stack in self._stacks]
        try:
            report = self._check(updates, rates)
        except MuonClipError:
            for update in updates:
                update.arrive()  # nothing may be under way when the error is answered
            raise
        self.steps += 1
        arriving = [adamw.step(rates[-1], self.steps, factors) for adamw in self._adamw]
        for stack, update in zip(self._stacks, updates, strict=True):
            update.arrive()
            self._apply(stack, update, rates[0])
        for arrive in arriving:
            arrive()
        for parameter, factor in factors.items():
            if parameter.dtype == torch.float32:  # the others' masters took it
                parameter.mul_(factor)
        if gamma_LH is not None:
            clipped_LH = (gamma_LH < 1).long()
            self.clips_LH = self.clips_LH + clipped_LH if len(self.clips_LH) else clipped_LH
        self.last_report = replace(report, gamma_LH=gamma_LH)
        return loss

    def _clip(self, max_logits_LH: Tensor | None) -> tuple[Tensor | None, dict[Tensor, Tensor]]:
        """gamma on the CPU, and the factors that this rank's attention weights take, of the weights' shapes."""
        if max_logits_LH is None:
            return None, {}
        layers = set(range(len(max_logits_LH)))
        if self.attention.keys() - layers or (self.mesh.pipeline.size == 1 and layers - self.attention.keys()):
            raise MuonClipError(
                f"{len(max_logits_LH)} layers of logits for {len(self.attention)} attention layers: give the maxima of "
                "all layers of the model"
            )
        gamma_LH = qk_gamma(max_logits_LH.detach().float().cpu(), self.config.tau)
        return gamma_LH, {
            parameter: by_row(factor, parameter)
            for layer, clip in self.attention.items()
            if bool((gamma_LH[layer] < 1).any())
            for parameter, factor in clip(gamma_LH[layer])
        }

    def _orthogonalise(self, stack: Stack, lr: float, factors: Mapping[Tensor, Tensor]) -> _Update:
        """Compute the owned slots of a stack and begin to exchange them."""
        dtype = dtype_of(self.config.newton_schulz_dtype, self._device)
        own = slice(stack.own.start, stack.own.stop)
        table_G6 = torch.zeros((stack.size, 6), dtype=torch.float64, device=self._device)
        masters_GNM = None
        sent_GNM = stack.momentum_GNM.new_empty((0, stack.n, stack.m), dtype=stack.sent_dtype(dtype))
        if len(stack.own):
            direction_GNM = stack.direction(self.config.momentum, self.config.nesterov)
            sent_GNM, norm_G, rank_G = newton_schulz_wide(
                direction_GNM, self.coefficients, dtype, self.config.gram_ratio
            )
            rms_G = torch.linalg.vector_norm(sent_GNM, dim=(1, 2)).float()
            rms_G = rms_G * RMS_MATCH / math.sqrt(stack.n)  # 0.2 sqrt(M) / sqrt(N M)
            n_G, m_G = torch.full_like(norm_G, stack.n), torch.full_like(norm_G, stack.m)
            table_G6[own] += torch.stack([torch.ones_like(norm_G), norm_G, rank_G, rms_G, n_G, m_G], dim=1)
            if stack.master_GNM is not None:
                masters_GNM = stack.updated(sent_GNM, self._keep(lr), _rate(stack, lr), factors)
                sent_GNM = masters_GNM.to(stack.dtype)
        if stack.holders.size == 1:
            return _Update(sent_GNM, masters_GNM, table_G6, [])
        all_GNM = sent_GNM.new_empty((stack.size, stack.n, stack.m))
        all_GNM[own] = sent_GNM
        waits = [
            stack.holders.broadcast(all_GNM[first:end], rank)
            for rank, (first, end) in enumerate(pairwise(stack.cuts))
            if first < end
        ]
        return _Update(all_GNM, masters_GNM, table_G6, waits)

    def _apply(self, stack: Stack, update: _Update, lr: float) -> None:
        """Move momentum, masters and weights; everything has been checked."""
        stack.advance(self.config.momentum)
        stack.master_GNM = update.masters_GNM if len(stack.own) else stack.master_GNM
        for member in stack.members:
            slots_GNM = update.all_GNM[member.start : member.start + member.count]
            weight_GNM = member.wide(member.parameter.data)
            if stack.master_GNM is None:
                weight_GNM.mul_(self._keep(lr)).add_(slots_GNM, alpha=-_rate(stack, lr))
            else:
                weight_GNM.copy_(slots_GNM)

    def _keep(self, lr: float) -> float:
        return 1 - lr * self.config.weight_decay

    # ------------------------------------------------------------------------------------------------------- checks

    @cached_property
    def _roll(self) -> Roll:
        return Roll(self._stacks, self.mesh, self._device)

    def _check(self, updates: Sequence[_Update], rates: Sequence[float]) -> StepReport:
        """Hold the step against what Muon promises, in one collective over the matrices of all ranks."""
        count, steps, lr = self.mesh.world.size, float(self.steps), float(rates[-1])
        missing = [name for name, parameter in self._named.items() if parameter.grad is None]
        pieces = [(piece.name, bad) for adamw in self._adamw for piece, bad in adamw.bad()]
        table = torch.zeros((self._roll.size + 1, 6), dtype=torch.float64, device=self._device)
        for rows, update in zip(self._roll.rows, updates, strict=True):
            table[rows.start : rows.stop] = update.table_G6
        table[-1] = torch.tensor([len(missing), 0, steps, steps * steps, lr, lr * lr], dtype=torch.float64)
        if pieces:
            table[-1, 1] = torch.stack([bad for _, bad in pieces]).sum()
        table = self.mesh.world.all_reduce(table).cpu()
        runs_G, norm_G, rank_G, rms_G, n_G, m_G = table[:-1].unbind(1)
        missed, poisoned, *sums = table[-1].tolist()
        if missed:
            why = "freeze it (requires_grad=False) or find out why it is not used"
            raise self._error([f"{name} has no gradient: {why}" for name in missing])
        if poisoned:
            raise self._error([f"{name} {NOT_FINITE}; {LEFT}" for name, bad in pieces if bad])
        for what, total, squares in (("count of steps", *sums[:2]), ("learning rate", *sums[2:])):
            if count * squares - total * total > 1e-9 * total * total:
                raise self._error([f"the ranks do not have the same {what}: resume from the last checkpoint"])
        idle_G = norm_G < NORM_FLOOR
        low_G, high = rms_bounds(n_G, rank_G, self.coefficients)
        for wrong_G, what in (
            (runs_G != 1, "was orthogonalised {runs:g} times in one step"),
            (~torch.isfinite(norm_G), NOT_FINITE),
            (~torch.isfinite(rms_G), "has an update that is NaN or infinite"),
            (
                ~idle_G & ((rms_G < low_G) | (rms_G > high)),
                "has an update of RMS {rms:.3g}, not in {low:.3g}..{high:.3g}",
            ),
        ):
            if wrong_G.any():
                at = int(wrong_G.nonzero()[0])
                told = what.format(runs=runs_G[at], rms=rms_G[at], low=low_G[at], high=high)
                raise self._error([f"{name} {told}; {LEFT}" for name in self._roll.names(at)])
        live_G = ~idle_G
        elements = n_G * m_G * live_G
        square = float((rms_G.square() * elements).sum())
        return StepReport(
            matrices=int(runs_G.sum()),
            idle=int(idle_G.sum()),
            update_rms=math.sqrt(square / float(elements.sum())) if live_G.any() else 0.0,
            update_rms_lowest=float(rms_G[live_G].min()) if live_G.any() else 0.0,
        )

    def _error(self, mine: Sequence[str]) -> MuonClipError:
        """The error that every rank raises: the first that some rank can name."""
        told = self.mesh.world.gather(mine[0] if mine else "")
        return MuonClipError(next(text for text in told if text))

    # ------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """This rank's share of the state as contiguous tensors (safetensors can hold it as it is).

        `KIND/NAME/FIRST`: of a matrix or a stack of them `momentum` and, of a bfloat16 weight, `master`, [slices, n, m]
        from slice FIRST on (an expert's global index); of AdamW's parameters `mean`, `square` and `master`, flat from
        element FIRST on. Rank 0 adds `steps` and `clips`. Joined over the ranks, any layout can load it.
        """
        state: dict[str, Any] = {key: value for adamw in self._adamw for key, value in adamw.state_dict().items()}
        for stack in self._stacks:
            for member, slices, slots in stack.owned():
                for kind, values_GNM in stack.state.items():
                    first = member.first + slices.start
                    state[f"{kind}/{member.name}/{first}"] = member.upright(values_GNM[slots]).contiguous()
        if self.mesh.world.rank == 0:
            state["steps"] = torch.tensor(self.steps)
            state["clips"] = self.clips_LH
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, all ranks' shares joined; the weights are the caller's to load.

        Raises `MuonClipError` where something is missing or has another shape.
        """
        pieces = Pieces(state_dict)
        for stack in self._stacks:
            for member, slices, slots in stack.owned():
                for kind, values_GNM in stack.state.items():
                    pieces.read(f"{kind}/{member.name}", member.first + slices.start, member.upright(values_GNM[slots]))
        for adamw in self._adamw:
            adamw.load(pieces)
        self.steps = int(state_dict["steps"])
        self.clips_LH = state_dict["clips"].clone()


@dataclass
class _Update:
    """What a stack's step will do, on its way."""

    all_GNM: Tensor
    """Of a float32 stack the orthogonalised momentum, of another the new weights; complete after `arrive`."""
    masters_GNM: Tensor | None
    """The new masters of the owned slots."""
    table_G6: Tensor
    """For owned slots: times orthogonalised, Frobenius norm before, effective rank, RMS after, N, M."""
    waits: list[Callable[[], None]]

    def arrive(self) -> None:
        for wait in self.waits:
            wait()


def _rate(stack: Stack, lr: float) -> float:
    """What the orthogonalised matrices are multiplied by: lr 0.2 sqrt(max(n, m))."""
    return lr * RMS_MATCH * math.sqrt(stack.m)
