"""What the responses to a prompt are worth, and how calls are held against schemas and other calls.

Budget control (K2 report 3.2.3): a reply cut at its budget is never right and is penalised. The length reward is Kimi
K1.5's (2.3.3), off unless it is configured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
from jsonschema.validators import validator_for

from training.rl.config import RewardConfig


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
