"""Who owns which matrix: stacks of one shape, cut over the ranks that hold them, evenly in Newton-Schulz's cost.

An owner alone keeps a matrix's momentum (and its float32 master where the weight is bfloat16), orthogonalises it and
sends the result to the others that hold it: ZeRO-1 by matrix. Dense matrices have `mesh.data` for holders, a rank's
experts `mesh.expert_data`.

Shapes: G matrices in a stack, each N x M with N <= M (turned where it stands upright).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import torch
from torch import Tensor, nn

from training.mesh import Mesh
from training.parallel import World


class MuonClipError(RuntimeError):
    """A step that must not be applied: it would harm the weights or it is not MuonClip's."""


@dataclass(frozen=True)
class Member:
    """One parameter's matrices within a stack: slots `start` to `start + count` hold it, turned if it is upright.

    A matrix is as a rule the parameter itself, or an expert's slice of it; where heads are orthogonalised apart it is
    `rows` of each block of `block` rows.
    """

    name: str
    parameter: nn.Parameter
    start: int
    count: int
    turned: bool
    first: int
    """Global index of its first matrix: where experts are cut over ranks, that of this rank's first expert."""
    block: int
    rows: slice

    def wide(self, tensor: Tensor) -> Tensor:
        """`tensor` of the parameter's shape as a view [count, N, M]."""
        flat = tensor.view(-1, self.block, tensor.shape[-1])[:, self.rows]
        return flat.mT if self.turned else flat

    def upright(self, slots_GNM: Tensor) -> Tensor:
        """Slots as the parameter has them: turned back."""
        return slots_GNM.mT if self.turned else slots_GNM

    def gradient(self) -> Tensor:
        """The gradient as [count, N, M]; zeros where it is missing, which the step's check reports."""
        gradient = self.parameter.grad
        return self.wide(torch.zeros_like(self.parameter) if gradient is None else gradient)


@dataclass
class Stack:
    """All Muon matrices of one shape and dtype with the same holders. This rank owns slots `own`; `cuts[r]` to
    `cuts[r + 1]` are those of rank r of the holders."""

    n: int
    m: int
    dtype: torch.dtype
    sharded: bool
    """Whether it holds this rank's experts only."""
    holders: World
    cost: int
    """Newton-Schulz's of one matrix."""
    members: list[Member] = field(default_factory=list)
    cuts: list[int] = field(default_factory=list)
    momentum_GNM: Tensor = field(default_factory=lambda: torch.empty(0))
    """Of the slots in `own`, float32."""
    master_GNM: Tensor | None = None
    """Of a bfloat16 stack: the weights of the slots in `own`, float32."""

    @property
    def size(self) -> int:
        """Matrices in the stack, whoever owns them."""
        return sum(member.count for member in self.members)

    @property
    def own(self) -> range:
        """The slots that this rank owns."""
        return range(self.cuts[self.holders.rank], self.cuts[self.holders.rank + 1])

    @property
    def state(self) -> dict[str, Tensor]:
        """What this rank keeps from step to step, by kind."""
        kept = {"momentum": self.momentum_GNM}
        return kept if self.master_GNM is None else {**kept, "master": self.master_GNM}

    def sent_dtype(self, newton_schulz: torch.dtype) -> torch.dtype:
        """Of what an owner sends: updates in Newton-Schulz's precision, or weights in theirs."""
        return newton_schulz if self.master_GNM is None else self.dtype

    def owned(self) -> Iterator[tuple[Member, slice, slice]]:
        """(member, its slices, their slots among those owned) for what this rank owns."""
        own = self.own
        for member in self.members:
            first, last = max(own.start, member.start), min(own.stop, member.start + member.count)
            if first < last:
                yield (
                    member,
                    slice(first - member.start, last - member.start),
                    slice(first - own.start, last - own.start),
                )

    def direction(self, mu: float, nesterov: bool) -> Tensor:
        """What the owned slots' Newton-Schulz starts from, up to a positive factor, which it takes out again.

        G + mu M' with M' = mu M + G the next momentum is (1 + mu) (G + mu^2 / (1 + mu) M). The momentum itself stays
        as it is until `advance`.
        """
        alpha = mu * mu / (1 + mu) if nesterov else mu
        direction_GNM = torch.empty_like(self.momentum_GNM)
        for member, slices, slots in self.owned():
            torch.add(member.gradient()[slices], self.momentum_GNM[slots], alpha=alpha, out=direction_GNM[slots])
        return direction_GNM

    def advance(self, mu: float) -> None:
        """M <- mu M + G."""
        for member, slices, slots in self.owned():
            momentum_GNM = self.momentum_GNM[slots]
            torch.add(member.gradient()[slices], momentum_GNM, alpha=mu, out=momentum_GNM)

    def updated(self, update_GNM: Tensor, keep: float, rate: float, factors: Mapping[Tensor, Tensor]) -> Tensor:
        """The masters after this step: keep W - rate O, scaled by QK-Clip's `factors` where there are any."""
        assert self.master_GNM is not None
        fresh_GNM = (self.master_GNM * keep).add_(update_GNM, alpha=-rate)
        for member, slices, slots in self.owned():
            if member.parameter in factors:
                fresh_GNM[slots].mul_(member.wide(factors[member.parameter])[slices])
        return fresh_GNM

    def name(self, slot: int) -> str:
        """The matrix in a slot, as a person would call it."""
        member = next(m for m in self.members if m.start <= slot < m.start + m.count)
        alone = member.parameter.ndim == 2 and member.count == 1
        return member.name if alone else f"{member.name}[{member.first + slot - member.start}]"


def stack_up(
    muon: Mapping[str, nn.Parameter],
    experts: Mapping[str, int],
    heads: Mapping[str, Sequence[int]],
    mesh: Mesh,
    cost: Callable[[int, int], int],
) -> list[Stack]:
    """Parameters gathered by the shape of their matrices, and each stack cut over its holders evenly in `cost`.

    Experts come first, the largest stack before all: results are on their way while the next stack computes, so the
    last one should be small. `experts` and `heads` are `MuonClip`'s.
    """
    stacks: dict[tuple[object, ...], Stack] = {}
    for name, parameter in muon.items():
        parts = heads.get(name, parameter.shape[-2:-1])
        sharded = name in experts and mesh.expert.size > 1
        holders = mesh.expert_data if sharded else mesh.data
        for number, (first, end) in enumerate(pairwise(accumulate(parts, initial=0))):
            rows, columns = end - first, parameter.shape[-1]
            n, m = min(rows, columns), max(rows, columns)
            key = n, m, parameter.dtype, sharded
            stack = stacks.setdefault(key, Stack(*key, holders, cost(n, m)))
            label = name if len(parts) == 1 else f"{name}:{number}"
            count = parameter.numel() // (sum(parts) * columns)
            stack.members.append(
                Member(
                    *(label, parameter, stack.size, count, rows > columns, experts.get(name, 0)),
                    *(sum(parts), slice(first, end)),
                )
            )
    ordered = sorted(stacks.values(), key=lambda stack: (stack.sharded, stack.size * stack.n * stack.m), reverse=True)
    _cut(ordered, mesh)
    for stack in ordered:
        device = stack.members[0].parameter.device
        stack.momentum_GNM = torch.zeros((len(stack.own), stack.n, stack.m), dtype=torch.float32, device=device)
        if stack.dtype != torch.float32:
            stack.master_GNM = torch.empty_like(stack.momentum_GNM)
            for member, slices, slots in stack.owned():
                stack.master_GNM[slots] = member.wide(member.parameter.data)[slices].float()
    return ordered


def _cut(stacks: Sequence[Stack], mesh: Mesh) -> None:
    """Give every rank a run of consecutive matrices, so that all ranks of `mesh.data` have about the same work.

    Consecutive, because a rank's batches are then as long as they can be and its results lie together. Experts are cut
    evenly over the few ranks that hold them; the dense matrices then fill up what that left uneven.
    """
    sharded = [stack for stack in stacks if stack.sharded]
    dense = [stack for stack in stacks if not stack.sharded]
    loads = [0.0] * mesh.expert_data.size
    if sharded:
        even = sum(stack.size * stack.cost for stack in sharded) / len(loads)
        _cut_at(sharded, [even * rank for rank in range(len(loads) + 1)])
        for stack in sharded:
            for rank in range(len(loads)):
                loads[rank] += (stack.cuts[rank + 1] - stack.cuts[rank]) * stack.cost
    # the ranks of a data index hold different experts, equally many: their load is the same
    loads = [load for load in loads for _ in range(mesh.data.size // len(loads))]
    total = float(sum(stack.size * stack.cost for stack in dense))
    level = _level(loads, total)
    _cut_at(dense, list(accumulate((max(0.0, level - load) for load in loads), initial=0.0)))


def _cut_at(stacks: Sequence[Stack], bounds: Sequence[float]) -> None:
    """Cut the stacks, one after the other, where their cost passes `bounds`; a slot belongs to the rank in whose share
    its middle lies."""
    before = 0.0
    for stack in stacks:
        inner = [min(stack.size, max(0, math.ceil((bound - before) / stack.cost - 0.5))) for bound in bounds[1:-1]]
        stack.cuts = [0, *inner, stack.size]
        before += stack.size * stack.cost


def _level(loads: Sequence[float], total: float) -> float:
    """The height to which `total` fills up what stands at `loads` already."""
    ordered, filled = sorted(loads), total
    for count, load in enumerate(ordered, start=1):
        filled += load
        if count == len(ordered) or filled / count <= ordered[count]:
            break
    return filled / count


class Roll:
    """A row for every matrix of the whole model, whichever ranks hold it: what all ranks check together."""

    def __init__(self, stacks: Sequence[Stack], mesh: Mesh, device: torch.device) -> None:
        """One small collective of all ranks, which tells how many matrices the other pipeline ranks hold."""
        place, shards = mesh.place, mesh.layout.expert
        held = [sum(stack.size for stack in stacks if stack.sharded == sharded) for sharded in (False, True)]
        counts_P2 = torch.zeros((mesh.layout.pipeline, 2), dtype=torch.int64, device=device)
        if mesh.data.rank == 0:
            counts_P2[place.pipeline] = torch.tensor(held)
        counts = mesh.world.all_reduce(counts_P2).tolist()
        sizes = [dense + shards * sharded for dense, sharded in counts]
        self.size = sum(sizes)
        at = {False: sum(sizes[: place.pipeline])}
        at[True] = at[False] + held[False] + place.expert * held[True]
        self.rows: list[range] = []
        """Of each stack."""
        for stack in stacks:
            self.rows.append(range(at[stack.sharded], at[stack.sharded] + stack.size))
            at[stack.sharded] += stack.size
        self._stacks = stacks

    def names(self, row: int) -> list[str]:
        """The matrix in a row, as a person would call it, if this rank holds it."""
        held = zip(self._stacks, self.rows, strict=True)
        return [stack.name(row - rows.start) for stack, rows in held if row in rows]


class Pieces:
    """A state of pieces `KIND/NAME/FIRST`, those of all ranks that wrote it joined; FIRST is a piece's first index
    along its leading dimension. Values are looked up only where they are needed, so `state` may read files."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self.state = state
        self.keys: dict[str, list[tuple[int, str]]] = {}
        for key in state:
            what, _, first = key.rpartition("/")
            if first.isdecimal():
                self.keys.setdefault(what, []).append((int(first), key))
        for pieces in self.keys.values():
            pieces.sort()

    def read(self, what: str, first: int, target: Tensor) -> None:
        """Fill `target`, whose leading index begins at `first`. Raises `MuonClipError` where something is missing."""
        pieces, filled = self.keys.get(what, []), 0
        for at, (begin, key) in enumerate(pieces):
            end = pieces[at + 1][0] if at + 1 < len(pieces) else math.inf
            if end <= first or begin >= first + len(target):
                continue
            value = self.state[key]
            start, stop = max(begin, first), min(begin + len(value), first + len(target))
            if start < stop and value.shape[1:] == target.shape[1:]:
                target[start - first : stop - first] = value[start - begin : stop - begin]
                filled += stop - start
        if filled != len(target):
            kind, _, name = what.partition("/")
            raise MuonClipError(f"the optimizer state has no {kind} for all of {name}: another model's?")
