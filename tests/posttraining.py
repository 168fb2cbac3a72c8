"""What the tests of post-training share: a byte tokenizer with K2's special tokens, a tiny network, jobs on both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from safetensors.torch import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from model.chat import Chat
from model.config import Config, ModelConfig
from model.transformer import Transformer
from model.vocabulary import SPECIAL_TOKENS
from tasks.agentic.config import CallsConfig, DialoguesConfig, TaskConfig
from tasks.agentic.dialogues import make_dialogues
from tasks.artifact import Artifact, Step
from tests.shards import publish_shards
from training import trainer as trainers
from training.metrics import read_metrics
from training.objective import Objective
from training.trainer import Trainer

VOCABULARY = 256 + len(SPECIAL_TOKENS)


class Label(Config):
    """Tells the test's artifacts apart."""

    name: str


def byte_tokenizer() -> Tokenizer:
    """One token per byte, K2's special tokens behind them."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: place for place, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL_TOKENS])
    return tokenizer


SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "num_attention_heads": 2,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 8,
    "v_head_dim": 8,
}
"""A K2 network of some ten thousand parameters."""


def tiny_config(**changes: Any) -> ModelConfig:
    """That network for `byte_tokenizer`."""
    tokens = {"vocab_size": VOCABULARY, "bos_token_id": 256, "eos_token_id": 257, "pad_token_id": VOCABULARY - 1}
    return ModelConfig(**SMALL | {"max_position_embeddings": 1024} | tokens | changes)


def writes_letters(model: Transformer, chat: Chat, ends: float) -> None:
    """Let a network of random weights write letters, hardly ever anything else, and end its turns the sooner the higher
    `ends` is."""
    with torch.no_grad():
        model.embed_tokens.weight[:, 0] = 5  # nearly the same number at every position: what stands on it is a bias
        for token in range(model.config.vocab_size):
            letter = chat.decode([token])
            model.lm_head.weight[token, 0] = 0 if letter.isascii() and letter.isalpha() else -3
        model.lm_head.weight[chat.stop, 0] = ends


def tokenizer_artifact(root: Path) -> Artifact:
    step = Step("tokenizer", Label(name="bytes"), str(root))
    step.put("tokenizer", ".json", lambda path: byte_tokenizer().save(str(path)))
    return step.publish({})


def model_artifact(root: Path, model: Transformer, name: str = "base") -> Artifact:
    step = Step(name, Label(name=name), str(root))
    weights = {key: value.contiguous() for key, value in model.state_dict().items()}
    step.put("model/model.safetensors", ".safetensors", lambda path: save_file(weights, path))
    config = json.dumps(model.config.model_dump(mode="json"))
    step.put("model/config.json", ".json", lambda path: path.write_text(config))
    return step.publish({})


def tokens_artifact(root: Path, count: int = 4000) -> Artifact:
    """Token shards of a seeded random stream in which every fourth token repeats the first."""
    tokens = np.random.default_rng(0).integers(0, 256, count).astype("<u4")
    tokens[3::4] = tokens[0::4][: len(tokens[3::4])]
    step = Step("tokens", Label(name="tokens"), str(root))
    index = pa.table({"start": [0], "end": [count], "id": ["document"]})
    shards = {f"{split}/web/made/0": (tokens, index) for split in ("train", "heldout")}
    return publish_shards(step, shards, {"vocabulary": VOCABULARY, "end_of_document": 257})


def dialogues_artifact(root: Path, tokenizer: Artifact, config: DialoguesConfig) -> Artifact:
    return make_dialogues(Step("dialogues", config, str(root)), tokenizer)


def write_job(folder: Path, config: Mapping[str, Any], inputs: Mapping[str, Artifact]) -> Path:
    """A job.json in `folder`, which is the job's work folder."""
    folder.mkdir(parents=True, exist_ok=True)
    record = {
        "config": dict(config),
        "inputs": {name: artifact.uri for name, artifact in inputs.items()},
        "work": str(folder),
        "threads": 1,
        "device": "cpu",
    }
    path = folder / "job.json"
    path.write_text(json.dumps(record))
    return path


DIALOGUES = DialoguesConfig(
    tasks=(TaskConfig(family="larger", size=1, train=200, development=40, test=26),),
    calls=CallsConfig(train=0),
    heldout_share=0.16,
)
SFT = {
    "sequence_length": 160,
    "rows": 4,
    "learning_rate": 0.03,
    "warmup": 2,
    "dtype": "float32",
    "optimizer": {"newton_schulz_dtype": "bfloat16"},
    "seed": 5,  # one of those that learn past the band, as most do; some stay on a plateau within it
    "max_updates": 300,
    "evaluate_every": 12,
    "evaluate_prompts": 30,
    "evaluate_samples": 4,
    "band": [0.25, 0.5],
    "budget": 4,
    "text_sequence_length": 32,
    "text_evaluated": 2,
}
RL = {
    "iterations": 20,
    "prompts": 16,
    "responses": 8,
    "learning_rate": 0.02,
    "final_learning_rate": 0.005,
    "rewards": {"budget": 4},
    "environments": {"larger": 1.0},
    "dtype": "float32",
    "optimizer": {"newton_schulz_dtype": "bfloat16"},
    "ptx_samples": 1,
    "ptx_sequence_length": 32,
    "evaluate_prompts": 40,
    "evaluate_samples": 4,
    "run": {"checkpoint_every": 4},
    "seed": 1,
}


class World:
    """Inputs of the jobs: the larger of two digits, for a network of some ten thousand parameters."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.tokenizer, self.tokens = tokenizer_artifact(root), tokens_artifact(root)
        self.dialogues = dialogues_artifact(root, self.tokenizer, DIALOGUES)
        self.base = model_artifact(root, Transformer(tiny_config(), seed=0))

    def sft(self, name: str, **changes) -> Path:
        inputs = {"base": self.base, "dialogues": self.dialogues, "tokens": self.tokens, "tokenizer": self.tokenizer}
        return write_job(self.root / name, SFT | changes, inputs)

    def rl(self, name: str, start, **changes) -> Path:
        inputs = {"sft": start, "dialogues": self.dialogues, "tokens": self.tokens, "tokenizer": self.tokenizer}
        return write_job(self.root / name, RL | changes, inputs)


def go(kind: type[Objective], job: Path) -> int:
    """Run a job in this process; its exit code."""
    return trainers.main(kind, kind.__module__, ["--config", str(job)])


def summary(folder: Path) -> dict[str, Any]:
    """A finished job's statistics."""
    return json.loads((folder / "summary.json").read_text())


def finals(work: Path) -> dict[str, bytes]:
    """What is published of a job, clocks apart."""
    published = [*sorted((work / "final").iterdir()), *sorted((work / "rollouts").glob("*"))]
    files = {path.name: path.read_bytes() for path in published}
    files["summary"] = (work / "summary.json").read_bytes()
    lines = read_metrics(work / "metrics.jsonl")
    files["metrics"] = json.dumps([{k: v for k, v in line.items() if k != "timing"} for line in lines]).encode()
    return files


class Cut(BaseException):
    """As abrupt as a test can be within one process: nothing catches it."""


def cut_after(monkeypatch: Any, count: int) -> None:
    """Let the next job die after `count` updates."""
    real, done = Trainer.apply, 0

    def cut(*arguments: Any) -> Any:
        nonlocal done
        done += 1
        if done > count:
            raise Cut
        return real(*arguments)

    monkeypatch.setattr(Trainer, "apply", cut)
