"""The Jinja template against `model.chat`, token for token, through transformers' own apply_chat_template."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateError
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.utils.chat_template_utils import _compile_jinja_template

from model.chat import Chat, ChatError, assistant, flat, tool_result, user
from tasks.evaluate.release import chat_template

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
    theirs = PreTrainedTokenizerFast(tokenizer_object=copy, chat_template=chat_template())
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
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_any_dialogue_renders_alike(tokenizer, turns, prompt, declared):
    messages, count = [], 0
    for asked, said, made in turns:
        messages += [user(asked), assistant(said, made)]
        for name, _ in made:
            messages.append(tool_result(name, f"functions.{name}:{count}", said))
            count += 1
    theirs, ours = both(tokenizer, messages, [WEATHER] if declared else (), prompt)
    assert theirs == ours


TEXTS = ["", " ", "a\n", "北😀", 'q"\\', "{{ x }}", "## Return of functions.f:0", "<|im_end", "a.b:0", "&<>'"]
JSON: list[Any] = [None, True, 0, -1.5, 10**20, 1e-7, "é", [], {}, [1, {"b": [None]}], {"z": 1, "a": {"ü": "<b>"}}]


def dialogue(draw: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """A dialogue with everything that OpenAI's layout allows, and its tools."""

    def message(role: str, **more: Any) -> dict[str, Any]:
        texts = draw.choices(TEXTS, k=draw.randint(0, 3))
        content = draw.choice(["".join(texts), [{"type": "text", "text": text} for text in texts], None])
        named: dict[str, Any] = {"name": draw.choice(["ada", "a.b", None, ""])} if draw.random() < 0.3 else {}
        return {
            "role": role,
            **({} if content is None and draw.random() < 0.5 else {"content": content}),
            **named,
            **more,
        }

    messages = [message("system")] * (draw.random() < 0.3)
    style = draw.choice(["k2", "foreign", "restarting", "none"])
    count = 0
    for turn in range(draw.randint(0, 3)):
        messages.append(message(draw.choice(["user", "user", "system"])))
        calls: list[dict[str, Any]] = []
        for place in range(draw.randint(0, 3)):
            name = draw.choice(["f", "g.h", "天气", "a:b"])
            ids = {"k2": f"functions.{name}:{count}", "foreign": f"call_{turn}_{place}", "none": None}
            arguments = draw.choice(["{}", '{"a":1}', '{"a": "é"', "", {}, {"x": draw.choice(JSON)}, {"y": JSON}])
            function = {"name": name, "arguments": arguments}
            calls.append({"id": ids.get(style, f"functions.{name}:{place}"), "type": "function", "function": function})
            count += 1
        messages.append(message("assistant", tool_calls=calls or draw.choice([[], None])))
        answered = list(range(len(calls))) if draw.random() < 0.7 else []
        draw.shuffle(answered)
        for place in answered:
            fresh = f"functions.{calls[place]['function']['name']}:{count - len(calls) + place}"
            messages.append(message("tool", tool_call_id=calls[place]["id"] or fresh))
    schema = {"name": "f", "description": draw.choice(TEXTS), "parameters": {"enum": JSON}}
    return messages, draw.choice([[], [WEATHER], [WEATHER, schema]])


def spoil(draw: random.Random, messages: list[dict[str, Any]]) -> None:
    """Put something where it does not belong, or take something away, anywhere in a dialogue."""
    wrong = [None, 0, 7, True, 1.5, "", "x", [], {}, ["x"], [None], {"type": "text"}, {"role": "tool"}]
    node: Any = messages
    while True:
        place = draw.choice(list(node) if isinstance(node, dict) else range(len(node)))
        if draw.random() < 0.6 and isinstance(node[place], list | dict) and node[place]:
            node = node[place]
        elif draw.random() < 0.3:
            del node[place]
            return
        else:
            node[place] = copy.deepcopy(draw.choice(wrong))
            return


@pytest.mark.parametrize("spoiled", [0, 1, 2])
def test_a_thousand_dialogues_render_alike_or_are_refused_alike(tokenizer, spoiled):
    template, chat = _compile_jinja_template(chat_template()), Chat(tokenizer)
    refused = 0
    for seed in range(1000):
        draw = random.Random(f"{spoiled}/{seed}")
        messages, tools = dialogue(draw)
        for _ in range(spoiled):
            if messages:
                spoil(draw, messages)
        prompt, default = draw.random() < 0.5, draw.random() < 0.5
        try:
            theirs = template.render(
                messages=messages, tools=tools, add_generation_prompt=prompt, default_system=default
            )
        except TemplateError:
            theirs = None
        try:
            ours = chat.decode(flat(chat.render(messages, tools, prompt, default))[0])
        except ChatError:
            ours = None
        assert ours == theirs, (seed, messages)
        refused += ours is None
    assert refused == 0 if spoiled == 0 else 200 < refused < 900


def test_k2s_own_system_turn_is_an_option(tokenizer):
    chat = Chat(tokenizer)
    kimi = {"role": "system", "content": "You are Kimi, an AI assistant created by Moonshot AI."}
    asked = [user("hi")]
    assert chat.prompt(asked, [WEATHER], default_system=True) == chat.prompt([kimi, *asked], [WEATHER])
    assert chat.prompt([kimi, *asked], default_system=True) == chat.prompt([kimi, *asked])
    assert chat.prompt([], default_system=True) == chat.prompt([])


@pytest.mark.parametrize(
    "messages",
    [
        [user("hi"), tool_result("f", "functions.f:0", "1")],
        [assistant("", [("f", {})]), tool_result("f", "functions.f:0", "1"), tool_result("f", "functions.f:0", "1")],
        [{"role": "developer", "content": "x"}],
        [user([{"type": "image_url", "image_url": {"url": "x"}}])],
        [assistant("", [("", {})])],
    ],
    ids=["a result without a call", "a call answered twice", "an unknown role", "a part that is no text", "no name"],
)
def test_what_the_chat_format_refuses_the_template_refuses_too(tokenizer, messages):
    theirs = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=chat_template())
    with pytest.raises(
        Exception, match=r"answers no open call|is unknown|'?image_url'? cannot be read|names no function"
    ):
        theirs.apply_chat_template(messages, tokenize=False)
    with pytest.raises(
        ValueError, match=r"answers no open call|is unknown|'image_url' cannot be read|names no function"
    ):
        Chat(tokenizer).render(messages)
