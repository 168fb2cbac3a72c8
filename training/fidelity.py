"""How faithfully a model calls tools: at every assistant turn of a dialogue, what was due and what it did.

The figures are those of Moonshot's vendor verifier: the trigger's precision, recall and F1 (was a call made where one
was due), and the share of calls that fit their schema. Beside them: turns whose calls are exactly those that were due.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow.parquet as pq
import torch

from model.chat import Chat
from model.generate import Generator, Request
from model.transformer import Transformer
from training.inputs import parts
from training.intervals import wilson
from training.rl.config import MAX_ROWS
from training.rl.rewards import same, schema_error

GREEDY = 0.0


@dataclass(frozen=True)
class Turn:
    """One assistant turn of a dialogue with tools: everything before it, and the calls it makes."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    """{"name", "arguments", "id"}; empty where an answer in words is due."""
    environment: str = ""
    topic: str = ""
    """The function of the dialogue's first call, or the family of its world."""


@dataclass(frozen=True)
class Trigger:
    """One turn: what was due and what the model did."""

    due: bool
    """A call was due."""
    called: bool
    """The model opened a tool section."""
    valid: int
    """Calls that parse, name a declared tool and fit its schema."""
    attempted: int
    """Calls begun, broken ones included."""
    exact: bool
    """The calls are exactly those that were due: names and arguments."""


def tool_turns(uri: str, split: str, count: int, first: bool = False) -> list[Turn]:
    """Every assistant turn (the first alone, if `first`) of the first `count` dialogues of each environment of a split
    that declare tools."""
    turns: list[Turn] = []
    for path in parts(uri, f"dialogues/{split}").values():
        taken = 0
        for row in pq.read_table(path, columns=["environment", "topic", "messages", "tools"]).to_pylist():
            tools, messages = json.loads(row["tools"]), json.loads(row["messages"])
            if not tools or taken == count:
                continue
            taken += 1
            places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
            for place in places[:1] if first else places:
                calls = [_call(call) for call in messages[place].get("tool_calls") or []]
                turns.append(Turn(messages[:place], tools, calls, row["environment"], row["topic"]))
    return turns


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    return {
        "id": call["id"],
        "name": function["name"],
        "arguments": json.loads(arguments) if isinstance(arguments, str) else arguments,
    }


def try_tools(
    model: Transformer,
    chat: Chat,
    turns: Sequence[Turn],
    max_new_tokens: int,
    dtype: str,
    beat: Callable[[str], None] = lambda doing: None,
) -> list[Trigger | None]:
    """What the model does, greedily, at each turn; the turns before it are the dialogue's own. None for a turn whose
    prompt leaves the window no room for `max_new_tokens`."""
    room = model.config.max_position_embeddings - max_new_tokens
    prompts = [chat.prompt(turn.messages, turn.tools) for turn in turns]
    # long prompts first: rows of like length share a prefill
    asked = sorted((place for place, ids in enumerate(prompts) if len(ids) <= room), key=lambda at: -len(prompts[at]))
    requests = [Request(prompts[place], max_new_tokens, GREEDY, stop_ids=(chat.stop,)) for place in asked]
    found: list[Trigger | None] = [None] * len(turns)
    with torch.autocast(model.embed_tokens.weight.device.type, torch.bfloat16, enabled=dtype == "bfloat16"):
        stream = Generator(model, max_rows=MAX_ROWS).stream(requests, lambda *_: beat("a token of a reply"))
        for number, done in stream:
            found[asked[number]] = judge(chat, turns[asked[number]], done.tokens)
    return found


def judge(chat: Chat, turn: Turn, ids: Sequence[int]) -> Trigger:
    """Hold a generated turn against the one that was due."""
    reply = chat.parse(ids)
    begun = list(ids).count(chat.ids["<|tool_call_begin|>"])
    called = chat.ids["<|tool_calls_section_begin|>"] in ids
    valid = sum(schema_error(call.name, call.arguments, turn.tools) is None for call in reply.calls)
    exact = not reply.errors and len(reply.calls) == len(turn.calls)
    exact = exact and all(
        made.id == due["id"] and same(made.arguments, due["arguments"])
        for made, due in zip(reply.calls, turn.calls, strict=True)
    )
    # a section that never begins a call still tried one
    return Trigger(bool(turn.calls), called, valid, max(begun, len(reply.calls), int(called)), exact)


def tool_call_fidelity(turns: Sequence[Trigger]) -> dict[str, Any]:
    """Trigger precision, recall and F1, schema accuracy of the calls made, and exact matches of the turns due; those
    that are proportions with their 95 % intervals.

    A ratio over nothing is None, never 0 or 1: a model that makes no call has no schema accuracy.
    """
    hits = sum(turn.due and turn.called for turn in turns)
    due = sum(turn.due for turn in turns)
    called = sum(turn.called for turn in turns)
    attempted = sum(turn.attempted for turn in turns)
    exact = sum(turn.due and turn.exact for turn in turns)
    shares = {
        "trigger_precision": (hits, called),
        "trigger_recall": (hits, due),
        "schema_accuracy": (sum(turn.valid for turn in turns), attempted),
        "exact": (exact, due),
    }
    found: dict[str, Any] = {"turns": len(turns), "due": due, "called": called, "calls": attempted}
    found["trigger_f1"] = round(2 * hits / (due + called), 4) if due + called else None
    for name, (part, whole) in shares.items():
        found[name] = round(part / whole, 4) if whole else None
        if whole:
            interval = wilson(part, whole)
            found[f"{name}_interval"] = [round(interval.low, 4), round(interval.high, 4)]
    return found


def by_group(
    turns: Sequence[Turn], triggers: Sequence[Trigger | None], name: Callable[[Turn], str]
) -> dict[str, Mapping[str, Any]]:
    """The figures of each group of turns, by the group's name; turns of the name "" are in none."""
    groups: dict[str, list[Trigger]] = {}
    for turn, trigger in zip(turns, triggers, strict=True):
        if trigger is not None and name(turn):
            groups.setdefault(name(turn), []).append(trigger)
    return {group: tool_call_fidelity(found) for group, found in sorted(groups.items())}


def fidelity(turns: Sequence[Turn], triggers: Sequence[Trigger | None]) -> dict[str, Any]:
    """All figures: of the turns with known tools, wordings and names (what the goals are set for), of each environment,
    and of each tool that no training dialogue has."""
    known = [
        trigger
        for turn, trigger in zip(turns, triggers, strict=True)
        if trigger is not None and turn.environment in ("tool_call", "no_call")
    ]
    return {
        **tool_call_fidelity(known),
        "by_environment": by_group(turns, triggers, lambda turn: turn.environment),
        "by_unseen_tool": by_group(
            turns, triggers, lambda turn: turn.topic if turn.environment == "tool_call_tool" else ""
        ),
        "by_tool": by_group(
            turns, triggers, lambda turn: turn.topic if turn.environment in ("tool_call", "tool_call_server") else ""
        ),
    }
