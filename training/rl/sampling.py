"""Replies of a model to prompts, one each: batched, each with a seed of its own. Episodes of RL are `episodes.py`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from model.generate import Generator, Request
from model.transformer import Transformer
from training.rl.config import MAX_ROWS


@dataclass(frozen=True)
class Response:
    """One sampled response."""

    ids: Sequence[int]
    """Its token ids, the end of turn included where it got there."""
    log_probs: Sequence[float]
    """Of each token under the distribution it was drawn from (the temperature included); 0 where greedy."""
    finished: bool
    """Whether it ended by itself and not at its budget."""


def seeded(*parts: Any) -> int:
    """A 63-bit seed from what names a draw: independent streams without shared state."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "little") >> 1


def sample(
    model: Transformer,
    prompts: Sequence[Sequence[int]],
    budgets: Sequence[int],
    seeds: Sequence[Sequence[int]],
    temperature: float,
    stop: int,
    dtype: str,
    beat: Callable[[str], None] = lambda doing: None,
) -> list[list[Response]]:
    """Responses to each prompt, one for each of its seeds.

    Args:
        budgets: most tokens of a response, by prompt.
        seeds: by prompt, the seeds of its responses.
        temperature: 0 takes the likeliest token.
        stop: the token that ends a response.
        dtype: precision of the forward, "bfloat16" or "float32".
        beat: hears of every token.
    """
    # Long prompts first: rows of like length share a prefill, and the longest responses begin early.
    order = sorted(range(len(prompts)), key=lambda place: (-len(prompts[place]), place))
    requests = [
        Request(prompts[place], budgets[place], temperature, stop_ids=(stop,), seed=seed)
        for place in order
        for seed in seeds[place]
    ]
    device = model.embed_tokens.weight.device.type
    with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
        stream = Generator(model, max_rows=MAX_ROWS).stream(requests, lambda *_: beat("a token of a reply"))
        done = dict(stream)
    completions = iter([done[number] for number in range(len(requests))])
    found: dict[int, list[Response]] = {}
    for place in order:
        found[place] = [
            Response(done.tokens, done.tempered_log_probs, done.finish == "stop")
            for done in (next(completions) for _ in seeds[place])
        ]
    return [found[place] for place in range(len(prompts))]
