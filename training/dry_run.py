"""The dry run: every rank's part of the network and of its optimizer on the meta device, checked and weighed.

Tensors of the meta device have shapes and no numbers, so that a trillion parameters take seconds. What is built is what
a run builds: `Transformer` with the rank's layers and experts, `MuonClip` over them with the rank's matrices. Copies of
the model hold the same, so the ranks of one copy are built, and of each pipeline position one optimizer, whose cuts say
what all its ranks own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from model.config import ModelConfig
from model.footprint import Footprint, MemoryConfig, Precision, activation_bytes
from model.transformer import Transformer
from training.expert_parallel import outline, pieces
from training.layout import Layout, costs
from training.mesh import Mesh
from training.muonclip import MuonClip
from training.parallel import World
from training.plan import Hardware
from training.traffic import GRADIENT_BYTES, Batch, Sent, batch, in_flight, sent
from training.workload import Phase, Workload

WASTE = 1.0  # padding beside samples from which a plan is refused


@dataclass(frozen=True)
class Load:
    """What one phase asks of a rank between forward and backward; bytes."""

    phase: str
    activations: int
    """Kept on the device, of as many micro-batches as are under way at once."""
    host: int
    """Kept in the host's memory."""
    layer: int
    """For one layer while its backward runs: what is computed again, and what comes back from the host."""


@dataclass(frozen=True)
class Position:
    """The ranks of one pipeline position: all hold as much, and the one that owns most of the optimizer is weighed."""

    pipeline: int
    layers: list[int]
    heaviest: int
    """That rank's number."""
    parameters: int
    """Numbers that a rank holds and trains."""
    matrices: int
    """Of those, matrices that Muon updates."""
    weights: int
    """Bytes, correction biases included."""
    gradients: int
    """Bytes, float32."""
    optimizer: int
    """Bytes of masters, momentum and moments."""
    optimizer_mean: float
    """The same over the ranks of the position."""
    step: int
    """Bytes of the optimizer's step: the updates of all matrices, and the products of those owned."""
    loads: list[Load]
    """By phase."""
    sampling: int
    """Bytes that sampling replies takes: the whole model, and what the replies under way keep."""
    under_way: int
    """Micro-batches whose activations the rank holds at most, counted by pieces."""
    compute: float
    """Operations of a micro-batch beside the mean of all positions: the largest sets the pipeline's pace."""
    owners: float
    """Newton-Schulz's cost of the rank that owns most, beside the mean of the position's ranks."""
    sent: Sent
    """In an update of the first phase."""

    @property
    def load(self) -> Load:
        """Of the phase that asks most."""
        return max(self.loads, key=lambda load: load.activations + load.layer)

    @property
    def state(self) -> int:
        """Bytes that stay from update to update: weights, gradients, optimizer."""
        return self.weights + self.gradients + self.optimizer

    @property
    def training(self) -> int:
        """Bytes that an update takes at once, at most."""
        return self.state + max(self.load.activations + self.load.layer, self.step)

    @property
    def peak(self) -> int:
        """Bytes of the device that are taken at once, at most."""
        return max(self.training, self.state + self.sampling)


@dataclass(frozen=True)
class DryRun:
    """The answer for one training stage."""

    stage: str
    ranks: int
    data: int
    """Copies of the model."""
    layout: Layout
    weight_dtype: str
    precision: Precision
    """As `model.footprint` has it."""
    weight_bytes: int
    tensors: int
    """Parameters of the network by name."""
    parameters: int
    """Numbers that are trained, of one copy."""
    positions: list[Position]
    batches: dict[str, Batch]
    """By phase."""
    device_bytes: float
    problems: list[str]
    """Why it cannot run so; empty where it can."""

    @property
    def worst(self) -> Position:
        """Where a rank takes most."""
        return max(self.positions, key=lambda position: position.peak)

    @property
    def mean_state(self) -> float:
        """Bytes of weights, gradients and optimizer, over all ranks: what `training.plan` says in closed form."""
        held = [each.weights + each.gradients + each.optimizer_mean for each in self.positions]
        return sum(held) / len(held)


def stand_in(layout: Layout, rank: int, ranks: int) -> Mesh:
    """The mesh of `rank` among `ranks` that do not exist: places and sizes without process groups."""
    place, data = layout.place(rank, ranks), layout.data(ranks)
    return Mesh(
        layout,
        World(rank, ranks),
        data=World(place.data * layout.expert + place.expert, data * layout.expert),
        expert=World(place.expert, layout.expert),
        expert_data=World(place.data, data),
        pipeline=World(place.pipeline, layout.pipeline),
    )


def part(model: ModelConfig, mesh: Mesh, dtype: torch.dtype = torch.float32) -> Transformer:
    """A rank's part of the network, on the meta device."""
    return outline(model, mesh.expert, mesh.layout.held(model, mesh.place.pipeline)).to(dtype)


def dry_runs(chain: Sequence[Workload], ranks: int, hardware: Hardware) -> list[DryRun]:
    """A dry run of every training stage; what does not differ between two is checked once."""
    found: list[DryRun] = []
    seen: list[tuple[Layout, list[range]]] = []
    for work in chain:
        cut = work.layout, work.layout.layers(work.model)
        found.append(dry_run(work, ranks, hardware, covered=cut in seen))
        seen.append(cut)
    return found


def dry_run(work: Workload, ranks: int, hardware: Hardware, covered: bool = False) -> DryRun:
    """Build and weigh a training stage on `ranks` of `hardware`; `LayoutError` where they hold no whole copies.

    `covered` says that the same cut of the network has been found to hold every parameter once.
    """
    model, layout = work.model, work.layout
    layout.require(model)
    data, dtype = layout.data(ranks), getattr(torch, work.weights)
    whole = {name: tuple(parameter.shape) for name, parameter in outline(model, World()).named_parameters()}
    problems = [] if covered else _uncovered(whole, model, layout)
    batches = {phase.name: batch(phase.batch, layout, ranks, phase.micro_batch) for phase in work.phases}
    positions = [_position(work, ranks, rank, dtype, batches) for rank in range(layout.pipeline)]
    mean = sum(position.compute for position in positions) / layout.pipeline
    positions = [replace(position, compute=position.compute / mean) for position in positions]
    problems += [text for phase in work.phases for text in _unshared(phase, batches[phase.name], work)]
    problems += _too_large(work, positions, hardware)
    return DryRun(
        stage=work.name,
        ranks=ranks,
        data=data,
        layout=layout,
        weight_dtype=work.weights,
        precision=precision_of(work),
        weight_bytes=dtype.itemsize,
        tensors=len(whole),
        parameters=sum(torch.Size(shape).numel() for shape in whole.values()),
        positions=positions,
        batches=batches,
        device_bytes=hardware.memory_bytes,
        problems=problems,
    )


# --------------------------------------------------------------------------------------------------------------- checks


def _uncovered(whole: dict[str, tuple[int, ...]], model: ModelConfig, layout: Layout) -> list[str]:
    """Parameters that the ranks of one copy do not hold exactly once: each on one pipeline position, an expert on one
    of its ranks, all else on each."""
    held: dict[str, dict[int, list[range]]] = {}
    problems = []
    for rank in range(layout.copy_ranks):
        mesh = stand_in(layout, rank, layout.copy_ranks)
        network = part(model, mesh)
        cut = pieces(network)
        for name, parameter in network.named_parameters():
            shape, start = tuple(parameter.shape), cut.get(name, (0, 0))[0]
            if name not in whole or shape[1:] != whole[name][1:]:
                problems.append(f"rank {rank} has {name} of shape {shape}, the network {whole.get(name, 'none')}")
            rows = range(start, start + shape[0])  # of dimension 0: experts, where they are cut
            held.setdefault(name, {}).setdefault(mesh.place.pipeline, []).append(rows)
    for name, shape in whole.items():
        positions = held.get(name, {})
        if len(positions) != 1:
            problems.append(f"{name} lies on the pipeline positions {sorted(positions) or 'none'}: it must be on one")
            continue
        parts = sorted(next(iter(positions.values())), key=lambda rows: rows.start)
        alike = parts == [range(shape[0])] * layout.expert
        once = [0, *(rows.stop for rows in parts)] == [*(rows.start for rows in parts), shape[0]]
        if not alike and not once:
            problems.append(f"{name} is held as {parts}: neither whole on every rank nor once over all")
    return problems


def _unshared(phase: Phase, shares: Batch, work: Workload) -> Iterable[str]:
    if not shares.fewest:
        yield (
            f"{phase.batch_field} is {phase.batch:,} for {shares.ranks:,} data-parallel ranks (ranks / pipeline): some "
            "would have no sample; raise it, or take fewer ranks or more pipeline ranks"
        )
    elif shares.padding > WASTE:
        yield (
            f"{phase.batch_field}: its {phase.batch:,} samples on {shares.ranks:,} data-parallel ranks in "
            f"micro-batches of {phase.micro_batch} are {shares.padding:.1f} samples of padding for each; lower "
            f"{work.section}.run.micro_batch, raise the batch or take fewer ranks"
        )


def _too_large(work: Workload, positions: list[Position], hardware: Hardware) -> Iterable[str]:
    room = hardware.memory_bytes
    crowded = max(positions, key=lambda position: position.training)
    if crowded.training > room:
        fields = "run.memory, run.memory_of" if work.name == "base" else "run.memory"
        yield (
            f"rank {crowded.heaviest} (pipeline position {crowded.pipeline}) needs {_gib(crowded.training)} GiB in "
            f"{crowded.load.phase!r} and its device has {_gib(room)}: keep less of the activations ({work.section}."
            f"{fields}), lower {work.section}.run.micro_batch, or take more ranks"
        )
    worst = max(positions, key=lambda position: position.state + position.sampling)
    if work.sampling and worst.state + worst.sampling > room:
        yield (
            f"every rank samples replies from the whole model, which takes {_gib(worst.sampling)} GiB beside the "
            f"{_gib(worst.state)} that training keeps, and its device has {_gib(room)}: take a smaller model or "
            "devices with more memory, or end the recipe before this stage (sampling over several ranks is not built)"
        )


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f}"


# -------------------------------------------------------------------------------------------------------------- weights


def _position(work: Workload, ranks: int, rank: int, dtype: torch.dtype, batches: dict[str, Batch]) -> Position:
    """The ranks at pipeline position `rank`; `compute` is still absolute."""
    model, layout = work.model, work.layout
    data = layout.data(ranks)
    mesh = stand_in(layout, rank * data * layout.expert, ranks)
    network = part(model, mesh, dtype)
    numbers = {name: parameter.numel() for name, parameter in network.named_parameters()}
    cut = pieces(network)
    total, experts = sum(numbers.values()), sum(numbers[name] for name in cut)
    size = dtype.itemsize
    biases = sum(buffer.numel() * buffer.itemsize for buffer in network.buffers())
    optimizer = MuonClip.for_model(network, work.optimizer, mesh)
    owned = [_owned(optimizer, reader, mesh.data.size) for reader in range(mesh.data.size)]
    heaviest = max(range(len(owned)), key=lambda reader: owned[reader].state + owned[reader].step)
    layers = sorted(network.held)
    first = work.phases[0]
    rows = 4 if work.dtype == "float32" else 2
    # what is made again is sent again
    passes = 5 if {"layers", "dispatch"} & set(first.memory.recompute) else 4
    shares = batches[first.name]
    tokens = shares.micro_batches * first.micro_batch if layout.pipeline > 1 else shares.most
    layer, dense, head = costs(model)
    last = model.num_hidden_layers - 1 in network.held
    compute = sum(dense if at < model.first_k_dense_replace else layer for at in layers) + last * head
    mean_cost = sum(each.cost for each in owned) / len(owned)
    return Position(
        pipeline=rank,
        layers=layers,
        heaviest=mesh.world.rank + heaviest,
        parameters=total,
        matrices=optimizer.matrices,
        weights=size * total + biases,
        gradients=GRADIENT_BYTES * total,
        optimizer=owned[heaviest].state,
        optimizer_mean=sum(each.state for each in owned) / len(owned),
        step=owned[heaviest].step,
        loads=[_load(work, rank, phase, batches[phase.name]) for phase in work.phases],
        sampling=work.sampling_bytes(ranks),
        under_way=max(sum(held) for held in in_flight(layout, rank, shares.micro_batches)),
        compute=compute,
        owners=max(each.cost for each in owned) / mean_cost if mean_cost else 1.0,
        sent=sent(
            model,
            layout,
            ranks,
            layout.layers(model),
            rank,
            tokens * first.sequence_length,
            total - experts,
            experts,
            size,
            row_bytes=rows,
            passes=passes,
        ),
    )


@dataclass(frozen=True)
class _Owned:
    state: int
    step: int
    cost: int


def _owned(optimizer: MuonClip, reader: int, readers: int) -> _Owned:
    """What data-parallel rank `reader` of a position owns of the optimizer."""
    state = step = cost = largest = 0
    stacks, rest = optimizer.shares
    for stack in stacks:
        holder = reader * stack.holders.size // readers  # the ranks of a data index hold different experts
        slots = stack.cuts[holder + 1] - stack.cuts[holder]
        matrix, master = stack.n * stack.m, _master(stack.dtype)
        state += slots * matrix * (4 + master)
        cost += slots * stack.cost
        # what every holder gets, and the owner's new masters, are there until all is checked
        step += 2 * stack.size * matrix + slots * matrix * master
        # direction, two iterates, and at most four products of the smaller side
        largest = max(largest, slots * (8 * matrix + 8 * stack.n * stack.n))
    for adamw in rest:
        for piece in adamw.pieces[reader * adamw.holders.size // readers]:
            state += (piece.stop - piece.start) * (8 + _master(piece.parameter.dtype))
    return _Owned(state, step + largest, cost)


def _master(dtype: torch.dtype) -> int:
    """Bytes of the float32 master of a weight; a float32 weight is its own."""
    return 0 if dtype == torch.float32 else 4


def precision_of(work: Workload) -> Precision:
    """What the products of a run are, and what lies under them."""
    if work.dtype == "float32":
        return "float32"
    return "autocast" if work.weights == "float32" else "bfloat16"


def _load(work: Workload, rank: int, phase: Phase, shares: Batch) -> Load:
    """The activations of a phase, at the moment when most are there."""
    model, layout, memory = work.model, work.layout, phase.memory
    precision = precision_of(work)
    rows = min(phase.micro_batch, shares.most)

    def kept(layers: Iterable[int], memory: MemoryConfig) -> Footprint:
        here = model.n_routed_experts // layout.expert
        return activation_bytes(model, memory, phase.sequence_length, rows, precision, list(layers), here)

    own = layout.layers(model)[rank :: layout.pipeline]
    each = [kept(piece, memory) for piece in own]
    states = set(in_flight(layout, rank, shares.micro_batches))
    device = max(sum(n * one.device for n, one in zip(held, each, strict=True)) for held in states)
    host = max(sum(n * one.host for n, one in zip(held, each, strict=True)) for held in states)
    one = own[0][-1:]  # a layer of experts where there is one
    again = kept(one, MemoryConfig()).device if "layers" in memory.recompute else 0
    return Load(phase.name, device, host, again + kept(one, memory).host)
