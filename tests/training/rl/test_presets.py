"""The RL of the large presets, all its parts at once, on a tiny network: none of them excludes another."""

from __future__ import annotations

import json
import shutil

import pytest

from flows.preset import load_preset
from flows.request import PresetName, Request
from model.transformer import Transformer
from tests.posttraining import RL, World, go, model_artifact, summary, tiny_config
from training.metrics import read_metrics
from training.rl.judge import Judge
from training.rl.train import Reinforcement
from training.trainer import DONE


def test_the_rl_of_the_large_presets_runs(tmp_path, monkeypatch):
    """What is said of numbers and sizes is the test's; which parts there are is the preset's."""
    pytest.importorskip("math_verify")
    pytest.importorskip("reasoning_gym")
    if shutil.which("bwrap") is None:
        pytest.skip("code is judged in the sandbox, which needs bubblewrap")
    monkeypatch.setattr(Judge, "all", lambda self, questions: ["yes"] * len(questions))
    rl = load_preset(Request(preset=PresetName.gpu)).rl.model_dump(mode="json")
    sizes = {
        **{name: RL[name] for name in ("dtype", "optimizer", "ptx_samples", "ptx_sequence_length")},
        **{"int4": False, "iterations": 4, "prompts": 16, "responses": 4, "refill": 4, "segment": 5},
        **{"evaluate_prompts": 1, "evaluate_samples": 1, "evaluate_every": 2, "run": {}, "ptx_mix": {"web": 1}},
        "sets": {name: {"logic": 14, "math": 5}.get(name, 2) for name in rl["sets"]},
        "environments": {name: share for name, share in rl["environments"].items() if name in rl["sets"]}
        | {"larger": 1},
        "rewards": rl["rewards"] | {"budget": 12, "budgets": dict.fromkeys(rl["rewards"]["budgets"], 10)},
    }
    assert sizes.keys() <= rl.keys()
    world = World(tmp_path)
    base = model_artifact(tmp_path, Transformer(tiny_config(max_position_embeddings=8192), seed=0), "sft")
    job = world.rl("rl", base, **rl | sizes)
    job.write_text(json.dumps(json.loads(job.read_text()) | {"judge_url": "http://127.0.0.1:9/v1"}))
    assert go(Reinforcement, job) == DONE
    measured = {name.partition(".")[0] for name in summary(job.parent)["after"]["by_environment"]}
    assert measured == {*rl["sets"], "larger"}
    updates = read_metrics(job.parent / "metrics.jsonl", "update")
    assert max(update["paused"] for update in updates) > 0
    assert max(update["disagreement"] for update in updates) < 1e-4
    assert updates[0]["temperature"] > updates[-1]["temperature"]
    assert all(update["ptx_loss"] > 0 for update in updates)
