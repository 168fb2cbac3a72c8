"""Words turned into their opposites, and synonyms that only look so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.opposites import opposites
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()

TURNED = [
    ("The pressure increases here.", "Here the pressure decreases.", "'increases' became 'decreases'"),
    ("It lies above the line.", "It lies below the line.", "'above' became 'below'"),
    ("Save it before you start.", "After you save it, start.", "'before' became 'after'"),
    ("The input is read.", "Reading goes through the output.", "'input' became 'output'"),
    ("It holds for odd numbers.", "For even numbers it holds.", "'odd' became 'even'"),
    ("The maximum is four.", "Its minimum is four.", "'maximum' became 'minimum'"),
    ("重启之前保存。", "重启之后保存。", "'之前' became '之后'"),
]


@pytest.mark.parametrize(("source", "rewrite", "why"), TURNED)
def test_a_word_turned_round_is_refused(source: str, rewrite: str, why: str) -> None:
    verdict = opposites(Pair(source, rewrite), CONFIG)
    assert not verdict.passed
    assert verdict.why == why


@pytest.mark.parametrize(
    ("source", "rewrite"),
    [
        ("Before the valve opens, the pressure increases.", "The pressure increases before the valve opens."),
        ("There are less than five above us.", "Over us there are under five."),
        ("Prices rise after the war, demand falls.", "Once the war is over, prices increase while demand decreases."),
        ("The largest of the lowest is taken.", "Of the smallest ones the maximum is taken."),
    ],
)
def test_synonyms_are_not_opposites(source: str, rewrite: str) -> None:
    verdict = opposites(Pair(source, rewrite), CONFIG)
    assert verdict.passed, verdict.why


@given(st.text(max_size=200), st.text(max_size=200))
def test_a_verdict_is_explained_and_the_same_both_ways(one: str, other: str) -> None:
    there, back = opposites(Pair(one, other), CONFIG), opposites(Pair(other, one), CONFIG)
    assert there.passed == back.passed == (not there.why)
