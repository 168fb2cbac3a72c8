"""What docs/calibration.md says of the test set that its figures are measured on."""

from __future__ import annotations

from collections import Counter

from tasks.rephrase.calibration.pairs import DEFECTS, FAITHFUL, load

ROWS = load(["test"])
OTHERS = set(DEFECTS) - {"opposite", "time", "part", "identity"}
"""Kinds of the test set: these four are among others there."""


def test_each_source_has_two_faithful_rewrites_and_six_defects_of_different_kinds():
    sources = {row.source for row in ROWS}
    assert len(sources) == 100
    assert Counter(row.language for row in ROWS) == {"en": 8 * 64, "zh": 8 * 36}
    for source in sources:
        kinds = [row.kind for row in ROWS if row.source == source]
        assert kinds.count(FAITHFUL) == 2
        assert len(kinds) == 8
        assert len(set(kinds)) == 7


def test_the_kinds_of_defect_are_about_equally_frequent():
    kinds = Counter(row.kind for row in ROWS if not row.faithful)
    assert set(kinds) == OTHERS
    assert all(34 <= kinds[kind] <= 42 for kind in OTHERS - {"formula"})
    assert kinds["formula"] == Counter(row.domain for row in ROWS)["mathematics"] / 8 == 19


def test_every_rewrite_is_written_anew():
    assert len({row.rewrite for row in ROWS}) == len(ROWS) == 800
