"""MuonClip: Muon for matrices, AdamW for the rest, QK-Clip for attention (Kimi K2 report, Algorithm 1).

For every weight matrix W of shape (n, m) with gradient G:

    M <- mu M + G                                     momentum, summed and not averaged
    O <- NewtonSchulz(G + mu M) 0.2 sqrt(max(n, m))   Nesterov; the update's RMS is that of AdamW
    W <- W - lr (O + 0.1 W)                           decoupled weight decay

and then, for every attention head whose largest logit S_max of this step's forwards passed tau, its query and key
weights shrink so that the same forwards would have given exactly tau. All matrices of one shape, whatever layer or
expert they come from, go through one batched Newton-Schulz; each is still orthogonalised by itself.

Muon fails silently: a step whose Newton-Schulz never ran still lowers the loss. So every step counts the
orthogonalised matrices and holds each update's RMS against bounds that are proved, not tuned
(`training.newton_schulz.rms_bounds`).

Sources: K2 report (arXiv 2507.20534); Moonlight, "Muon is scalable for LLM training" (arXiv 2502.16982) for mu,
Nesterov, the 0.2 and the decay; K. Jordan, "Muon: an optimizer for hidden layers" (2024) for the quintic.

Shapes: G matrices in a stack, each N x M with N <= M (turned where it stands upright), E experts, L layers, H heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from model.attention import MultiHeadLatentAttention
from model.transformer import Transformer, routers
from training.config import MuonClipConfig
from training.newton_schulz import (
    COEFFICIENTS,
    NORM_FLOOR,
    RMS_MATCH,
    newton_schulz_cost,
    newton_schulz_wide,
    rms_bounds,
)
from training.parallel import World


class MuonClipError(RuntimeError):
    """A step that must not be applied: it would harm the weights or it is not MuonClip's."""


# ------------------------------------------------------------------------------------------------------------ QK-Clip


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


def qk_clip_mla_(q_b: Tensor, kv_b: Tensor, gamma_H: Tensor, nope: int, rope: int) -> None:
    """Scale one MLA layer's heads in place so that every logit of head h becomes gamma_h times itself.

    `q_b` [H (nope + rope), r] is q_b_proj's weight, `kv_b` [H (nope + v), r'] kv_b_proj's. q_nope and k_nope take
    sqrt(gamma) each; q_rope takes gamma whole, because its partner, k_rope, is one for all heads and must stay as it is
    (K2 report 2.1).
    """
    heads = gamma_H.numel()
    gamma_H11 = gamma_H.to(q_b.dtype).view(heads, 1, 1)
    q_HDR, kv_HDR = q_b.view(heads, nope + rope, -1), kv_b.view(heads, kv_b.shape[0] // heads, -1)
    q_HDR[:, :nope].mul_(gamma_H11.sqrt())
    q_HDR[:, nope:].mul_(gamma_H11)
    kv_HDR[:, :nope].mul_(gamma_H11.sqrt())


def qk_clip_gqa_(
    q: Tensor, k: Tensor, gamma_H: Tensor, q_bias: Tensor | None = None, k_bias: Tensor | None = None
) -> None:
    """The same for plain attention: `q` [H d, D], `k` [K d, D] with K = H (MHA) or K dividing H (GQA, ours).

    A key shared by a group takes sqrt(g), g the smallest gamma of its heads, and each query head gamma_h / sqrt(g);
    with one head per key both are sqrt(gamma_h), as the report has it. Biases go with their weights.
    """
    heads = gamma_H.numel()
    head_dim = q.shape[0] // heads
    keys = k.shape[0] // head_dim
    gamma_KJ = gamma_H.to(q.dtype).view(keys, heads // keys)
    root_K1 = gamma_KJ.amin(dim=1, keepdim=True).sqrt()
    query_H = (gamma_KJ / root_K1).flatten()
    for tensor, scale in ((q, query_H), (q_bias, query_H), (k, root_K1.flatten()), (k_bias, root_K1.flatten())):
        if tensor is not None:
            tensor.view(scale.numel(), head_dim, -1).mul_(scale[:, None, None])


# ---------------------------------------------------------------------------------------------------------- optimizer


@dataclass(frozen=True)
class StepReport:
    """What one optimizer step did, the same on every rank."""

    matrices: int
    """Matrices orthogonalised, each exactly once, over all ranks."""
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


@dataclass
class _Member:
    """One parameter's matrices within a stack: slots `start` to `start + count` hold it, turned if it is upright."""

    name: str
    parameter: nn.Parameter
    start: int
    count: int
    turned: bool

    def wide(self, tensor: Tensor) -> Tensor:
        """`tensor` of the parameter's shape as a view [count, N, M]."""
        flat = tensor.view(self.count, *tensor.shape[-2:])
        return flat.mT if self.turned else flat


@dataclass
class _Stack:
    """All Muon matrices of one shape. This rank owns slots `own`; `cuts[r]:cuts[r + 1]` are those of rank r."""

    n: int
    m: int
    members: list[_Member]
    cuts: list[int] = field(default_factory=list)
    own: range = range(0)
    momentum_GNM: Tensor = field(default_factory=lambda: torch.empty(0))

    @property
    def size(self) -> int:
        return sum(member.count for member in self.members)

    def owned(self) -> Iterable[tuple[_Member, slice, slice]]:
        """(member, its slices, their slots in `momentum_GNM`) for what this rank owns."""
        for member in self.members:
            first = max(self.own.start, member.start)
            last = min(self.own.stop, member.start + member.count)
            if first < last:
                yield (
                    member,
                    slice(first - member.start, last - member.start),
                    slice(first - self.own.start, last - self.own.start),
                )


class MuonClip(torch.optim.Optimizer):
    """The optimizer of Kimi K2 over float32 parameters (a forward may run under bfloat16 autocast).

    `muon` and `adamw` name the parameters of either rule; a parameter [E, n, m] is E matrices. `attention` holds, per
    layer, the function that scales its heads by a gamma [H] (`qk_clip_mla_` or `qk_clip_gqa_` bound to the weights).

    With a `world` of several ranks every rank must hold the same parameters and the same (already averaged) gradients.
    Each then owns a share of the matrices, even in Newton-Schulz cost: it alone keeps their momentum, orthogonalises
    them, and broadcasts the result (ZeRO-1 by matrix). AdamW's state, small beside it, is kept by every rank.

    The learning rate is `param_groups[i]["lr"]`, as in any torch optimizer; group 0 is Muon's, group 1 AdamW's.
    """

    def __init__(
        self,
        muon: Mapping[str, nn.Parameter],
        adamw: Mapping[str, nn.Parameter],
        config: MuonClipConfig | None = None,
        attention: Sequence[Callable[[Tensor], None]] = (),
        lr: float = 0.0,
        world: World | None = None,
    ) -> None:
        self.config = config or MuonClipConfig()
        self.world = world or World()
        self.attention = list(attention)
        self.names = (list(muon), list(adamw))
        groups = [{"params": list(group.values())} for group in (muon, adamw)]
        super().__init__([group for group in groups if group["params"]], {"lr": lr})
        for name, parameter in {**muon, **adamw}.items():
            if parameter.dtype != torch.float32:
                raise MuonClipError(f"{name} is {parameter.dtype}: MuonClip updates float32 master weights")
        for name, parameter in muon.items():
            if parameter.ndim < 2:
                raise MuonClipError(f"{name} has shape {tuple(parameter.shape)}: Muon takes matrices, AdamW the rest")
        self.coefficients = COEFFICIENTS[self.config.coefficients]
        self.steps = 0
        self._adamw = dict(adamw)
        self._moments = {name: (torch.zeros_like(p), torch.zeros_like(p)) for name, p in adamw.items()}
        self._stacks = _stack(muon)
        _cut(self._stacks, self.world)
        self.clips_LH = torch.zeros(0, dtype=torch.int64)  # how often each head was clipped, over the whole run
        self.last_report: StepReport | None = None

    @classmethod
    def for_model(
        cls, model: Transformer, config: MuonClipConfig | None = None, world: World | None = None
    ) -> MuonClip:
        """The optimizer of one of our models: Muon on its linear layers unless `MuonClipConfig` says otherwise.

        Parameters that do not require a gradient are left out.
        """
        config = config or MuonClipConfig()
        apart = {id(model.embed_tokens.weight), id(model.lm_head.weight)}
        if config.router == "adamw":
            apart |= {id(router.weight) for router in routers(model)}
        muon: dict[str, nn.Parameter] = {}
        adamw: dict[str, nn.Parameter] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                keeps_adamw = config.matrices == "adamw" or parameter.ndim < 2 or id(parameter) in apart
                rule = adamw if keeps_adamw else muon
                rule[name] = parameter

        def clip(attention: MultiHeadLatentAttention) -> Callable[[Tensor], None]:
            return lambda gamma_H: qk_clip_mla_(
                attention.q_b_proj.weight, attention.kv_b_proj.weight, gamma_H, attention.nope, attention.rope
            )

        attention = [clip(module) for module in model.modules() if isinstance(module, MultiHeadLatentAttention)]
        return cls(muon, adamw, config, attention, world=world)

    @property
    def matrices(self) -> int:
        """How many matrices Muon updates, every expert's counted by itself."""
        return sum(stack.size for stack in self._stacks)

    @torch.no_grad()
    def step(  # type: ignore[override]
        self, closure: Callable[[], float] | None = None, max_logits_LH: Tensor | None = None
    ) -> float | None:
        """One update from the parameters' gradients; `last_report` then tells what it did.

        `max_logits_LH` [layers, heads] are the largest attention logits of the forwards that made these gradients, over
        the whole global batch; without them QK-Clip is left out. Raises `MuonClipError`, before any weight has changed
        and on every rank alike: for a logit or a gradient that is missing, NaN or infinite, nothing else having changed
        either; for an update out of bounds, after which the momentum is to be loaded again.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        gamma_LH = None
        if max_logits_LH is not None:
            if len(max_logits_LH) != len(self.attention):
                raise MuonClipError(f"{len(max_logits_LH)} layers of logits for {len(self.attention)} attention layers")
            gamma_LH = qk_gamma(max_logits_LH.detach().float(), self.config.tau)
        self._check_gradients()
        updates = self._orthogonalise()
        self.steps += 1
        if self._stacks:
            self._apply_muon(updates, self.param_groups[0]["lr"])
        if self._adamw:
            self._apply_adamw(self.param_groups[-1]["lr"])
        if gamma_LH is not None:
            if bool((gamma_LH < 1).any()):
                for clip, gamma_H in zip(self.attention, gamma_LH, strict=True):
                    clip(gamma_H)
            clipped_LH = (gamma_LH < 1).cpu().long()
            self.clips_LH = self.clips_LH + clipped_LH if len(self.clips_LH) else clipped_LH
            assert self.last_report is not None
            self.last_report = replace(self.last_report, gamma_LH=gamma_LH.cpu())
        return loss

    def _check_gradients(self) -> None:
        """Refuse what would poison momentum or moments for good."""
        named = [
            (name, _gradient(name, parameter))
            for name, parameter in zip(
                [name for names in self.names for name in names],
                [parameter for group in self.param_groups for parameter in group["params"]],
                strict=True,
            )
        ]
        if not named:
            return
        norms = torch.stack([torch.linalg.vector_norm(gradient) for _, gradient in named]).cpu()
        for (name, _), norm in zip(named, norms.tolist(), strict=True):
            if not math.isfinite(norm):
                raise MuonClipError(f"{name} has a gradient that is NaN or infinite; the step was not applied")

    def _orthogonalise(self) -> list[Tensor]:
        """The orthogonalised momentum of every stack [G, N, M], complete on every rank and checked."""
        dtype = getattr(torch, self.config.newton_schulz_dtype)
        mu = self.config.momentum
        updates, checks = [], []
        for stack in self._stacks:
            gradient_GNM = torch.empty_like(stack.momentum_GNM)
            for member, slices, slots in stack.owned():
                gradient_GNM[slots] = member.wide(_gradient(member.name, member.parameter))[slices]
            stack.momentum_GNM.mul_(mu).add_(gradient_GNM)
            direction_GNM = (
                gradient_GNM.add_(stack.momentum_GNM, alpha=mu) if self.config.nesterov else stack.momentum_GNM
            )
            update_GNM = direction_GNM.new_empty((stack.size, stack.n, stack.m), dtype=dtype)
            # columns: times orthogonalised, Frobenius norm before, effective rank, RMS after
            check_G4 = direction_GNM.new_zeros((stack.size, 4), dtype=torch.float32)
            own = slice(stack.own.start, stack.own.stop)
            if len(stack.own):
                update_GNM[own], norm_G, rank_G = newton_schulz_wide(direction_GNM, self.coefficients, dtype)
                rms_G = torch.linalg.vector_norm(update_GNM[own], dim=(1, 2), dtype=torch.float32)
                rms_G = rms_G * RMS_MATCH / math.sqrt(stack.n)  # 0.2 sqrt(M) / sqrt(N M)
                check_G4[own] += torch.stack([torch.ones_like(norm_G), norm_G, rank_G, rms_G], dim=1)
            updates.append(update_GNM)
            checks.append(check_G4)
        if checks:
            self.last_report = self._check(self.world.all_reduce(torch.cat(checks)))
        else:
            self.last_report = StepReport(0, 0, 0.0, 0.0)
        self.world.gather_parts([(update, stack.cuts) for update, stack in zip(updates, self._stacks, strict=True)])
        return updates

    def _check(self, check_G4: Tensor) -> StepReport:
        """Hold the step against what Muon promises; `check_G4` covers the matrices of all ranks."""
        runs_G, norm_G, rank_G, rms_G = check_G4.double().cpu().unbind(1)
        idle_G = norm_G < NORM_FLOOR
        low_G, high_G, numel_G = torch.empty_like(rms_G), torch.empty_like(rms_G), torch.empty_like(rms_G)
        place = 0
        for stack in self._stacks:
            rows = slice(place, place := place + stack.size)
            low_G[rows], high_G[rows] = rms_bounds(stack.n, rank_G[rows], self.coefficients)
            numel_G[rows] = stack.n * stack.m
        for wrong_G, what in (
            (runs_G != 1, "was orthogonalised {runs:g} times in one step"),
            (~torch.isfinite(norm_G * rms_G), "has an update that is NaN or infinite"),
            (
                ~idle_G & ((rms_G < low_G) | (rms_G > high_G)),
                "has an update of RMS {rms:.3g}, not in {low:.3g}..{high:.3g}",
            ),
        ):
            if wrong_G.any():
                at = int(wrong_G.nonzero()[0])
                values = {"runs": runs_G[at], "rms": rms_G[at], "low": low_G[at], "high": high_G[at]}
                raise MuonClipError(f"{self._name(at)} {what.format(**values)}; the step was not applied")
        live_G = ~idle_G
        elements = float(numel_G[live_G].sum())
        square = float((rms_G[live_G].square() * numel_G[live_G]).sum())
        return StepReport(
            matrices=int(runs_G.sum()),
            idle=int(idle_G.sum()),
            update_rms=math.sqrt(square / elements) if elements else 0.0,
            update_rms_lowest=float(rms_G[live_G].min()) if elements else 0.0,
        )

    def _name(self, at: int) -> str:
        """The matrix in row `at` of the checks, as a person would call it."""
        for stack in self._stacks:
            if at < stack.size:
                member = next(m for m in stack.members if m.start <= at < m.start + m.count)
                return member.name if member.count == 1 else f"{member.name}[{at - member.start}]"
            at -= stack.size
        raise IndexError(at)

    def _apply_muon(self, updates: list[Tensor], lr: float) -> None:
        keep = 1 - lr * self.config.weight_decay
        for stack, update_GNM in zip(self._stacks, updates, strict=True):
            scale = RMS_MATCH * math.sqrt(stack.m)  # M = max(n, m)
            for member in stack.members:
                slots_GNM = update_GNM[member.start : member.start + member.count]
                member.wide(member.parameter.data).mul_(keep).add_(slots_GNM, alpha=-lr * scale)

    def _apply_adamw(self, lr: float) -> None:
        (beta1, beta2), epsilon = self.config.betas, self.config.adamw_epsilon
        correction1, correction2 = 1 - beta1**self.steps, 1 - beta2**self.steps
        for name, parameter in self._adamw.items():
            gradient = _gradient(name, parameter)
            mean, square = self._moments[name]
            mean.lerp_(gradient, 1 - beta1)
            square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            if parameter.ndim >= 2:
                parameter.mul_(1 - lr * self.config.weight_decay)
            parameter.addcdiv_(mean, (square / correction2).sqrt_().add_(epsilon), value=-lr / correction1)

    # ------------------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """This rank's share of the state as flat, contiguous tensors (safetensors can hold it as it is).

        `momentum/NAME` for a matrix, `momentum/NAME/FIRST` for consecutive slices of a stack from slice FIRST on; rank
        0 adds `steps`, `clips`, `mean/NAME` and `square/NAME`. Joined over the ranks, any number of ranks can load it.
        """
        state: dict[str, Any] = {}
        for stack in self._stacks:
            for member, slices, slots in stack.owned():
                values = stack.momentum_GNM[slots]
                values = (values.mT if member.turned else values).contiguous()
                if member.parameter.ndim == 2:
                    state[f"momentum/{member.name}"] = values[0]
                else:
                    state[f"momentum/{member.name}/{slices.start}"] = values
        if self.world.rank == 0:
            state["steps"] = torch.tensor(self.steps)
            state["clips"] = self.clips_LH
            for name, (mean, square) in self._moments.items():
                state[f"mean/{name}"], state[f"square/{name}"] = mean, square
        return state

    @torch.no_grad()
    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave, all ranks' shares joined.

        Raises `MuonClipError` where something is missing or has another shape.
        """
        pieces: dict[str, list[tuple[int, Tensor]]] = {}
        for key, value in state_dict.items():
            kind, _, rest = key.partition("/")
            if kind == "momentum":
                name, _, at = rest.partition("/")
                pieces.setdefault(name, []).append((int(at or 0), value if at else value[None]))
        for stack in self._stacks:
            for member, slices, slots in stack.owned():
                target = stack.momentum_GNM[slots].mT if member.turned else stack.momentum_GNM[slots]
                filled = 0
                for first, value in pieces.get(member.name, []):
                    start, stop = max(first, slices.start), min(first + len(value), slices.stop)
                    if start < stop:
                        part = value[start - first : stop - first].reshape(stop - start, *target.shape[1:])
                        target[start - slices.start : stop - slices.start] = part
                        filled += stop - start
                if filled != slices.stop - slices.start:
                    raise MuonClipError(
                        f"the optimizer state has no momentum for all of {member.name}: another model's?"
                    )
        for name, (mean, square) in self._moments.items():
            for kind, target in (("mean", mean), ("square", square)):
                value = state_dict.get(f"{kind}/{name}")
                if value is None or value.shape != target.shape:
                    raise MuonClipError(f"the optimizer state has no {kind} of shape {tuple(target.shape)} for {name}")
                target.copy_(value)
        self.steps = int(state_dict["steps"])
        self.clips_LH = state_dict["clips"].clone()


def _gradient(name: str, parameter: nn.Parameter) -> Tensor:
    if parameter.grad is None:
        raise MuonClipError(f"{name} has no gradient: freeze it (requires_grad=False) or find out why it is not used")
    return parameter.grad


def _stack(muon: Mapping[str, nn.Parameter]) -> list[_Stack]:
    """Parameters gathered by the shape of their matrices, in the order in which the model names them."""
    stacks: dict[tuple[int, int], _Stack] = {}
    for name, parameter in muon.items():
        rows, columns = parameter.shape[-2:]
        n, m = min(rows, columns), max(rows, columns)
        stack = stacks.setdefault((n, m), _Stack(n, m, []))
        count = parameter.numel() // (rows * columns)
        stack.members.append(_Member(name, parameter, stack.size, count, turned=rows > columns))
    return list(stacks.values())


def _cut(stacks: list[_Stack], world: World) -> None:
    """Give every rank a run of consecutive matrices of about the same cost, and room for their momentum.

    Consecutive, because a rank's batches are then as long as they can be and its results lie together.
    """
    total = sum(stack.size * newton_schulz_cost(stack.n, stack.m) for stack in stacks)
    before = 0
    for stack in stacks:
        cost = newton_schulz_cost(stack.n, stack.m)
        # slot g belongs to the rank in whose share its middle lies: before + (g + 1/2) cost < total (r + 1) / size
        cuts = [
            min(stack.size, max(0, math.ceil((total * rank / world.size - before) / cost - 0.5)))
            for rank in range(world.size + 1)
        ]
        stack.cuts = cuts
        stack.own = range(cuts[world.rank], cuts[world.rank + 1])
        sample = stack.members[0].parameter
        stack.momentum_GNM = torch.zeros((len(stack.own), stack.n, stack.m), dtype=sample.dtype, device=sample.device)
        before += stack.size * cost
