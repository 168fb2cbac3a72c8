"""What the sandbox must not get in the way of."""

from __future__ import annotations

from typing import Any

import pytest

from tests.training.rl.sandbox.conftest import cases
from training.rl.sandbox.config import Program, Status
from training.rl.sandbox.sandbox import Sandbox

CASES = cases("honest")


def test_they_are_many() -> None:
    assert len({case["name"] for case in CASES}) == len(CASES) >= 60


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_honest(sandbox: Sandbox, case: dict[str, Any]) -> None:
    program = Program(**{name: case[name] for name in ("source", "language", "stdin", "files") if name in case})
    if reason := sandbox.workers[0].why_not(program):
        pytest.skip(reason)
    (outcome,) = sandbox.run([program])
    assert outcome.status is Status.OK, f"{outcome.reason}: {outcome.stderr}"
    assert outcome.stdout == (case["stdout"] or case["same"][0] * case["same"][1] + "\n")
