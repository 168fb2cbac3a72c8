"""Denials that nothing explains, and what explains one."""

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
        ("It does not work.", "It fails to work."),
        ("It can't be seen.", "It is impossible to see."),
        ("The fire did not reach it.", "It was spared by the fire."),
        ("It melts only at 801 °C.", "It does not melt below 801 °C."),
        ("The vapour has no smell.", "The vapour is odourless."),
        ("The deaths were not registered.", "The deaths went unregistered."),
        ("Take no more than six.", "Take six or less."),
        ("该功能不同于旧功能。", "它与旧功能有区别。"),
        ("真空中没有介质。", "真空缺少介质。"),
    ],
)
def test_a_denial_said_otherwise_passes(source: str, rewrite: str) -> None:
    for pair in (Pair(source, rewrite), Pair(rewrite, source)):
        verdict = negations(pair, CONFIG)
        assert verdict.passed, verdict.why


@pytest.mark.parametrize(
    ("source", "rewrite", "why"),
    [
        ("It does not work.", "It works.", "lost a denial: 'not'"),
        ("It works in the sun.", "In the sun it doesn't work.", "denies: 'doesn't'"),
        ("It is used by all.", "It is never used by all.", "denies: 'never'"),
        ("该功能不可用。", "该功能可用。", "lost a denial: '不'"),
        ("它是一个文化中心。", "它不是一个文化中心。", "denies: '不'"),
    ],
)
def test_a_denial_that_nothing_explains_is_refused(source: str, rewrite: str, why: str) -> None:
    verdict = negations(Pair(source, rewrite), CONFIG)
    assert not verdict.passed
    assert why in verdict.why


def test_how_many_may_stay_unexplained_is_configured() -> None:
    pair = Pair("It does not sink and fails at times.", "It does not sink, never burns, and fails at times.")
    assert negations(pair, AlignmentConfig(negations=1)).passed
    assert not negations(pair, AlignmentConfig(negations=0)).passed


def test_what_is_no_prose_denies_nothing() -> None:
    found = denials("Run `git not-found` for $not$ at https://no.example.org/never, under unit conditions, or not.")
    assert found.strong == ()
    assert found.weak == ()


@given(st.text(max_size=200))
def test_a_text_denies_what_it_denies(text: str) -> None:
    assert negations(Pair(text, text), AlignmentConfig(negations=0)).passed
