"""Documents that say the same in other words (SemDeDup, arXiv 2303.09540): embeddings in clusters, pairs within a
cluster above a cosine similarity, the longest of each component stays.

Embeddings are rounded to int8 and centroids too, so that every product is a sum of small integers, which float32 holds
exactly: what is found depends neither on the order of documents nor on how products are cut into blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import numpy as np

from tasks.artifact import Step
from tasks.corpus.dedup import store
from tasks.corpus.dedup.candidates import ranked_order, survivor_ids
from tasks.corpus.dedup.components import Components
from tasks.corpus.dedup.partitions import Partitions, coded, contains, dead_rows, load_partitions
from tasks.corpus.dedup.store import Store

SEMANTIC, DISTINCT = "reduce/semantic", "reduce/distinct"
CENTROIDS, ASSIGNED = "reduce/centroids", "reduce/assigned"
_SCALE = 400.0
"""Of a component of a vector of length 1; those of sentence embeddings stay below 0.3 and are cut at 127 / 400."""
_CENTROIDS_MAX = 4096
_SAMPLE = 64
"""Documents to a centroid that k-means looks at."""
_BLOCK = 1024


@cache
def embedder() -> Callable[[Sequence[str]], np.ndarray]:
    """The packaged MiniLM, rounded; loaded at the first call."""
    from model.engines.embedding import MiniLM

    model = MiniLM()
    return lambda texts: rounded(model.embed(texts))


def rounded(vectors: np.ndarray) -> np.ndarray:
    """int8 [N, D] of vectors of length 1."""
    return np.clip(np.rint(vectors * _SCALE), -127, 127).astype(np.int8)


def centre(step: Step, partitions: Partitions) -> None:
    """Write `reduce/centroids`: k-means over the documents of the smallest ids, which are a fair sample."""
    if step.part(CENTROIDS) is not None:
        return
    config = step.config.dedup.semantic  # type: ignore[attr-defined]
    count = min(max(partitions.documents // config.cluster_documents, 1), _CENTROIDS_MAX)
    centroids = k_means(_sample(step, partitions, count * _SAMPLE), count, config.iterations)
    step.put(CENTROIDS, ".arrays", lambda path: store.write(path, {"centroids": centroids}), rows=len(centroids))


def k_means(sample: np.ndarray, count: int, iterations: int) -> np.ndarray:
    """int8 [count, D]: centroids of vectors [N, D], from the first `count` of them."""
    centroids = sample[:count].copy()
    for _ in range(iterations):
        nearest = assigned(sample, centroids)
        sums = np.zeros(centroids.shape, np.int64)
        np.add.at(sums, nearest, sample.astype(np.int64))
        lengths = np.sqrt((sums * sums).sum(1))
        filled = lengths > 0
        centroids[filled] = rounded(sums[filled] / lengths[filled, None])
    return centroids


def assigned(vectors: np.ndarray, centroids: np.ndarray) -> np.ndarray:
    """int64 [N]: the centroid of the greatest cosine, the first of equals."""
    exact = centroids.astype(np.float32)
    lengths = np.maximum(np.sqrt((exact * exact).sum(1)), 1)
    found = [
        ((vectors[at : at + _BLOCK].astype(np.float32) @ exact.T) / lengths).argmax(1)
        for at in range(0, len(vectors), _BLOCK)
    ]
    return np.concatenate([np.empty(0, np.int64), *found])


def similar(vectors: np.ndarray, threshold: float) -> np.ndarray:
    """int64 [M, 2]: pairs of vectors [N, D] whose cosine reaches the threshold."""
    exact = vectors.astype(np.float32)
    squares = (exact * exact).sum(1).astype(np.float64)
    found = [np.empty((0, 2), np.int64)]
    for at in range(0, len(exact), _BLOCK):
        for other in range(at, len(exact), _BLOCK):
            products = exact[at : at + _BLOCK].astype(np.float32) @ exact[other : other + _BLOCK].T
            bounds = np.sqrt(squares[at : at + _BLOCK, None] * squares[None, other : other + _BLOCK])
            one, two = np.nonzero(products >= threshold * bounds)
            pairs = np.stack([one + at, two + other], 1)
            found.append(pairs[pairs[:, 0] < pairs[:, 1]])
    return np.concatenate(found)


def assign(step: Step, ordinals: Sequence[int]) -> None:
    """Write `reduce/assigned/<number>`: the clusters of the documents of some partitions."""
    partitions = load_partitions(step)
    part = step.part(CENTROIDS)
    assert part is not None
    with Store(step.path(part)) as held:
        (run,) = held.runs
        centroids = run.read("centroids")
    for ordinal in ordinals:
        if step.part(f"{ASSIGNED}/{ordinal}") is not None:
            continue
        keys, codes = [np.empty(0, np.int64)], [np.empty(0, np.uint64)]
        for rows, vectors in _vectors(step, partitions, ordinal):
            keys.append(assigned(vectors, centroids))
            codes.append(coded(ordinal, rows))
        key, code = np.concatenate(keys), np.concatenate(codes)
        order = np.argsort(key, kind="stable")
        arrays = {"keys": key[order].astype(np.uint64), "codes": code[order]}
        step.put(f"{ASSIGNED}/{ordinal}", ".arrays", lambda path, arrays=arrays: store.write(path, arrays))  # type: ignore[misc]


def jobs(step: Step, partitions: Partitions) -> int:
    """How many jobs decide: one for every so many documents."""
    part = step.part(CENTROIDS)
    assert part is not None
    return min(part.rows, 1 + partitions.documents // (1 << 17)) or 1


def decide(step: Step, job: int) -> None:
    """Write `reduce/semantic/<job>`: the new documents of some clusters that another stands for."""
    partitions, config = load_partitions(step), step.config.dedup.semantic  # type: ignore[attr-defined]
    part = step.part(CENTROIDS)
    assert part is not None
    clusters, total = part.rows, jobs(step, partitions)
    codes, survivors, values = [np.empty(0, np.uint64)], [np.empty((0, 2), np.uint64)], [np.empty(0)]
    for cluster in range(clusters * job // total, clusters * (job + 1) // total):
        documents = _members(step, cluster)
        if len(documents) < 2:
            continue
        order = ranked_order(partitions, documents)
        ranked = documents[order]
        vectors = partitions.gather(documents, ["vectors"])["vectors"][order].astype(np.int64)
        components = Components(len(ranked))
        components.join(similar(vectors, config.threshold))
        roots = components.roots()
        lost = np.flatnonzero((roots != np.arange(len(roots))) & ~partitions.is_earlier(ranked))
        ours, theirs = vectors[lost], vectors[roots[lost]]
        lengths = np.sqrt(((ours * ours).sum(1) * (theirs * theirs).sum(1)).astype(np.float64))
        codes.append(ranked[lost])
        survivors.append(survivor_ids(partitions, ranked, roots[lost]))
        values.append((ours * theirs).sum(1) / np.maximum(lengths, 1))
    arrays = {
        "codes": np.concatenate(codes),
        "survivors": np.concatenate(survivors),
        "similarities": np.concatenate(values),
    }
    step.put(f"{SEMANTIC}/{job}", ".arrays", lambda path: store.write(path, arrays), rows=len(arrays["codes"]))


def _members(step: Step, cluster: int) -> np.ndarray:
    """Codes, ascending, of the documents of a cluster."""
    found = [np.empty(0, np.uint64)]
    for part in step.recorded(ASSIGNED):
        with Store(step.path(part)) as held:
            for run in held.runs:
                inside = run.range("keys", cluster, cluster + 1)
                found.append(run.read("codes", inside.start, inside.stop))
    return np.sort(np.concatenate(found))


def _vectors(step: Step, partitions: Partitions, ordinal: int):  # type: ignore[no-untyped-def]
    """(rows, vectors) of the documents of a partition that are left, run by run."""
    gone = dead_rows(step, partitions, ordinal, DISTINCT)
    with partitions.open(ordinal) as index:
        for run in index.runs:
            if "vectors" in run:
                rows = np.arange(run.count("ids"), dtype=np.int64) + int(run.read("first")[0])
                left = ~contains(gone, rows)
                yield rows[left], run.read("vectors")[left]


def _sample(step: Step, partitions: Partitions, size: int) -> np.ndarray:
    """Vectors of the documents that are left, of the smallest ids and in their order."""
    ids, vectors = np.empty((0, 2), np.uint64), np.empty((0, 0), np.int8)
    for ordinal in range(len(partitions.places)):
        for rows, found in _vectors(step, partitions, ordinal):
            if not len(rows):
                continue
            own = partitions.gather(coded(ordinal, rows), ["ids"])["ids"]
            ids = np.concatenate([ids, own])
            vectors = np.concatenate([vectors.reshape(-1, found.shape[1]), found])
            order = np.lexsort([ids[:, 1], ids[:, 0]])[:size]
            ids, vectors = ids[order], vectors[order]
    return vectors
