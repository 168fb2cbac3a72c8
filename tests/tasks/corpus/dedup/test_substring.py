"""Runs of tokens that stand in several documents: the guarantee of winnowing, and what is cut."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.corpus.codepoints import tokens
from tasks.corpus.dedup.config import DedupConfig, SubstringConfig
from tasks.corpus.dedup.repeats import joined
from tasks.corpus.dedup.substring import fingerprints

ON = DedupConfig(
    near={"enabled": False}, passages={"enabled": False}, substring=SubstringConfig(enabled=True, tokens=20, window=10)
)


def longest_common_run(one: list[str], other: list[str]) -> int:
    """By the definition, in quadratic time."""
    best, above = 0, [0] * (len(other) + 1)
    for word in one:
        row = [0]
        for at, again in enumerate(other):
            row.append(above[at] + 1 if word == again else 0)
        best, above = max(best, *row), row
    return best


@given(
    st.lists(st.sampled_from("abc"), max_size=40),
    st.lists(st.sampled_from("abc"), max_size=40),
    st.lists(st.sampled_from("abcdefgh"), max_size=25),
    st.integers(4, 8),
    st.integers(1, 7),
)
@settings(max_examples=300, deadline=None)
def test_every_repeated_run_of_tokens_plus_window_less_one_is_found(one, other, shared, size, window):
    window = min(window, size)
    config = SubstringConfig(tokens=size, window=window)
    sides = [one + shared + other, other + shared + one]
    texts = [" ".join(side) for side in sides]
    found = fingerprints(tokens(texts), np.ones(2, bool), config)
    common = set(found.keys[found.documents == 0].tolist()) & set(found.keys[found.documents == 1].tolist())
    longest = longest_common_run(*sides)
    if longest >= size + window - 1:
        assert common
    if common:
        assert longest >= size
    for key in common:  # a fingerprint is of the words between its places
        runs = {
            texts[document][begin:end]
            for document, begin, end in zip(found.documents, found.begins, found.ends, strict=True)
            if key in found.keys[(found.documents == document) & (found.begins == begin)]
        }
        assert len(runs) == 1


@given(st.lists(st.sampled_from("abcdefghijklmnop"), min_size=30, max_size=120), st.integers(1, 6))
@settings(deadline=None)
def test_what_is_found_covers_a_run_but_for_its_ends(shared, window):
    config = SubstringConfig(tokens=6, window=window)
    texts = [" ".join([*"xyz", *shared, *"xxyy"]), " ".join([*"zzzyyy", *shared, *"z"])]
    found = fingerprints(tokens(texts), np.ones(2, bool), config)
    common = set(found.keys[found.documents == 0].tolist()) & set(found.keys[found.documents == 1].tolist())
    spans = joined(
        [
            (int(begin), int(end), 0)
            for key, document, begin, end in zip(found.keys, found.documents, found.begins, found.ends, strict=True)
            if document == 0 and int(key) in common
        ]
    )
    covered = sum(len(texts[0][begin:end].split()) for begin, end, _ in spans)
    assert covered >= len(shared) - 2 * (window - 1)


def test_windows_wider_than_runs_would_leave_gaps():
    with pytest.raises(ValueError, match="window"):
        SubstringConfig(tokens=10, window=11)


def test_fingerprints_are_a_fraction_of_the_text_and_do_not_depend_on_the_batch():
    pick = random.Random(1)
    texts = [" ".join(f"w{pick.randrange(5000)}" for _ in range(2000)) for _ in range(3)]
    config = SubstringConfig()
    together = fingerprints(tokens(texts), np.array([True, False, True]), config)
    assert set(together.documents.tolist()) == {0, 2}
    alone = fingerprints(tokens(texts[2:]), np.ones(1, bool), config)
    np.testing.assert_array_equal(together.keys[together.documents == 2], alone.keys)
    assert len(alone.keys) == pytest.approx(2 / (config.window + 1) * 1951, rel=0.3)


def test_a_quotation_is_cut_from_all_but_the_longest_at_borders_of_sentences(write_sentences, make_row, deduplicated):
    quoted = write_sentences(99, 5)
    bodies = [write_sentences(seed, 12 + seed) for seed in range(3)]
    rows = [make_row(" ".join([*body[:5], *quoted, *body[5:]]), f"s:{at}") for at, body in enumerate(bodies)]
    kept, rejected = deduplicated([rows[:1], rows[1:]], ON)
    assert not rejected
    assert kept[2]["text"] == rows[2]["text"]
    for document, body in zip(kept[:2], bodies, strict=False):
        left = [sentence for sentence in body + quoted if sentence in document["text"]]
        assert document["text"] == " ".join(sorted(left, key=document["text"].index))
        assert set(body) <= set(left)
        assert len(left) <= len(body) + 2  # the ends of the run may be missed by up to window - 1 words each


def test_code_and_formulas_are_not_cut(write_sentences, make_row, deduplicated):
    fence = "```\n" + "\n".join(write_sentences(99, 6)) + "\n```"
    rows = [make_row("\n\n".join([*write_sentences(seed, 9), fence]), f"s:{seed}") for seed in range(3)]
    assert [row["text"] for row in deduplicated([rows], ON)[0]] == [row["text"] for row in rows]
