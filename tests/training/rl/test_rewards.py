"""Verifiers, the token budget, the length reward, and the law of the environments."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.chat import ParseError, Reply, ToolCall
from training.rl.config import RewardConfig
from training.rl.environments import Problem
from training.rl.environments.table import play
from training.rl.rewards import group_rewards, length_rewards, same, schema_error

TOOLS = (
    {
        "type": "function",
        "function": {
            "name": "calendar.add",
            "description": "",
            "parameters": {
                "type": "object",
                "properties": {"day": {"type": "integer"}, "sure": {"type": "boolean"}},
                "required": ["day"],
                "additionalProperties": False,
            },
        },
    },
)


def exact_answer(reply: Reply, answer: str) -> float:
    return play(Problem("p", "e", "exact", (), answer), [reply]).reward


def right_call(reply: Reply, gold, tools) -> float:
    return play(Problem("p", "e", "call", (), gold, tools), [reply]).reward


GOLD = {"name": "calendar.add", "arguments": {"day": 3, "sure": True}, "index": 0}


@pytest.mark.parametrize("said", ["68", " 68\n", "68.", "68 .", "68。"])
def test_the_answer_is_right(said):
    assert exact_answer(Reply(said), "68") == 1.0


@pytest.mark.parametrize("said", ["", "6", "688", "068", "68 68", "68..", "68.。", "is 68", "６８"])
def test_anything_else_is_wrong(said):
    assert exact_answer(Reply(said), "68") == 0.0


def test_an_answer_with_calls_or_errors_is_wrong():
    assert exact_answer(Reply("68", (ToolCall("f", {}, 0),)), "68") == 0.0
    assert exact_answer(Reply("68", errors=(ParseError("", ""),)), "68") == 0.0


def call(arguments, name="calendar.add", index=0, **more) -> Reply:
    return Reply("", (ToolCall(name, arguments, index),), **more)


def test_the_right_call_scores_whatever_the_order_of_its_keys():
    assert right_call(call({"sure": True, "day": 3}), GOLD, TOOLS) == 1.0
    assert right_call(call({"sure": True, "day": 3.0}), GOLD, TOOLS) == 1.0, "JSON has one kind of number"


@pytest.mark.parametrize(
    "reply",
    [
        Reply("calendar.add"),
        call({"day": 3}),
        call({"day": 4, "sure": True}),
        call({"day": 3, "sure": 1}),
        call({"day": "3", "sure": True}),
        call({"day": 3, "sure": True, "more": 0}),
        call({"day": 3, "sure": True}, name="calendar.remove"),
        call({"day": 3, "sure": True}, index=1),
        call({"day": 3, "sure": True}, errors=(ParseError("", ""),)),
        Reply("", (ToolCall("calendar.add", GOLD["arguments"], 0), ToolCall("calendar.add", GOLD["arguments"], 1))),
    ],
)
def test_every_other_call_scores_nothing(reply):
    assert right_call(reply, GOLD, TOOLS) == 0.0


def test_a_schema_is_read_by_the_draft_that_it_names():
    """Draft 7, which most servers of tools speak, has pairs that draft 2020-12 cannot read."""
    pair = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"a": pair}}
    tool = {"function": {"name": "f", "parameters": schema}}
    assert schema_error("f", {"a": [1, "x"]}, [tool]) is None
    assert schema_error("f", {"a": ["x", 1]}, [tool]) == "f: 'x' is not of type 'integer'"


def test_a_number_that_no_float_holds_fits_no_fraction():
    tool = {"function": {"name": "f", "parameters": {"properties": {"a": {"type": "number", "multipleOf": 0.01}}}}}
    assert schema_error("f", {"a": 10**400}, [tool]) == "f: a number is too large"
    assert schema_error("f", {"a": 2}, [tool]) is None


def test_a_call_of_an_undeclared_tool_scores_nothing():
    assert right_call(call(GOLD["arguments"]), GOLD, ()) == 0.0


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)


@given(JSON, JSON)
def test_equality_of_json_is_an_equality(one, other):
    assert same(one, one)
    assert same(one, other) == same(other, one)
    assert same(one, other) == (repr(one) == repr(other)) or isinstance(one, dict | list)


def test_booleans_are_no_numbers():
    assert not same(True, 1)
    assert not same([0], [False])
    assert same(2, 2.0)


def test_what_was_cut_is_penalised_and_never_right():
    config = RewardConfig(budget=4, over_budget=-0.5)
    assert group_rewards([1.0, 1.0, 0.0], [3, 4, 4], [True, False, False], config) == [1.0, -0.5, -0.5]


def test_budgets_differ_by_environment():
    config = RewardConfig(budget=4, budgets={"tool_call": 64})
    assert (config.budget_of("addition"), config.budget_of("tool_call")) == (4, 64)


def test_length_reward_is_the_formula_of_k15():
    """Shortest right +0.5, longest right -0.5, in the middle 0; a wrong answer never gains."""
    assert length_rewards([10, 20, 30], [True, True, True]) == [0.5, 0.0, -0.5]
    assert length_rewards([10, 20, 30], [False, False, False]) == [0.0, 0.0, -0.5]
    assert length_rewards([7, 7], [True, False]) == [0.0, 0.0]


def test_a_cut_reply_is_never_worth_more_than_a_long_wrong_one():
    with pytest.raises(ValueError, match="over_budget"):
        RewardConfig(length_weight=1.0, over_budget=-0.5)
    assert min(group_rewards([0.0, 0.0, 0.0], [1, 9, 9], [True, True, False], RewardConfig(length_weight=0.9))) == -0.5


def test_length_reward_is_off_by_default():
    assert group_rewards([1.0, 1.0], [1, 9], [True, True], RewardConfig()) == [1.0, 1.0]
    assert group_rewards([1.0, 1.0], [1, 9], [True, True], RewardConfig(length_weight=0.2)) == [1.1, 0.9]
