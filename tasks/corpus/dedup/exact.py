"""Documents of the same text: of a bucket's equal ids one stays, of earlier corpora first, then of the smallest url."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Step
from tasks.corpus.dedup import near, store
from tasks.corpus.dedup.partitions import (
    DROPPED,
    EXACT,
    ROW,
    Partitions,
    coded,
    contains,
    entries_of,
    ids_of,
    load_partitions,
)

CUTS = "reduce/cuts"
_HELD = 1 << 20


@dataclass(frozen=True)
class _Entries:
    """Documents by their final ids."""

    ids: np.ndarray
    """uint64 [N, 2]."""
    codes: np.ndarray
    """uint64 [N]."""
    changed: np.ndarray
    """bool [N]: whether passages were cut out; a text that is whole stays before one that was made equal to it."""


def drop(step: Step, bucket: int) -> None:
    """Write `reduce/exact/<bucket>`: the new documents that another one has the text of."""
    partitions = load_partitions(step)
    _write(step, f"{EXACT}/{bucket}", _losers(partitions, _by_id(step, partitions, bucket, None)))


def drop_again(step: Step, bucket: int) -> None:
    """Write `reduce/equal/<bucket>`: the same over the texts that passages were cut out of, among all that is left."""
    partitions = load_partitions(step)
    _write(step, f"reduce/equal/{bucket}", _losers(partitions, _after_cuts(step, partitions, bucket)))


def _by_id(step: Step, partitions: Partitions, bucket: int, stage: str | None) -> Iterator[_Entries]:
    for ordinal, found in entries_of(step, partitions, "exact", bucket, stage, ["lows"]):
        ids = np.stack([found["keys"], found["lows"]], 1)
        yield _Entries(ids, coded(ordinal, found["rows"]), np.zeros(len(ids), bool))


def _after_cuts(step: Step, partitions: Partitions, bucket: int) -> Iterator[_Entries]:
    low, high = partitions.range("exact", bucket)
    changed = [cut_ids(step, partitions, ordinal) for ordinal in range(len(partitions.places))]
    for found in _by_id(step, partitions, bucket, DROPPED):
        ordinal = int(found.codes[0] >> np.uint64(32)) if len(found.codes) else 0
        kept = ~contains(changed[ordinal][0], (found.codes & ROW).astype(np.int64))
        yield _Entries(found.ids[kept], found.codes[kept], found.changed[kept])
    for ordinal, (rows, ids, left) in enumerate(changed):
        inside = left & (ids[:, 0] >= np.uint64(low)) & (ids[:, 0] <= np.uint64(high - 1))
        yield _Entries(ids[inside], coded(ordinal, rows[inside]), np.ones(int(inside.sum()), bool))


def cut_ids(step: Step, partitions: Partitions, ordinal: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows int64, ids uint64 [N, 2], whether enough was left) of the documents of a partition that were cut."""
    rows = [row for row in taken(step, partitions, ordinal, ("row", "id", "dropped")) if row["id"]]
    return (
        np.array([row["row"] for row in rows], np.int64),
        ids_of(row["id"] for row in rows),
        np.array([not row["dropped"] for row in rows], bool),
    )


def taken(step: Step, partitions: Partitions, ordinal: int, columns: Sequence[str]) -> list[dict[str, Any]]:
    """The cuts of a partition, or of an earlier corpus's all removals, as rows of REMOVALS in order."""
    place = partitions.places[ordinal]
    if ordinal < partitions.earlier:
        path = Artifact("", place.uri, "").file(place.removals) if place.removals else None
    else:
        part = step.part(f"{CUTS}/{place.key}")
        path = step.path(part) if part else None
    return pq.read_table(path, columns=list(columns)).to_pylist() if path else []


def _losers(partitions: Partitions, parts: Iterator[_Entries]) -> np.ndarray:
    """Codes, ascending, of new documents that are not the one of their id that stays. What has lost already is let go
    of, so that a text of a million copies takes the memory of a few."""
    held: list[_Entries] = []
    lost: list[np.ndarray] = [np.empty(0, np.uint64)]
    count = limit = 0
    for part in parts:
        held.append(part)
        count += len(part.codes)
        if count > max(limit, _HELD):
            held = [_settled(partitions, held, lost)]
            count = len(held[0].codes)
            limit = 2 * count
    if held:
        _settled(partitions, held, lost)
    found = np.sort(np.concatenate(lost))
    return found[~partitions.is_earlier(found)]


def _settled(partitions: Partitions, parts: list[_Entries], lost: list[np.ndarray]) -> _Entries:
    """The entries without the losers among them, who are added to `lost`."""
    ids = np.concatenate([part.ids for part in parts])
    codes = np.concatenate([part.codes for part in parts])
    changed = np.concatenate([part.changed for part in parts])
    order = np.lexsort([codes, ids[:, 1], ids[:, 0]])
    ids, codes, changed = ids[order], codes[order], changed[order]
    same = (ids[1:] == ids[:-1]).all(1)
    group = np.concatenate([[0], np.cumsum(~same)])[: len(ids)]
    repeated = np.flatnonzero(near.repeated(group))
    kept = np.ones(len(ids), bool)
    if len(repeated):
        urls = _urls(partitions, codes[repeated])
        flags = partitions.is_earlier(codes[repeated])
        ranked = sorted(
            range(len(repeated)),
            key=lambda at: (group[repeated[at]], not flags[at], changed[repeated[at]], urls[at], codes[repeated[at]]),
        )
        places = repeated[ranked]
        kept[places[1:][group[places[1:]] == group[places[:-1]]]] = False
        lost.append(codes[~kept])
    return _Entries(ids[kept], codes[kept], changed[kept])


def _urls(partitions: Partitions, codes: np.ndarray) -> list[bytes]:
    order = np.argsort(codes)
    values, starts = partitions.ragged(codes[order], "urls", "url_starts")
    found: list[bytes] = [b""] * len(codes)
    data = values.tobytes()
    for at, place in enumerate(order.tolist()):
        found[place] = data[starts[at] : starts[at + 1]]
    return found


def _write(step: Step, key: str, codes: np.ndarray) -> None:
    step.put(key, ".arrays", lambda path: store.write(path, {"codes": codes}), rows=len(codes))
