from __future__ import annotations

import pytest

from tasks.rephrase.alignment.limits import LIMITS, thresholds
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import CHECKS, NAMES
from tasks.rephrase.calibration.pairs import load
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.prompts import compose, details, styles
from tasks.report.inspect.rewrites.limits import Limits

CONFIG = AlignmentConfig()
STATED = thresholds(CONFIG, styles())


def test_every_threshold_is_of_a_check_and_a_field():
    assert set(LIMITS) <= set(NAMES)
    assert {limit.field for limit in LIMITS.values()} <= set(AlignmentConfig.model_fields)


@pytest.mark.parametrize(
    "check", [check for check in CHECKS if check.__name__ in LIMITS], ids=lambda check: check.__name__
)
def test_a_score_that_passed_lies_within_the_stated_threshold(check):
    """What the gate holds every accepted segment to."""
    least, most = STATED[check.__name__]["least"], STATED[check.__name__]["most"]
    seen = 0
    for row in load(["dev"])[::10]:
        verdict = check(Pair(row.source, row.rewrite), CONFIG)
        if verdict.passed:
            seen += 1
            assert least is None or verdict.score >= least
            assert most is None or verdict.score <= most
    assert seen


@pytest.mark.parametrize("detail", ["", *details()])
@pytest.mark.parametrize("style", ["academic", "questions", "outline"])
def test_bands_compose_as_the_styles_do(style, detail):
    own = compose(styles()[style], None, details().get(detail)).length or CONFIG.length
    assert Limits.stated(STATED).get("length").of(style, detail) == own
