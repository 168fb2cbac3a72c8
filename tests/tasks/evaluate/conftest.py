"""A small real tokenizer and published training artifacts, for templates, releases and evaluations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from model.config import Config, ModelConfig
from model.moe import Router
from model.sizes import model_preset
from model.transformer import Transformer
from model.vocabulary import SPECIAL_TOKENS
from tasks.artifact import Step

VOCABULARY = 384


class Literals(Config):
    """A stage's configuration that says nothing."""

    seed: int = 0


def small_tokenizer() -> Tokenizer:
    """A byte-level BPE of at most 384 entries whose last ids are K2's special tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    text = ["What is 12 + 30? The answer is 42.", 'functions.weather {"city":"Paris"}', "你好，世界", "## Return of "]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(text * 4, trainer)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def small_model(seed: int = 0, **changes) -> Transformer:
    """The tiny network on `small_tokenizer`, with YaRN and correction biases, as training leaves one."""
    tokenizer = small_tokenizer()
    named = {"bos_token_id": "[BOS]", "eos_token_id": "[EOS]", "pad_token_id": "[PAD]"}
    ids = {field: tokenizer.token_to_id(token) for field, token in named.items()}
    config = model_preset("tiny", vocab_size=VOCABULARY, **ids)
    model = Transformer(config.replace(**changes, max_position_embeddings=128).with_yarn(4), seed=seed)
    draw = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, Router):
            module.e_score_correction_bias.copy_(torch.randn(8, generator=draw) / 100)
    return model


def publish_tokenizer(root: Path) -> Step:
    step = Step("tokenizer", Literals(), str(root))
    step.put("tokenizer", ".json", lambda path: small_tokenizer().save(str(path)))
    step.publish({"vocabulary": VOCABULARY})
    return step


def publish_model(root: Path, name: str, model: Transformer, statistics=None, inputs=()) -> Step:
    step = Step(name, Literals(), str(root), inputs=tuple(inputs))
    step.put("model/model.safetensors", ".safetensors", lambda path: save_file(model.state_dict(), path))
    config: ModelConfig = model.config
    step.put("model/config.json", ".json", lambda path: path.write_text(json.dumps(config.model_dump(mode="json"))))
    step.publish(statistics or {})
    return step


@pytest.fixture
def tokenizer() -> Tokenizer:
    return small_tokenizer()
