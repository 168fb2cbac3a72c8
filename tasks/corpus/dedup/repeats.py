"""The reduce side of passages and substrings: which hashes stand in several documents and in which one they stay, and
what that cuts out of each partition's texts.

A hash stays in the document of the smallest rank (the longest); documents of earlier corpora have rank 0 and come
before all. Counting is done per run and merged, so that a passage that stands everywhere costs an entry a run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.artifact import Step
from tasks.corpus import records
from tasks.corpus.config import HEAD_CHARS
from tasks.corpus.dedup import store
from tasks.corpus.dedup.config import DedupConfig, PassagesConfig
from tasks.corpus.dedup.exact import CUTS
from tasks.corpus.dedup.partitions import DROPPED, Partitions, contains, dead_rows, entries_of, load_partitions
from tasks.corpus.dedup.passages import LINE, PARAGRAPH, cut, sentences
from tasks.corpus.dedup.removals import CUT_REASON, REMOVALS, SHORT_REASON, removal
from tasks.corpus.dedup.store import Run, Store

REPEATS, SAMPLES = "reduce/repeats", "reduce/samples"
REASONS = ("repeated_paragraph", "boilerplate_paragraph", "boilerplate_line", "repeated_substring")
FREQUENT = 1000
"""Passages that the table of the most frequent ones holds."""
FREQUENT_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),  # hash of its words, hexadecimal
        pa.field("kind", pa.string(), nullable=False),  # paragraph or line
        pa.field("documents", pa.int64(), nullable=False),  # that it stood in
        pa.field("removed", pa.int64(), nullable=False),  # from how many places
        pa.field("text", pa.string(), nullable=False),  # as it stands somewhere, its beginning
    ]
)
_PARAGRAPH_REPEATED, _PARAGRAPH_BOILERPLATE, _LINE_BOILERPLATE, _SUBSTRING = range(4)
_HELD = 1 << 20


def count(step: Step, method: str, bucket: int) -> None:
    """Write `reduce/repeats/<method>/<bucket>`: the keys of a range that stand in enough documents, in how many, and
    the rank of the one that keeps them."""
    partitions = load_partitions(step)
    keys, counts, ranks = _merged(_per_run(step, partitions, method, bucket))
    kept = counts >= _documents_min(partitions, step.config.dedup, method, keys)  # type: ignore[attr-defined]
    keys, counts, ranks = keys[kept], counts[kept], ranks[kept]
    top = np.lexsort([keys, -counts])[:FREQUENT]
    arrays = {"keys": keys, "counts": counts, "ranks": ranks, "top_keys": keys[top], "top_counts": counts[top]}
    step.put(f"{REPEATS}/{method}/{bucket}", ".arrays", lambda path: store.write(path, arrays), rows=len(keys))


def _documents_min(partitions: Partitions, config: DedupConfig, method: str, keys: np.ndarray) -> np.ndarray:
    if method == "substring":
        return np.full(len(keys), 2)
    kinds = keys & np.uint64(1)
    line = _scaled(config.passages.line_documents_min, partitions, config.passages)
    return np.where(kinds == LINE, line, config.passages.paragraph_documents_min)


def _scaled(documents: int, partitions: Partitions, config: PassagesConfig) -> int:
    """A bound for boilerplate in a corpus of this size."""
    return math.ceil(documents * max(1.0, partitions.documents / config.bucket_documents))


_Counted = tuple[np.ndarray, np.ndarray, np.ndarray]


def _per_run(step: Step, partitions: Partitions, method: str, bucket: int) -> Iterator[_Counted]:
    """(keys, documents, smallest rank) of each run."""
    for ordinal, found in entries_of(step, partitions, method, bucket, DROPPED, ["ranks"]):
        order = np.lexsort([found["rows"], found["keys"]])
        keys, rows = found["keys"][order], found["rows"][order]
        first = np.ones(len(keys), bool)
        first[1:] = (keys[1:] != keys[:-1]) | (rows[1:] != rows[:-1])
        ranks = np.zeros(len(keys), np.uint64) if ordinal < partitions.earlier else found["ranks"][order]
        yield keys[first], np.ones(int(first.sum()), np.int64), ranks[first]


def _merged(parts: Iterator[_Counted]) -> _Counted:
    held: list[_Counted] = [(np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint64))]
    size = limit = 0
    for part in parts:
        part = _reduced([part])
        held.append(part)
        size += len(part[0])
        if size > max(limit, _HELD):
            held = [_reduced(held)]
            size = len(held[0][0])
            limit = 2 * size
    return _reduced(held)


def _reduced(parts: Sequence[_Counted]) -> _Counted:
    keys, counts, ranks = (np.concatenate([part[at] for part in parts]) for at in range(3))
    if not len(keys):
        return keys, counts, ranks
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(counts[order], starts), np.minimum.reduceat(ranks[order], starts)


def cut_partitions(step: Step, ordinals: Sequence[int]) -> None:
    """Write `reduce/cuts/<key>` and `reduce/samples/<key>` of some partitions."""
    partitions = load_partitions(step)
    for ordinal in ordinals:
        key = partitions.places[ordinal].key
        if step.part(f"{CUTS}/{key}") is None:
            _cut_partition(step, partitions, ordinal)


def _cut_partition(step: Step, partitions: Partitions, ordinal: int) -> None:
    config = step.config
    key = partitions.places[ordinal].key
    frequent = _frequent(step)
    places: dict[int, list[tuple[int, int, int, int]]] = {}
    gone = dead_rows(step, partitions, ordinal, DROPPED)
    with partitions.open(ordinal) as index:
        for run in index.runs:
            for method in ("passages", "substring"):
                if f"{method}_keys" not in run:
                    continue
                for at in range(partitions.buckets[method]):
                    for row, *place in _to_cut(step, partitions, run, method, at, gone):
                        places.setdefault(row, []).append(tuple(place))  # type: ignore[arg-type]
    rows: list[dict[str, Any]] = []
    removed: dict[int, tuple[int, str]] = {}
    chars: Counter[str] = Counter()
    spans_of: Counter[str] = Counter()
    for row, text in _texts(step, key, sorted(places)):
        spans = _spans(text, places[row])
        for begin, end, _, passage in places[row]:
            if passage in frequent:
                times, sample = removed.get(passage, (0, text[begin:end]))
                removed[passage] = (times + 1, min(sample, text[begin:end]))
        if not spans:
            continue
        left = cut(text, [(begin, end) for begin, end, _ in spans])
        least = config.document_chars_min  # type: ignore[attr-defined]
        short = len(left) < least
        reason, limit = (SHORT_REASON, float(least)) if short else (CUT_REASON, None)
        new = records.document_id(left)
        rows.append(removal(row, reason, dropped=short, limit=limit, id=new, spans=spans))
        for begin, end, reason in spans:
            spans_of[reason] += 1
            chars[reason] += end - begin
    samples = [
        {
            "key": f"{passage:016x}",
            "kind": ("paragraph", "line")[passage & 1],
            "documents": frequent[passage],
            "removed": times,
            "text": sample[:HEAD_CHARS],
        }
        for passage, (times, sample) in sorted(removed.items())
    ]
    step.put(f"{SAMPLES}/{key}", ".parquet", lambda path: records.write(path, records.table(samples, FREQUENT_SCHEMA)))
    step.put(
        f"{CUTS}/{key}",
        ".parquet",
        lambda path: records.write(path, records.table(rows, REMOVALS)),
        rows=len(rows),
        statistics={"spans": dict(sorted(spans_of.items())), "chars": dict(sorted(chars.items()))},
    )


def _to_cut(
    step: Step, partitions: Partitions, run: Run, method: str, bucket: int, gone: np.ndarray
) -> Iterator[tuple[int, int, int, int, int]]:
    """(row, begin, end, reason, key) of what a bucket's decisions take from a run."""
    found = run.range(f"{method}_keys", *partitions.range(method, bucket))
    part = step.part(f"{REPEATS}/{method}/{bucket}")
    assert part is not None
    if found.stop == found.start or not part.rows:
        return
    entries = {
        name: run.read(f"{method}_{name}", found.start, found.stop)
        for name in ("keys", "rows", "ranks", "begins", "ends")
    }
    with Store(step.path(part)) as decided:
        (decisions,) = decided.runs
        low, high = int(entries["keys"][0]), int(entries["keys"][-1])
        inside = decisions.range("keys", low, high + 1)
        keys, counts, ranks = (decisions.read(name, inside.start, inside.stop) for name in ("keys", "counts", "ranks"))
    at = np.flatnonzero(contains(keys, entries["keys"]) & ~contains(gone, entries["rows"]))
    entries = {name: array[at] for name, array in entries.items()}
    decision = np.searchsorted(keys, entries["keys"])
    kept_here = ranks[decision] == entries["ranks"]
    reasons = np.full(len(decision), _SUBSTRING)
    if method == "passages":
        reasons = _passage_reasons(partitions, step.config.dedup.passages, entries["keys"], counts[decision])  # type: ignore[attr-defined]
    lost = ~kept_here | (reasons == _LINE_BOILERPLATE) | (reasons == _PARAGRAPH_BOILERPLATE)
    columns = [entries[name][lost].tolist() for name in ("rows", "begins", "ends")]
    yield from zip(*columns, reasons[lost].tolist(), entries["keys"][lost].tolist(), strict=True)


def _passage_reasons(
    partitions: Partitions, config: PassagesConfig, keys: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    paragraph = (keys & np.uint64(1)) == PARAGRAPH
    often = counts >= _scaled(config.paragraph_boilerplate_min, partitions, config)
    return np.where(paragraph, np.where(often, _PARAGRAPH_BOILERPLATE, _PARAGRAPH_REPEATED), _LINE_BOILERPLATE)


def _spans(text: str, places: Sequence[tuple[int, int, int, int]]) -> list[tuple[int, int, str]]:
    """What is cut out of a text, in order and without overlaps: passages as they are, runs of tokens as the sentences
    that lie wholly within them."""
    wanted = [(begin, end, reason) for begin, end, reason, _ in places if reason != _SUBSTRING]
    runs = joined([(begin, end, 0) for begin, end, reason, _ in places if reason == _SUBSTRING])
    for begin, end, _ in runs:
        wanted += [(first, stop, _SUBSTRING) for first, stop in sentences(text, begin, end)]
    return [(begin, end, REASONS[reason]) for begin, end, reason in joined(wanted)]


def joined(spans: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Spans (begin, end, reason) in order; those that overlap are one, for the reason of the first."""
    found: list[tuple[int, int, int]] = []
    for begin, end, reason in sorted(spans):
        if found and begin < found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]), found[-1][2])
        else:
            found.append((begin, end, reason))
    return found


def _texts(step: Step, key: str, rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """(row, text) of some candidate rows, ascending, one group of rows of the file at a time."""
    if not rows:
        return
    part = step.part(f"candidates/{key}")
    assert part is not None, f"candidates/{key} has no record, although its index has"
    file = pq.ParquetFile(step.path(part))
    wanted, first = np.array(rows, np.int64), 0
    for group in range(file.num_row_groups):
        stop = first + file.metadata.row_group(group).num_rows
        low, high = np.searchsorted(wanted, [first, stop])
        if high > low:
            column = file.read_row_group(group, columns=["text"])["text"].take(wanted[low:high] - first)
            yield from zip(wanted[low:high].tolist(), column.to_pylist(), strict=True)
        first = stop


def _frequent(step: Step) -> dict[int, int]:
    """Documents by key, of the passages that stand in the most documents."""
    found: list[tuple[int, int]] = []
    for part in step.recorded(f"{REPEATS}/passages"):
        with Store(step.path(part)) as held:
            for run in held.runs:
                found += zip((-run.read("top_counts")).tolist(), run.read("top_keys").tolist(), strict=True)
    return {key: -count for count, key in sorted(found)[:FREQUENT]}


def frequent_passages(paths: Sequence[Path]) -> list[Mapping[str, Any]]:
    """The table of the most frequent passages that were removed, from the samples of all partitions."""
    found: dict[str, dict[str, Any]] = {}
    for path in paths:
        for row in pq.read_table(path).to_pylist():
            held = found.setdefault(row["key"], {**row, "removed": 0})
            held["removed"] += row["removed"]
            held["text"] = min(held["text"], row["text"])
    return sorted(found.values(), key=lambda row: (-row["documents"], row["key"]))
