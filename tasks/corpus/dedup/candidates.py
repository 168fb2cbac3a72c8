"""The reduce side of near duplicates: pairs by ranges of band keys, components over all of them, verification by
groups of components. No step holds all pairs; only documents that are in some pair take memory beyond their job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Step
from tasks.corpus.dedup import store
from tasks.corpus.dedup.components import Components
from tasks.corpus.dedup.near import distinct, pairs, repeated, similarity, verify
from tasks.corpus.dedup.partitions import EXACT, ROW, Partitions, coded, entries_of, load_partitions
from tasks.corpus.dedup.store import Store

PAIRS, EDGES, NEAR = "reduce/pairs", "reduce/edges", "reduce/near"


def propose(step: Step, bucket: int) -> None:
    """Write `reduce/pairs/<bucket>`: the candidate pairs of a range of band keys, of which one at least is new."""
    partitions, config = load_partitions(step), step.config.dedup.near  # type: ignore[attr-defined]
    keys, codes = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for ordinal, found in entries_of(step, partitions, "near", bucket, EXACT, []):
        keys.append(found["keys"])
        codes.append(coded(ordinal, found["rows"]))
    key, code = np.concatenate(keys), np.concatenate(codes)
    order = np.argsort(key, kind="stable")
    order = order[repeated(key[order])]
    key, code = key[order], code[order]
    documents, local = np.unique(code, return_inverse=True)
    found_pairs = np.empty((0, 2), np.uint64)
    if len(documents):
        order = ranked_order(partitions, documents)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        sketches = partitions.gather(documents, ["sketches"])["sketches"][order]
        found_pairs = documents[order][pairs(key, ranks[local], sketches, config)]
    # Whether two earlier documents are alike was settled when they were published.
    found_pairs = found_pairs[~partitions.is_earlier(found_pairs).all(1)]
    arrays = {"ones": found_pairs[:, 0], "others": found_pairs[:, 1]}
    step.put(f"{PAIRS}/{bucket}", ".arrays", lambda path: store.write(path, arrays), rows=len(found_pairs))


def route(step: Step, partitions: Partitions) -> int:
    """Write `reduce/edges/<n>`: the pairs by the job that verifies them, which has all of a component. Returns how
    many jobs there are. Memory: the documents that are in a pair."""
    documents = np.empty(0, np.uint64)
    for path in _paths(step, PAIRS):
        for ones, others in _pairs(path):
            documents = np.unique(np.concatenate([documents, ones, others]))
    components = Components(len(documents))
    for path in _paths(step, PAIRS):
        for ones, others in _pairs(path):
            components.join(np.stack([np.searchsorted(documents, ones), np.searchsorted(documents, others)], 1))
    roots = components.roots()
    jobs = 1 + int(len(documents) * (3 * partitions.shingle_bytes + 200) / partitions.memory_bytes)
    # Components in the order of their roots, each in the job where its first document falls.
    sizes = np.bincount(roots, minlength=len(roots))
    before = np.cumsum(sizes) - sizes
    job_of = (before * jobs // max(len(documents), 1)).astype(np.uint64)
    for number, path in enumerate(_paths(step, PAIRS)):
        if step.part(f"{EDGES}/{number}") is None:
            _write_edges(step, number, path, documents, job_of[roots])
    return jobs


def decide(step: Step, job: int) -> None:
    """Write `reduce/near/<job>`: the new documents of some components that another stands for, with its id and the true
    similarity."""
    partitions, config = load_partitions(step), step.config.dedup.near  # type: ignore[attr-defined]
    edges = _edges(step, job)
    documents, local = np.unique(edges, return_inverse=True)
    lost, survivors, values = np.empty(0, np.int64), np.empty((0, 2), np.uint64), np.empty(0)
    if len(documents):
        order = ranked_order(partitions, documents)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        ranked = documents[order]
        links = np.unique(ranks[local].reshape(-1, 2), axis=0)
        components = Components(len(ranked))
        for chunk, sets, sub in _chunks(partitions, ranked, links):
            # Joined under the chunk's own numbers: what other chunks joined only saves comparisons.
            part = Components(len(sub))
            verify(chunk, part, *sets, config.threshold)
            roots = part.roots()
            components.join(np.stack([sub[roots], sub], 1))
        roots = components.roots()
        lost = np.flatnonzero((roots != np.arange(len(roots))) & ~partitions.is_earlier(ranked))
        values = np.empty(len(lost))
        joined = np.stack([roots[lost], lost], 1)
        at = 0
        for chunk, sets, _ in _chunks(partitions, ranked, joined):
            values[at : at + len(chunk)] = similarity(chunk, *sets)
            at += len(chunk)
        survivors = survivor_ids(partitions, ranked, roots[lost])
        lost = ranked[lost]
    order = np.argsort(lost)
    arrays = {"codes": lost[order].astype(np.uint64), "survivors": survivors[order], "similarities": values[order]}
    step.put(f"{NEAR}/{job}", ".arrays", lambda path: store.write(path, arrays), rows=len(order))


def ranked_order(partitions: Partitions, documents: np.ndarray) -> np.ndarray:
    """The order in which documents would stay: earlier ones first, then the longest, then the smallest id."""
    found = partitions.gather(documents, ["sizes", "ids"])
    return np.lexsort([found["ids"][:, 1], found["ids"][:, 0], -found["sizes"], ~partitions.is_earlier(documents)])


def _chunks(
    partitions: Partitions, ranked: np.ndarray, links: np.ndarray
) -> Iterator[tuple[np.ndarray, tuple[np.ndarray, np.ndarray], np.ndarray]]:
    """(pairs by local numbers, sorted sets, which document each local number is), in the order of the pairs, so many at
    a time that their shingles fit the memory."""
    # `distinct` sorts 64-bit keys of them: some 48 bytes at its height for each shingle of four.
    most = max(int(partitions.memory_bytes / (12 * partitions.shingle_bytes + 200)), 64)
    at = 0
    while at < len(links):
        stop = min(at + most // 2, len(links))
        while stop < len(links):
            wider = min(stop + most // 4 + 1, len(links))
            if len(np.unique(links[at:wider])) > most:
                break
            stop = wider
        sub, local = np.unique(links[at:stop], return_inverse=True)
        order = np.argsort(ranked[sub])
        values, starts = partitions.ragged(ranked[sub][order], "shingles", "shingle_starts")
        wanted = np.empty(len(order), np.int64)
        wanted[order] = np.arange(len(order))
        yield local.reshape(-1, 2), distinct(values, starts, wanted), sub
        at = stop


def survivor_ids(partitions: Partitions, ranked: np.ndarray, roots: np.ndarray) -> np.ndarray:
    """Ids of the documents that stand for others; one of an earlier corpus that did not survive there gives the id of
    the one that stands for it."""
    wanted, local = np.unique(roots, return_inverse=True)
    codes = ranked[wanted]
    order = np.argsort(codes)
    ids = np.empty((len(codes), 2), np.uint64)
    if len(codes):
        ids[order] = partitions.gather(codes[order], ["ids"])["ids"]
    for ordinal in np.unique(codes[partitions.is_earlier(codes)] >> np.uint64(32)).tolist():
        place = partitions.places[ordinal]
        if place.removals is None:
            continue
        table = pq.read_table(Artifact("", place.uri, "").file(place.removals), columns=["row", "survivor"])
        stands = {row["row"]: row["survivor"] for row in table.to_pylist() if row["survivor"]}
        for at in np.flatnonzero(codes >> np.uint64(32) == ordinal).tolist():
            survivor = stands.get(int(codes[at] & ROW))
            if survivor:
                ids[at] = np.frombuffer(bytes.fromhex(survivor), ">u8")
    return ids[local]


def _write_edges(step: Step, number: int, path: Path, documents: np.ndarray, job_of: np.ndarray) -> None:
    parts = list(_pairs(path))
    ones, others = (np.concatenate([part[side] for part in parts]) for side in range(2))
    keys = job_of[np.searchsorted(documents, ones)] if len(ones) else np.empty(0, np.uint64)
    order = np.argsort(keys, kind="stable")
    arrays = {"keys": keys[order], "ones": ones[order], "others": others[order]}
    step.put(f"{EDGES}/{number}", ".arrays", lambda target: store.write(target, arrays), rows=len(order))


def _edges(step: Step, job: int) -> np.ndarray:
    found = [np.empty((0, 2), np.uint64)]
    for path in _paths(step, EDGES):
        with Store(path) as held:
            for run in held.runs:
                part = run.range("keys", job, job + 1)
                sides = [run.read(name, part.start, part.stop) for name in ("ones", "others")]
                found.append(np.stack(sides, 1))
    return np.unique(np.concatenate(found), axis=0)


def _pairs(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    with Store(path) as held:
        for run in held.runs:
            yield run.read("ones"), run.read("others")


def _paths(step: Step, group: str) -> list[Path]:
    return [step.path(part) for part in step.recorded(group)]
