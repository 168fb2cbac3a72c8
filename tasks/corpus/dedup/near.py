"""Near duplicates: candidates that share a band, verified by their true Jaccard similarity, joined into components.

Three steps that know nothing of where the documents lie: `pairs` proposes (sketches rule out what is too far),
`verify` decides, `survivors` chooses. Documents are numbered by rank: 0 is the one that would stay before all others.
Every step is a function of the set of documents. Legend: D documents, E entries (a key and a document), M pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from model.compiled import compiled
from tasks.corpus.dedup.components import Components, root
from tasks.corpus.dedup.config import NearConfig
from tasks.corpus.dedup.minhash import agreement, sign

_WHOLE = 64
"""Documents of a bucket up to which every pair is looked at."""
_LEADERS = 256
"""In larger buckets a document is held to this many others at most, so that no bucket costs the square of its size."""
_NEIGHBOURS = 4
"""Pairs that a document of a larger bucket makes: with the leaders it is most like, and with their last followers."""


@dataclass(frozen=True)
class Duplicate:
    """One document that another stands for."""

    index: int
    survivor: int
    similarity: float
    """True Jaccard similarity with the survivor; below the threshold where a chain of others joins the two."""


def near_duplicates(texts: Sequence[str], config: NearConfig) -> list[Duplicate]:
    """Every text that another one stands for, by index: the longest of each component stays, of the longest the first
    by code points. Equal texts are duplicates of similarity 1.

    In memory, on one core: for lists that fit; `find` does the same over partitions.
    """
    ranked = np.array(sorted(range(len(texts)), key=lambda at: (-len(texts[at]), texts[at])), np.int64)
    parts = [
        sign([texts[at] for at in ranked[start : start + 512].tolist()], config) for start in range(0, len(ranked), 512)
    ]
    if not parts:
        return []
    counts = np.concatenate([np.diff(part.starts) for part in parts])
    keys_DB = np.concatenate([part.keys for part in parts])
    worded = np.flatnonzero(counts)
    entries = np.repeat(worded, keys_DB.shape[1])
    found = pairs(keys_DB[worded].reshape(-1), entries, np.concatenate([part.sketches for part in parts]), config)
    involved, local = np.unique(found, return_inverse=True)
    starts = np.concatenate([[0], np.cumsum(counts)])
    sets = distinct(np.concatenate([part.shingles for part in parts]), starts, involved)
    components = Components(len(involved))
    edges = local.reshape(-1, 2)
    verify(edges, components, *sets, config.threshold)
    roots = components.roots()
    lost = np.flatnonzero(roots != np.arange(len(roots)))
    similarities = similarity(np.stack([lost, roots[lost]], 1), *sets)
    order = ranked[involved]
    return sorted(
        (
            Duplicate(int(order[one]), int(order[roots[one]]), round(float(value), 4))
            for one, value in zip(lost, similarities, strict=True)
        ),
        key=lambda duplicate: duplicate.index,
    )


def pairs(keys: np.ndarray, documents: np.ndarray, sketches: np.ndarray, config: NearConfig) -> np.ndarray:
    """int64 [M, 2], distinct and in order, the better rank first: documents that share a key and whose sketches do not
    rule them out.

    keys: uint64 [E]; documents: int64 [E], ranks; sketches: uint64 [D, W].
    """
    order = np.argsort(keys, kind="stable")
    order = order[repeated(keys[order])]
    order = order[np.lexsort([documents[order], keys[order]])]
    needed = agreement(config.threshold, config.permutations)
    spare = sketches.shape[1] * 64 - config.permutations  # bits that are never set
    found = _pairs(keys[order], documents[order], sketches, needed + spare)
    codes = np.unique(found[:, 0].astype(np.uint64) << np.uint64(32) | found[:, 1].astype(np.uint64))
    return np.stack([codes >> np.uint64(32), codes & np.uint64(0xFFFFFFFF)], 1).astype(np.int64)


def distinct(shingles: np.ndarray, starts: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(uint32 sorted distinct shingles of each of the wanted documents, int64 starts)."""
    counts = starts[wanted + 1] - starts[wanted]
    number = np.repeat(np.arange(len(wanted), dtype=np.uint64), counts)
    borders = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(borders[-1]) + np.repeat(starts[wanted] - borders[:-1], counts)
    values = np.sort(number << np.uint64(32) | shingles[places].astype(np.uint64))  # np.unique hashes: slower
    values = values[np.concatenate([[True], values[1:] != values[:-1]])] if len(values) else values
    owners = values >> np.uint64(32)
    return values.astype(np.uint32), np.searchsorted(owners, np.arange(len(wanted) + 1, dtype=np.uint64))


def verify(edges: np.ndarray, components: Components, values: np.ndarray, starts: np.ndarray, threshold: float) -> None:
    """Join what is truly similar; pairs that are joined already cost nothing, and change nothing."""
    _verify(np.ascontiguousarray(edges, np.int64), components.parents, values, starts, threshold)


def similarity(edges: np.ndarray, values: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """float64 [M]: Jaccard similarity of each pair."""
    return _similarities(np.ascontiguousarray(edges, np.int64), values, starts)


def repeated(ordered: np.ndarray) -> np.ndarray:
    """bool: which of the sorted values stand more than once."""
    same = ordered[1:] == ordered[:-1]
    out = np.zeros(len(ordered), bool)
    out[1:] |= same
    out[:-1] |= same
    return out


@compiled
def _agree(sketches, one, other):  # type: ignore[no-untyped-def]
    """Equal bits of two sketches (population count by parallel sums)."""
    total = 0
    for word in range(sketches.shape[1]):
        bits = ~(sketches[one, word] ^ sketches[other, word])
        bits -= (bits >> np.uint64(1)) & np.uint64(0x5555555555555555)
        bits = (bits & np.uint64(0x3333333333333333)) + ((bits >> np.uint64(2)) & np.uint64(0x3333333333333333))
        bits = (bits + (bits >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
        total += (bits * np.uint64(0x0101010101010101)) >> np.uint64(56)
    return total


@compiled
def _pairs(keys, documents, sketches, needed):  # type: ignore[no-untyped-def]
    out = np.empty((1024, 2), np.int64)
    count = 0
    leaders = np.empty(_LEADERS, np.int64)
    last = np.empty((_LEADERS, _NEIGHBOURS), np.int64)
    best = np.empty(_NEIGHBOURS, np.int64)
    scores = np.empty(_NEIGHBOURS, np.int64)
    first = 0
    while first < len(keys):
        stop = first + 1
        while stop < len(keys) and keys[stop] == keys[first]:
            stop += 1
        room = _WHOLE * _WHOLE + (stop - first) * _NEIGHBOURS * (_NEIGHBOURS + 1)
        if count + room > len(out):
            grown = np.empty((2 * len(out) + room, 2), np.int64)
            for at in range(count):
                grown[at, 0], grown[at, 1] = out[at, 0], out[at, 1]
            out = grown
        if stop - first <= _WHOLE:
            for one in range(first, stop):
                for other in range(one + 1, stop):
                    same = documents[one] == documents[other]
                    if not same and _agree(sketches, documents[one], documents[other]) >= needed:
                        out[count, 0], out[count, 1] = documents[one], documents[other]
                        count += 1
        else:
            led = 0
            for at in range(first, stop):
                document = documents[at]
                for place in range(_NEIGHBOURS):
                    scores[place] = -1
                for leader in range(led):
                    score = _agree(sketches, document, leaders[leader])
                    place = _NEIGHBOURS - 1
                    if score < needed or score <= scores[place]:
                        continue
                    while place > 0 and scores[place - 1] < score:
                        scores[place], best[place] = scores[place - 1], best[place - 1]
                        place -= 1
                    scores[place], best[place] = score, leader
                if scores[0] < 0:
                    if led < _LEADERS:
                        leaders[led] = document
                        for follower in range(_NEIGHBOURS):
                            last[led, follower] = -1
                        led += 1
                    continue
                for place in range(_NEIGHBOURS):
                    if scores[place] < 0:
                        break
                    leader = best[place]
                    if leaders[leader] != document:
                        out[count, 0], out[count, 1] = leaders[leader], document
                        count += 1
                    for follower in range(_NEIGHBOURS):
                        other = last[leader, follower]
                        if other >= 0 and other != document and _agree(sketches, document, other) >= needed:
                            out[count, 0], out[count, 1] = other, document
                            count += 1
                leader = best[0]
                for follower in range(_NEIGHBOURS - 1):
                    last[leader, follower] = last[leader, follower + 1]
                last[leader, _NEIGHBOURS - 1] = document
        first = stop
    return out[:count]


@compiled
def _jaccard(values, one, one_stop, other, other_stop):  # type: ignore[no-untyped-def]
    total = (one_stop - one) + (other_stop - other)
    shared = 0
    while one < one_stop and other < other_stop:
        left, right = values[one], values[other]
        shared += left == right
        one += left <= right
        other += right <= left
    return shared / (total - shared) if total else 0.0


@compiled
def _similarities(edges, values, starts):  # type: ignore[no-untyped-def]
    out = np.empty(len(edges), np.float64)
    for at in range(len(edges)):
        one, other = edges[at, 0], edges[at, 1]
        out[at] = _jaccard(values, starts[one], starts[one + 1], starts[other], starts[other + 1])
    return out


@compiled
def _verify(edges, parents, values, starts, threshold):  # type: ignore[no-untyped-def]
    for at in range(len(edges)):
        one, other = edges[at, 0], edges[at, 1]
        low, high = root(parents, one), root(parents, other)
        if low == high:
            continue
        if _jaccard(values, starts[one], starts[one + 1], starts[other], starts[other + 1]) >= threshold:
            parents[max(low, high)] = min(low, high)
