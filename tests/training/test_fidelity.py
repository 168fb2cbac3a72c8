"""How tool calls are counted, by hand."""

from __future__ import annotations

import pytest

from training.fidelity import Trigger, Turn, fidelity, tool_call_fidelity


def test_fidelity_by_hand():
    turns = [
        Trigger(due=True, called=True, valid=1, attempted=1, exact=True),
        Trigger(due=True, called=True, valid=0, attempted=2, exact=False),
        Trigger(due=True, called=False, valid=0, attempted=0, exact=False),
        Trigger(due=False, called=True, valid=1, attempted=1, exact=False),
        Trigger(due=False, called=False, valid=0, attempted=0, exact=True),
    ]
    found = tool_call_fidelity(turns)
    assert found["trigger_precision"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["trigger_recall"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["trigger_f1"] == pytest.approx(2 / 3, abs=1e-4)
    assert found["schema_accuracy"] == 0.5
    assert found["exact"] == pytest.approx(1 / 3, abs=1e-4)


def test_a_ratio_over_nothing_is_none():
    silent = tool_call_fidelity([Trigger(due=True, called=False, valid=0, attempted=0, exact=False)])
    assert silent["schema_accuracy"] is None
    assert silent["trigger_precision"] is None
    assert silent["trigger_recall"] == 0.0
    assert silent["trigger_f1"] == 0.0
    assert "schema_accuracy_interval" not in silent


def test_the_goals_are_set_for_what_was_trained_and_the_rest_is_told_apart():
    def turn(environment, topic):
        return Turn([], [], [{"name": topic}] if topic else [], environment, topic)

    right = Trigger(due=True, called=True, valid=1, attempted=1, exact=True)
    wrong = Trigger(due=True, called=True, valid=0, attempted=1, exact=False)
    silent = Trigger(due=False, called=False, valid=0, attempted=0, exact=True)
    turns = [turn("tool_call", "add"), turn("no_call", ""), turn("tool_call_tool", "heat"), turn("tool_call", "bus")]
    found = fidelity(turns, [right, silent, wrong, None])
    assert (found["turns"], found["exact"], found["trigger_f1"]) == (2, 1.0, 1.0)
    assert found["by_unseen_tool"]["heat"]["exact"] == 0.0
    assert set(found["by_tool"]) == {"add"}, "what the window could not hold is counted nowhere"
    low, high = found["by_environment"]["tool_call_tool"]["schema_accuracy_interval"]
    assert low == 0.0 < high
