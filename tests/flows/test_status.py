"""`openk2 status`: what it says of work that did not reach its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from flows.graph import Graph
from flows.request import PresetName, Request
from flows.status import survey
from flows.steps import graph
from model.config import Config
from model.precision import speed
from tasks.artifact import Step
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


def test_what_was_begun_with_other_bytes_does_not_go_on(tmp_path: Path) -> None:
    first = Step("first", Config(), str(tmp_path))
    second = Step("second", Config(), str(tmp_path), (first,))
    for text in ("a", "b"):
        first.put("part", ".txt", lambda path, text=text: path.write_text(text))
        first.publish({})
        if text == "a":
            second.record_inputs()
            second.put("part", ".txt", lambda path: path.write_text("of a"))
            (line,) = survey(Graph([second]))
            assert (line.state, line.sentence) == ("begun", "1 parts finished; a run goes on from here")
    (line,) = survey(Graph([second]))
    assert line.state == "stale"
    assert line.sentence == "first came out otherwise than when it was begun; a run begins it anew"
