"""The Jinja template against `model.chat`, token for token, through transformers' own apply_chat_template."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast

from model.chat import Chat, assistant, flat, tool_result, user
from tasks.evaluate.template import CHAT_TEMPLATE

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Wetter, 天气",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def both(tokenizer, messages, tools=(), prompt=False):
    copy = Tokenizer.from_str(tokenizer.to_str())  # Chat changes how the one it is given reads special tokens
    theirs = PreTrainedTokenizerFast(tokenizer_object=copy, chat_template=CHAT_TEMPLATE)
    ids = theirs.apply_chat_template(
        messages, tools=list(tools) or None, add_generation_prompt=prompt, tokenize=True, return_dict=False
    )
    return list(ids), flat(Chat(tokenizer).render(messages, tools, prompt))[0]


def test_a_dialogue_with_parallel_calls_renders_alike(tokenizer):
    messages = [
        {"role": "system", "content": "You are terse."},
        user("Paris and Oslo?"),
        assistant("Looking.", [("weather", {"city": "Paris"}), ("geo.weather", {"city": "Oslo", "at": [1, None]})]),
        tool_result("weather", "functions.weather:0", "12 °C"),
        tool_result("geo.weather", "functions.geo.weather:1", "晴\n3"),
        assistant("12 and 3."),
        user("Again."),
        assistant("", [("weather", {"city": "Paris"})]),
        tool_result("weather", "functions.weather:2", ""),
    ]
    theirs, ours = both(tokenizer, messages, [WEATHER], prompt=True)
    assert theirs == ours


def test_foreign_call_ids_are_numbered_and_their_results_follow(tokenizer):
    call = {"id": "call_x9", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rom"}}}
    messages = [
        user("hi"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_x9", "content": "ok"},
    ]
    theirs, ours = both(tokenizer, messages)
    assert theirs == ours
    assert "## Return of functions.weather:0\nok" in tokenizer.decode(ours, skip_special_tokens=False)


def test_text_parts_render_alike(tokenizer):
    parts = [{"type": "text", "text": "Paris "}, {"type": "text", "text": "and Oslo?"}]
    theirs, ours = both(tokenizer, [user(parts), {"role": "assistant", "content": []}])
    assert theirs == ours == both(tokenizer, [user("Paris and Oslo?"), assistant("")])[1]


words = st.text(st.characters(codec="utf-8", exclude_characters="<", exclude_categories=["Cs"]), max_size=20)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | words, lambda inner: st.lists(inner, max_size=2), max_leaves=4
)
names = st.from_regex(r"[a-z]{1,5}(\.[a-z]{1,3})?", fullmatch=True)
calls = st.lists(st.tuples(names, st.dictionaries(st.text("abc", min_size=1), json_values, max_size=2)), max_size=3)


@given(
    turns=st.lists(st.tuples(words, words, calls), min_size=1, max_size=4), prompt=st.booleans(), declared=st.booleans()
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_dialogue_renders_alike(tokenizer, turns, prompt, declared):
    messages, count = [], 0
    for asked, said, made in turns:
        messages += [user(asked), assistant(said, made)]
        for name, _ in made:
            messages.append(tool_result(name, f"functions.{name}:{count}", said))
            count += 1
    theirs, ours = both(tokenizer, messages, [WEATHER] if declared else (), prompt)
    assert theirs == ours


@pytest.mark.parametrize(
    "messages",
    [
        [user("hi"), tool_result("f", "functions.f:0", "1")],
        [assistant("", [("f", {})]), tool_result("f", "functions.f:0", "1"), tool_result("f", "functions.f:0", "1")],
        [{"role": "developer", "content": "x"}],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
    ],
    ids=["a result without a call", "a call answered twice", "an unknown role", "a part that is no text"],
)
def test_what_the_chat_format_refuses_the_template_refuses_too(tokenizer, messages):
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=CHAT_TEMPLATE)
    with pytest.raises(Exception, match=r"answers no open call|is unknown|'?image_url'? cannot be read"):
        theirs.apply_chat_template(messages, tokenize=False)
    with pytest.raises(ValueError, match=r"answers no open call|is unknown|'image_url' cannot be read"):
        Chat(tokenizer).render(messages)
