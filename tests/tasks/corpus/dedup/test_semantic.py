"""Semantic duplicates: paraphrases go, other texts stay, whatever the order and the blocks."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus.dedup import semantic
from tasks.corpus.dedup.config import DedupConfig, SemanticConfig
from tasks.corpus.dedup.semantic import assigned, k_means, rounded, similar

PARAPHRASES = [
    "The harbour was closed for three days because a violent storm had damaged the outer wall.",
    "Because a violent storm had damaged its outer wall, the harbour was closed for three days.",
]
OTHERS = [
    "To install the package, download the archive and run the setup program as an administrator.",
    "A prime number has exactly two divisors, one and itself, and there are infinitely many of them.",
    "The bridge over the river was built of stone from the quarry behind the village in 1820.",
]
ON = DedupConfig(
    near={"enabled": False}, passages={"enabled": False}, semantic=SemanticConfig(enabled=True, threshold=0.9)
)


def test_paraphrases_go_and_other_texts_stay(make_row, deduplicated):
    rows = [make_row(text, f"s:{at}") for at, text in enumerate([*OTHERS, *PARAPHRASES])]
    expected = deduplicated([rows], ON)
    kept, rejected = expected
    assert [row["text"] for row in kept[:3]] == OTHERS
    (row,) = rejected
    assert row["reason"] == "semantic_duplicate"
    assert row["text_head"] in PARAPHRASES
    assert kept[3]["text"] == max(PARAPHRASES, key=len)
    survivor, similarity = row["value"].split()
    assert survivor == kept[3]["id"]
    assert 0.9 <= float(similarity) <= 1
    random.Random(1).shuffle(rows)
    assert deduplicated([rows[:2], [], rows[2:]], ON) == expected


@pytest.fixture
def vectors():
    generator = np.random.default_rng(3)
    centres = generator.normal(size=(8, 384))
    found = centres[generator.integers(8, size=3000)] + 0.6 * generator.normal(size=(3000, 384))
    return rounded(found / np.linalg.norm(found, axis=1, keepdims=True))


def test_clusters_and_pairs_do_not_depend_on_blocks(vectors, monkeypatch):
    centroids = k_means(vectors[:512], 8, 5)
    clusters, pairs = assigned(vectors, centroids), similar(vectors[:700], 0.75)
    assert len(np.unique(clusters)) == 8
    assert 0 < len(pairs) < 700 * 699 / 2
    monkeypatch.setattr(semantic, "_BLOCK", 37)
    np.testing.assert_array_equal(assigned(vectors, centroids), clusters)
    assert set(map(tuple, similar(vectors[:700], 0.75).tolist())) == set(map(tuple, pairs.tolist()))


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 0.99))
@settings(max_examples=20, deadline=None)
def test_pairs_are_those_of_the_definition(seed, threshold):
    generator = np.random.default_rng(seed)
    base = generator.normal(size=(12, 16)) * 0.1
    found = np.concatenate([base, base + 0.02 * generator.normal(size=base.shape)])
    quantised = rounded(found).astype(np.int64)
    expected = {
        (one, other)
        for one in range(len(quantised))
        for other in range(one + 1, len(quantised))
        if (quantised[one] @ quantised[other])
        >= threshold * np.sqrt(float((quantised[one] ** 2).sum()) * float((quantised[other] ** 2).sum()))
    }
    assert set(map(tuple, similar(rounded(found), threshold).tolist())) == expected
