"""`openk2 evaluate`: what is asked is refused where nothing could come of it, and what was measured is kept."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from flows.evaluate_commands import evaluate
from flows.options import RequestError
from flows.request import PresetName
from tasks.evaluate.suites import target


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"compare": True, "record": "base.json"}, "--json is about what is measured now"),
        ({"compare": True, "suite": ["humaneval"]}, "--suite is about what is measured now"),
        ({"target": "base", "others": ["k2.json"]}, "say --compare too"),
        ({}, "name what to measure"),
    ],
)
def test_options_of_which_nothing_would_come_are_refused(asked: dict[str, Any], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        evaluate(**asked)


def test_a_record_goes_into_a_folder_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written when all is measured, which may be hours later."""
    monkeypatch.setattr(target, "opened", lambda *_: nullcontext())
    monkeypatch.setattr(target, "measured", lambda *_: {"suites": {}})
    to = tmp_path / "new" / "base.json"
    evaluate("base", PresetName.test, str(tmp_path / "root"), record=str(to))
    assert json.loads(to.read_text()) == {"suites": {}}
