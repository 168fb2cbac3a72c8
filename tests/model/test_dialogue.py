"""Messages in OpenAI's layout: every form that K2's template reads is read, any other is refused in one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.dialogue import ChatError, compact, numbered, spaced


def call(call_id: Any = None, name: Any = "f", arguments: Any = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(*calls: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def result(call_id: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


def ids(messages: list[dict[str, Any]]) -> list[str]:
    """The ids of a numbered dialogue's calls and results, in their order."""
    return [
        found
        for message in numbered(messages)
        for found in [*(call["id"] for call in message["tool_calls"]), message.get("tool_call_id")]
        if found
    ]


def deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


HALF = "\ud800"


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        (None, "a dialogue is a list of messages, not None"),
        ("hi", "a dialogue is a list of messages, not 'hi'"),
        ({"role": "user", "content": "hi"}, "a dialogue is a list of messages, not a value of type dict"),
        (["hi"], "turn 0: a message is a dictionary with a role and a content, not 'hi'"),
        ([{"content": "hi"}], "turn 0: role None is unknown"),
        ([{"role": ["user"]}], "turn 0: role a value of type list is unknown"),
        ([{"role": deep(5000)}], "turn 0: role a value of type list is unknown"),
        ([{"role": "developer", "content": "hi"}], "turn 0: role 'developer' is unknown"),
        ([{"role": "user", "name": 5}], "turn 0: a name is a text, not 5"),
        ([{"role": "user", "name": 10**5000}], "turn 0: a name is a text, not a value of type int"),
        (
            [{"role": "user", "content": b"hi"}],
            "turn 0: content is a text or a list of parts.*not a value of type bytes",
        ),
        ([{"role": "user", "content": [None]}], "turn 0: content is a text or a list of parts.*none of them None"),
        ([{"role": "user", "content": [{"type": ["text"]}]}], "turn 0: a part of type a value of type list"),
        ([{"role": "user", "content": [{"type": "text", "text": None}]}], "turn 0: a part of type text has no text"),
        ([{"role": "user", "tool_calls": [call()]}], "turn 0: a message of role user makes calls"),
        ([{"role": "assistant", "tool_calls": "f"}], "turn 0: tool_calls is a list of calls such as .*, not 'f'"),
        ([{"role": "assistant", "tool_calls": call()}], "turn 0: tool_calls is a list of calls"),
        ([calling(None)], "turn 0: call 0 names no function"),
        ([calling({"name": "f", "arguments": "{}"})], "turn 0: call 0 names no function"),
        ([calling({"function": "f"})], "turn 0: call 0 names no function"),
        ([calling(call(name=None))], "turn 0: call 0 names no function"),
        ([calling(call(name=""))], "turn 0: call 0 names no function"),
        ([calling(call(), call(name=3))], "turn 0: call 1 names no function"),
        ([calling(call(call_id=7))], "turn 0: the id of call 0 is a text, not 7"),
        ([calling(call(call_id=["a"]))], "turn 0: the id of call 0 is a text"),
        (
            [calling({"function": {"name": "f"}})],
            "turn 0: the arguments of call 0 are a JSON object or its text, not None",
        ),
        ([calling(call(arguments=[1]))], "turn 0: the arguments of call 0 are a JSON object or its text"),
        ([calling(call(arguments={"a": {1}}))], "turn 0: the arguments of call 0 cannot be written as JSON"),
        ([calling(call(arguments={"a": float("nan")}))], "turn 0: the arguments of call 0 cannot be written as JSON"),
        ([calling(call(arguments={"a": 10**5000}))], "turn 0: the arguments of call 0 cannot be written as JSON"),
        ([calling(call(arguments={"a": deep(5000)}))], "turn 0: the arguments of call 0 cannot be written as JSON"),
        ([calling(call(arguments={"a": HALF}))], "turn 0: the arguments of call 0 cannot be written as JSON"),
        ([calling(call(arguments={(1, 2): 3}))], "turn 0: the arguments of call 0 cannot be written as JSON"),
        ([calling(call("a"), call("a"))], "turn 0: two of its calls have the same id"),
        ([calling(call("a")), {"role": "tool", "content": "ok"}], "turn 1: a tool's result has no tool_call_id"),
        ([calling(call("a")), result(None)], "turn 1: a tool's result has no tool_call_id"),
        ([calling(call("a")), result(["a"])], "turn 1: a tool's result has no tool_call_id"),
        ([calling(call("a")), result("b")], "turn 1: the result of 'b' answers no open call"),
        ([result("a"), calling(call("a"))], "turn 0: the result of 'a' answers no open call"),
        ([calling(call("a")), result("a"), result("a")], "turn 2: the result of 'a' answers no open call"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(messages, said):
    with pytest.raises(ChatError, match=said) as raised:
        numbered(messages)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250


def test_content_and_arguments_come_out_as_texts():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    found = numbered([{"role": "user", "content": parts}, calling(call(arguments={"é": [1, None], "b": 2.5}))])
    assert found[0]["content"] == "ab"
    assert found[1]["content"] == ""
    assert found[1]["tool_calls"][0]["function"]["arguments"] == '{"é": [1, null], "b": 2.5}'


@pytest.mark.parametrize("empty", [None, [], ()])
def test_no_calls_may_be_said_in_several_ways(empty):
    assert numbered([{"role": "assistant", "content": "a", "tool_calls": empty}])[0]["tool_calls"] == []


def test_arguments_that_are_text_already_stay_as_they_are():
    assert numbered([calling(call(arguments='{"a":'))])[0]["tool_calls"][0]["function"]["arguments"] == '{"a":'


def test_calls_may_be_answered_in_any_order_and_later():
    messages = [calling(call("a"), call("b", "g.h")), result("b"), calling(call("c")), result("c"), result("a")]
    assert ids(messages) == [
        *("functions.f:0", "functions.g.h:1", "functions.g.h:1"),
        *("functions.f:2", "functions.f:2", "functions.f:0"),
    ]


def test_k2s_ids_in_the_wrong_order_are_renamed_without_mixing_up_the_results():
    messages = [calling(call("functions.f:1"), call("functions.f:0")), result("functions.f:1"), result("functions.f:0")]
    assert ids(messages) == ["functions.f:0", "functions.f:1", "functions.f:0", "functions.f:1"]


def test_a_count_that_begins_again_in_each_turn_goes_on():
    turn = [calling(call("functions.f:0")), result("functions.f:0")]
    assert ids(turn * 3) == [f"functions.f:{count}" for count in (0, 0, 1, 1, 2, 2)]


@given(st.data())
@settings(max_examples=100)
def test_every_result_follows_its_call(data):
    """However calls are named and in whatever order they are answered, each result stays with its own call."""
    messages, due = [], []
    for turn in range(data.draw(st.integers(1, 4))):
        names = data.draw(st.lists(st.sampled_from(["f", "g.h", "ü:1"]), max_size=3))
        kind = data.draw(st.sampled_from(["restarting", "foreign", "none"]))
        base = len(due)
        made = {"restarting": "functions.{}:{}", "foreign": f"{{}}-{turn}-{{}}", "none": ""}[kind]
        calls = [call(made.format(name, place), name) for place, name in enumerate(names)]
        fresh = [f"functions.{name}:{base + place}" for place, name in enumerate(names)]
        due += fresh
        messages.append(calling(*calls))
        for place in data.draw(st.permutations(range(len(names)))):
            messages.append({**result(calls[place]["id"] or fresh[place]), "due": fresh[place]})
    found = numbered(messages)
    assert [call["id"] for message in found for call in message["tool_calls"]] == due
    assert all(message["tool_call_id"] == message["due"] for message in found if message["role"] == "tool")


def test_the_callers_messages_are_left_alone():
    messages = [calling(call("a", arguments={"x": 1})), result("a")]
    before = compact(messages)
    numbered(messages)
    assert compact(messages) == before


def test_json_in_both_of_k2s_forms():
    value = {"b": ["北", None, 1.5], "a": {}}
    assert compact(value) == '{"b":["北",null,1.5],"a":{}}'
    assert spaced(value) == '{"b": ["北", null, 1.5], "a": {}}'
    with pytest.raises(ChatError, match="this value cannot be written as JSON"):
        compact(float("inf"))
