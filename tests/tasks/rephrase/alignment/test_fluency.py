"""Heaps of words are no text, in English and Chinese; whatever is written is one."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.fluency import fluency, tokens
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = AlignmentConfig()
FUNCTION = "the a of to in and is was that for it with as on by at from this are be or not which but".split()


@pytest.mark.parametrize("pair", PARAPHRASES)
def test_a_paraphrase_is_fluent(pair: tuple[str, str]) -> None:
    assert fluency(Pair(*pair), CONFIG).passed


@pytest.mark.parametrize("pair", PARAPHRASES[:7])
def test_function_words_among_words_are_not(pair: tuple[str, str]) -> None:
    draw = random.Random(0)
    content = [word for word in tokens(pair[1]) if word.lower() not in FUNCTION]
    salad = " ".join(each for word in content for each in (word, draw.choice(FUNCTION), draw.choice(FUNCTION)))
    verdict = fluency(Pair(pair[0], salad), CONFIG)
    assert not verdict.passed
    assert "follow one another" in verdict.why


def test_a_source_that_is_a_list_may_stay_one() -> None:
    names = "Oslo, Rome, Bern, Riga, Kyiv, Paris, Quito, Lima, Delhi, Seoul, Cairo, Hanoi, Doha, Accra, Tunis"
    assert fluency(Pair(names, ", ".join(reversed(names.split(", ")))), CONFIG).passed


def test_a_plain_formula_is_one_word() -> None:
    source = "The distance between them is $d = \\sqrt{(x_2-x_1)^2 + (y_2-y_1)^2}$."
    rewrite = "To find how far apart the points are, compute d = √((x₂ − x₁)² + (y₂ − y₁)²)."
    assert fluency(Pair(source, rewrite), CONFIG).passed


@given(st.text(max_size=200), st.text(max_size=200))
def test_the_score_is_a_share(source: str, rewrite: str) -> None:
    assert 0 <= fluency(Pair(source, rewrite), CONFIG).score <= 1
    assert fluency(Pair(rewrite, rewrite), CONFIG).passed
