"""What the reduce side works on: the partitions with their indexes, and the ranges of keys that its jobs take.

A document is known by its code: the number of its partition and its row (`partition << 32 | row`). Partitions of
earlier corpora come first. Codes say where a document lies and never decide what stays.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Part, Step
from tasks.corpus.dedup.store import Run, Store

PARTITIONS, DROPPED, EXACT = "reduce/plan", "reduce/dropped", "reduce/exact"
ROW = np.uint64((1 << 32) - 1)
_SHIFT = np.uint64(32)
# Bytes that a job holds for each entry of its range, sorting included; and entries that are worth a job.
_ENTRY_BYTES = 96
_ENTRIES = 1 << 23
_GROUP_BYTES = 1 << 29
MEMORY_MIN = 64 << 20
"""Least working memory of one job (`execution.memory_bytes` refuses less)."""


@dataclass(frozen=True)
class Place:
    """One partition."""

    key: str
    uri: str
    index: Part
    removals: Part | None
    """Of an earlier corpus: what of the partition did not survive there."""


@dataclass(frozen=True)
class Partitions:
    """All partitions, and into how many ranges each kind of keys is divided."""

    places: tuple[Place, ...]
    earlier: int
    """How many of the places belong to earlier corpora."""
    buckets: dict[str, int]
    documents: int
    """In all partitions."""
    shingle_bytes: float
    """Of a document, on average."""
    memory_bytes: int

    def range(self, method: str, bucket: int) -> tuple[int, int]:
        """Keys low <= key < high of a bucket."""
        total = self.buckets[method]
        return (bucket << 64) // total, ((bucket + 1) << 64) // total

    @contextmanager
    def open(self, ordinal: int) -> Iterator[Store]:
        """The index of a partition."""
        place = self.places[ordinal]
        with Store(Artifact("", place.uri, "").file(place.index)) as store:
            yield store

    def is_earlier(self, codes: np.ndarray) -> np.ndarray:
        return codes >> _SHIFT < self.earlier

    def gather(self, codes: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Fixed-size arrays of some documents, codes ascending."""
        parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for run, rows, _ in self._runs(codes):
            for name in names:
                parts[name].append(run.take(name, rows))
        return {name: np.concatenate(found) for name, found in parts.items()} if len(codes) else {}

    def ragged(self, codes: np.ndarray, values: str, starts: str) -> tuple[np.ndarray, np.ndarray]:
        """(values, starts) of some documents, codes ascending and at least one."""
        parts, counts = [], []
        for run, rows, _ in self._runs(codes):
            found, borders = run.ragged(values, starts, rows)
            parts.append(found)
            counts.append(np.diff(borders))
        return np.concatenate(parts), np.concatenate([[0], np.cumsum(np.concatenate(counts))])

    def _runs(self, codes: np.ndarray) -> Iterator[tuple[Run, np.ndarray, int]]:
        """(run, rows within it, partition) of the documents."""
        partitions = codes >> _SHIFT
        for ordinal in np.unique(partitions).tolist():
            first, stop = np.searchsorted(partitions, [ordinal, ordinal + 1])
            rows = (codes[first:stop] & ROW).astype(np.int64)
            with self.open(ordinal) as store:
                for run in store.runs:
                    start = int(run.read("first")[0])
                    low, high = np.searchsorted(rows, [start, start + run.count("ids")])
                    if high > low:
                        yield run, rows[low:high] - start, ordinal

    def groups(self, earlier: bool = False) -> list[tuple[int, ...]]:
        """The new partitions (or all of them), together where they are small."""
        found: list[list[int]] = []
        room = 0
        for ordinal in range(0 if earlier else self.earlier, len(self.places)):
            room -= self.places[ordinal].index.bytes
            if room < 0 or not found:
                found.append([])
                room = _GROUP_BYTES - self.places[ordinal].index.bytes
            found[-1].append(ordinal)
        return [tuple(group) for group in found]


def make_partitions(step: Step, keys: Sequence[str], earlier: Sequence[Artifact], memory_bytes: int) -> Partitions:
    """Write them once, so that a run that continues goes by the same ranges; ValueError where it cannot be."""
    if memory_bytes < MEMORY_MIN:
        raise ValueError(f"memory_bytes = {memory_bytes:,}: deduplication needs {MEMORY_MIN:,} at least")
    if step.part(PARTITIONS) is None:
        places = [place for corpus in earlier for place in _published(corpus)]
        earlier_count = len(places)
        for key in sorted(keys):
            part = step.part(f"index/{key}")
            if part is None:
                raise ValueError(f"partition '{key}' has no part 'index/{key}': refine it before duplicates are sought")
            places.append(Place(key, step.uri, part, None))
        record = {"places": [asdict(place) for place in places], "earlier": earlier_count, "memory_bytes": memory_bytes}
        step.put(PARTITIONS, ".json", lambda path: path.write_text(json.dumps(_measured(record, places))))
    return load_partitions(step)


def load_partitions(step: Step) -> Partitions:
    """The partitions that `make_partitions` wrote; read once per process."""
    part = step.part(PARTITIONS)
    assert part is not None, "find writes the partitions before its jobs begin"
    return _load(step.path(part))


@cache
def _load(path: Path) -> Partitions:
    record = json.loads(path.read_text())
    places = [
        Place(
            place["key"],
            place["uri"],
            Part(**place["index"]),
            Part(**place["removals"]) if place["removals"] else None,
        )
        for place in record.pop("places")
    ]
    return Partitions(places=tuple(places), **record)


def _measured(record: dict[str, Any], places: Sequence[Place]) -> dict[str, Any]:
    """Their record with its ranges, from the sizes that stand in the indexes."""
    entries = dict.fromkeys(("exact", "near", "passages", "substring"), 0)
    shingles = documents = 0
    for place in places:
        with Store(Artifact("", place.uri, "").file(place.index)) as store:
            for run in store.runs:
                documents += run.count("ids")
                shingles += run.count("shingles")
                for method in entries:
                    entries[method] += run.count(f"{method}_keys")
    per_job = min(_ENTRIES, record["memory_bytes"] // _ENTRY_BYTES)
    buckets = {method: 1 + count // per_job for method, count in entries.items()}
    return {**record, "buckets": buckets, "documents": documents, "shingle_bytes": 4 * shingles / max(documents, 1)}


def _published(corpus: Artifact) -> list[Place]:
    """The partitions of a published corpus, those of the versions before it among them."""
    removals = {part.key.removeprefix("removals/"): part for part in corpus.parts("removals")}
    indices = [(part.key.removeprefix("index/"), part) for part in corpus.parts("index")]
    return [Place(key, corpus.uri, part, removals.get(key)) for key, part in indices]


def dead_rows(step: Step, partitions: Partitions, ordinal: int, stage: str) -> np.ndarray:
    """int64, ascending: the rows of a partition that are gone after EXACT, or DROPPED (exact, near, semantic)."""
    place = partitions.places[ordinal]
    if ordinal < partitions.earlier:
        if place.removals is None:
            return np.empty(0, np.int64)
        table = pq.read_table(Artifact("", place.uri, "").file(place.removals), columns=["row", "reason", "dropped"])
        rows = [
            row["row"]
            for row in table.to_pylist()
            if row["dropped"] and (stage != EXACT or row["reason"] == "exact_duplicate")
        ]
        return np.array(sorted(rows), np.int64)
    part = step.part(stage)
    assert part is not None, stage
    with Store(step.path(part)) as store:
        for run in store.runs:
            found = run.range("codes", ordinal << 32, (ordinal + 1) << 32)
            return (run.read("codes", found.start, found.stop) & ROW).astype(np.int64)
    return np.empty(0, np.int64)


def entries_of(
    step: Step, partitions: Partitions, method: str, bucket: int, stage: str | None, names: Sequence[str]
) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
    """(partition, arrays with "keys", "rows" and `names`) of the entries of a bucket, run by run, without those of
    documents that a stage dropped."""
    low, high = partitions.range(method, bucket)
    for ordinal in range(len(partitions.places)):
        gone = dead_rows(step, partitions, ordinal, stage) if stage else np.empty(0, np.int64)
        with partitions.open(ordinal) as store:
            for run in store.runs:
                if f"{method}_keys" not in run:
                    continue
                found = run.range(f"{method}_keys", low, high)
                if found.stop == found.start:
                    continue
                arrays = {
                    name: run.read(f"{method}_{name}", found.start, found.stop) for name in ("keys", "rows", *names)
                }
                if len(gone):
                    kept = ~contains(gone, arrays["rows"])
                    arrays = {name: array[kept] for name, array in arrays.items()}
                yield ordinal, arrays


def contains(ordered: np.ndarray, values: np.ndarray) -> np.ndarray:
    """bool: which values stand in a sorted array."""
    if not len(ordered):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    return ordered[places] == values


def coded(ordinal: int, rows: np.ndarray) -> np.ndarray:
    """uint64: the codes of rows of a partition."""
    return np.uint64(ordinal << 32) | rows.astype(np.uint64)


def ids_of(texts: Iterable[str]) -> np.ndarray:
    """uint64 [N, 2]: ids as arrays hold them."""
    return np.frombuffer(bytes.fromhex("".join(texts)), ">u8").astype(np.uint64).reshape(-1, 2)


def texts_of(ids: np.ndarray) -> list[str]:
    """Ids [N, 2] as they stand in records."""
    data = ids.astype(">u8").tobytes()
    return [data[at : at + 16].hex() for at in range(0, len(data), 16)]
