"""Near duplicates: found where they are, left alone where not, and the same whatever the order of the texts."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.planted import EDITS, planted
from benchmarks.planted import jaccard as true_jaccard
from tasks.corpus.dedup.components import Components
from tasks.corpus.dedup.config import NearConfig, banding
from tasks.corpus.dedup.minhash import agreement, sign
from tasks.corpus.dedup.near import distinct, near_duplicates, pairs, similarity, verify

NEAR = NearConfig()
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("n", "r", "st", "l")]


def document(seed: int, words: int = 200) -> str:
    pick = random.Random(seed)
    return " ".join(word + "." * (not at % 12) for at, word in enumerate(pick.choices(WORDS, k=words)))


def edited(text: str, share: float, seed: int) -> str:
    """`text` with one run of `share` of its words replaced: about (1-s)/(1+s) of the shingles stay."""
    return EDITS["replace"](text, share, random.Random(f"edit {seed}"))


def survivors(texts: list[str], near: NearConfig = NEAR) -> list[str]:
    lost = {one.index for one in near_duplicates(texts, near)}
    return sorted(text for at, text in enumerate(texts) if at not in lost)


@given(st.lists(st.integers(0, 8), max_size=14), st.randoms(use_true_random=False))
@settings(max_examples=40, deadline=None)
def test_survivors_do_not_depend_on_order(picks, shuffler):
    texts = [edited(document(pick // 3), 0.02 * (pick % 3), pick) for pick in picks]
    shuffled = list(texts)
    shuffler.shuffle(shuffled)
    assert survivors(texts) == survivors(shuffled)


def test_planted_near_duplicates_are_found_and_other_documents_are_kept():
    originals = [document(seed) for seed in range(200)]
    copies = [edited(text, 0.05, seed) for seed, text in enumerate(originals[:100])]
    assert all(true_jaccard(*pair) >= 0.8 for pair in zip(originals, copies, strict=False))
    assert len(survivors(originals + copies)) == 200
    changed = [edited(text, 0.3, seed) for seed, text in enumerate(originals)]
    assert max(true_jaccard(*pair) for pair in zip(originals, changed, strict=True)) < 0.8
    assert len(survivors(originals + changed)) == 400


def test_every_edit_above_the_threshold_is_found_and_no_other():
    originals = [document(seed, 300) for seed in range(150)]
    copies = planted(originals, 600, seed=5)
    found = {one.index: one for one in near_duplicates(originals + [copy.text for copy in copies], NEAR)}
    joined = sum(number + 150 in found or copy.original in found for number, copy in enumerate(copies))
    above = sum(true_jaccard(copy.text, originals[copy.original]) >= 0.8 for copy in copies)
    assert above > 100
    # A copy below the threshold may still be joined to another copy of its original.
    assert 0.99 * above <= joined
    for one in found.values():
        family = [at if at < 150 else copies[at - 150].original for at in (one.index, one.survivor)]
        assert family[0] == family[1]


def test_the_longest_of_a_chain_survives_and_similarity_is_the_true_one():
    one = document(1)
    longer = one + " " + document(2, 20)
    (found,) = near_duplicates([one, longer], NEAR)
    assert (found.index, found.survivor) == (0, 1)
    assert found.similarity == pytest.approx(true_jaccard(one, longer), abs=1e-3)


@pytest.mark.parametrize(("apart", "joined"), [(10, True), (11, False)])
def test_a_pair_at_exactly_the_threshold_is_a_duplicate(apart, joined):
    """One is a beginning of the other: 40 shingles of 40 + `apart` are shared, 0.8 for 10 and just below it for 11."""
    words = [f"w{number}" for number in range(44 + apart)]
    texts = [" ".join(words[:44]), " ".join(words)]
    assert (true_jaccard(*texts) == 0.8) is joined
    signed = sign(texts, NEAR)
    starts = np.array([0, *np.cumsum(np.diff(signed.starts))])
    components = Components(2)
    verify(np.array([[0, 1]]), components, *distinct(signed.shingles, starts, np.arange(2)), NEAR.threshold)
    assert (len(set(components.roots().tolist())) == 1) is joined
    # and through the whole of it, with a banding that lets no pair at the threshold go by
    assert (near_duplicates(texts, NearConfig(recall=0.999999)) != []) is joined


def test_texts_without_words_are_like_no_other():
    assert near_duplicates(["", "", "...", "!!!", "...", "a"], NEAR) == []


def test_chinese_documents_are_compared_character_by_character():
    pick = random.Random(3)
    han = [chr(point) for point in range(0x4E00, 0x4E00 + 800)]
    text = "".join(pick.choices(han, k=400))
    assert len(survivors([text, text[:200] + "新" + text[200:], "".join(pick.choices(han, k=400))])) == 2


def test_a_bucket_of_thousands_is_not_quadratic_and_still_one_component():
    """One key and one sketch for all: a template that stands in a site's every page."""
    count = 20_000
    sketches = np.zeros((count, 2), np.uint64)
    found = pairs(np.ones(count, np.uint64), np.arange(count), sketches, NEAR)
    assert len(found) < 10 * count
    components = Components(count)
    components.join(found)
    assert (components.roots() == 0).all()
    # All unlike each other: no pairs, and no square of comparisons either.
    unlike = np.random.default_rng(1).integers(0, 1 << 64, (count, 2), np.uint64)
    assert len(pairs(np.ones(count, np.uint64), np.arange(count), unlike, NEAR)) < count


@given(st.lists(st.integers(0, 3), max_size=80), st.integers(0, 5), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_pairs_do_not_depend_on_the_order_of_entries(keys, spread, shuffler):
    entries = [(key, document) for document, key in enumerate(keys) for key in {key, key + spread}]
    shuffled = list(entries)
    shuffler.shuffle(shuffled)
    sketches = np.zeros((len(keys), 2), np.uint64)
    found = [
        pairs(
            np.array([key for key, _ in order], np.uint64), np.array([at for _, at in order], np.int64), sketches, NEAR
        )
        for order in (entries, shuffled)
    ]
    np.testing.assert_array_equal(*found)


@given(st.lists(st.text(alphabet="ab 中\n.", max_size=40), min_size=1, max_size=8), st.integers(1, 6))
@settings(deadline=None)
def test_what_is_signed_does_not_depend_on_the_batch(texts, ngram):
    config = NEAR.model_copy(update={"ngram": ngram})
    together = sign(texts, config)
    assert together.starts[-1] == len(together.shingles)
    for at, text in enumerate(texts):
        alone = sign([text], config)
        np.testing.assert_array_equal(together.shingles[together.starts[at] : together.starts[at + 1]], alone.shingles)
        np.testing.assert_array_equal(together.keys[at], alone.keys[0])
        np.testing.assert_array_equal(together.sketches[at], alone.sketches[0])


def test_sketches_estimate_jaccard_without_bias():
    """Over many pairs: the mean is right and the spread is that of independent permutations."""
    permutations, agreeing = 112, []
    for seed in range(200):
        texts = [document(seed, 300), edited(document(seed, 300), 0.1, seed)]
        sketches = sign(texts, NEAR).sketches
        same = permutations - sum(int(word).bit_count() for word in sketches[0] ^ sketches[1])
        agreeing.append(same / permutations - (1 + true_jaccard(*texts)) / 2)
    assert abs(np.mean(agreeing)) < 0.01
    assert np.std(agreeing) < 1.2 * (0.91 * 0.09 / permutations) ** 0.5


def test_sketches_let_nearly_every_pair_at_the_threshold_pass():
    texts = [document(seed, 300) for seed in range(300)]
    copies = [edited(text, 0.1, seed) for seed, text in enumerate(texts)]
    ones, others = (sign(side, NEAR).sketches for side in (texts, copies))
    same = [112 - sum(int(word).bit_count() for word in row) for row in ones ^ others]
    assert min(same) >= agreement(0.8, 112)
    unlike = [112 - sum(int(word).bit_count() for word in row) for row in ones ^ np.roll(others, 1, 0)]
    assert max(unlike) < agreement(0.8, 112)


@given(st.floats(0.3, 0.95), st.sampled_from([64, 112, 256]), st.floats(0.5, 0.999))
def test_banding_reaches_the_recall_with_the_most_rows(threshold, permutations, recall):
    bands, rows = banding(threshold, permutations, recall)
    chance = lambda r: 1 - (1 - threshold**r) ** (permutations // r)  # noqa: E731
    assert bands * rows <= permutations
    assert chance(rows) >= recall - 1e-9
    assert all(chance(more) < recall + 1e-9 for more in range(rows + 1, permutations + 1))


def test_banding_refuses_what_it_cannot_reach():
    with pytest.raises(ValueError, match="ask for more"):
        banding(0.05, 8, 0.999)
    with pytest.raises(ValueError, match="ask for more"):  # and before a corpus is fetched
        NearConfig(threshold=0.1, permutations=8, recall=0.99)


@given(st.lists(st.lists(st.integers(0, 12), max_size=10), min_size=2, max_size=5))
@settings(deadline=None)
def test_similarity_is_that_of_the_sets(lists):
    values = np.array([value for one in lists for value in one], np.uint32)
    starts = np.concatenate([[0], np.cumsum([len(one) for one in lists])]).astype(np.int64)
    edges = np.array([(0, at) for at in range(1, len(lists))])
    found = similarity(edges, *distinct(values, starts, np.arange(len(lists))))
    sets = [set(one) for one in lists]
    expected = [len(sets[0] & one) / len(sets[0] | one) if sets[0] | one else 0.0 for one in sets[1:]]
    assert found == pytest.approx(expected)


@given(st.integers(1, 30), st.lists(st.tuples(st.integers(0, 29), st.integers(0, 29)), max_size=40))
@settings(deadline=None)
def test_components_are_those_of_the_graph(size, edges):
    edges = [(one % size, other % size) for one, other in edges]
    components, colour = Components(size), list(range(size))
    components.join(np.array(edges, np.int64).reshape(-1, 2))
    for one, other in edges:
        low, high = sorted((colour[one], colour[other]))
        colour = [low if held == high else held for held in colour]
    assert components.roots().tolist() == colour
