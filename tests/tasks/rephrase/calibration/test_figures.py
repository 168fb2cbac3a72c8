"""Figures: intervals, areas, what is counted as refused; thresholds chosen on one half."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic.fields import FieldInfo

from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.calibration.cases import TRUE, Case
from tasks.rephrase.calibration.figures import ALL, Share, auc, figures, oriented, wilson
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.calibration.tune import THRESHOLDS, UNTUNED, choose, tune
from tasks.rephrase.config import AlignmentConfig

SCORES = st.lists(st.floats(-1, 1), min_size=1, max_size=30)


def result(identity: str, kind: str, half: str = "tune", **scores: tuple[float, bool]) -> Result:
    """A case that checks gave (score, passed)."""
    case = Case(identity, half, kind, 0, "plain", "web", "en", "source", f"rewrite {kind}")  # type: ignore[arg-type]
    return Result(case, tuple(Verdict(check, *verdict) for check, verdict in scores.items()))


@pytest.mark.parametrize(
    ("count", "of", "low", "high"), [(10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (90, 100, 0.8256, 0.9448)]
)
def test_wilson_as_published(count: int, of: int, low: float, high: float):
    assert wilson(count, of) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(0, 200), st.integers(1, 200))
def test_the_interval_holds_the_share(count: int, of: int):
    count = min(count, of)
    low, high = wilson(count, of)
    assert 0 <= low <= count / of + 1e-12
    assert count / of - 1e-12 <= high <= 1
    assert Share(0, 0).interval == (0.0, 1.0)


@given(SCORES, SCORES)
def test_auc_is_the_share_of_pairs_in_order(good: list[float], bad: list[float]):
    wins = sum((a > b) + (a == b) / 2 for a in good for b in bad) / (len(good) * len(bad))
    assert auc(good, bad) == pytest.approx(wins)
    assert auc(bad, good) == pytest.approx(1 - wins)


def test_auc_of_nothing_is_nothing():
    assert auc([], [1.0]) is None
    assert auc([1.0], []) is None


def test_scores_are_turned_so_that_more_is_better():
    assert oriented("cosine", 0.9) > oriented("cosine", 0.1)
    assert oriented("copied", 0.1) > oriented("copied", 0.9)
    assert oriented("length", 1.0) > oriented("length", 2.0) == pytest.approx(oriented("length", 0.5))
    assert math.isfinite(oriented("length", 0.0))


def test_what_is_counted():
    results = [
        result("a", TRUE, numbers=(1.0, True), cosine=(0.9, True)),
        result("b", TRUE, numbers=(0.5, False), cosine=(0.9, True)),
        result("a", "number_swap", numbers=(0.5, False), cosine=(0.9, True)),
        result("b", "number_swap", numbers=(0.5, False), cosine=(0.9, True)),
        result("a", "relation", numbers=(1.0, True), cosine=(0.9, True)),
    ]
    found = figures(results)
    assert found.acceptance == Share(1, 2)
    assert found.recall == {"number_swap": Share(2, 2), "relation": Share(0, 1)}
    assert found.clean == {"number_swap": Share(1, 1), "relation": Share(0, 1)}
    assert found.precision == Share(2, 3)
    assert found.refused_by == {"numbers": 1}
    numbers, cosine = found.checks
    assert (numbers.rejects_true, numbers.alone_true, numbers.precision) == (Share(1, 2), Share(1, 2), Share(2, 3))
    assert numbers.auc["number_swap"] == pytest.approx(0.75)
    assert cosine.auc[ALL] == pytest.approx(0.5)
    assert found.by["style"] == {"plain": Share(1, 2)}
    assert found.broken() == ["true pairs: 50.0 % accepted, 90 % promised"]


def test_promises_that_hold_break_nothing():
    results = [result("a", TRUE, numbers=(1.0, True)), result("a", "negation", numbers=(0.0, False))]
    assert figures(results).broken() == []


def test_every_number_of_the_configuration_is_tuned_or_said_why_not():
    tuned = {threshold.field for threshold in THRESHOLDS}
    fields: dict[str, FieldInfo] = AlignmentConfig.model_fields
    numbers = {
        name
        for name, value in AlignmentConfig().model_dump().items()
        if isinstance(value, int | float | tuple) and not isinstance(value, bool)
    }
    assert numbers <= tuned | set(UNTUNED), (
        "add a row to THRESHOLDS or a reason to UNTUNED (tasks/rephrase/calibration/tune.py)"
    )
    assert tuned | set(UNTUNED) <= set(fields)
    assert not tuned & set(UNTUNED)


@given(
    st.lists(st.integers(0, 1000).map(lambda part: part / 1000), min_size=1, max_size=200),
    st.sampled_from([0.0, 0.01, 0.1]),
)
def test_a_chosen_threshold_keeps_its_budget_and_is_the_strictest(scores: list[float], budget: float):
    least, most = choose(scores, "least", budget), choose(scores, "most", budget)
    assert sum(score < least for score in scores) <= budget * len(scores)
    assert sum(score > most for score in scores) <= budget * len(scores)
    assert sum(score < least + 0.0100001 for score in scores) > budget * len(scores) - 1e-9
    assert sum(score > most - 0.0100001 for score in scores) > budget * len(scores) - 1e-9


def test_thresholds_are_chosen_on_one_half_and_counted_on_the_other():
    results = [
        *(result(f"a{n}", TRUE, "tune", cosine=(0.8 + n / 1000, True)) for n in range(100)),
        *(result(f"b{n}", TRUE, "test", cosine=(0.7, False)) for n in range(4)),
        *(result(f"b{n}", "negation", "test", cosine=(0.5 + n / 10, False)) for n in range(4)),
    ]
    (found,) = tune(results, AlignmentConfig(cosine=0.6), 0.01)
    assert found.threshold.name == "cosine"
    assert (found.configured, found.chosen) == (0.6, 0.8)
    assert found.before["test"] == (Share(0, 4), Share(1, 4))
    assert found.after["test"] == (Share(4, 4), Share(3, 4))
    assert found.after["tune"] == (Share(0, 100), Share(0, 0))
