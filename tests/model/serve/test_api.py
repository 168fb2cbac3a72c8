"""OpenAI's API over real HTTP: what comes back is what our generator makes, whole or streamed, alone or in company."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import jsonschema
import pytest

from model.chat import Text, user
from model.engines.engine import Message, Prompt, Sampling
from model.engines.openai import OpenAI
from model.generate import requests_for
from model.reply import ARGUMENTS
from model.serve.grammar import Grammars
from tests.model.serve.conftest import KEY, Running, together

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELLO = [{"role": "user", "content": "Hello 天气"}]
PLACE = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 8}, "days": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TOOLS = [
    {"type": "function", "function": {"name": "weather.now", "description": "The weather", "parameters": PLACE}},
    {"type": "function", "function": {"name": "time", "parameters": NOTHING}},
]


def asked(client: httpx.Client, path: str = CHAT, **body: Any) -> dict[str, Any]:
    if path == CHAT:
        body.setdefault("messages", HELLO)
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(client: httpx.Client, path: str = CHAT, **body: Any) -> list[dict[str, Any]]:
    if path == CHAT:
        body.setdefault("messages", HELLO)
    with client.stream("POST", path, json={**body, "stream": True}) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = [line for line in answer.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_it_says_what_it_serves(client):
    (model,) = client.get("/v1/models").raise_for_status().json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", 1024)
    assert client.get("/v1/models/tiny").raise_for_status().json() == model
    assert client.get("/v1/models/gpt").json()["error"]["code"] == "model_not_found"
    assert client.get("/health", headers={"Authorization": ""}).json() == {"status": "ok"}


def test_an_answer_is_what_the_generator_makes(running, client):
    prompt = running.chat.prompt(HELLO)
    want = running.said(prompt, max_new_tokens=40, temperature=0)
    reply = running.chat.parse(want.tokens)
    found = asked(client, max_tokens=40, temperature=0, logprobs=True, top_logprobs=3)
    (choice,) = found["choices"]
    assert choice["message"]["content"] == reply.content
    assert choice["finish_reason"] == want.finish
    new = len(want.tokens)
    assert found["usage"] == {
        "prompt_tokens": len(prompt),
        "completion_tokens": new,
        "total_tokens": len(prompt) + new,
    }
    told = choice["logprobs"]["content"]
    assert [one["logprob"] for one in told] == pytest.approx(want.log_probs[: len(told)], abs=1e-4)
    assert len(told) in (new, new - 1)  # a token that ends the turn is no part of the text
    # the model's own: a call's marker, which cannot come here, may be likelier
    assert all(one["top_logprobs"][0]["logprob"] >= one["logprob"] - 1e-4 for one in told)
    assert any(one["top_logprobs"][0]["logprob"] == pytest.approx(one["logprob"], abs=1e-4) for one in told)
    assert all(len(one["top_logprobs"]) == 3 for one in told)
    assert bytes(told[0]["bytes"]).decode(errors="replace") == told[0]["token"]


def test_a_stream_joined_is_the_whole_answer_with_its_usage(client):
    body = {"seed": 7, "max_tokens": 60, "n": 3, "logprobs": True}
    whole = asked(client, **body)
    chunks = streamed(client, **body, stream_options={"include_usage": True})
    assert chunks[-1]["usage"] == whole["usage"]
    assert not chunks[-1]["choices"]
    for choice in whole["choices"]:
        own = [chunk["choices"][0] for chunk in chunks[:-1] if chunk["choices"][0]["index"] == choice["index"]]
        assert own[0]["delta"]["role"] == "assistant"
        joined = "".join(one["delta"].get("content", "") for one in own)
        assert joined == (choice["message"]["content"] or "")
        assert [one["finish_reason"] for one in own if one["finish_reason"]] == [choice["finish_reason"]]
        entries = [entry for one in own if one["logprobs"] for entry in one["logprobs"]["content"]]
        assert [entry["bytes"] for entry in entries] == [one["bytes"] for one in choice["logprobs"]["content"]]
    assert len({choice["message"]["content"] for choice in whole["choices"]}) == 3


def test_a_stream_has_no_character_at_which_a_client_might_end_a_line(client, monkeypatch):
    said = "a\x85b\u2028c\u2029d 天"
    monkeypatch.setattr(Text, "add", lambda self, token: said)
    chunks = streamed(client, max_tokens=2)
    assert {chunk["choices"][0]["delta"].get("content") for chunk in chunks} == {"", said, None}


def test_values_that_ask_for_nothing_change_nothing(client):
    plain = asked(client, max_tokens=8, seed=1)["choices"]
    neutral: dict[str, Any] = {
        "top_k": -1,
        "stream_options": {"include_obfuscation": False},
        "prompt_cache_retention": "24h",
    }
    assert asked(client, max_tokens=8, seed=1, **neutral)["choices"] == plain


def test_nothing_of_one_request_is_in_another(running, client):
    """16 at once through 4 rows give each what it got alone."""
    bodies = [{"prompt": f"text {place}", "seed": place, "max_tokens": 3 + place} for place in range(16)]
    alone = [asked(client, TEXT, **body)["choices"] for body in bodies]
    answers = asyncio.run(together(running, bodies, TEXT))
    assert [answer.json()["choices"] for answer in answers] == alone


def test_texts_and_ids_go_on_as_the_generator_would(running, client):
    ids = running.chat.encode("ab")
    (request,) = requests_for([ids], max_new_tokens=9, temperature=0.7, top_p=0.9, seed=11)
    want = running.alone(ids, max_new_tokens=9, temperature=0.7, top_p=0.9, seed=request.seed)
    how = {"max_tokens": 9, "temperature": 0.7, "top_p": 0.9, "seed": 11, "logprobs": 2}
    by_text, by_ids = asked(client, TEXT, prompt="ab", **how), asked(client, TEXT, prompt=ids, **how)
    assert by_text["choices"] == by_ids["choices"]
    told = by_text["choices"][0]["logprobs"]
    assert told["token_logprobs"] == pytest.approx(want.log_probs[: len(told["tokens"])], abs=1e-4)
    assert all(1 <= len(best) <= 2 for best in told["top_logprobs"])  # two halves of characters have one name
    long = asked(client, TEXT, prompt="ab", seed=11, max_tokens=200, logprobs=0)["choices"][0]
    places = zip(long["logprobs"]["tokens"], long["logprobs"]["text_offset"], strict=True)
    assert all(long["text"].startswith(token, place) for token, place in places if "\ufffd" not in token)
    both = asked(client, TEXT, prompt=["ab", "cd"], n=2, seed=3, max_tokens=6)
    assert [choice["index"] for choice in both["choices"]] == [0, 1, 2, 3]
    assert streamed(client, TEXT, prompt="ab", max_tokens=3)[0]["object"] == "text_completion"
    same = asked(client, TEXT, prompt=["ab"] * 3, seed=3, max_tokens=40)
    assert len({choice["text"] for choice in same["choices"]}) == 3


def test_every_token_is_told_with_its_bytes(running):
    format, known = running.chat, running.chat.tokenizer.get_vocab_size()
    grammars = Grammars(format, known + 2, ())
    assert sorted(grammars.bytes_of(token) for token in range(256)) == [bytes([byte]) for byte in range(256)]
    assert all(grammars.bytes_of(token).decode() == format.decode([token]) for token in format.specials)
    beyond = range(known, known + 2)  # the embedding may have more rows than there are tokens
    assert {(grammars.bytes_of(token), format.decode([token])) for token in beyond} == {(b"", "")}


def test_a_stop_string_cuts_the_answer_and_frees_its_row(running, client):
    whole = asked(client, TEXT, prompt="ab", seed=4, max_tokens=200)["choices"][0]["text"]
    stop = whole[40:43]
    cut = whole[: whole.index(stop)]
    found = asked(client, TEXT, prompt="ab", seed=4, max_tokens=200, stop=[stop, "never"])
    assert (found["choices"][0]["text"], found["choices"][0]["finish_reason"]) == (cut, "stop")
    assert found["usage"]["completion_tokens"] < 100
    chunks = streamed(client, TEXT, prompt="ab", seed=4, max_tokens=200, stop=stop)
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == cut


@pytest.mark.parametrize(
    ("choice", "several", "names"),
    [
        ("required", False, {"weather.now", "time"}),
        ("required", True, {"weather.now", "time"}),
        ({"type": "function", "function": {"name": "time"}}, True, {"time"}),
    ],
)
def test_a_call_that_is_asked_for_is_made_and_fits_its_schema(client, choice, several, names):
    """A model of random weights calls well, whole and streamed: its tokens are held to the grammar."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    earlier = [
        *HELLO,
        {"role": "assistant", "tool_calls": [{"id": "x1", "function": {"name": "time", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "x1", "content": "noon"},
    ]
    body = {
        "messages": earlier,
        "tools": TOOLS,
        "tool_choice": choice,
        "parallel_tool_calls": several,
        "seed": 2,
        "n": 3,
    }
    whole, chunks = asked(client, **body), streamed(client, **body)
    for made in whole["choices"]:
        assert made["finish_reason"] == "tool_calls"
        assert "tool_call_errors" not in made["message"]
        calls = made["message"]["tool_calls"]
        assert len(calls) == 1 or (several and choice == "required")
        for place, call in enumerate(calls):
            name = call["function"]["name"]
            assert name in names
            assert call["id"] == f"functions.{name}:{place + 1}"  # one was made earlier in the dialogue
            jsonschema.validate(json.loads(call["function"]["arguments"]), schemas[name])
        joined: list[dict[str, Any]] = []
        for chunk in chunks:
            if chunk["choices"][0]["index"] == made["index"]:
                for delta in chunk["choices"][0]["delta"].get("tool_calls", ()):
                    if "id" in delta:
                        joined.append({key: delta[key] for key in ("id", "type", "function")})
                    else:
                        joined[delta["index"]]["function"]["arguments"] += delta["function"]["arguments"]
        assert joined == calls


def test_a_call_that_the_limit_cuts_off_is_told_as_an_error_and_is_no_call(client):
    body = {"tools": TOOLS, "tool_choice": "required", "parallel_tool_calls": False, "seed": 2, "max_tokens": 30}
    (choice,), chunks = asked(client, **body)["choices"], streamed(client, **body)
    assert choice["finish_reason"] == "length"
    assert "tool_calls" not in choice["message"]
    (cut,) = choice["message"]["tool_call_errors"]
    assert cut["reason"] == "a tool call has no end"
    assert cut["text"].startswith("functions.weather.now:0")
    last = chunks[-1]["choices"][0]
    assert (last["finish_reason"], last["delta"]["tool_call_errors"]) == ("length", [cut])


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        True,
        {"properties": {}, "additionalProperties": False},
        {"type": ["object", "null"], "maxProperties": 0},
        {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/none"}], "$defs": {"none": NOTHING}},
    ],
)
def test_arguments_are_an_object_whatever_their_schema_leaves_open(client, parameters):
    tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
    for choice in asked(client, tools=[tool], tool_choice="required", n=4, seed=3, max_tokens=60)["choices"]:
        written = [call["function"]["arguments"] for call in choice["message"].get("tool_calls", ())]
        cut = [error["text"].partition(ARGUMENTS)[2] for error in choice["message"].get("tool_call_errors", ())]
        assert (written or cut)[0].startswith("{")


@pytest.mark.parametrize("kind", ["path", "password", "binary", "phone"])
def test_a_format_that_nobody_knows_binds_nothing(client, kind):
    """As JSON Schema has it; Pydantic writes the first three."""
    place = {"properties": {"x": {"type": "string", "maxLength": 3, "format": kind}}, "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "f", "parameters": place | {"required": ["x"]}}}
    (choice,) = asked(client, tools=[tool], tool_choice="required", parallel_tool_calls=False, seed=3)["choices"]
    assert len(json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["x"]) <= 3


WIDEST = 2**63
LARGEST = 1.7976931348623157e308


@pytest.mark.parametrize(
    "bounds",
    [
        {"type": "integer", "minimum": -WIDEST, "maximum": WIDEST - 1},
        {"type": "integer", "minimum": 0, "maximum": 2 * WIDEST - 1},
        {"type": ["integer", "null"], "minimum": -WIDEST - 1},
        {"type": "integer", "minimum": -(2**53) - 1, "maximum": -(2**53) - 1 + 2},
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": WIDEST},
        {"type": "number", "minimum": -LARGEST, "maximum": LARGEST},
        {"type": "number", "maximum": 3.4028234663852886e38},
    ],
    ids=str,
)
def test_a_tool_with_the_bounds_of_a_kind_of_number_can_be_called(client, bounds):
    """Servers in Go and Rust write them; llguidance overflows its stack at some and takes others for no numbers."""
    schema = {
        "type": "object",
        "properties": {"x": bounds, "minimum": {"enum": [{"minimum": -1e20}]}},
        "required": ["x", "minimum"],
        "additionalProperties": False,
    }
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    found = asked(client, tools=[tool], tool_choice="required", parallel_tool_calls=False, n=4, seed=3, max_tokens=400)
    whole = [one for one in found["choices"] if one["finish_reason"] == "tool_calls"]
    assert whole
    for choice in whole:
        written = json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])
        validator = jsonschema.Draft4Validator if "exclusiveMinimum" in bounds else jsonschema.Draft202012Validator
        validator(schema).validate(written)


@pytest.mark.parametrize(
    "schema",
    [
        {"enum": ["<|im_end|>"]},
        {"const": "a<|tool_calls_section_begin|>b[EOS]"},
        {"type": "string", "pattern": r"^\[PAD\](<\|im_end\|>){2}$"},
        {
            "type": "object",
            "properties": {"[EOS]": {"type": "null"}},
            "required": ["[EOS]"],
            "additionalProperties": False,
        },
    ],
    ids=str,
)
def test_a_schema_may_hold_the_text_of_a_special_token(running, client, schema):
    """It is written as any text is, in other tokens than that one, and the answer goes on behind it."""
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    (choice,) = asked(client, response_format=form, seed=1, logprobs=True)["choices"]
    jsonschema.validate(json.loads(choice["message"]["content"]), schema)
    assert choice["finish_reason"] == "stop"
    assert all(len(one["bytes"]) == 1 for one in choice["logprobs"]["content"])  # of this test's tokenizer


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("parameters", [None, {"type": "object", "properties": {"x": {"uniqueItems": True}}}])
def test_calls_that_the_model_makes_by_itself_are_of_tools_that_there_are(client, several, parameters):
    """A model of random weights writes a call's markers anywhere: what it makes of them is whole, or text. Where a
    schema cannot be followed the names are."""
    odd = [{"type": "function", "function": {"name": "odd", "parameters": parameters}}] if parameters else []
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}
    called = 0
    for seed in range(3):
        body = {"tools": [*TOOLS, *odd], "parallel_tool_calls": several, "seed": seed, "n": 4, "max_tokens": 400}
        for choice in asked(client, **body)["choices"]:
            calls = choice["message"].get("tool_calls", [])
            assert len(calls) <= 1 or several
            if choice["finish_reason"] != "length":  # cut within a call, which is told as an error
                assert "tool_call_errors" not in choice["message"]
                assert choice["finish_reason"] == ("tool_calls" if calls else "stop")
            called += len(calls)
            for call in calls:
                name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
                assert name in {*schemas, "odd"}
                if not odd:
                    jsonschema.validate(arguments, schemas[name])
    assert called


def test_without_tools_nothing_is_called(client):
    for told in ({}, {"tools": TOOLS, "tool_choice": "none"}):
        for choice in asked(client, **told, seed=1, n=8, max_tokens=200)["choices"]:
            assert not {"tool_calls", "tool_call_errors"} & set(choice["message"])


def test_without_a_choice_the_model_answers_as_it_likes(running, client):
    prompt = running.chat.prompt(HELLO, TOOLS)
    found = asked(client, tools=TOOLS, max_tokens=30, temperature=0)
    assert found["usage"]["prompt_tokens"] == len(prompt)
    none = asked(client, tools=TOOLS, tool_choice="none", max_tokens=30, temperature=0)
    assert none["usage"]["prompt_tokens"] == len(running.chat.prompt(HELLO))


def test_json_of_a_schema(client):
    form = {"type": "json_schema", "json_schema": {"name": "place", "schema": PLACE, "strict": True}}
    found = asked(client, response_format=form, n=4, seed=1, max_tokens=300)
    for choice in found["choices"]:
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), PLACE)
    (free,) = asked(client, response_format={"type": "json_object"}, seed=1, max_tokens=20)["choices"]
    assert free["message"]["content"].startswith("{")


def test_our_own_client_talks_to_it(running, monkeypatch):
    monkeypatch.setenv("OPENK2_ENGINE_KEY", KEY)
    want = running.chat.parse(running.said(running.chat.prompt([user("Hi")]), max_new_tokens=12, temperature=0).tokens)
    with OpenAI(f"{running.url}/v1", "tiny") as engine:
        prompts = [Prompt((Message("user", "Hi"),), Sampling(temperature=0.0), 12, seed) for seed in range(3)]
        done = engine.complete(prompts)
    assert {one.text for one in done} == {want.content}
    assert not done[0].estimated


def test_the_openai_package_talks_to_it(running: Running):
    openai = pytest.importorskip("openai")
    with openai.OpenAI(base_url=f"{running.url}/v1", api_key=KEY, max_retries=0) as client:
        said = client.chat.completions.create(model="tiny", messages=HELLO, tools=TOOLS, tool_choice="required", seed=2)
        for call in said.choices[0].message.tool_calls:
            json.loads(call.function.arguments)
        stream = client.chat.completions.create(model="tiny", messages=HELLO, max_tokens=5, stream=True)
        assert [chunk.choices[0].finish_reason for chunk in stream][-1]
        with pytest.raises(openai.NotFoundError, match="there is no model 'gpt'"):
            client.chat.completions.create(model="gpt", messages=HELLO)
        with pytest.raises(openai.BadRequestError, match="min_p"):
            client.chat.completions.create(model="tiny", messages=HELLO, extra_body={"min_p": 0.5})
