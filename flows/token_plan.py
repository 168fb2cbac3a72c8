"""`openk2 tokens plan`: the arithmetic of a run's tokens, as tables or JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from flows.preset import load_preset
from flows.request import Request
from flows.tables import amount, styled, table
from tasks.report import words
from training.layout import Layout
from training.plan import PEAK, Hardware, update_seconds
from training.token_plan import (
    INDEX_ROW_BYTES,
    TABLE_ROW_BYTES,
    Reading,
    StageRow,
    block_lists,
    full_shard,
    reading,
    shapes,
    stage_rows,
)

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


@dataclass(frozen=True)
class TokenPlan:
    """The answer; bytes and seconds."""

    preset: str
    stages: list[StageRow]
    shard_bytes: int
    """Of a full one."""
    gpus: int
    ranks: int
    """Data-parallel ones: those that read."""
    ranks_per_node: int
    """At most."""
    horizon: int
    table_bytes: int
    """`shards.parquet` of all shards."""
    documents: int
    """At the tokens of a document that were said."""
    index_bytes: int
    """Of all document indices."""
    block_list_bytes: int
    """Of all lists of blocks, which a node fetches when it reads parts of remote shards."""
    readings: list[Reading]
    """By shape of an update."""


def plan_tokens(
    request: Request,
    gpus: int | None,
    pipeline: int | None,
    gpus_per_node: int,
    seconds: float | None,
    mfu: float,
    peak: float | None,
    horizon: int | None,
    document: int,
) -> TokenPlan:
    """The plan of the preset that `request` names, which says what is None here. `seconds` are those of an update
    (None: worked out of `mfu` and `peak`), `horizon` the updates read ahead, `document` a document's tokens on average.

    Raises PresetError, or LayoutError for ranks that hold no whole copy of the model, or of which some would read
    nothing.
    """
    preset = load_preset(request)
    pretrain = preset.pretrain
    gpus = gpus or preset.execution.nodes * preset.execution.processes
    layout = Layout(pipeline=pipeline) if pipeline else pretrain.run.layout
    run = pretrain.run.model_copy(update={"layout": layout})
    replace(preset.training()[0], run=run).require(gpus)
    ranks = gpus // layout.pipeline
    hardware = Hardware(
        name="asked for",
        peak_flops=peak or pretrain.run.peak_flops or PEAK,
        memory_bytes=1,
        mfu=mfu,
    )
    shard_bytes = full_shard(preset.tokens.shard_bytes, preset.tokens.batch_bytes)
    rows = stage_rows(pretrain.stages, shard_bytes)
    last = rows[-1]
    documents = max(1, last.tokens_so_far // document)
    # the most there can be: a node whose accelerators all hold the first stage of a pipeline
    ranks_per_node = min(ranks, gpus_per_node)
    horizon = horizon or pretrain.run.prefetch_updates or 1
    readings = [
        reading(
            stage,
            ranks,
            ranks_per_node,
            seconds or update_seconds(pretrain.model, stage, gpus, hardware),
            horizon,
            last.shards_so_far,
        )
        for stage in shapes(pretrain.stages)
    ]
    return TokenPlan(
        preset=request.name,
        stages=rows,
        shard_bytes=shard_bytes,
        gpus=gpus,
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        horizon=horizon,
        table_bytes=TABLE_ROW_BYTES * last.shards_so_far,
        documents=documents,
        index_bytes=round(INDEX_ROW_BYTES * documents),
        block_list_bytes=block_lists(last.bytes_so_far),
        readings=readings,
    )


# -------------------------------------------------------------------------------------------------------------- display


def render(plan: TokenPlan) -> Iterator[RenderableType]:
    """The plan for a terminal: sentences and tables."""
    last = plan.stages[-1]
    tokens = amount(last.tokens_so_far)
    yield styled((plan.preset, "bold"), f": {tokens} tokens in {last.updates_so_far:,} updates")
    yield ""
    yield _stages(plan)
    told = "Σ: from the start of the run to the end of the stage; alone: its tokens over those of an update"
    yield styled((told, "dim"))
    yield ""
    yield _files(plan)
    for one in plan.readings:
        yield ""
        yield _reading(plan, one)


def _stages(plan: TokenPlan) -> Table:
    rows = table("stage", "updates", "alone", "Σ updates", "Σ tokens", "Σ sequences", "Σ bytes", "Σ shards")
    for row in plan.stages:
        rows.add_row(
            row.name,
            f"{row.updates:,}",
            f"{row.updates_alone:,}",
            f"{row.updates_so_far:,}",
            amount(row.tokens_so_far),
            _samples(row.samples_so_far),
            words.size(row.bytes_so_far),
            f"{row.shards_so_far:,}",
        )
    return rows


def _files(plan: TokenPlan) -> Table:
    rows = table("files", "size", "")
    last = plan.stages[-1]
    shards = f"{last.shards_so_far:,} of {words.size(plan.shard_bytes, binary=True)}"
    rows.add_row("shards", words.size(last.bytes_so_far), f"{shards}, 4 bytes a token")
    rows.add_row(
        "document indices", words.size(plan.index_bytes), f"{_samples(plan.documents)} documents, as measured of one"
    )
    rows.add_row("lists of blocks", words.size(plan.block_list_bytes), "fetched where far shards are read in parts")
    rows.add_row("shards.parquet", words.size(plan.table_bytes), "a row as measured")
    rows.add_row("index of samples", words.size(0), "computed; the state of a run is the next sample id")
    return rows


def _reading(plan: TokenPlan, one: Reading) -> Table:
    rows = table(f"updates of {one.batch:,} x {one.sequence_length:,}", "", "")
    rows.add_row("time of one", f"{one.update_seconds:,.3g} s", f"{amount(round(one.tokens_per_second))} tokens/s")
    ranks = f"{plan.ranks:,} ranks"
    rows.add_row("read rate", f"{words.size(one.bytes_per_second)}/s", f"{ranks} together")
    rows.add_row("", f"{words.size(one.rank_bytes_per_second)}/s", "the rank with the most")
    rows.add_row("from far away", f"{words.size(one.remote_bytes_per_second)}/s", "together, read in checked blocks")
    for count, members in one.slices.items():
        rows.add_row("slices" if count == max(one.slices) else "", f"{count:,} sequences", _members(members))
    if len(one.slices) > 1:
        rows.add_row("", f"{one.slowest:.2%}", "longer than even slices would take")
    rows.add_row(
        f"{plan.horizon} updates ahead",
        f"{one.node_samples:,}",
        f"sequences for {plan.ranks_per_node} ranks of a node, in {one.node_shards:,.0f} shards",
    )
    held = "" if one.ahead_fits else ": more than a rank holds, it reads less far ahead"
    rows.add_row("", words.size(one.ahead_bytes), f"held in memory, read in parts{held}")
    rows.add_row("", words.size(round(one.node_shards) * plan.shard_bytes), "of cache for these shards whole")
    return rows


def _members(ranks: list[int]) -> str:
    """Ranks in words: how many, and which."""
    shown = ", ".join(map(str, ranks[:6])) + (f", ... {ranks[-1]}" if len(ranks) > 6 else "")
    return f"{len(ranks):,} ranks: {shown}" if len(ranks) > 1 else f"rank {ranks[0]}"


def _samples(count: int) -> str:
    return f"{count:.4g}".replace("e+0", "e").replace("e+", "e") if count >= 1e9 else f"{count:,}"
