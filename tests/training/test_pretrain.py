"""The staged loop on a tiny model and real shards: accumulation, ranks, kills, preemption, and QK-Clip at work."""

import fcntl
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from model.config import ModelConfig
from tests.shards import folder_of
from tests.training.ranks import stop_after, wait_stopped
from tests.training.runs import (
    END,
    MODEL,
    STAGES,
    VOCABULARY,
    assert_same,
    job,
    lines,
    next_token,
    start,
    trainer_of,
    wait,
    written,
)
from tests.training.test_checkpoint import full_disk
from training import checkpoint
from training.checkpoint import CheckpointError
from training.config import PretrainConfig
from training.job import RANKS
from training.objective import Diverged
from training.order import OrderError
from training.pretrain import NextToken
from training.spikes import Rollback
from training.trainer import Trainer, main


def test_a_run_learns_through_all_stages(undisturbed: Path) -> None:
    records = lines(undisturbed)
    updates = [record for record in records if record["event"] == "update"]
    assert [record["step"] for record in updates] == list(range(1, 11))
    assert [record["stage"] for record in updates] == ["warm-up"] * 2 + ["constant"] * 4 + ["decay"] * 2 + [
        "long context"
    ] * 2
    assert updates[0]["learning_rate"] == pytest.approx(0.005)
    assert updates[-1]["loss"] < updates[0]["loss"] - 0.1
    assert all(0.1 < record["update_rms"] < 0.25 for record in updates)
    evaluations = [record for record in records if record["event"] == "evaluation"]
    assert [record["step"] for record in evaluations] == [2, 4, 6, 8, 10]  # stage ends and every fourth update
    assert all(set(record["losses"]) == {"code", "web"} for record in evaluations)
    assert evaluations[-1]["losses"]["code"] < evaluations[0]["losses"]["code"]
    heads = [record for record in records if record["event"] == "heads"]
    assert np.shape(heads[-1]["max_logit"]) == np.shape(heads[-1]["clips"]) == (2, 2)
    progress = json.loads((undisturbed / "progress.json").read_text())
    summary = json.loads((undisturbed / "summary.json").read_text())
    assert summary["tokens"] == updates[-1]["tokens"] == sum(stage["tokens"] for stage in summary["stages"]) == 10 * 256
    assert [stage["updates"] for stage in summary["stages"]] == [2, 4, 2, 2]
    assert summary["heldout"] == evaluations[-1]["losses"]
    assert (progress["done"], progress["total"], progress["unit"], progress["status"]) == (
        10,
        10,
        "updates",
        "finished",
    )


def test_the_final_model_loads_and_repeats_the_last_evaluation(shards: Path, undisturbed: Path) -> None:
    model = checkpoint.load_model(undisturbed / "final")
    assert model.config.rope_scaling is not None
    assert model.config.max_position_embeddings == 128
    trainer = trainer_of(job(shards, undisturbed))
    trainer.engine.model = model
    objective = next_token(trainer)
    losses = objective.heldout_losses(objective.plan.stages[-1])
    evaluated = [record for record in lines(undisturbed) if record["event"] == "evaluation"][-1]
    assert losses == pytest.approx(evaluated["losses"], rel=1e-6)


def test_a_stage_without_a_heldout_sample_is_warned_of_at_the_start(
    shards: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    next_token(trainer_of(job(shards, tmp_path / "whole")))
    assert "held-out" not in caplog.text
    made = {}
    for split, length in (("train", 4000), ("heldout", 128)):
        ends = {"start": [0], "end": [length], "id": [split], "source": ["made"]}
        made[f"{split}/web/made/0"] = (np.full(length, 5), pa.table(ends))
    uri = folder_of(tmp_path / "tokens", made, {"vocabulary": VOCABULARY, "end_of_document": END})
    next_token(trainer_of(job(Path(uri), tmp_path / "short")))
    (said,) = [message for message in caplog.messages if "held-out" in message]
    assert said.startswith("stage 'long context' will have no held-out loss: no held-out shard has 129 tokens")


def test_a_run_killed_before_its_final_folder_was_whole_writes_the_same_one(
    shards: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """No update is left then, and the window is still that of the last stage."""
    work = tmp_path / "work"
    shutil.copytree(undisturbed, work)
    (work / "final" / "manifest.json").unlink()
    assert trainer_of(job(shards, work)).run() == 0
    written, before = ((each / "final" / "manifest.json").read_text() for each in (work, undisturbed))
    assert written == before


def test_a_killed_run_goes_on_bit_for_bit(
    shards: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 twice, at different moments; then the same command ends with the same bytes."""
    work_dir = tmp_path / "work"
    values = job(shards, work_dir)
    for moment in (4, 8):
        with monkeypatch.context() as patch:
            stop_after(patch, moment, lambda: checkpoint.checkpoints(work_dir / "checkpoints"))
            (process,) = start(values, tmp_path)
        wait_stopped(process)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    assert wait(start(values, tmp_path), tmp_path) == [0]
    assert (tmp_path / "rank0.log").read_text().count("resuming at update") == 2
    assert_same(work_dir, undisturbed)


def test_the_record_names_all_code_that_took_part_and_from_which_update_on(
    shards: Path, undisturbed: Path, tmp_path: Path
) -> None:
    """A bug fix deployed in mid-run does not begin it again."""
    work = tmp_path / "work"
    shutil.copytree(undisturbed, work)
    for name in ("summary.json", "final"):
        remove(work / name)
    last, before = checkpoint.checkpoints(work / "checkpoints")[-1], checkpoint.checkpoints(work / "checkpoints")[-2]
    shutil.rmtree(last)
    went = checkpoint.load_state(before)["update"]
    assert trainer_of(job(shards, work) | {"code": "fixed"}).run() == 0
    summary = json.loads((work / "summary.json").read_text())
    assert summary["code"] == [{"hash": "", "from": 1}, {"hash": "fixed", "from": went + 1}]
    assert checkpoint.load_state(work / "final")["code"] == summary["code"]
    for name in ("summary.json", "final"):
        remove(work / name)
    assert trainer_of(job(shards, work) | {"code": "fixed"}).run() == 0
    assert json.loads((work / "summary.json").read_text())["code"] == summary["code"]


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def test_a_preempted_run_writes_a_checkpoint_and_says_so(
    shards: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = job(shards, tmp_path / "work", run={"checkpoint_every": 1000})
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        (process,) = start(values, tmp_path)
    wait_stopped(process)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    assert process.wait() == 75
    progress = json.loads((tmp_path / "work" / "progress.json").read_text())
    assert progress["status"] == "preempted"
    assert json.loads((tmp_path / "work" / "preempted.json").read_text()) == {"step": progress["done"]}
    assert (
        checkpoint.load_state(checkpoint.checkpoints(tmp_path / "work" / "checkpoints")[-1])["update"]
        == progress["done"]
    )
    assert wait(start(values, tmp_path), tmp_path) == [0]
    assert not (tmp_path / "work" / "preempted.json").exists()
    assert_same(tmp_path / "work", undisturbed)


def test_two_ranks_train_what_one_trains(shards: Path, undisturbed: Path, tmp_path: Path) -> None:
    """The same samples in other sums: float32 rounding only, over ten updates (bfloat16 would round the cut itself)."""
    one, two = tmp_path / "one", tmp_path / "two"
    exact = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}}
    assert trainer_of(job(shards, one, **exact)).run() == 0
    assert wait(start(job(shards, two, **exact), tmp_path, ranks=2), tmp_path) == [0, 0]
    last = checkpoint.checkpoints(two / "checkpoints")[-1]
    assert len(list(last.glob("optimizer-*-of-2.safetensors"))) == 2
    first, second = (checkpoint.load_model(run / "final").state_dict() for run in (one, two))
    for name, tensor in first.items():
        torch.testing.assert_close(
            second[name], tensor, rtol=0, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}"
        )
    for mine, other in zip(lines(one), lines(two), strict=True):
        if mine["event"] == "update":
            assert mine["loss"] == pytest.approx(other["loss"], rel=1e-4)
            assert mine["max_logit_by_layer"] == pytest.approx(other["max_logit_by_layer"], rel=1e-2, abs=1e-3)


def test_ranks_with_uneven_shares_and_a_lost_rank(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks of a batch of three; one is killed: the other ends too, and one rank alone finishes the run."""
    stages = [{**stage, "batch": 3} for stage in STAGES]
    values = job(
        shards, tmp_path / "work", stages=stages, run={"collective_timeout_seconds": 300, "stall_seconds": None}
    )
    with monkeypatch.context() as patch:
        stop_after(patch, 4, lambda: checkpoint.checkpoints(tmp_path / "work" / "checkpoints"))
        processes = start(values, tmp_path, ranks=2)
    wait_stopped(processes[0])
    processes[1].kill()
    processes[0].send_signal(signal.SIGCONT)
    assert processes[0].wait() == 1
    assert "RankError: another rank has ended" in (tmp_path / "rank0.log").read_text()
    assert wait(start(values, tmp_path), tmp_path) == [0]
    assert "resuming at update" in (tmp_path / "rank0.log").read_text()


def test_accumulation_changes_nothing(shards: Path, tmp_path: Path) -> None:
    exact = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}}
    results = []
    for micro_batch in (8, 2):
        work_dir = tmp_path / str(micro_batch)
        assert trainer_of(job(shards, work_dir, **exact, run={"micro_batch": micro_batch})).run() == 0
        results.append(checkpoint.load_model(work_dir / "final").state_dict())
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name], tensor, rtol=0, atol=1e-4)


def test_what_is_kept_between_forward_and_backward_changes_no_byte_of_a_run(shards: Path, tmp_path: Path) -> None:
    """Whole runs with QK-Clip, router biases and packed documents; FP8 alone moves them, and barely."""
    recomputed = {"recompute": ["norms", "swiglu", "mla_up", "moe_down", "dispatch"], "offload": True}
    runs = {"plain": {}, "recomputed": recomputed, "layers": {"recompute": ["layers"]}}
    runs["fp8"] = {"fp8": ["expert_inputs", "swiglu_inputs"]}
    for name, memory in runs.items():
        assert trainer_of(job(shards, tmp_path / name, run={"memory": memory})).run() == 0
    assert_same(tmp_path / "plain", tmp_path / "recomputed")
    assert_same(tmp_path / "plain", tmp_path / "layers")
    plain, fp8 = (lines(tmp_path / name)[-1]["losses"] for name in ("plain", "fp8"))
    assert plain != fp8
    for domain, loss in plain.items():
        assert fp8[domain] == pytest.approx(loss, rel=0.02)


def test_after_a_clip_the_same_batch_has_tau(shards: Path, tmp_path: Path) -> None:
    """S_max belongs to the weights before the update: with a rate of zero those are the ones that were clipped."""
    tau = 0.01
    trainer = trainer_of(job(shards, tmp_path, dtype="float32", optimizer={"tau": tau}))
    assert all(group["lr"] == 0 for group in trainer.optimizer.param_groups)  # until the loop sets the stage's
    objective = next_token(trainer)
    update = objective.plan.update(1)
    batch = objective.streams.loaders[0].batch(update.first_sample, update.stage.batch)
    parts = objective.parts(batch, update.stage.batch)
    before = trainer.accumulate(parts).max_logits_LH
    trainer.optimizer.step(max_logits_LH=before)
    report = trainer.optimizer.last_report
    assert report is not None
    assert report.clipped_heads > 0
    after = trainer.accumulate(parts).max_logits_LH
    expected = torch.where(before > tau, torch.tensor(tau), before)
    # below the first layer the residual stream has not changed; further up it has, by what attention now gives
    torch.testing.assert_close(after[0], expected[0], rtol=1e-4, atol=1e-7)
    torch.testing.assert_close(after[1], expected[1], rtol=5e-2, atol=1e-4)
    assert torch.equal(trainer.optimizer.clips_LH, (before > tau).long())


def test_the_last_checkpoint_without_its_metrics_is_the_end_of_a_run(
    shards: Path, undisturbed: Path, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed / "checkpoints", tmp_path / "checkpoints")
    assert trainer_of(job(shards, tmp_path)).run() == 0
    found, whole = (json.loads((work / "summary.json").read_text()) for work in (tmp_path, undisturbed))
    assert (found["tokens"], found["loss"]) == (whole["tokens"], None)


def test_an_error_that_nobody_expected_is_told_like_others(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(NextToken, "step", lambda objective, number: [].pop())
    assert main(NextToken, "training.pretrain", ["--config", str(written(job(shards, tmp_path), tmp_path))]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "IndexError: pop from empty list"
    assert json.loads((tmp_path / "progress.json").read_text())["status"] == "failed"


def test_a_rank_holds_its_folder_while_it_runs(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With other ranks, and against whoever would start a job there."""

    def run(trainer: Trainer) -> int:
        with (trainer.work / RANKS).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return 0

    monkeypatch.setattr(Trainer, "run", run)
    assert main(NextToken, "training.pretrain", ["--config", str(written(job(shards, tmp_path), tmp_path))]) == 0
    with (tmp_path / RANKS).open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_checkpoint_of_another_run_is_refused(
    shards: Path, undisturbed: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(shards, undisturbed, seed=1)))
    assert main(NextToken, "training.pretrain", ["--config", str(path)]) == 1
    assert "CheckpointError: " in (error := capsys.readouterr().err)
    assert "another configuration" in error


def test_a_checkpoint_of_another_order_of_samples_is_refused(
    shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = job(shards, tmp_path / "work")
    state = {**trainer_of(values).objective.identity, "update": 3, "code": []}
    older = {name: value for name, value in state.items() if name != "order_of_samples"}
    trainer_of(values)._check_run(tmp_path, state)
    monkeypatch.setattr("training.order.VERSION", 3)
    for kept in (state, older):  # older ones did not record it: it was another
        with pytest.raises(CheckpointError, match="was trained with other order of samples"):
            trainer_of(values)._check_run(tmp_path, kept)


def test_a_state_that_does_not_say_its_code_is_of_an_older_version(shards: Path, tmp_path: Path) -> None:
    trainer = trainer_of(job(shards, tmp_path / "work"))
    with pytest.raises(CheckpointError, match="was written by an older version, which did not record its code"):
        trainer._check_run(tmp_path, {**trainer.objective.identity, "update": 3})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs": {"tokens": "/nowhere"}}, "ShardError: /nowhere/manifest.json does not exist"),
        ({"inputs": {}}, "JobError: the job names no input 'tokens'"),
        ({"model": MODEL | {"vocab_size": 32}}, "64 token ids and the model 32"),
        ({"model": {"preset": "desktop"}}, "no model preset 'desktop'"),
        ({"model": {"preset": ["laptop"]}}, "no model preset ['laptop']"),
        ({"model": {"preset": "laptop", "name": "mine"}}, "config.name: Extra inputs are not permitted"),
        ({"model": MODEL | {"max_position_embeddings": 16}}, "samples of 32 tokens and a window of 16"),
        ({"stages": [STAGES[0] | {"mix": {"law": 1.0}}]}, "asks for 'law'"),
        ({"run": {"layout": {"expert": 2}}}, "LayoutError: 1 ranks do not hold whole copies of the model"),
        ({"stages": [STAGES[0] | {"batches": 3}]}, "config.stages.stages.0.batches"),
        (
            {"run": {"collective_timeout_seconds": 480}},
            "stall_seconds = 480 is not less than collective_timeout_seconds",
        ),
    ],
)
def test_a_job_that_cannot_run_says_why(
    shards: Path, tmp_path: Path, change: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    values = job(shards, tmp_path / "work")
    (values if "inputs" in change else values["config"]).update(change)
    path.write_text(json.dumps(values))
    assert main(NextToken, "training.pretrain", ["--config", str(path)]) == 1
    assert message in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    "change", [{"device": "gpu"}, {"device": None}, {"threads": "4"}, {"threads": 0}, {"threads": True}, {"inputs": []}]
)
def test_a_job_that_asks_for_what_there_is_not_is_refused_before_it_begins(
    shards: Path, tmp_path: Path, change: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(shards, tmp_path / "work") | change))
    assert main(NextToken, "training.pretrain", ["--config", str(path)]) == 1
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert f"{path}: {next(iter(change))}" in told
    assert not (tmp_path / "work").exists()


def test_a_file_that_is_no_job_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.json"
    for text, message in (("{", "is no job file"), ("{}", "lacks 'config'")):
        path.write_text(text)
        assert main(NextToken, "training.pretrain", ["--config", str(path)]) == 1
        assert message in capsys.readouterr().err


def test_a_disk_too_full_for_anything_is_one_sentence_with_the_file(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job(shards, tmp_path / "work")))
    with full_disk(0):
        assert main(NextToken, "training.pretrain", ["--config", str(path)]) == 1
    told = capsys.readouterr().err
    assert "Traceback" not in told
    assert "progress.json" in told.splitlines()[-1]


def test_a_loss_that_is_not_a_number_stops_the_run(shards: Path, tmp_path: Path) -> None:
    trainer = trainer_of(job(shards, tmp_path / "work", run={"spikes": {"most_rollbacks": 0}}))
    with torch.no_grad():
        trainer.model.norm.weight[0] = float("nan")
    with pytest.raises(Diverged, match=r"update 1 .*not both finite; it was not applied.*most_rollbacks is 0"):
        trainer.run()
    assert not checkpoint.checkpoints(tmp_path / "work" / "checkpoints")


def test_the_identity_leaves_out_how_it_runs() -> None:
    one, two, other = (
        PretrainConfig.model_validate({"model": MODEL, "stages": STAGES, **change})
        for change in ({}, {"run": {"micro_batch": 1}}, {"gradient_clip": 2.0})
    )
    assert one.fingerprint == two.fingerprint != other.fingerprint
    assert ModelConfig.model_validate(MODEL) == one.model
    assert PretrainConfig.model_validate_json(one.model_dump_json()) == one


def test_a_named_model_takes_changes() -> None:
    config = PretrainConfig.model_validate({"model": {"preset": "laptop", "vocab_size": 4096}, "stages": [STAGES[0]]})
    assert (config.model.vocab_size, config.model.n_routed_experts) == (4096, 32)


PACKED = {**STAGES[0], "updates": 8, "samples": "best_fit"}


def test_a_run_tells_once_which_sources_no_stage_reads(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Of three sources one is too small for both stages, and one only for the second."""
    made = {}
    for key, count in (("train/web/big", 900), ("train/web/some", 99), ("train/web/tiny", 20), ("heldout/web/big", 99)):
        tokens = np.full(count, 5)
        tokens[-1] = END
        made[f"{key}/0"] = (tokens, pa.table({"start": [0], "end": [count], "id": [key]}))
    root = folder_of(tmp_path / "tokens", made, {"vocabulary": VOCABULARY, "end_of_document": END})
    values = job(Path(root), tmp_path / "work", stages=[{**STAGES[0], "updates": 1}, {**STAGES[3], "updates": 1}])
    values["config"]["stages"][0]["rate"] = {"start": 0.01, "end": 0.01}
    trainer = trainer_of(values)
    assert "no sample reads web/tiny (1.96% of the tokens)" in caplog.text
    trainer.rollbacks.all.append(Rollback(1, 0, 0, 0, 8, "a spike"))
    trainer.objective.begin()
    assert caplog.text.count("no sample reads") == 1


def test_packed_rows_and_limits_of_epochs_in_a_run(shards: Path, tmp_path: Path) -> None:
    packed = job(shards, tmp_path, stages=[PACKED], most_epochs={"*": 3})
    trainer = trainer_of(packed)
    assert trainer.run() == 0
    assert next_token(trainer).streams.loaders[0].samples.kind == "best_fit"
    updates = [line for line in lines(tmp_path) if line["event"] == "update"]
    assert updates[-1]["loss"] < updates[0]["loss"]
    epochs = json.loads((tmp_path / "summary.json").read_text())["epochs"][0]
    with pytest.raises(OrderError, match=rf"'web' {epochs['web']:.2f} times, and 0.1 are allowed"):
        trainer_of(job(shards, tmp_path / "few", stages=[PACKED], most_epochs={"web": 0.1}))
