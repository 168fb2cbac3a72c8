"""What the model of the check of fidelity is told of a text: what its premise supports, and what it does not."""

from __future__ import annotations

import random

import pytest

from benchmarks.fidelity_samples import of_edits, of_statements
from tasks.rephrase.calibration.pairs import Edited, Stated, records

STATED = Stated.model_validate(
    {
        "id": "c",
        "language": "en",
        "domain": "nature",
        "statements": [
            {
                "of": [number],
                "says": [f"Right {number} {say}." for say in "abc"],
                "defects": [{"kind": kind, "text": f"{kind} {number}."}],
            }
            for number, kind in enumerate(("role", "addition", "part"))
        ]
        + [{"of": [0, 1], "says": ["Right both."], "defects": [{"kind": "blend", "text": "blend 0 1."}]}],
    }
)


def statements(text: str) -> dict[int, str]:
    """What a text of STATED says of each statement: `right` or the kind of defect."""
    said: dict[int, str] = {}
    for sentence in text.removesuffix(".").split(". "):
        kind, *rest = sentence.split()
        numbers = (0, 1) if "both" in rest or kind == "blend" else (int(rest[0]),)
        said |= dict.fromkeys(numbers, kind.lower())
    return said


def test_a_statement_is_wrong_where_premise_or_text_has_its_defect():
    rng, seen = random.Random(0), set()
    for group in (of_statements(STATED, rng) for _ in range(500)):
        premise = statements(group.premise)
        for sample in group.samples:
            assert sample.whole
            wrong = {number for begin, end in sample.wrong for number in statements(sample.text[begin:end])}
            unknown = {number for begin, end in sample.unknown for number in statements(sample.text[begin:end])}
            for number, kind in statements(sample.text).items():
                if number in unknown or "both" in sample.text or kind == "blend" or "blend" in premise.values():
                    continue
                there = premise.get(number)
                # a premise that says more supports the text; one that says less, or nothing, does not
                supported = there in (
                    ("right", "addition") if kind == "right" else ("right",) if kind == "part" else ()
                )
                assert (number in wrong) is not supported, (group.premise, sample.text, number)
                seen.add((kind, there, supported))
    assert {
        ("right", "right", True),
        ("right", "addition", True),
        ("right", "part", False),
        ("right", None, False),
    } <= seen
    assert {("role", "right", False), ("part", "right", True), ("right", "role", False)} <= seen


@pytest.mark.parametrize("kind", [Stated, Edited])
def test_shipped_records_make_samples_of_both_kinds_from_a_seed(kind: type):
    made = []
    for _ in range(2):
        rng = random.Random(1)
        some = [record for record, _ in records(["dev"]) if isinstance(record, kind)][:20]
        groups = [of_statements(one, rng) if isinstance(one, Stated) else list(of_edits(one, rng)) for one in some]
        made.append(groups)
    assert made[0] == made[1]
    flat = [
        sample for one in made[0] for group in (one if isinstance(one, list) else [one]) for sample in group.samples
    ]
    assert all(0 <= begin < end <= len(sample.text) for sample in flat for begin, end in sample.wrong)
    share = sum(bool(sample.wrong) for sample in flat) / len(flat)
    assert 0.3 < share < 0.85
