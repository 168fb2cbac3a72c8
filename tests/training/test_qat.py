"""Quantisation-aware training: the target, the schedule, a run killed and resumed, and what is measured."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from model.quantize import as_served
from model.transformer import Transformer
from tasks.agentic.config import DialoguesConfig, TaskConfig
from tests.posttraining import dialogues_artifact, go, model_artifact, tiny_config, tokenizer_artifact, write_job
from training.config import PosttrainMuonClipConfig, TuningRunConfig
from training.qat import Quantising, divergences, learning_rate
from training.qat_config import QatConfig
from training.trainer import DONE, PREEMPTED, Trainer

SMALL = QatConfig(
    updates=6,
    warmup=1,
    rows=1,
    sequence_length=1024,  # a byte tokenizer: tool declarations are long
    learning_rate=1e-3,
    dtype="float32",
    optimizer=PosttrainMuonClipConfig(newton_schulz_dtype="bfloat16"),
    evaluate_prompts=3,
    evaluate_samples=1,
    budget=6,
    run=TuningRunConfig(checkpoint_every=2),
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    root = tmp_path_factory.mktemp("artifacts")
    tokenizer = tokenizer_artifact(root)
    tasks = (TaskConfig(family="addition", size=1, train=30, heldout=6),)
    literals = DialoguesConfig(tasks=tasks, tool_train=4, tool_heldout=2, max_tokens=1024, heldout_share=0.3)
    model = Transformer(tiny_config(moe_intermediate_size=32, initializer_range=0.2), seed=1)
    with torch.no_grad():  # one large weight in each group leaves the other 31 a coarse grid: rounding hurts
        for name, parameter in model.named_parameters():
            if ".experts." in name:
                parameter[..., ::32] *= 12
    return {
        "rl": model_artifact(root, model, "rl"),
        "dialogues": dialogues_artifact(root, tokenizer, literals),
        "tokenizer": tokenizer,
    }


def config(**changes) -> dict:
    return SMALL.model_dump() | changes


def start(folder: Path, inputs, **changes) -> dict:
    assert go(Quantising, write_job(folder, config(**changes), inputs)) == DONE
    return json.loads((folder / "summary.json").read_text())


def updates(folder: Path) -> list[dict]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        line.pop("timing", None)
    return lines


def test_the_divergence_is_torchs_and_zero_where_nothing_changed():
    draw = torch.Generator().manual_seed(0)
    teacher, student = torch.randn(2, 5, 40, generator=draw) * 3
    theirs = torch.nn.functional.kl_div(
        student.log_softmax(-1), teacher.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert torch.allclose(divergences(teacher, student).mean(), theirs)
    assert not divergences(teacher, teacher).any()
    assert divergences(teacher + 7, teacher).abs().max() < 1e-6  # logits are defined up to a constant


def test_the_rate_rises_then_falls_to_a_tenth():
    plan = QatConfig(updates=20, warmup=4, learning_rate=1e-3)
    rates = [learning_rate(plan, done) for done in range(20)]
    assert rates[:4] == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3])
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert 1e-4 < rates[-1] < 1.2e-4


def test_a_run_brings_the_rounded_model_back_to_the_unrounded_one(inputs, tmp_path):
    summary = start(tmp_path, inputs, updates=32)
    lines = [line for line in updates(tmp_path) if line["event"] == "update"]
    first, last = (sum(line["divergence"] for line in part) / 3 for part in (lines[:3], lines[-3:]))
    assert last < 0.7 * first
    assert summary["divergence"]["qat"] < 0.85 * summary["divergence"]["rounded"]
    assert summary["loss"].keys() == {"bf16", "rounded", "qat"}
    assert summary["change_from_bf16"]["qat"]["greedy"][0] == pytest.approx(
        summary["greedy_pass_rate"]["qat"] - summary["greedy_pass_rate"]["bf16"]
    )
    final = load_file(tmp_path / "final" / "model.safetensors")
    before = load_file(inputs["rl"].file("model/model.safetensors"))
    assert final.keys() == before.keys()
    moved = {name for name in final if not torch.equal(final[name], before[name])}
    assert any("experts.gate_EFD" in name for name in moved)
    # what is saved are the unrounded weights: rounding them still changes them
    saved = next(name for name in final if name.endswith("experts.down_EDF"))
    model = Transformer(tiny_config(moe_intermediate_size=32), seed=0)
    model.load_state_dict(final)
    assert not torch.equal(dict(as_served(model, int4=True).named_parameters())[saved], final[saved])


def test_without_updates_the_result_is_the_rounded_model(inputs, tmp_path):
    summary = start(tmp_path, inputs, updates=0)
    assert summary["divergence"]["qat"] == summary["divergence"]["rounded"] > 0
    assert summary["loss"]["qat"] == summary["loss"]["rounded"]
    assert summary["evaluation"]["qat"] == summary["evaluation"]["rounded"]
    assert summary["loss"]["rounded"] != summary["loss"]["bf16"]


def test_with_no_distillation_the_dialogues_are_learned(inputs, tmp_path):
    summary = start(tmp_path, inputs, updates=8, distillation=0.0)
    lines = [line for line in updates(tmp_path) if line["event"] == "update"]
    assert "divergence" not in lines[0]
    assert summary["loss"]["qat"] < summary["loss"]["rounded"] - 0.1


def test_killed_anywhere_the_same_command_ends_with_the_same_bytes(inputs, tmp_path, monkeypatch):
    whole = start(tmp_path / "whole", inputs)
    told = Trainer.progress

    class Killed(BaseException):
        pass

    # in the first measurement, in the second, between updates, in the last measurement, behind it
    for moment in (1, 2, 5, 9, 10):
        folder, left = tmp_path / f"killed-{moment}", [moment]

        def tell(self, status, left=left, **values):
            left[0] -= 1
            if left[0] == 0:
                raise Killed
            told(self, status, **values)

        monkeypatch.setattr(Trainer, "progress", tell)
        with pytest.raises(Killed):
            start(folder, inputs)
        monkeypatch.undo()
        again = start(folder, inputs)
        assert {**again, "seconds": 0} == {**whole, "seconds": 0}
        for name in ("model.safetensors", "config.json"):
            assert (folder / "final" / name).read_bytes() == (tmp_path / "whole" / "final" / name).read_bytes()
        assert updates(folder) == updates(tmp_path / "whole")


def test_asked_to_stop_it_writes_a_checkpoint_and_goes_on_from_it(inputs, tmp_path, monkeypatch):
    whole = start(tmp_path / "whole", inputs, updates=3)
    told = Trainer.progress

    def tell(self, status, **values):
        told(self, status, **values)
        if values.get("note", "").startswith("loss"):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "progress", tell)
    assert go(Quantising, write_job(tmp_path / "asked", config(updates=3), inputs)) == PREEMPTED
    monkeypatch.undo()
    assert (tmp_path / "asked" / "preempted.json").exists()
    assert {**start(tmp_path / "asked", inputs, updates=3), "seconds": 0} == {**whole, "seconds": 0}
    assert updates(tmp_path / "asked") == updates(tmp_path / "whole")


def test_widths_that_do_not_divide_are_refused_in_one_sentence(inputs, tmp_path):
    wrong = Transformer(tiny_config(moe_intermediate_size=48), seed=1)
    rl = model_artifact(tmp_path / "wrong", wrong, "rl")
    job = write_job(tmp_path / "job", config(), inputs | {"rl": rl})
    ended = subprocess.run(
        [sys.executable, "-m", "training.qat", "--config", str(job)], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "down_EDF has an input width of 48" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "job" / "summary.json").exists()
