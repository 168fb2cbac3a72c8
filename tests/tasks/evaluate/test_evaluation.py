"""The evaluation: figures held against independent computation; resumed without measuring a model twice."""

from __future__ import annotations

import json
import math
from itertools import combinations, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from model.chat import Chat, ToolCall, compact
from model.convert import as_served
from model.transformer import Transformer
from tasks.agentic.config import CallsConfig, DialoguesConfig, TaskConfig
from tasks.artifact import Artifact, Step
from tasks.corpus.executor import Processes
from tasks.evaluate import evaluation
from tasks.evaluate.config import EvaluateConfig, ReleaseConfig
from tasks.evaluate.evaluation import MODELS, difference, evaluate_release, table
from tasks.evaluate.measure import even, heldout_loss, show
from tasks.evaluate.release import release
from tests.posttraining import (
    Label,
    byte_tokenizer,
    dialogues_artifact,
    model_artifact,
    tiny_config,
    tokenizer_artifact,
)
from tests.shards import publish_shards
from tests.tasks.evaluate.conftest import small_model, small_tokenizer
from training.fidelity import Turn, judge, tool_turns, try_tools
from training.rl.environments import Problem
from training.shards import TokenShards

CONFIG = EvaluateConfig(
    heldout_tokens=128,
    sequence_length=32,
    problems=7,
    samples=2,
    max_new_tokens=6,
    tool_dialogues=2,
    continuation_prompts=("def f",),
    chat_prompts=("1+1=",),
)


def heldout_tokens(root, end: int) -> Artifact:
    """Two held-out domains, one of them too small for a window."""
    step = Step("tokens", Label(name="tokens"), str(root))
    statistics, shards = {}, {}
    for domain, count in (("code", 400), ("web", 20)):
        tokens = np.random.default_rng(len(domain)).integers(0, 256, count).astype("<u4")
        tokens[50::97] = end
        index = pa.table({"start": [0], "end": [count], "id": ["document"]})
        shards[f"heldout/{domain}/made/0"] = (tokens, index)
        statistics[domain] = {"tokens": count, "documents": 1, "bytes_per_token": 2.0}
    return publish_shards(step, shards, {"vocabulary": 273, "end_of_document": end, "heldout": statistics})


def network(seed: int) -> Transformer:
    return Transformer(tiny_config(moe_intermediate_size=32, initializer_range=0.2), seed=seed)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory) -> dict[str, Artifact]:
    root = tmp_path_factory.mktemp("evaluation")
    tokenizer = tokenizer_artifact(root)
    tasks = (
        TaskConfig(family="copy", size=2, train=4, development=1, test=6),
        TaskConfig(family="larger", train=4, development=1, test=3),
    )
    calls = CallsConfig(train=2, development=1, test=3, offered=2, requests=2)
    literals = DialoguesConfig(tasks=tasks, calls=calls, max_tokens=1024, heldout_share=0.3)
    models = {name: model_artifact(root, network(seed), name) for seed, name in enumerate(("base", "sft", "rl"))}
    step = Step("release", ReleaseConfig(verify=False), str(root))
    return {
        "release": release(step, models["rl"], tokenizer),
        **models,
        "dialogues": dialogues_artifact(root, tokenizer, literals),
        "tokens": heldout_tokens(root, 257),
    }


@pytest.fixture(scope="module")
def evaluated(inputs, tmp_path_factory) -> Artifact:
    return evaluate_release(Step("evaluation", CONFIG, str(tmp_path_factory.mktemp("out"))), inputs)


def test_every_model_is_measured_on_the_same_things(evaluated):
    statistics = evaluated.statistics
    assert list(statistics["models"]) == list(MODELS)
    rows = {name: pq.read_table(evaluated.file(f"replies/{name}")).to_pylist() for name in MODELS}
    problems = [row["problem"] for row in rows["base"]]
    assert all([row["problem"] for row in rows[name]] == problems for name in MODELS)
    assert len(problems) == statistics["problems"] == 7
    for name in MODELS:
        model = statistics["models"][name]
        assert set(model["heldout"]) == {"code"}  # the other domain holds no window
        assert model["pass_rate"]["problems"] == 7
        assert sum(entry["problems"] for entry in model["by_environment"].values()) == 7
        assert model["pass_rate"]["greedy"]["low"] <= model["pass_rate"]["greedy"]["value"]
        assert [sample["kind"] for sample in model["samples"]] == ["continuation", "chat", "tool call"]
        turns = sum(entry["turns"] for entry in model["tools"]["by_environment"].values())
        assert turns == statistics["tool_turns"] > model["tools"]["turns"]
    assert statistics["differences"].keys() == {"sft to rl", "rl to int4", "bf16 to int4", "sft to int4"}
    assert len(statistics["not_measured"]) >= 4
    json.dumps(statistics, allow_nan=False)
    text = table(statistics)
    assert "| int4 |" in text
    assert "Not measured" in text


def test_two_processes_give_the_same_numbers_and_bytes_as_one(evaluated, inputs, tmp_path):
    again = evaluate_release(Step("evaluation", CONFIG, str(tmp_path)), inputs, Processes(2))
    assert again.statistics == evaluated.statistics
    assert again.manifest["content"] == evaluated.manifest["content"]


def test_what_was_measured_is_kept_after_an_interruption(evaluated, inputs, tmp_path, monkeypatch):
    step = Step("evaluation", CONFIG, str(tmp_path))
    measured, measure = [], evaluation._measure

    def interrupted(step, name, *rest):
        measured.append(name)
        if measured == ["base", "sft", "rl"]:
            raise KeyboardInterrupt
        measure(step, name, *rest)

    monkeypatch.setattr(evaluation, "_measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate_release(step, inputs)
    assert step.artifact() is None
    again = evaluate_release(step, inputs)
    assert measured == ["base", "sft", "rl", "rl", "bf16", "int4"]
    assert again.statistics == evaluated.statistics


def test_the_heldout_loss_is_cross_entropy_within_documents(inputs):
    model = as_served(network(2), int4=False)
    found = heldout_loss(model, inputs["tokens"], CONFIG)["code"]
    tokens = TokenShards(inputs["tokens"].uri).streams("heldout")["code", "made"][0].tokens_T.astype(np.int64)
    losses = {}
    for start in range(0, 400 - 32, 32):  # every window, each document of it alone, at its own positions
        window = torch.from_numpy(tokens[start : start + 33])
        ends = [0, *(place + 1 for place in range(31) if window[place] == 257), 32]
        logits = []
        for low, high in pairwise(ends):
            if low < high:
                positions = torch.arange(low, high)[None]
                logits.append(model.logits(model(window[None, low:high], positions_BS=positions).hidden_BSD)[0])
        losses[start] = float(torch.nn.functional.cross_entropy(torch.cat(logits).detach(), window[1:]))
    assert found["tokens"] == 128
    # four of the twelve windows, in the loader's order: their mean lies among all choices of four, and is one of them
    means = [sum(chosen) / 4 for chosen in combinations(losses.values(), 4)]
    assert min(abs(mean - found["nats"]) for mean in means) < 2e-5
    assert found["bits_per_byte"] == pytest.approx(found["nats"] / math.log(2) / 2.0, abs=1e-5)


def test_problems_are_drawn_evenly_and_in_order():
    def problem(environment: str, number: int) -> Problem:
        return Problem(f"{environment}{number}", environment, "exact", ({"role": "user", "content": "?"},), "1")

    problems = [problem("b", n) for n in range(10)] + [problem("a", n) for n in range(2)]
    assert [p.id for p in even(problems, 6)] == ["a0", "a1", "b0", "b1", "b2", "b3"]
    assert len(even(problems, 100)) == 12
    assert [p.id for p in even(problems, 3)] == ["a0", "a1", "b0"]


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def section(chat: Chat, *calls: tuple[str, str]) -> list[int]:
    ids = [chat.ids["<|tool_calls_section_begin|>"]]
    for call_id, arguments in calls:
        ids += [chat.ids["<|tool_call_begin|>"], *chat.encode(call_id), chat.ids["<|tool_call_argument_begin|>"]]
        ids += [*chat.encode(arguments), chat.ids["<|tool_call_end|>"]]
    return [*ids, chat.ids["<|tool_calls_section_end|>"], chat.stop]


@pytest.mark.parametrize(
    ("made", "called", "valid", "attempted", "exact"),
    [
        ([("functions.weather:0", '{"city":"Oslo"}')], True, 1, 1, True),
        ([("functions.weather:0", '{"city": "Oslo"}')], True, 1, 1, True),  # space in JSON says nothing
        ([("functions.weather:0", '{"city":"Rome"}')], True, 1, 1, False),
        ([("functions.weather:0", '{"town":"Oslo"}')], True, 0, 1, False),
        ([("functions.weather:0", '{"city":"Oslo"')], True, 0, 1, False),
        ([("functions.climate:0", '{"city":"Oslo"}')], True, 0, 1, False),
        ([("functions.weather:0", '{"city":"Oslo"}'), ("functions.weather:1", "{}")], True, 1, 2, False),
        (None, False, 0, 0, False),
    ],
)
def test_a_turn_is_judged_by_what_was_due(made, called, valid, attempted, exact):
    chat = Chat(byte_tokenizer())
    call = ToolCall("weather", {"city": "Oslo"}, 0)
    turn = Turn([], [WEATHER], [{"id": call.id, "name": call.name, "arguments": call.arguments}])
    ids = section(chat, *made) if made is not None else [*chat.encode("It is cold."), chat.stop]
    found = judge(chat, turn, ids)
    assert (found.due, found.called, found.valid, found.attempted, found.exact) == (
        True,
        called,
        valid,
        attempted,
        exact,
    )


def test_an_answer_in_words_is_right_where_words_are_due():
    chat = Chat(byte_tokenizer())
    turn = Turn([], [WEATHER], [])
    said = judge(chat, turn, [*chat.encode("It is cold."), chat.stop])
    assert (said.due, said.called, said.exact) == (False, False, True)
    begun = judge(chat, turn, [chat.ids["<|tool_calls_section_begin|>"]])
    assert (begun.called, begun.attempted, begun.valid) == (True, 1, 0)


def test_every_assistant_turn_of_a_tool_dialogue_is_tried(inputs):
    turns = [turn for turn in tool_turns(inputs["dialogues"].uri, "test", 2) if turn.environment == "tool_call"]
    assert len(turns) >= 4
    assert [bool(turn.calls) for turn in turns[:2]] == [True, False]
    assert turns[0].messages[-1]["role"] == "user"
    assert turns[1].messages[-1]["role"] == "tool"
    chat = Chat(byte_tokenizer())
    for turn in turns:  # the dialogue's own turn is judged right
        if turn.calls:
            ids = section(chat, *((call["id"], compact(call["arguments"])) for call in turn.calls))
            assert judge(chat, turn, ids).exact
    first = tool_turns(inputs["dialogues"].uri, "test", 2, first=True)
    assert len(first) == 2 * 5, "two dialogues of each environment"
    assert {turn.environment for turn in first if not turn.calls} == {"no_call"}


def test_a_turn_that_the_window_cannot_hold_is_left_out(inputs):
    turns = tool_turns(inputs["dialogues"].uri, "test", 3)
    chat = Chat(byte_tokenizer())
    lengths = sorted(len(chat.prompt(turn.messages, turn.tools)) for turn in turns)
    small = Transformer(tiny_config(max_position_embeddings=lengths[1] + 5), seed=0)
    tried = try_tools(small, chat, turns, 5, "float32")
    assert sum(one is not None for one in tried) == sum(length <= lengths[1] for length in lengths) < len(turns)
    assert try_tools(small, chat, turns, 1000, "float32") == [None] * len(turns)


def test_models_measured_on_different_problems_are_not_compared():
    row = {"problem": "a", "greedy": 1.0, "sampled": 0.5}
    with pytest.raises(ValueError, match="different problems"):
        difference([row], [row | {"problem": "b"}])


def test_text_is_shown_of_the_prompts_that_the_window_has_room_for(caplog):
    model, chat = small_model(), Chat(small_tokenizer())
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    turns = [
        Turn([{"role": "user", "content": text}], [tool], [{"name": "f", "arguments": {}, "id": "functions.f:0"}])
        for text in ("word " * model.config.max_position_embeddings, "call f")
    ]
    config = CONFIG.model_copy(update={"chat_prompts": ("1+1=", "word " * model.config.max_position_embeddings)})
    shown = show(model, chat, turns, config)
    assert [(one["kind"], one["prompt"]) for one in shown] == [
        ("continuation", "def f"),
        ("chat", "1+1="),
        ("tool call", "call f"),
    ]
    assert "not shown: the chat of 'word word" in caplog.text


def test_a_prompt_of_nothing_is_continued_from_the_beginning():
    config = CONFIG.model_copy(update={"continuation_prompts": ("",), "chat_prompts": ()})
    (shown,) = show(small_model(), Chat(small_tokenizer()), [], config)
    assert (shown["kind"], shown["prompt"]) == ("continuation", "")
