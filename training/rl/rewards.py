"""Verifiable rewards: what a reply is worth, by rule; and what is taken off for running over the token budget.

A verifier returns 1.0 for a right reply and 0.0 for any other. Budget control (K2 report 3.2.3): a reply cut at its
budget is never right and is penalised. The length reward is Kimi K1.5's (2.3.3), off unless it is configured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from model.chat import Reply
from training.rl.config import RewardConfig


def exact_answer(reply: Reply, answer: str) -> float:
    """1.0 where the reply is the answer and nothing else; space around it and one final full stop, English or Chinese,
    are forgiven."""
    if reply.calls or reply.errors:
        return 0.0
    said = reply.content.strip()
    return float(answer in (said, said.removesuffix(".").rstrip(), said.removesuffix("。").rstrip()))


def right_call(reply: Reply, call: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> float:
    """1.0 where the reply makes one call, of the right tool, valid under its schema, with the right arguments.

    Args:
        reply: the turn; broken calls were put aside by the parser and count as wrong.
        call: {"name": ..., "arguments": {...}, "index": its number in the dialogue}.
        tools: the declared tools, OpenAI's layout.
    """
    if reply.errors or len(reply.calls) != 1:
        return 0.0
    made = reply.calls[0]
    right = made.name == call["name"] and made.index == call.get("index", 0)
    if not right or schema_error(made.name, made.arguments, tools) is not None:
        return 0.0
    return float(same(made.arguments, call["arguments"]))


def schema_error(name: str, arguments: Mapping[str, Any], tools: Sequence[Mapping[str, Any]]) -> str | None:
    """Why a call does not fit the declared tools, in one sentence; None where it fits."""
    for tool in tools:
        if tool["function"]["name"] == name:
            try:
                # without a check of the schema itself, which costs a hundred times as much
                schema = tool["function"]["parameters"]
                validator_for(schema, default=jsonschema.Draft202012Validator)(schema).validate(dict(arguments))
            except jsonschema.ValidationError as error:
                return f"{name}: {error.message}"
            except OverflowError:  # multipleOf a fraction, and a whole number that no float holds
                return f"{name}: a number is too large"
            return None
    return f"{name} is not among the declared tools"


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 equals 1.0, but never true; the order of keys does not count, that of lists does."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return one == other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def group_rewards(
    scores: Sequence[float], lengths: Sequence[int], finished: Sequence[bool], config: RewardConfig
) -> list[float]:
    """Rewards of the K responses to one prompt.

    Args:
        scores: the verifier's, 1.0 for right.
        lengths: tokens of each response.
        finished: whether it ended by itself; what did not was cut at the budget.
    """
    extra = [0.0] * len(scores)
    if config.length_weight > 0:
        extra = length_rewards(lengths, [score == 1.0 for score in scores])
    return [
        score + config.length_weight * more if done else config.over_budget
        for score, more, done in zip(scores, extra, finished, strict=True)
    ]


def length_rewards(lengths: Sequence[int], right: Sequence[bool]) -> list[float]:
    """K1.5 2.3.3: lambda = 0.5 - (len - min) / (max - min) where right, min(0, lambda) where wrong; 0 if all equal."""
    shortest, longest = min(lengths), max(lengths)
    if shortest == longest:
        return [0.0] * len(lengths)
    bonus = [0.5 - (length - shortest) / (longest - shortest) for length in lengths]
    return [value if good else min(0.0, value) for value, good in zip(bonus, right, strict=True)]
