"""Repetition is what a count of every n-gram says it is."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus.quality import repetition
from tasks.corpus.quality.scan import word_hash

TOPS, SHARES = 3, 6
ITEMS = st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "中"]), max_size=70)


def covered(items: list[str], n: int) -> int:
    """Characters in words within an n-gram that stood before, each once."""
    seen, places = set(), set()
    for at in range(len(items) - n + 1):
        gram = tuple(items[at : at + n])
        if gram in seen:
            places.update(range(at, at + n))
        seen.add(gram)
    return sum(len(items[at]) for at in places)


def top(items: list[str], n: int, gap: int) -> int:
    counts = Counter(tuple(items[at : at + n]) for at in range(len(items) - n + 1))
    most = max(counts.values(), default=0)
    if most < 2:
        return 0
    return max(most * (len("".join(gram)) + gap * (n - 1)) for gram, count in counts.items() if count == most)


def arrays(items: list[str]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([word_hash(item) for item in items], np.uint64), np.array([len(item) for item in items], np.int32)


@given(ITEMS)
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize(("gap", "step"), [(1, 1), (0, 2)])
def test_ngrams_are_those_of_a_plain_count(gap, step, items):
    tops, shares = np.full(TOPS, 7, np.int64), np.full(SHARES, 7, np.int64)
    repetition.ngrams(*arrays(items), gap, step, tops, shares)
    assert tops.tolist() == [top(items, n * step, gap) for n in range(2, 2 + TOPS)]
    assert shares.tolist() == [covered(items, n * step) for n in range(2 + TOPS, 2 + TOPS + SHARES)]


@given(ITEMS)
def test_repeated_items_are_those_that_stood_before(items):
    again = [item for at, item in enumerate(items) if item in items[:at]]
    assert repetition.repeated(*arrays(items)) == (len(again), sum(map(len, again)))
