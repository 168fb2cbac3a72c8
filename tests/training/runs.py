"""Pretraining runs of a tiny model, in this process or as a launcher starts them, and what they left."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tests.posttraining import SMALL
from tests.training.ranks import Launched, launch
from training import checkpoint
from training.config import PretrainConfig
from training.job import Job
from training.mesh import Mesh
from training.metrics import read_metrics
from training.pretrain import NextToken
from training.trainer import Trainer
from training.watchdog import Watchdog

VOCABULARY, END = 64, 1
MODEL = SMALL | {
    "qk_rope_head_dim": 4,
    "max_position_embeddings": 32,
    "vocab_size": VOCABULARY,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
STAGES = [
    {
        "name": "warm-up",
        "updates": 2,
        "sequence_length": 32,
        "batch": 8,
        "rate": {"start": 0, "end": 0.01, "shape": "linear"},
    },
    {"name": "constant", "updates": 4, "sequence_length": 32, "batch": 8, "rate": {"start": 0.01, "end": 0.01}},
    {"name": "decay", "updates": 2, "sequence_length": 32, "batch": 8, "rate": {"start": 0.01, "end": 0.001}},
    {"name": "long context", "updates": 2, "sequence_length": 128, "batch": 2, "yarn_factor": 4},
]


def job(shards: Path, work: Path, run: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A job as the launcher writes it."""
    config = {
        "model": MODEL,
        "stages": STAGES,
        "evaluate_every": 4,
        "evaluation_samples": 4,
        "heads_every": 5,
        "dtype": "bfloat16",
        "optimizer": {"newton_schulz_dtype": "bfloat16"},
        "run": {"micro_batch": 4, "checkpoint_every": 3, **(run or {})},
        **changes,
    }
    return {"config": config, "inputs": {"tokens": str(shards)}, "work": str(work), "threads": 1, "device": "cpu"}


def trainer_of(values: dict[str, Any], mesh: Mesh | None = None, watchdog: Watchdog | None = None) -> Trainer:
    """A job in this process, as one rank of `mesh`."""
    config = PretrainConfig.model_validate(values["config"])
    job = Job(
        values["config"], values["inputs"], Path(values["work"]), values.get("threads"), "cpu", values.get("code", "")
    )
    return Trainer(NextToken, config, job, mesh or Mesh(), torch.device("cpu"), watchdog=watchdog)


def next_token(trainer: Trainer) -> NextToken:
    """The objective of a pretraining run."""
    assert isinstance(trainer.objective, NextToken)
    return trainer.objective


def written(values: dict[str, Any], folder: Path) -> Path:
    """The job's file."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(values))
    return folder / "job.json"


def start(
    values: dict[str, Any], folder: Path, ranks: int = 1, file_limits: Mapping[int, int] | None = None
) -> list[Launched]:
    """The job as a launcher starts it: one process per rank (`tests.training.ranks.launch`)."""
    return launch(NextToken, written(values, folder), ranks, file_limits)


def wait(processes: Sequence[Launched], folder: Path) -> list[int]:
    codes = [process.wait() for process in processes]
    if any(codes):
        sys.stderr.write("".join(path.read_text() for path in sorted(folder.glob("rank*.log"))))
    return codes


def lines(work_dir: Path) -> list[dict[str, Any]]:
    """The metrics without their timing."""
    records = read_metrics(work_dir / "metrics.jsonl")
    return [{key: value for key, value in record.items() if key != "timing"} for record in records]


def leaves(work_dir: Path) -> dict[str, Tensor]:
    """Every tensor of the last checkpoint and of the final folder."""
    last = checkpoint.checkpoints(work_dir / "checkpoints")[-1]
    tensors = {f"final/{k}": v for k, v in checkpoint.load_model(work_dir / "final").state_dict().items()}
    tensors |= {f"last/{k}": v for k, v in checkpoint.load_model(last).state_dict().items()}
    return tensors | {f"optimizer/{k}": v for k, v in checkpoint.load_optimizer_state(last).items()}


def assert_same(one: Path, other: Path) -> None:
    first, second = leaves(one), leaves(other)
    assert first.keys() == second.keys()
    different = [name for name in first if not torch.equal(first[name], second[name])]
    assert not different
    assert lines(one) == lines(other)
