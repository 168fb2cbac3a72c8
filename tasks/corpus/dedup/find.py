"""The reduce side of deduplication, in order: exact, near, semantic, then passages and substrings among what is left,
and exact once more over the texts that were cut.

    find(step, keys, executor)      # parts index/<key> and candidates/<key> -> removals/<key>, passages

What survives is a function of the set of documents, and of which of them are earlier: partitioning, order, worker count
and memory do not enter. Everything between is parts `reduce/...` of the step, so that a killed run continues.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Step
from tasks.corpus import records
from tasks.corpus.dedup import candidates, exact, repeats, semantic, store
from tasks.corpus.dedup.candidates import NEAR, PAIRS
from tasks.corpus.dedup.exact import CUTS
from tasks.corpus.dedup.partitions import (
    DROPPED,
    EXACT,
    ROW,
    Partitions,
    coded,
    ids_of,
    load_partitions,
    make_partitions,
    texts_of,
)
from tasks.corpus.dedup.removals import DROP_REASONS, REMOVALS, removal
from tasks.corpus.dedup.repeats import FREQUENT_SCHEMA, REPEATS, SAMPLES
from tasks.corpus.dedup.semantic import DISTINCT, SEMANTIC
from tasks.corpus.dedup.store import Store
from tasks.corpus.executor import Executor
from tasks.progress import Progress

MEMORY_BYTES = 1 << 30
"""Working memory of one job where nothing is said."""
EQUAL, NAMED = "reduce/equal", "reduce/named"
_EXACT, _NEAR, _SEMANTIC = range(3)
_REASONS = {NEAR: _NEAR, SEMANTIC: _SEMANTIC}
_COLUMNS = ("codes", "reasons", "survivors", "similarities")


def find(
    step: Step,
    keys: Sequence[str],
    executor: Executor,
    earlier: Sequence[Artifact] = (),
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Write `removals/<key>` for every partition (see `removals.REMOVALS`), and `passages` (`passages/<n>` of a later
    snapshot), the most frequent ones.

    step: its configuration has `dedup` and `document_chars_min`; it has the parts `candidates/<key>` and `index/<key>`.
    earlier: published corpora with their parts `index` and `removals`, of which none lists the parts of another; their
    documents win and are never rewritten.
    memory_bytes: what one job may hold; execution, not identity.
    """
    config = step.config.dedup  # type: ignore[attr-defined]
    partitions = make_partitions(step, keys, earlier, memory_bytes)
    version = len(step.versions()) - 1
    passages = f"passages/{version}" if version else "passages"
    if not step.missing([passages, *(f"removals/{key}" for key in keys)]):
        return
    _all(step, executor, exact.drop, EXACT, partitions.buckets["exact"])
    _combine_exact(step)
    if config.near.enabled:
        _all(step, executor, candidates.propose, PAIRS, partitions.buckets["near"])
        _all(step, executor, candidates.decide, NEAR, candidates.route(step, partitions))
    groups = [group for group, method in ((NEAR, config.near), (SEMANTIC, config.semantic)) if method.enabled]
    if config.semantic.enabled:
        _combine(step, partitions, DISTINCT, [group for group in groups if group == NEAR])
        semantic.centre(step, partitions)
        _each(step, executor, semantic.assign, {f"{group}": (step, group) for group in partitions.groups(earlier=True)})
        _all(step, executor, semantic.decide, SEMANTIC, semantic.jobs(step, partitions))
    _combine(step, partitions, DROPPED, groups)
    methods = [method for method in ("passages", "substring") if getattr(config, method).enabled]
    for method in methods:
        jobs = {f"{REPEATS}/{method}/{at}": (step, method, at) for at in range(partitions.buckets[method])}
        _each(step, executor, repeats.count, jobs)
    work = {f"partitions {group[0]}-{group[-1]}": (step, group) for group in partitions.groups()}
    if methods:
        _each(step, executor, repeats.cut_partitions, work)
    changed = [*step.recorded(CUTS), *(place.removals for place in partitions.places if place.removals)]
    if any(part.rows for part in changed):
        _all(step, executor, exact.drop_again, EQUAL, partitions.buckets["exact"])
    _name(step, partitions)
    _each(step, executor, write_removals, work)
    if step.part(passages) is None:
        rows = repeats.frequent_passages([step.path(part) for part in step.recorded(SAMPLES)])
        table = records.table([dict(row) for row in rows], FREQUENT_SCHEMA)
        step.put(passages, ".parquet", lambda path: records.write(path, table), rows=len(rows))


def _all(step: Step, executor: Executor, function: Callable[..., None], group: str, count: int) -> None:
    _each(step, executor, function, {f"{group}/{at}": (step, at) for at in range(count)})


def _each(step: Step, executor: Executor, function: Callable[..., None], jobs: Mapping[str, tuple[Any, ...]]) -> None:
    left = {name: arguments for name, arguments in jobs.items() if step.part(name) is None}
    phase = f"{function.__module__.rpartition('.')[2]} {function.__name__}".replace("_", " ")
    with Progress("duplicates", len(jobs), "jobs", len(jobs) - len(left)) as progress:
        for _ in executor.map(function, left):
            progress.advance(note=phase)


def _combine_exact(step: Step) -> None:
    """Write `reduce/exact`: the codes of all buckets in order."""
    if step.part(EXACT) is None:
        found = [run.read("codes") for _, run in _stored(step, EXACT)]
        codes = np.sort(np.concatenate([np.empty(0, np.uint64), *found]))
        step.put(EXACT, ".arrays", lambda path: store.write(path, {"codes": codes}), rows=len(codes))


def _combine(step: Step, partitions: Partitions, key: str, groups: Sequence[str]) -> None:
    """Write a part with every document that goes by the parts of some groups (later ones looked at what earlier ones
    had left), why, and the id of what stands for it. Memory: these documents."""
    if step.part(key) is not None:
        return
    layers = [_equal(step, partitions), *(_decided(step, group) for group in groups)]
    for at, layer in enumerate(layers):
        for later in layers[at + 1 :]:
            _retell(partitions, layer, later)
    codes = np.concatenate([layer["codes"] for layer in layers])
    order = np.argsort(codes)
    reasons = [_EXACT, *(_REASONS[group] for group in groups)]
    arrays = {
        name: np.concatenate([layer[name] for layer in layers])[order]
        for name in ("codes", "survivors", "similarities")
    }
    arrays["reasons"] = np.repeat(np.array(reasons, np.uint8), [len(layer["codes"]) for layer in layers])[order]
    step.put(key, ".arrays", lambda path: store.write(path, arrays), rows=len(codes))


def _equal(step: Step, partitions: Partitions) -> dict[str, np.ndarray]:
    part = step.part(EXACT)
    assert part is not None
    with Store(step.path(part)) as held:
        (run,) = held.runs
        codes = run.read("codes")
    ids = partitions.gather(codes, ["ids"])["ids"] if len(codes) else np.empty((0, 2), np.uint64)
    return {"codes": codes, "survivors": ids, "similarities": np.ones(len(codes))}


def _decided(step: Step, group: str) -> dict[str, np.ndarray]:
    parts: dict[str, list[np.ndarray]] = {
        "codes": [np.empty(0, np.uint64)],
        "survivors": [np.empty((0, 2), np.uint64)],
        "similarities": [np.empty(0)],
    }
    for _, run in _stored(step, group):
        for name, held in parts.items():
            held.append(run.read(name))
    order = np.argsort(np.concatenate(parts["codes"]))
    return {name: np.concatenate(held)[order] for name, held in parts.items()}


def _retell(partitions: Partitions, layer: dict[str, np.ndarray], later: dict[str, np.ndarray]) -> None:
    """Where what stood for a document went itself, the document is told who stands for both."""
    if not len(layer["codes"]) or not len(later["codes"]):
        return
    ids = partitions.gather(later["codes"], ["ids"])["ids"]
    by_id = np.argsort(ids[:, 0])
    places = np.searchsorted(ids[by_id, 0], layer["survivors"][:, 0])
    at = by_id[np.minimum(places, len(by_id) - 1)]
    same = (ids[at] == layer["survivors"]).all(1)
    layer["survivors"][same] = later["survivors"][at[same]]
    layer["similarities"][same] = later["similarities"][at[same]]


def _name(step: Step, partitions: Partitions) -> None:
    """Write `reduce/named`: what was dropped, with the ids under which its survivors are published. Passages may have
    been cut out of a survivor, and one of an earlier corpus may have been dropped there for another. Memory: these
    documents, and the cuts of one partition."""
    if step.part(NAMED) is not None:
        return
    part = step.part(DROPPED)
    assert part is not None
    with Store(step.path(part)) as held:
        (run,) = held.runs
        arrays = {name: run.read(name) for name in _COLUMNS}
    survivors, similarities = arrays["survivors"], arrays["similarities"]
    order = np.argsort(survivors[:, 0])
    highs, lows = survivors[order, 0], survivors[order, 1]
    for ordinal in range(len(partitions.places)):
        rows = exact.taken(step, partitions, ordinal, ("row", "id", "dropped", "survivor", "similarity"))
        # What was too short after its cuts has nothing in its place: it keeps the id that its rejected row has.
        rows = [row for row in rows if row["survivor"] or not row["dropped"]]
        if not rows:
            continue
        now = ids_of(row["survivor"] or row["id"] for row in rows)
        codes = coded(ordinal, np.array([row["row"] for row in rows]))
        before = partitions.gather(codes, ["ids"])["ids"]
        firsts, stops = (np.searchsorted(highs, before[:, 0], side) for side in ("left", "right"))
        for at in np.flatnonzero(firsts < stops).tolist():
            found = slice(firsts[at], stops[at])
            same = order[found][lows[found] == before[at, 1]]
            survivors[same] = now[at]
            similarities[same] = np.minimum(similarities[same], rows[at]["similarity"] or 1.0)
    step.put(NAMED, ".arrays", lambda path: store.write(path, arrays), rows=len(survivors))


def write_removals(step: Step, ordinals: Sequence[int]) -> None:
    """Write `removals/<key>` of some partitions."""
    partitions = load_partitions(step)
    for ordinal in ordinals:
        key = partitions.places[ordinal].key
        if step.part(f"removals/{key}") is None:
            rows = _removals(step, partitions, ordinal)
            step.put(
                f"removals/{key}",
                ".parquet",
                lambda path, rows=rows: records.write(path, records.table(rows, REMOVALS)),  # type: ignore[misc]
                rows=len(rows),
                statistics=_counts(step, key, rows),
            )


def _removals(step: Step, partitions: Partitions, ordinal: int) -> list[dict[str, Any]]:
    low, high = ordinal << 32, (ordinal + 1) << 32
    part = step.part(NAMED)
    assert part is not None
    with Store(step.path(part)) as held:
        (run,) = held.runs
        found = run.range("codes", low, high)
        codes, reasons, survivors, similarities = (run.read(name, found.start, found.stop) for name in _COLUMNS)
    rows = {
        row: removal(row, DROP_REASONS[reason], dropped=True, survivor=survivor, similarity=round(similarity, 4))
        for row, reason, survivor, similarity in zip(
            (codes & ROW).tolist(), reasons.tolist(), texts_of(survivors), similarities.tolist(), strict=True
        )
    }
    cuts = step.part(f"{CUTS}/{partitions.places[ordinal].key}")
    if cuts is not None:
        rows |= {row["row"]: row for row in pq.read_table(step.path(cuts)).to_pylist()}
    for _, run in _stored(step, EQUAL):
        found = run.range("codes", low, high)
        for code in run.read("codes", found.start, found.stop):
            row = int(code & ROW)
            # Its text is another one's now, cut as it is, or that of an earlier document that was cut.
            held_row = rows.get(row) or removal(row, "", dropped=True)
            survivor = held_row["id"] or texts_of(partitions.gather(code.reshape(1), ["ids"])["ids"])[0]
            rows[row] = {
                **held_row, "reason": DROP_REASONS[_EXACT], "dropped": True, "survivor": survivor, "similarity": 1.0,
            }  # fmt: skip
    return [rows[row] for row in sorted(rows)]


def _counts(step: Step, key: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Documents by reason, and what was cut: spans and characters by reason."""
    by_reason: dict[str, int] = {}
    for row in rows:
        by_reason[row["reason"]] = by_reason.get(row["reason"], 0) + 1
    cuts = step.part(f"{CUTS}/{key}")
    return {"by_reason": dict(sorted(by_reason.items())), **(cuts.statistics if cuts else {"spans": {}, "chars": {}})}


def _stored(step: Step, group: str) -> Any:
    """(part, run) of the numbered parts of a group."""
    for part in step.recorded(group):
        if part.key != group:
            with Store(step.path(part)) as held:
                for run in held.runs:
                    yield part, run
