"""What a run asks of its tokens before there are any: samples, updates, bytes, shards, slices and read rates, in closed
form (RECIPE 7). Nothing is read and no torch is needed.

Tokens, bytes and shards are counted to the borders of the stages as configured, as if every token were read once and
every shard were full; an update that crosses a border reads a little more, and a batch of the tokens stage ends with
shards that are not full.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from training.ranges import AHEAD_BYTES, BLOCK, DIGEST
from training.schedule import Span, Stage, StagePlan, share

TOKEN_BYTES = 4
SHARD_BYTES = 1 << 30
PARQUET_FACTOR = 3
"""Bytes of tokens that a byte of the corpus's Parquet gives, about."""
TABLE_ROW_BYTES = 109
"""Of a shard in `shards.parquet`, measured: its three hashes do not compress."""
INDEX_ROW_BYTES = 20.3
"""Of a document in an index, measured at some 1,000 tokens a document."""


def corpus_bytes(tokens: int) -> int:
    """Bytes of so many tokens as shards."""
    return tokens * TOKEN_BYTES


def corpus_shards(tokens: int, shard_bytes: int = SHARD_BYTES) -> int:
    """Shards that so many tokens fill."""
    return math.ceil(corpus_bytes(tokens) / shard_bytes)


def full_shard(shard_bytes: int, batch_bytes: int) -> int:
    """Bytes of a full shard where batches have so many bytes of Parquet: each begins shards of its own."""
    return min(shard_bytes, PARQUET_FACTOR * batch_bytes)


@dataclass(frozen=True)
class StageRow:
    """One stage, and the run up to its end."""

    name: str
    sequence_length: int
    batch: int
    updates: int
    """In the run: the update that crosses a border belongs to the stage before it."""
    updates_alone: int
    """Its tokens over those of an update, to the nearest."""
    updates_so_far: int
    tokens: int
    tokens_so_far: int
    samples: int
    """Sequences of its length."""
    samples_so_far: int
    bytes_so_far: int
    shards_so_far: int


def stage_rows(stages: StagePlan, shard_bytes: int = SHARD_BYTES) -> list[StageRow]:
    """The stages in order."""
    rows: list[StageRow] = []
    border = samples = 0
    for span in stages.spans:
        stage, tokens = span.stage, span.border - border
        border, here = span.border, span.updates * span.stage.batch
        samples += here
        rows.append(
            StageRow(
                name=stage.name,
                sequence_length=stage.sequence_length,
                batch=stage.batch,
                updates=span.updates,
                updates_alone=round(tokens / stage.tokens_per_update),
                updates_so_far=span.first_update + span.updates,
                tokens=tokens,
                tokens_so_far=border,
                samples=here,
                samples_so_far=samples,
                bytes_so_far=corpus_bytes(border),
                shards_so_far=corpus_shards(border, shard_bytes),
            )
        )
    return rows


def shapes(stages: StagePlan) -> list[Stage]:
    """The first stage of each sequence length and batch."""
    found: dict[tuple[int, int], Span] = {}
    for span in stages.spans:
        found.setdefault((span.stage.sequence_length, span.stage.batch), span)
    return [span.stage for span in found.values()]


def slices(batch: int, ranks: int) -> dict[int, list[int]]:
    """Samples of an update -> the ranks that take so many, the larger slice first."""
    found: dict[int, list[int]] = {}
    for rank in range(ranks):
        found.setdefault(share(batch, rank, ranks)[1], []).append(rank)
    return dict(sorted(found.items(), reverse=True))


@dataclass(frozen=True)
class Reading:
    """What the updates of one shape read; bytes and seconds."""

    sequence_length: int
    batch: int
    update_seconds: float
    slices: dict[int, list[int]]
    """`slices` of the batch."""
    slowest: float
    """How much longer an update takes than with even slices, as a share: all wait for the largest slice."""
    tokens_per_second: float
    bytes_per_second: float
    """Of all ranks: the tokens of each window and its last target."""
    rank_bytes_per_second: float
    """Of a rank with the largest slice."""
    remote_bytes_per_second: float
    """Of all ranks where shards lie far away and do not fit the cache: whole blocks, each checked."""
    node_samples: int
    """That a node reads in the horizon, at most."""
    node_shards: float
    """Shards that those lie in, on average."""
    ahead_bytes: int
    """What a node holds of them while it reads ahead in parts."""
    ahead_fits: bool
    """Whether the loader reads so far ahead: a rank holds at most `ranges.AHEAD_BYTES`."""


def reading(stage: Stage, ranks: int, ranks_per_node: int, update_seconds: float, horizon: int, shards: int) -> Reading:
    """What `ranks` data-parallel ranks read for updates of this shape, `horizon` of them ahead, from so many shards."""
    by_size = slices(stage.batch, ranks)
    largest = max(by_size)
    window = (stage.sequence_length + 1) * TOKEN_BYTES
    # a window that begins at any token touches so many blocks on average
    blocks = 1 + (window - TOKEN_BYTES) / BLOCK
    on_node = min(ranks, ranks_per_node)
    samples = horizon * min(stage.batch, largest * on_node)
    return Reading(
        sequence_length=stage.sequence_length,
        batch=stage.batch,
        update_seconds=update_seconds,
        slices=by_size,
        slowest=largest * ranks / stage.batch - 1,
        tokens_per_second=stage.tokens_per_update / update_seconds,
        bytes_per_second=stage.batch * window / update_seconds,
        rank_bytes_per_second=largest * window / update_seconds,
        remote_bytes_per_second=stage.batch * blocks * BLOCK / update_seconds,
        node_samples=samples,
        node_shards=shards * -math.expm1(samples * math.log1p(-1 / shards)) if shards > 1 else 1.0,
        ahead_bytes=samples * window,
        ahead_fits=horizon * largest * window <= AHEAD_BYTES,
    )


def block_lists(corpus: int) -> int:
    """Bytes of the lists of blocks that a node's cache holds once it has read of every shard."""
    return math.ceil(corpus / BLOCK) * DIGEST
