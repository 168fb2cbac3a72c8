"""`openk2 plan ranks`: the dry run of a preset, as tables or JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from flows.precision import settle
from flows.preset import load_preset
from flows.request import Request
from flows.tables import amount, styled, table
from tasks.report import words
from training.dry_run import DryRun, Position, dry_runs
from training.plan import PEAK, Hardware, Plan, plan

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

GIB, MIB = 1 << 30, 1 << 20
MEMORY = 80e9  # bytes of an A100, H100 or H800


@dataclass(frozen=True)
class RankPlan:
    """The answer."""

    preset: str
    nodes: int
    gpus_per_node: int
    stages: list[DryRun]
    """Base, SFT and RL, by the networks themselves, rank by rank."""
    seconds: list[float]
    """How long each takes."""
    closed: Plan
    """The base, by formula."""
    mfu: float

    @property
    def built(self) -> DryRun:
        """The base."""
        return self.stages[0]

    @property
    def problems(self) -> dict[str, list[str]]:
        """Why stages cannot run so, by their names."""
        return {built.stage: built.problems for built in self.stages if built.problems}


def plan_ranks(
    request: Request,
    nodes: int | None,
    gpus_per_node: int | None,
    memory: float | None,
    peak: float | None,
    mfu: float,
    price: float,
) -> RankPlan:
    """The dry run of the preset that `request` names, which says what is None here; `memory` is an accelerator's in
    bytes, `price` that of an hour of it. Raises PresetError, LayoutError."""
    preset = load_preset(settle(request).request)
    config, execution = preset.pretrain, preset.execution
    nodes, each = nodes or execution.nodes, gpus_per_node or execution.processes
    hardware = Hardware(
        name="asked for",
        peak_flops=peak or config.run.peak_flops or PEAK,
        memory_bytes=memory or execution.device_bytes or MEMORY,
        mfu=mfu,
        price_per_hour=price,
    )
    chain = preset.training()
    stages = dry_runs(chain, nodes * each, hardware)
    closed = plan(
        config.model,
        config.stages,
        config.run.layout,
        nodes * each,
        hardware,
        config.optimizer,
        stages[0].weight_bytes,
    )
    seconds = [work.seconds(nodes * each, hardware) for work in chain]
    return RankPlan(request.name, nodes, each, stages, seconds, closed, mfu)


def record(found: RankPlan) -> dict[str, Any]:
    """All of the plan, with what follows from it."""
    told = dataclasses.asdict(found)
    for built, seconds, stage in zip(found.stages, told.pop("seconds"), told["stages"], strict=True):
        stage |= {"layout": built.layout.model_dump(), "mean_state": built.mean_state, "seconds": seconds}
        for position, row in zip(built.positions, stage["positions"], strict=True):
            row["peak"] = position.peak
    return told


# -------------------------------------------------------------------------------------------------------------- display


def render(found: RankPlan) -> Iterator[RenderableType]:
    """The plan for a terminal: sentences and tables."""
    built, layout = found.built, found.built.layout
    pieces = f", {layout.virtual} pieces of the network on each" if layout.virtual > 1 else ""
    yield styled(
        (found.preset, "bold"),
        f": ranks {built.ranks:,} (nodes {found.nodes:,} x {found.gpus_per_node}) = "
        f"pipeline {layout.pipeline} x data {built.data} x expert {layout.expert}{pieces}; weights in "
        f"{built.weight_dtype}, products in {'float32' if built.precision == 'float32' else 'bfloat16'}",
    )
    yield ""
    yield _stages(found)
    yield styled(
        (
            "padding: samples without content that are computed, for each real one. bubble: time in which a pipeline "
            "rank waits, beside that in which it computes.",
            "dim",
        )
    )
    yield ""
    yield _memory(built)
    yield styled(
        (
            f"{_unit(built)[1]} of the rank of each pipeline position that takes most. activations: of all micro-"
            "batches under way at once, and what a layer's backward makes again; host: kept in the host's memory; "
            "step: what the optimizer's step takes when activations are gone. peak: all but the smaller of the two.",
            "dim",
        )
    )
    yield ""
    yield _work(built)
    yield styled(
        (
            "compute: beside the mean position, the largest sets the pace. owners: Newton-Schulz of the rank that "
            "owns most, beside the mean. Sent by a rank in an update of the first stage: tokens to experts and back, "
            "the residual stream between pipeline ranks, gradients, updated weights.",
            "dim",
        )
    )
    yield ""
    yield from _verdict(found)
    yield ""
    yield _chain(found)
    yield styled(
        (
            f"{_unit(built)[1]} of the rank that takes most in each training stage. layout: pipeline x data x expert. "
            "sampling: for replies, in place of activations: the whole model where ranks have parts of it, the "
            "generator's copy, and what it keeps of the replies under way. time: rows and replies taken to be as long "
            "as they may be; for each token of a reply all weights are read once.",
            "dim",
        )
    )
    yield ""
    yield from _passes(found)


def _stages(found: RankPlan) -> Table:
    unit, _ = _unit(found.built)
    rows = table("stage", "samples a rank", "micro-batches", "padding", "bubble", "activations", "host")
    for at, (name, batch) in enumerate(found.built.batches.items()):
        each = f"{batch.most:,}" if batch.most == batch.fewest else f"{batch.fewest:,} to {batch.most:,}"
        loads = [position.loads[at] for position in found.built.positions]
        rows.add_row(
            name,
            each,
            f"{batch.micro_batches:,}",
            words.percent(batch.padding),
            words.percent(batch.bubble),
            _in(unit, max(load.activations + load.layer for load in loads)),
            _in(unit, max(load.host for load in loads)),
        )
    return rows


def _unit(built: DryRun) -> tuple[int, str]:
    """What the plan's tables count memory in: GiB, for a model that would show as zeros there MiB."""
    return (GIB, "GiB") if built.worst.peak >= GIB else (MIB, "MiB")


def _memory(built: DryRun) -> Table:
    rows = table(
        "position", "layers", "numbers", "weights", "gradients", "optimizer", "activations", "host", "step", "peak"
    )
    unit, _ = _unit(built)
    for position in built.positions:
        load = position.load
        rows.add_row(
            f"{position.pipeline}",
            f"{len(position.layers)}",
            amount(position.parameters),
            *(_in(unit, size) for size in (position.weights, position.gradients, position.optimizer)),
            *(_in(unit, size) for size in (load.activations + load.layer, load.host, position.step, position.peak)),
        )
    return rows


def _work(built: DryRun) -> Table:
    rows = table("position", "compute", "owners", "tokens", "stream", "gradients", "weights")
    for cells, group in groupby(built.positions, key=_work_cells):
        places = [position.pipeline for position in group]
        rows.add_row(f"{places[0]}" if len(places) == 1 else f"{places[0]} to {places[-1]}", *cells)
    return rows


def _work_cells(position: Position) -> tuple[str, ...]:
    sent = position.sent
    sizes = (sent.tokens, sent.stream, sent.gradients, sent.weights)
    return f"{position.compute:.2f}", f"{position.owners:.2f}", *(words.size(size) for size in sizes)


def _chain(found: RankPlan) -> Table:
    rows = table("stage", "layout", "weights", "gradients", "optimizer", "activations", "sampling", "peak", "time")
    unit, _ = _unit(found.built)
    for built, seconds in zip(found.stages, found.seconds, strict=True):
        worst, layout = built.worst, built.layout
        load = worst.load.activations + worst.load.layer
        sizes = (worst.weights, worst.gradients, worst.optimizer, load, worst.sampling, worst.peak)
        cut = f"{layout.pipeline}x{built.data}x{layout.expert}"
        rows.add_row(built.stage, cut, *(_in(unit, size) for size in sizes), _time(seconds))
    return rows


def _time(seconds: float) -> str:
    days = seconds / 86_400
    return f"{days:,.1f} days" if days >= 1 else words.duration(seconds)


def _verdict(found: RankPlan) -> Iterator[str | Text]:
    built, closed = found.built, found.closed
    worst = built.worst
    unit, name = _unit(built)
    yield f"The network: {built.tensors:,} tensors, {built.parameters:,} numbers to train; copies: {built.data:,}."
    yield (
        f"The rank that takes most: {worst.heaviest:,} (position {worst.pipeline}), {_in(unit, worst.peak)} of "
        f"{_in(unit, built.device_bytes)} {name}, in {worst.load.phase}."
    )
    yield (
        f"Weights, gradients and optimizer: {_in(unit, built.mean_state)} {name} a rank on average (by formula "
        f"{_in(unit, closed.rank_bytes)}), {_in(unit, max(position.state for position in built.positions))} at most. "
        f"Weights and gradients of one copy: {words.size(closed.copy_bytes)}."
    )
    price = f", price {closed.money:,.0f}" if closed.money else ""
    yield (
        f"{_time(closed.days * 86_400)} at {found.mfu:.0%} of the peak: {closed.accelerator_hours:,.0f} "
        f"accelerator-hours, {closed.flops:.3g} FLOPs{price}. Newton-Schulz on {closed.muon_matrices:,} matrices adds "
        f"{words.share(closed.newton_schulz_share)}."
    )


def _passes(found: RankPlan) -> Iterator[str | Text]:
    for built in found.stages:
        for problem in built.problems:
            yield styled((f"✗ {built.stage}:", "red"), f" {problem}")
    if done := [built.stage for built in found.stages if not built.problems]:
        yield styled(
            (f"✓ {', '.join(done)} {'pass' if len(done) > 1 else 'passes'}:", "green"),
            " every tensor is held exactly once in each copy, every rank has samples, all fits.",
        )


def _in(unit: int, size: float) -> str:
    return f"{size / unit:,.1f}"
