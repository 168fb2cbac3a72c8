"""Repetition within one text: lines, paragraphs and n-grams that stood before (Gopher, arXiv 2112.11446, A.1.1).

Every n-gram of a text is counted, at the price of little more than its pairs: a run of n + 1 words can only come twice
where a run of n does, so that each length looks at no more places than the one before left.
"""

from __future__ import annotations

import numpy as np

from model.compiled import compiled

_ODD = np.uint64(0x9E3779B97F4A7C15)
_EMPTY = np.int32(-1)


@compiled
def repeated(hashes, lengths):  # type: ignore[no-untyped-def]
    """(items that stood before, their characters)."""
    ids, _ = _number(hashes)
    items, characters, known = 0, 0, 0
    for at in range(len(ids)):
        if ids[at] < known:
            items += 1
            characters += lengths[at]
        else:
            known += 1
    return items, characters


@compiled
def ngrams(words, lengths, gap, step, tops, shares):  # type: ignore[no-untyped-def]
    """Characters of a text's repeated n-grams, for n = step, 2 * step, ...

    Args:
        words: uint64 [W]: hashes; lengths: int32 [W]: their characters.
        gap: characters between two words of an n-gram.
        step: how many words count as one.
        tops: int64 [A]: receives, for n = 2 to A + 1, the characters of the most frequent n-gram, all its occurrences
            (of several, that which covers most; 0 where none comes twice).
        shares: int64 [B]: receives, for n = A + 2 to A + B + 1, the characters of words within an n-gram that stood
            before, each word once.
    """
    tops[:] = 0
    shares[:] = 0
    if len(words) == 0:
        return
    ends = np.zeros(len(words) + 1, np.int64)
    for at in range(len(words)):
        ends[at + 1] = ends[at] + lengths[at]
    word_ids, _ = _number(words)
    # places: where an n-gram begins that comes at least twice; ids: which one it is
    places = np.arange(len(words))
    ids = word_ids
    last = (len(tops) + len(shares) + 1) * step
    for n in range(2, last + 1):
        keys = np.empty(len(places), np.uint64)
        kept = 0
        for number in range(len(places)):
            follower = places[number] + n - 1
            if follower < len(words):
                keys[kept] = np.uint64(ids[number]) << np.uint64(32) | np.uint64(word_ids[follower])
                places[kept] = places[number]
                kept += 1
        ids, kinds = _number(keys[:kept])
        counts = np.zeros(kinds, np.int64)
        for number in range(kept):
            counts[ids[number]] += 1
        if n % step == 0:
            order = n // step
            if 2 <= order < len(tops) + 2:
                tops[order - 2] = _top(places[:kept], ids, counts, ends, n, gap)
            elif order >= len(tops) + 2:
                shares[order - len(tops) - 2] = _covered(places[:kept], ids, ends, n)
        left = 0
        for number in range(kept):
            if counts[ids[number]] > 1:
                places[left] = places[number]
                ids[left] = ids[number]
                left += 1
        if left == 0:
            return
        places, ids = places[:left], ids[:left]


@compiled
def _number(keys):  # type: ignore[no-untyped-def]
    """(ids int32 [N], how many): equal keys have equal ids, numbered in the order of their first appearance."""
    size, shift = 16, 60
    while size < 2 * len(keys):
        size *= 2
        shift -= 1
    slots = np.full(size, _EMPTY, np.int32)
    first = np.empty(len(keys), np.uint64)
    ids = np.empty(len(keys), np.int32)
    known = 0
    for at in range(len(keys)):
        key = keys[at]
        slot = np.int64(((key ^ (key >> np.uint64(32))) * _ODD) >> np.uint64(shift))
        while slots[slot] != _EMPTY and first[slots[slot]] != key:
            slot = (slot + 1) & (size - 1)
        if slots[slot] == _EMPTY:
            slots[slot] = known
            first[known] = key
            known += 1
        ids[at] = slots[slot]
    return ids, known


@compiled
def _top(places, ids, counts, ends, n, gap):  # type: ignore[no-untyped-def]
    most = 2
    for count in counts:
        most = max(most, count)
    best = 0
    for number in range(len(places)):
        if counts[ids[number]] == most:
            at = places[number]
            best = max(best, most * (ends[at + n] - ends[at] + (n - 1) * gap))
    return best


@compiled
def _covered(places, ids, ends, n):  # type: ignore[no-untyped-def]
    characters, known, reach = 0, 0, 0
    for number in range(len(places)):
        if ids[number] == known:
            known += 1
            continue
        begin = max(places[number], reach)
        reach = places[number] + n
        characters += ends[reach] - ends[begin]
    return characters
