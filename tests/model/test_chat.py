"""K2's chat format: golden renderings, round trips, and what no user and no model may do to it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models

from model.chat import Chat, ChatError, Reply, Text, ToolCall, assistant, flat, numbered, tool_result, user
from model.vocabulary import SPECIAL_TOKENS
from tests.posttraining import byte_tokenizer

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather.now",
        "description": "The weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
CHAT = Chat(byte_tokenizer())


def text(segments) -> str:
    return CHAT.decode(flat(segments)[0])


def trained(segments) -> str:
    ids, mask = flat(segments)
    return CHAT.decode([token for token, kept in zip(ids, mask, strict=True) if kept])


def test_golden_dialogue_with_tools():
    messages = [
        {"role": "system", "content": "Be brief."},
        user("Weather in 北京?"),
        assistant("Let me look.", [("weather.now", {"city": "北京"})]),
        tool_result("weather.now", "functions.weather.now:0", "21 degrees"),
        assistant("It is 21 degrees."),
    ]
    segments = CHAT.render(messages, [WEATHER])
    assert text(segments) == (
        '<|im_system|>tool_declare<|im_middle|>[{"type":"function","function":{"name":"weather.now","description":'
        '"The weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]'
        "<|im_end|>"
        "<|im_system|>system<|im_middle|>Be brief.<|im_end|>"
        "<|im_user|>user<|im_middle|>Weather in 北京?<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>Let me look.<|tool_calls_section_begin|><|tool_call_begin|>"
        'functions.weather.now:0<|tool_call_argument_begin|>{"city":"北京"}<|tool_call_end|>'
        "<|tool_calls_section_end|><|im_end|>"
        "<|im_system|>weather.now<|im_middle|>## Return of functions.weather.now:0\n21 degrees<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>It is 21 degrees.<|im_end|>"
    )
    assert trained(segments) == (
        "Let me look.<|tool_calls_section_begin|><|tool_call_begin|>functions.weather.now:0"
        '<|tool_call_argument_begin|>{"city":"北京"}<|tool_call_end|><|tool_calls_section_end|><|im_end|>'
        "It is 21 degrees.<|im_end|>"
    )


def test_generation_prompt_is_what_the_reply_continues():
    asked = CHAT.prompt([user("hi")])
    whole = flat(CHAT.render([user("hi"), assistant("hello")]))[0]
    assert CHAT.decode(asked) == "<|im_user|>user<|im_middle|>hi<|im_end|><|im_assistant|>assistant<|im_middle|>"
    assert whole[: len(asked)] == asked
    assert CHAT.parse(whole[len(asked) :]) == Reply("hello")


def test_calls_are_counted_over_the_whole_dialogue_and_results_follow():
    messages = [
        user("a"),
        {**assistant("", [("f", {}), ("g.h", {"x": 1})])},
        tool_result("f", "functions.f:0", "1"),
        tool_result("g.h", "functions.g.h:1", "2"),
        user("b"),
        assistant("", [("f", {})]),
        tool_result("f", "functions.f:2", "3"),
    ]
    assert "functions.f:2<|tool_call_argument_begin|>" in text(CHAT.render(messages))
    assert "## Return of functions.g.h:1\n2" in text(CHAT.render(messages))


def test_foreign_call_ids_are_renamed_with_their_results():
    call = {"id": "call_77", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [{"role": "assistant", "content": "", "tool_calls": [call]}, tool_result("f", "call_77", "ok")]
    assert [message.get("tool_call_id") for message in numbered(messages)] == [None, "functions.f:0"]
    assert messages[1]["tool_call_id"] == "call_77", "the caller's messages are left alone"


@pytest.mark.parametrize("answered", ["functions.f:1", "call_9", ""])
def test_a_result_without_its_call_is_refused(answered):
    with pytest.raises(ChatError, match="answers no open call"):
        CHAT.render([assistant("", [("f", {})]), tool_result("f", answered, "ok")])


def test_a_call_answered_twice_is_refused():
    twice = [assistant("", [("f", {})]), *[tool_result("f", "functions.f:0", "ok")] * 2]
    with pytest.raises(ChatError, match="turn 2"):
        CHAT.render(twice)


def test_an_unknown_role_is_refused():
    with pytest.raises(ChatError, match="'critic'"):
        CHAT.render([{"role": "critic", "content": ""}])


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def test_content_may_be_a_list_of_text_parts():
    plain = [
        {"role": "system", "content": "Be brief."},
        user("Weather in 北京?"),
        assistant("Let me look.", [("weather.now", {"city": "北京"})]),
        tool_result("weather.now", "functions.weather.now:0", "21 degrees"),
        assistant(""),
    ]
    cut = [{**message, "content": parts(message["content"][:4], message["content"][4:])} for message in plain]
    cut[4]["content"] = []
    assert CHAT.render(cut, [WEATHER]) == CHAT.render(plain, [WEATHER])
    assert not set(CHAT.render([user(parts("<|im_end|>"))])[0][0][:-1]) & {CHAT.stop}  # text stays text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([*parts("look"), {"type": "image_url", "image_url": {"url": "x"}}], "turn 1: a part of type 'image_url'"),
        ([{"text": "no type"}], "turn 1: a part of type None"),
        ([{"type": "text"}], "turn 1: a part of type text has no text"),
        (["bare"], "turn 1: content is a text or a list of parts"),
        ({"type": "text", "text": "one"}, "turn 1: content is a text or a list of parts"),
        (7, "turn 1: content is a text or a list of parts.*not 7"),
    ],
)
def test_other_content_is_refused_by_name(content, said):
    with pytest.raises(ChatError, match=said):
        CHAT.render([user("hi"), {"role": "user", "content": content}])


@pytest.mark.parametrize(
    ("messages", "tools", "said"),
    [
        ([user("hi"), user("a\udc00")], [], "turn 1: character 1 of a text is half a surrogate pair"),
        ([{**user("hi"), "name": "\ud83d"}], [], "turn 0: character 0 of a text is half a surrogate pair"),
        ([], "weather", "tools are a list of schemas, not 'weather'"),
        ([], WEATHER, "tools are a list of schemas, not a value of type dict"),
        ([], [WEATHER, "weather"], "tool 1 is no schema but 'weather'"),
        ([], [{"name": "f", "default": float("inf")}], "the declaration of the tools cannot be written as JSON"),
        ([], [{"name": "\ud800"}], "the declaration of the tools cannot be written as JSON"),
    ],
)
def test_what_has_no_tokens_is_refused_in_a_sentence(messages, tools, said):
    with pytest.raises(ChatError, match=said):
        CHAT.render(messages, tools)


def test_tools_are_declared_as_they_are_given():
    bare = {"name": "f", "parameters": {}}
    declared = '<|im_system|>tool_declare<|im_middle|>[{"name":"f","parameters":{}}]<|im_end|>'
    assert text(CHAT.render([], [bare])) == declared
    assert CHAT.render([], []) == CHAT.render([], None) == []


def test_only_text_is_encoded():
    with pytest.raises(ChatError, match="only text has tokens, not 7"):
        CHAT.encode(7)


def test_a_tokenizer_without_the_special_tokens_is_refused():
    with pytest.raises(ChatError, match="im_end"):
        Chat(Tokenizer(models.BPE(vocab={"a": 0}, merges=[])))


NASTY = st.lists(st.one_of(st.sampled_from([*SPECIAL_TOKENS, "<|", "|>", "\n", "é", "北"]), st.text(max_size=6))).map(
    "".join
)


@given(NASTY, NASTY.filter(bool), NASTY)
@settings(max_examples=60, deadline=None)
def test_no_text_becomes_a_special_token(content, name, argument):
    """Whoever writes a content, a name, an argument or a result: the special ids are those of the format alone."""
    tool = {"type": "function", "function": {"name": name, "parameters": {}}}

    def skeleton(content, name, argument, tool):
        messages = [
            {"role": "user", "name": name or "user", "content": content},
            assistant(content, [(name, {"k": argument})]),
            {"role": "tool", "name": name or "tool", "tool_call_id": f"functions.{name}:0", "content": content},
        ]
        ids, _ = flat(CHAT.render(messages, [tool]))
        return [token for token in ids if token in CHAT.specials]

    plain = {"type": "function", "function": {"name": "f", "parameters": {}}}
    assert skeleton(content, name, argument, tool) == skeleton("c", "f", "v", plain)
    assert CHAT.decode(CHAT.encode(content)) == content


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(allow_nan=False, allow_infinity=False) | NASTY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:\-]{0,12}", fullmatch=True)


@given(NASTY, st.lists(st.tuples(NAMES, st.dictionaries(st.text(max_size=5), JSON, max_size=3)), max_size=3))
@settings(max_examples=60, deadline=None)
def test_what_is_rendered_is_read_back(content, calls):
    turn = assistant(content, calls)
    (_, reply) = CHAT.render([turn])
    found = CHAT.parse(reply[0])
    assert found == Reply(
        content, tuple(ToolCall(name, arguments, place) for place, (name, arguments) in enumerate(calls))
    )
    assert flat(CHAT.render([found.message()])) == flat(CHAT.render([turn]))


@given(st.lists(st.one_of(st.integers(0, 255), st.sampled_from(sorted(CHAT.specials))), max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_parser_survives_anything(ids):
    reply = CHAT.parse(ids)
    assert reply.finished == (CHAT.stop in ids)
    assert all(error.reason for error in reply.errors)
    json.dumps(reply.message())


def section(*calls: str, ending: str = "<|tool_calls_section_end|>", behind: str = "") -> list[int]:
    """Ids of a turn written by special tokens' names."""
    raw = Tokenizer.from_str(byte_tokenizer().to_str())
    body = "".join(f"<|tool_call_begin|>{call}<|tool_call_end|>" for call in calls)
    return raw.encode(f"<|tool_calls_section_begin|>{body}{ending}{behind}<|im_end|>", add_special_tokens=False).ids


MIDDLE = "<|tool_call_argument_begin|>"


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        (section(f'functions.f:0{MIDDLE}{{"a":'), "not JSON"),
        (section(f'functions.f:0{MIDDLE}{{"a":NaN}}'), "not JSON"),
        (section(f'functions.f:0{MIDDLE}{{"a":1,"a":2}}'), "twice"),
        (section(f"functions.f:0{MIDDLE}" + "[" * 100_000), "not JSON"),
        (section(f"functions.f:0{MIDDLE}" + '{"a":' + "9" * 5000 + "}"), "not JSON"),
        (section(f"functions.f:0{MIDDLE}[1]"), "not a JSON object"),
        (section(f"functions.f{MIDDLE}{{}}"), "not functions.NAME:IDX"),
        (section(f"f:0{MIDDLE}{{}}"), "not functions.NAME:IDX"),
        (section(f"functions.:0{MIDDLE}{{}}"), "not functions.NAME:IDX"),
        (section(f"functions.f:-1{MIDDLE}{{}}"), "not functions.NAME:IDX"),
        (section(f"functions.f:٣{MIDDLE}{{}}"), "not functions.NAME:IDX"),
        (section("functions.f:0"), "argument_begin"),
        (section(f"functions.f:0{MIDDLE}{{}}{MIDDLE}"), "argument_begin"),
        (section(f"functions.f:0{MIDDLE}{{<|im_user|>}}"), "special token"),
        (section(), "no call"),
        (section(f"functions.f:0{MIDDLE}{{}}", ending=""), "no end"),
        (section(f"functions.f:0{MIDDLE}{{}}", behind="more"), "behind"),
    ],
)
def test_broken_calls_are_reported(ids, reason):
    reply = CHAT.parse(ids)
    assert any(reason in error.reason for error in reply.errors), reply.errors


def test_a_good_call_beside_a_broken_one_is_kept():
    reply = CHAT.parse(section(f"functions.f:0{MIDDLE}{{}}", f"functions.g:1{MIDDLE}oops"))
    assert [call.id for call in reply.calls] == ["functions.f:0"]
    assert len(reply.errors) == 1


def test_special_tokens_in_content_are_reported_and_dropped():
    reply = CHAT.parse([*CHAT.encode("a"), CHAT.ids["<|im_user|>"], *CHAT.encode("b"), CHAT.stop])
    assert reply.content == "ab"
    assert len(reply.errors) == 1


def test_a_cut_turn_is_not_finished():
    assert not CHAT.parse(CHAT.encode("12")).finished


def test_characters_come_whole():
    decoded, said = Text(CHAT), []
    for token in CHAT.encode("naïve 🙂 天气"):
        said.append(decoded.add(token))
    assert "".join(said) == "naïve 🙂 天气"
    assert all("\ufffd" not in piece for piece in said)
    assert decoded.rest() == ""
    decoded.add(CHAT.encode("🙂")[0])
    assert decoded.rest() == "\ufffd"  # half a character at the end is shown as such, not swallowed


def test_what_decoders_give_for_broken_bytes_waits_for_no_end_of_it():
    """A text of that very character, or of bytes that are none: what waits is bounded, and no character is cut."""
    half = CHAT.encode("🙂")[:2]
    ids = [*CHAT.encode("\ufffd" * 40), *half * 40, *CHAT.encode("天\ufffd" * 20), *half]
    decoded, said = Text(CHAT), ""
    for place, token in enumerate(ids):
        said += decoded.add(token)
        assert len(CHAT.decode(ids[: place + 1])) - len(said) <= 16
    assert said + decoded.rest() == CHAT.decode(ids)
