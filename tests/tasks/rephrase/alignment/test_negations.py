"""Denials are counted: one more or fewer than the source has is refused, in whatever words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.negations import denials, negations
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()


@pytest.mark.parametrize(
    ("source", "rewrite"),
    [
        ("It can't be seen.", "Nobody sees it."),
        ("The fire did not reach it.", "It was never reached by the fire."),
        ("The vapour has no smell.", "A vapour without smell."),
        ("It was not measured or weighed.", "It was neither measured nor weighed."),
        ("It was neither seen, heard nor felt.", "It was not felt, seen or heard."),
        ("Take no more than six.", "Take six or less."),
        ("It is not only cheap.", "It is cheap, and more."),
        ("Unless it rains, we walk.", "We walk if it does not rain."),
        ("该功能不同于旧功能。", "它与旧功能有区别。"),
        ("真空中没有介质。", "真空无介质。"),
    ],
)
def test_as_many_denials_pass_in_whatever_words(source: str, rewrite: str) -> None:
    for pair in (Pair(source, rewrite), Pair(rewrite, source)):
        verdict = negations(pair, CONFIG)
        assert verdict.passed, verdict.why
        assert verdict.score == 1


@pytest.mark.parametrize(
    ("source", "rewrite", "why"),
    [
        ("It does not work.", "It works.", "1 denials became 0: in the source alone 'not'"),
        ("It works in the sun.", "In the sun it doesn't work.", "in the rewrite alone 'doesn't'"),
        ("It is used by all, not by one.", "It is never used by all, not by one.", "1 denials became 2"),
        ("It does not work.", "It fails to work.", "in the source alone 'not'"),
        ("Unless it rains, we walk.", "If it rains, we walk.", "in the source alone 'unless'"),
        ("该功能不可用。", "该功能可用。", "in the source alone '不'"),
        ("它是一个文化中心。", "它不是一个文化中心。", "in the rewrite alone '不'"),
    ],
)
def test_a_denial_more_or_fewer_is_refused(source: str, rewrite: str, why: str) -> None:
    verdict = negations(Pair(source, rewrite), CONFIG)
    assert not verdict.passed
    assert why in verdict.why


def test_how_many_may_come_or_go_is_configured() -> None:
    pair = Pair("It does not sink.", "It does not sink and never burns.")
    assert negations(pair, AlignmentConfig(negations=1)).passed
    assert not negations(pair, CONFIG).passed


def test_what_is_no_prose_denies_nothing() -> None:
    assert denials("Run `git not-found` for $not$ at https://no.example.org/never, or not.") == []


@given(st.text(max_size=200), st.text(max_size=200))
def test_either_text_may_be_the_source(one: str, other: str) -> None:
    assert negations(Pair(one, one), CONFIG).passed
    there, back = negations(Pair(one, other), CONFIG), negations(Pair(other, one), CONFIG)
    assert (there.passed, there.score) == (back.passed, back.score)
