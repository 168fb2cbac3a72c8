"""`openk2 status`: what it says of a training job that did not reach its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.request import PresetName, Request
from flows.status import survey
from flows.steps import graph
from model.precision import speed
from training.metrics import write_progress


@pytest.mark.parametrize(
    ("status", "note", "said"),
    [
        ("preempted", "decay", "41 of 60 updates; the same command goes on"),
        ("failed", "no rank", "41 of 60 updates, then it failed: no rank; the same command goes on"),
    ],
)
def test_a_job_that_was_ended_is_begun_and_not_missing(status: str, note: str, said: str, tmp_path: Path) -> None:
    plan = graph(Request(preset=PresetName.test, root=str(tmp_path)))
    plan["sources"].begin().publish({"documents": 1})

    fast = speed("cpu").fast

    def base() -> tuple[str, str]:
        found = {line.name: line for line in survey(plan)}
        return found["base"].state, found["base"].sentence

    assert base() == ("missing", f"in {fast}: not run yet")
    assert not plan["base"].work.exists()
    write_progress(plan["base"].workspace() / "progress.json", 41, 60, status, note=note)
    assert base() == ("begun", f"in {fast}: {said}")
