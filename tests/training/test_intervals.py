"""Intervals against published values and simulation."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.intervals import kappa, mean, paired_difference, wilson


@pytest.mark.parametrize(
    ("passed", "total", "low", "high"),
    # Newcombe 1998 (Statistics in Medicine 17:857), table I, method 3
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_is_newcombes_method_3(passed, total, low, high):
    found = wilson(passed, total)
    assert found.low == pytest.approx(low, abs=5e-5)
    assert found.high == pytest.approx(high, abs=5e-5)


@given(total=st.integers(1, 500), share=st.floats(0, 1))
def test_wilson_holds_its_estimate_and_mirrors(total, share):
    passed = round(share * total)
    found, mirrored = wilson(passed, total), wilson(total - passed, total)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low == pytest.approx(1 - mirrored.high, abs=1e-12)


def test_a_proportion_of_nothing_is_refused():
    with pytest.raises(ValueError, match="no proportion"):
        wilson(0, 0)
    with pytest.raises(ValueError, match="no proportion"):
        wilson(3, 2)


def test_the_interval_of_a_mean_covers_the_truth_about_95_times_in_100():
    draw = random.Random(0)
    covered = 0
    for _ in range(1000):
        values = [sum(draw.random() < 0.3 for _ in range(4)) / 4 for _ in range(60)]
        found = mean(values)
        covered += found.low <= 0.3 <= found.high
    assert 925 <= covered <= 975


def test_equal_values_do_not_make_certainty():
    assert mean([1.0] * 10) == wilson(10, 10)
    half = mean([0.5] * 10)
    assert half.low < 0.3
    assert half.high > 0.7
    third = mean([1 / 3] * 25)  # whose mean differs from a third in its last bit
    assert third.value == 1 / 3
    assert third.low < 0.2


def test_agreement_on_few_things_is_no_certainty():
    few, many = ([(True, True), (False, False)] * n for n in (1, 100))
    assert kappa(few).value == kappa(many).value == 1
    assert kappa(few).low < 0 < 0.9 < kappa(many).low < 1
    assert kappa([(True, False), (False, True)] * 5).high < 0


def test_pairing_finds_what_separate_intervals_hide():
    draw = random.Random(1)
    before = [draw.random() for _ in range(50)]
    after = [min(1.0, value + 0.05) for value in before]
    found = paired_difference(before, after)
    assert found.low > 0
    assert mean(before).high > mean(after).low  # unpaired, they overlap
    back = paired_difference(after, before)
    assert back.value == pytest.approx(-found.value)
    with pytest.raises(ValueError, match="not the same prompts"):
        paired_difference([1.0], [1.0, 0.0])


def test_equal_differences_do_not_make_certainty():
    for before, after in (([1.0] * 8, [0.0] * 8), ([0.5] * 8, [0.5] * 8)):
        found = paired_difference(before, after)
        assert found.value == after[0] - before[0]
        assert found.high - found.low > 0.3
    assert paired_difference([0.0] * 1000, [0.0] * 1000).high < 0.01
