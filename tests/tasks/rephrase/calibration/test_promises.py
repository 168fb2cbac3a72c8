"""What docs/calibration.md promises, on the half that nothing was tuned on."""

from __future__ import annotations

import os

from tasks.rephrase.calibration.cases import of_pairs
from tasks.rephrase.calibration.figures import TARGETS
from tasks.rephrase.calibration.measure import measure
from tasks.rephrase.calibration.outcome import outcome
from tasks.rephrase.calibration.pairs import load
from tasks.rephrase.config import AlignmentConfig


def test_the_promises_hold_on_the_test_half():
    documents = of_pairs(load(["asked"]), tuple(TARGETS), halves=("test",))
    found = outcome(AlignmentConfig(), measure(documents, AlignmentConfig(), len(os.sched_getaffinity(0)), "first"))
    assert found.broken == []
