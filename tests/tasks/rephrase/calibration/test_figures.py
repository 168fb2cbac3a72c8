"""Figures against values computed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.calibration.figures import Outcome, Point, Share, auc, data, figures
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.calibration.pairs import Row
from tasks.rephrase.config import AlignmentConfig

SCORES = st.lists(st.integers(0, 20).map(float), min_size=1, max_size=40)


def result(
    identity: str, kind: str, score: float, numbers: bool = True, language: str = "en", threshold: float = 0.5
) -> Result:
    row = Row(identity, "own", language, "law", kind, "One.", "Two.")
    verdicts = Verdict("numbers", 1.0, numbers), Verdict("fidelity", score, score >= threshold)
    return Result(row, verdicts, seconds=0.02)


RESULTS = [
    result("a/0", "faithful", 0.9),
    result("a/1", "neutral", 0.6),
    result("a/2", "faithful", 0.8, numbers=False),
    result("b/0", "faithful", 0.3, language="zh"),
    result("a/3", "hedge", 0.1),
    result("a/4", "hedge", 0.7),
    result("a/5", "number", 0.8, numbers=False),
    result("b/1", "number", 0.2, numbers=False, language="zh"),
]


def test_a_share_of_nothing_may_be_any():
    assert Share(0, 0).interval == (0.0, 1.0)
    assert Share(97, 100).interval == pytest.approx((0.9155, 0.9897), abs=1e-4)


@given(SCORES, SCORES)
def test_auc_is_the_share_of_pairs_in_order(good: list[float], bad: list[float]):
    wins = sum((a > b) + (a == b) / 2 for a in good for b in bad) / (len(good) * len(bad))
    assert auc(good, bad) == pytest.approx(wins)
    assert auc(bad, good) == pytest.approx(1 - wins)


def test_auc_of_nothing_is_nothing():
    assert auc([], [1.0]) is None
    assert auc([1.0], []) is None


def test_what_is_counted():
    found = figures(RESULTS)
    assert found.faithful == Share(2, 4)
    assert found.defects == Share(3, 4)
    assert found.balanced == pytest.approx(0.625)
    assert found.kinds == {
        "faithful": Share(1, 3),
        "neutral": Share(1, 1),
        "number": Share(2, 2),
        "hedge": Share(1, 2),
    }
    # of 4 faithful scores (.9 .6 .8 .3), over the defects' .1 .7 .8 .2: 4, 2, 3 and a tie, 2
    assert found.auc == pytest.approx((4 + 2 + 3.5 + 2) / 16)
    assert found.areas["hedge"] == pytest.approx((2 + 1 + 2 + 1) / 8)


def test_groups_and_checks():
    found = Outcome(AlignmentConfig(), RESULTS)
    assert {name: (some.faithful, some.defects) for name, some in found.by("language").items()} == {
        "en": (Share(2, 3), Share(2, 3)),
        "zh": (Share(0, 1), Share(1, 1)),
    }
    numbers, fidelity = found.checks
    assert (numbers.faithful, numbers.faithful_alone) == (Share(1, 4), Share(1, 4))
    assert (numbers.defects, numbers.defects_alone) == (Share(2, 4), Share(1, 4))
    assert (fidelity.faithful, fidelity.faithful_alone) == (Share(1, 4), Share(1, 4))
    assert (fidelity.defects, fidelity.defects_alone) == (Share(2, 4), Share(1, 4))
    assert found.milliseconds == pytest.approx(20)


def test_a_check_that_refuses_nothing_is_left_out():
    found = Outcome(AlignmentConfig(), [result("a/0", "faithful", 0.9), result("a/1", "hedge", 0.1)])
    assert [check.check for check in found.checks] == ["fidelity"]


def test_the_curve_counts_what_other_checks_refuse_as_refused():
    points = Outcome(AlignmentConfig(), RESULTS).curve([0.65, 0.0, 0.5, 0.3])
    assert points == [
        Point(0.0, Share(3, 4), Share(2, 4)),
        Point(0.3, Share(3, 4), Share(1, 4)),
        Point(0.5, Share(2, 4), Share(1, 4)),
        Point(0.65, Share(1, 4), Share(1, 4)),
    ]
    assert points[1].balanced == pytest.approx(0.75)


def test_the_whole_curve_falls_and_its_configured_point_is_what_is_measured():
    found = Outcome(AlignmentConfig(fidelity=0.5), RESULTS)
    points = found.curve()
    assert [point.threshold for point in points] == [0.0, 0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.9, 1.0]
    for side in ("faithful", "defects"):
        counts = [getattr(point, side).count for point in points]
        assert counts == sorted(counts, reverse=True)
        assert counts[-1] == 0
    (now,) = (point for point in found.table if point.threshold == 0.5)
    assert now.faithful == found.whole.faithful
    assert now.defects.count == found.whole.defects.of - found.whole.defects.count


def test_a_threshold_of_ones_own_stands_in_the_table():
    assert 0.517 in {point.threshold for point in Outcome(AlignmentConfig(fidelity=0.517), RESULTS).table}


def test_as_data():
    found = data(Outcome(AlignmentConfig(fidelity=0.5), RESULTS, "mine.jsonl"))
    assert found["pairs"] == "mine.jsonl"
    assert found["refused_defects"] == {"count": 3, "of": 4, "share": 0.75, "interval": [0.300642, 0.954413]}
    assert found["by"]["language"]["zh"]["accepted_faithful"]["share"] == 0.0
    assert found["checks"]["fidelity"]["limit"] == 0.5
    assert found["checks"]["numbers"]["limit"] is None
    assert found["corpus"]["accepted"] == {"count": 0, "of": 0, "share": None, "interval": [0.0, 1.0]}
