"""The rejected rows of a corpus as counts: narrow columns alone are read, in a stream, whatever the table's size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq
import xxhash

from tasks.artifact import Artifact

STAGES = ("read", "extract", "licence", "safety", "language", "quality", "decontamination", "dedup")
"""In the order in which a document passes them; see `tasks.corpus.records`."""
_BUCKETS = 1 << 20


@dataclass(frozen=True)
class Drop:
    """Documents of one source that were dropped at one stage for one reason."""

    source: str
    stage: str
    reason: str
    documents: int


def place(stage: str) -> int:
    """Where a stage stands; one that nobody knows comes last."""
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


@lru_cache(maxsize=4)
def drops(artifact: Artifact) -> tuple[Drop, ...]:
    """Every (source, stage, reason) with its rows, by stage and size. Memory grows with the kinds and not the rows."""
    files = artifact.files("rejected")
    if not files:
        return ()
    frame = (
        pl.scan_parquet(files)
        .group_by("source", "stage", "reason")
        .agg(pl.len().alias("documents"))
        .collect(engine="streaming")
    )
    found = [Drop(**row) for row in frame.iter_rows(named=True)]
    return tuple(sorted(found, key=lambda drop: (place(drop.stage), -drop.documents, drop.reason, drop.source)))


def clusters(artifact: Artifact, count: int) -> list[tuple[str, int]]:
    """The `count` documents that stand for the most others: (id, documents they stand for), largest first.

    Exact in bounded memory: a first pass counts survivors by a hash of their id, a second those of the fullest buckets.
    """
    files = artifact.files("rejected")
    totals = Counter[int]()
    for names, counts in _survivors(files):
        for name, number in zip(names, counts, strict=True):
            totals[_bucket(name)] += number
    fullest = {bucket for bucket, _ in sorted(totals.items(), key=lambda item: (-item[1], item[0]))[: 4 * count]}
    exact = Counter[str]()
    for names, counts in _survivors(files):
        for name, number in zip(names, counts, strict=True):
            if _bucket(name) in fullest:
                exact[name] += number
    return sorted(exact.items(), key=lambda item: (-item[1], item[0]))[:count]


def _bucket(name: str) -> int:
    return xxhash.xxh3_64_intdigest(name.encode()) % _BUCKETS


def _survivors(files: Sequence[Path]) -> Iterator[tuple[list[str], list[int]]]:
    """(ids, rows that they stand for), one row group at a time."""
    for path in files:
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                frame = pl.DataFrame(file.read_row_group(group, columns=["stage", "value"]))
                own = frame.filter(pl.col("stage") == "dedup").select(
                    survivor=pl.col("value").str.extract(r"^([0-9a-f]{32})\b")
                )
                counted = own["survivor"].drop_nulls().value_counts(sort=True)
                if counted.height:
                    yield counted["survivor"].to_list(), counted["count"].to_list()


def beginnings(artifact: Artifact, columns: Sequence[str], count: int) -> Iterator[pl.DataFrame]:
    """About `count` kept documents in small frames: the same share of every part, from its beginning."""
    parts = artifact.parts("documents")
    share = min(1.0, count / max(sum(part.rows for part in parts), 1))
    for part, path in zip(parts, artifact.files("documents"), strict=True):
        left = max(1, round(share * part.rows))
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256, columns=list(columns)):
                frame = pl.DataFrame(batch).head(left)
                left -= frame.height
                yield frame
                if left <= 0:
                    break


def lengths(artifact: Artifact, sample: int) -> tuple[list[tuple[int, int, int]], int]:
    """([(from, to, documents)] in doublings of characters, how many documents were looked at)."""
    counts = Counter[int]()
    for frame in beginnings(artifact, ["text"], sample):
        counts.update(max(int(size).bit_length(), 7) for size in frame["text"].str.len_chars())
    if not counts:
        return [], 0
    span = range(min(counts), max(counts) + 1)
    return [(0 if bits == 7 else 1 << (bits - 1), 1 << bits, counts[bits]) for bits in span], counts.total()


def unreadable(artifact: Artifact, count: int) -> list[tuple[str, str]]:
    """(url, why) of the first `count` records, by url, that could not be read."""
    files = artifact.files("rejected")
    if not files:
        return []
    frame = (
        pl.scan_parquet(files)
        .filter(pl.col("stage") == "read")
        .select("url", "value")
        .sort("url", "value")
        .head(count)
        .collect(engine="streaming")
    )
    return list(frame.iter_rows())
