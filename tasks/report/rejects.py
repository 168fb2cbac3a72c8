"""The rejected rows of a corpus as counts: narrow columns alone are read, in a stream, whatever the table's size."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import polars as pl
import pyarrow.parquet as pq

from tasks.artifact import Artifact

STAGES = {
    "read": "could not be read: nothing of it was judged",
    "extract": "no text was found",
    "licence": "may not enter under the licence policy",
    "safety": "on a list of what must not be read",
    "language": "in a language that is not kept",
    "quality": "refused by a rule on its text",
    "decontamination": "shares text with an evaluation set",
    "dedup": "another document says the same",
}
"""What each refuses, in the order in which a document passes them; see `tasks.corpus.records`."""


@dataclass(frozen=True)
class Drop:
    """Documents of one source that were dropped at one stage for one reason."""

    source: str
    stage: str
    reason: str
    documents: int


def place(stage: str) -> int:
    """Where a stage stands; one that nobody knows comes last."""
    return [*STAGES, stage].index(stage)


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
    """The `count` documents that stand for the most others: (id, documents they stand for), largest first. Memory grows
    with the documents that stand for others."""
    files = artifact.files("rejected")
    if not files:
        return []
    survivors = (
        pl.scan_parquet(files)
        .filter(pl.col("stage") == "dedup")
        .select(survivor=pl.col("value").str.extract(r"^([0-9a-f]{32})\b"))
        .drop_nulls()
        .group_by("survivor")
        .agg(documents=pl.len())
        .sort("documents", "survivor", descending=[True, False])
        .head(count)
    )
    return list(survivors.collect(engine="streaming").iter_rows())


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
