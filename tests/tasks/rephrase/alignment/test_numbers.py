"""The same numbers on both sides: what may come and go, what changed places, and why it was refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.numbers import numbers
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.quantities import prose
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = AlignmentConfig()


@pytest.mark.parametrize(
    ("source", "rewrite", "passes"),
    [
        ("It has three parts.", "There are 3 parts in it.", True),
        ("It has 3 parts.", "It is made of three parts.", True),
        ("It has three parts.", "It is made of five parts.", False),
        ("1. Open it.\n2. Close it.", "First open it, then close it.", True),
        ("Version 2.0 came out.", "Version 2.0 was published in 2004.", False),
        ("She won in 1903 and in 1911.", "She won two prizes, in 1903 and 1911.", True),
        ("The 5 km path and the 5 kg stone.", "The stone of 5 kg and the path of 5 km.", True),
        ("Both of them left; two stayed.", "Two left, a pair; two stayed.", True),
        ("Use $12$ of them.", "Use twelve of them.", True),
        ("It shrank to a tenth.", "It shrank by nine tenths.", True),
        ("It was the capital from 794 to 1868.", "From 794 to 1868, over a thousand years, it was the capital.", True),
        ("It was the capital from 794 to 1868.", "From 794 to 1868, over two thousand years, it was capital.", False),
        (
            "She left on 10 April and sank on 14 April.",
            "Leaving on 10 April she sank after four days, on 14 April.",
            True,
        ),
        ("It struck adults aged 20 to 40.", "Those between 20 and 40 years of age it struck.", True),
        ("A quarter of it was finished.", "Three quarters of it stood unfinished.", True),
        ("Open it. Then close it, as in the first step.", "Open it.\nClose it, as in step 1.", True),
        ("It takes O(n^2.81) steps.", "The steps are O(n^2.81).", True),
        ("Two of the five mills closed.", "Of five mills three stayed open.", True),
        ("Two of the five mills closed.", "Of five mills four stayed open.", False),
        ("It opens at seven, no longer at ten o'clock.", "It now opens three hours earlier.", True),
        ("A tank of 240 litres was filled in 2 hours.", "The tank was filled in 2 hours.", False),
        (
            "A tank of 240 litres was filled in 2 hours.",
            "In 2 hours 240 litres went into the tank, 120 litres per hour.",
            True,
        ),
        (
            "A tank of 240 litres was filled in 2 hours.",
            "In 2 hours 240 litres went into the tank, 150 litres per hour.",
            False,
        ),
        ("Sales fell to 85 percent.", "Sales dropped by 15 percent.", True),
        ("Sales fell to 85 percent.", "Sales dropped by 25 percent.", False),
        ("The lava came on 14 May, the ash three days later.", "Lava came on 14 May and ash on 17 May.", True),
        ("It is uniform on $[-1,5]$.", "It is uniform between $-1$ and $5$.", True),
        ("It closed in 2019, a year after it opened.", "Opened in 2018, it closed in 2019.", True),
        ("It closed in 2019, a year after it opened.", "Opened in 2017, it closed in 2019.", False),
        ("It is paid in 48 monthly parts.", "It is paid in 48 parts, one each month.", True),
        ("It is paid in 48 monthly parts.", "It is paid in 48 weekly parts.", False),
        ("It draws 24 frames per second.", "Each second it draws 24 frames.", True),
        ("It draws 24 frames per second.", "Each minute it draws 24 frames.", False),
        ("It ended 3–1 before a crowd.", "Before a crowd it ended 3–2.", False),
        (
            "At 4,000 metres they slept badly for three nights.",
            "For three nights at 4,000 feet they slept badly.",
            False,
        ),
        ("It lasts 500 operating hours.", "Change it after 500 operating days.", False),
        ("It lasts 500 operating hours.", "After 500 hours of operation it is due.", True),
        ("It failed in the first of three runs.", "The third of three runs failed.", False),
        ("It was the first of three runs.", "Two more runs came after it, three in all.", True),
        ("The second edition corrected the first.", "The first edition was put right in the second.", True),
        ("Take it twice a day for four days.", "Take it four times a day for four days.", False),
        ("Take it twice a day for four days.", "For four days take it two times daily.", True),
        ("The price doubled.", "The price tripled.", False),
        ("The price doubled.", "It costs twice as much.", True),
        ("It is 200 m long and 20 m wide.", "It is 220 m long and 20 m wide.", False),
        ("At least 10 people came.", "At most 10 people came.", False),
        ("No fewer than 10 people came.", "At least ten people came.", True),
        ("Over 500 people came.", "Under 500 people came.", False),
        ("It takes no more than 10 minutes.", "It is done in 10 minutes or less.", True),
        ("It must not exceed 40 kg.", "At most 40 kg is allowed.", True),
        ("Only loads of over 40 kg need a permit.", "A load of 40 kg or less is free.", True),
        ("It lasts twelve weeks or less.", "It does not last longer than twelve weeks.", True),
        ("至少10人到场。", "最多10人到场。", False),
        ("至少10人到场。", "到场的有10人以上。", True),
        ("It rose from 40 to 60.", "It rose from 60 to 40.", False),
        ("Between 1914 and 1918 it grew.", "It grew from 1914 to 1918.", True),
        ("It rose from 40 to 60.", "It is at 60, up from 40.", True),
        ("Ten people came.", "100 people came.", False),
        ("Of them 5 percent came.", "Of every 100 five came.", True),
        ("Errors of >5% are flagged.", "Errors of less than 5% are flagged.", False),
        ("It is for adults (≥ 18 years).", "It is for those of at most 18 years.", False),
        ("It is for adults (≥ 18 years).", "It is for those of at least 18 years.", True),
        ("It needs Python 3.10 at least.", "Python 3.1 will do.", False),
        ("It needs Python 3.10 at least.", "Version 3.10 of Python will do.", True),
        ("A ticket cost 2.50 dollars.", "It cost 2.5 dollars.", True),
        ("甲的价格不足乙的五分之一。", "乙比甲贵四倍以上。", True),
        ("甲的价格不足乙的五分之一。", "乙比甲贵六倍以上。", False),
        ("The price doubled.", "The price rose by a hundred per cent.", True),
        ("The price tripled.", "The price rose by 200 percent.", True),
        ("It is three times as fast.", "The other is two thirds slower.", True),
    ],
)
def test_numbers(source: str, rewrite: str, passes: bool) -> None:
    assert numbers(Pair(source, rewrite), CONFIG).passed is passes


def test_numbers_that_differ_in_their_last_digit_are_others() -> None:
    assert not numbers(Pair("There were 999,999,999.", "One counted 1,000,000,000."), CONFIG).passed


def test_numbers_too_large_to_reckon_with_are_compared_as_they_stand() -> None:
    assert not numbers(Pair("It has 10^999 of them.", "It has 10^998 of them."), CONFIG).passed


@given(st.integers(10, 10**9), st.integers(10, 10**9))
def test_any_other_number_is_refused(one: int, other: int) -> None:
    verdict = numbers(Pair(f"There were {one:,} of them.", f"One counted {other} of them."), CONFIG)
    assert verdict.passed == (one == other)


def test_the_verdict_says_what_became_what() -> None:
    assert numbers(Pair("Born in 1958 in Ulm.", "Ulm saw the birth in 1985."), CONFIG).why == "1958 became 1985"
    assert numbers(Pair("It weighs 5 kg.", "Its weight is 5 g."), CONFIG).why == "5 kg became 5 g"
    assert numbers(Pair("Born in 1958.", "Born, one of 7."), CONFIG).why == "invented 7"


BEFORE = "The mill was founded in 1871 with a wheel of 40 kg."


@pytest.mark.parametrize(
    ("source", "rewrite", "passes"),
    [
        ("In that year the railway came, too.", "In 1871 the railway came as well.", True),
        ("Ten years later it was sold.", "It was sold in 1881.", True),
        ("It was soon replaced.", "The wheel of 40 kg was soon replaced.", True),
        ("In that year the railway came, too.", "In 1872 the railway came as well.", False),
        ("In 1874 the railway came, too.", "In 1871 the railway came as well.", False),
        ("A new one had 90 kg.", "A new one had 40 kg.", False),
    ],
)
def test_a_number_of_the_segment_before_is_no_invention(source: str, rewrite: str, passes: bool) -> None:
    assert numbers(Pair(source, rewrite, before_source=BEFORE), CONFIG).passed is passes
    assert not numbers(Pair(source, rewrite), CONFIG).passed


def test_learning_notes_may_add_numbers_but_lose_none() -> None:
    source = "The sum of 17 and 25 is 42."
    notes = "Add 17 and 25: 7 + 5 = 12, carry 1, so 42."
    assert numbers(Pair(source, notes, adds=True), CONFIG).passed
    assert not numbers(Pair(source, notes), CONFIG).passed
    assert not numbers(Pair(source, notes.replace("42", "32"), adds=True), CONFIG).passed


@given(st.text(max_size=200))
def test_a_text_has_its_own_numbers(text: str) -> None:
    assert numbers(Pair(text, text), CONFIG).passed


@pytest.mark.parametrize("number", range(len(PARAPHRASES)))
def test_any_changed_digit_is_refused_and_the_order_of_sentences_says_nothing(number: int) -> None:
    source, rewrite = PARAPHRASES[number]
    assert numbers(Pair(source, " ".join(reversed(re.split(r"(?<=\.) ", source)))), CONFIG).passed
    for match in re.finditer(r"(?<![\w^/])\d+(?![\w/])", prose(rewrite)):
        for place in range(*match.span()):
            changed = rewrite[:place] + str((int(rewrite[place]) + 3) % 10) + rewrite[place + 1 :]
            assert not numbers(Pair(source, changed), CONFIG).passed, changed
