"""Runs that go round spikes: the same records and bytes however often they are killed, on any number of ranks."""

import contextlib
import json
import math
import shutil
import signal
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.ranks import stop_after, stop_itself, wait_stopped
from tests.training.runs import assert_same, job, lines, next_token, start, trainer_of, wait
from training import checkpoint
from training.config import PretrainConfig
from training.mesh import Mesh
from training.objective import Diverged
from training.order import OrderError
from training.spikes import Rollback, Rollbacks, Spike
from training.streams import Streams

# every gradient norm a little above the median of the stage's last ones is a spike: ordinary noise makes some
TOUCHY = {"window": 3, "least": 2, "gradient_deviations": 1e-6, "gradient_share": 0.02, "most_rollbacks": 50}
STAGES = [
    {
        "name": "constant",
        "updates": 8,
        "sequence_length": 32,
        "batch": 8,
        "rate": {"start": 0.005, "end": 0.005},
    },
    {"name": "longer", "updates": 4, "sequence_length": 64, "batch": 4, "yarn_factor": 2},
]
EXACT = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}, "evaluate_every": None}


def touchy(shards: Path, work: Path, **spikes: Any) -> dict[str, Any]:
    run = {"checkpoint_every": 2, "spikes": {**TOUCHY, **spikes}}
    return job(shards, work, stages=STAGES, run=run, **EXACT)


def recorded(work: Path) -> Rollbacks:
    """What a run has written of its rollbacks."""
    path = work / "rollbacks.jsonl"
    return Rollbacks(path, json.loads(path.read_text().splitlines()[0])["identity"])


@pytest.fixture(scope="module")
def rolled(shards: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that went back, in a process of its own."""
    folder = tmp_path_factory.mktemp("rolled")
    assert wait(start(touchy(shards, folder / "work"), folder), folder) == [0]
    return folder / "work"


def test_a_spike_is_gone_round_and_recorded(shards: Path, rolled: Path) -> None:
    rollbacks = recorded(rolled)
    assert rollbacks.all
    summary = json.loads((rolled / "summary.json").read_text())
    last = checkpoint.load_state(checkpoint.checkpoints(rolled / "checkpoints")[-1])
    assert summary["rollbacks"] == last["rollbacks"] == rollbacks.records()
    updates = [line for line in lines(rolled) if line["event"] == "update"]
    assert [line["step"] for line in updates] == list(range(1, 13))
    objective = next_token(trainer_of(touchy(shards, rolled)))
    for each in rollbacks.all:
        assert each.to < each.update
        assert each.to % 2 == 0
        assert each.reason.startswith("gradient norm ")
        assert all(f"norm {line['gradient_norm']:.4g} is above" not in each.reason for line in updates)
    for line in updates:
        update = objective.plan.update(line["step"])
        first = objective.streams.first_sample(update)
        out = {
            sample
            for each in rollbacks.all
            if each.stream == update.stream
            for sample in range(each.first_sample, each.end_sample)
        }
        assert not out & set(range(first, first + update.stage.batch))
    for record, ends in zip(last["samples"], (8, 12), strict=True):
        span = next(span for span in objective.plan.spans if span.stage.name == record["stage"])
        assert record["first"] == objective.streams.first_sample(objective.plan.update(span.first_update + 1))
        assert record["end"] == objective.streams.first_sample(objective.plan.update(ends)) + span.stage.batch
    assert last["samples"][-1]["end"] > 4 * 4


def test_a_run_killed_after_going_back_ends_with_the_same_bytes(
    shards: Path, rolled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path / "work"
    replace = Rollbacks.replace

    def stopping(rollbacks: Rollbacks, found: Sequence[Rollback], writes: bool) -> None:
        replace(rollbacks, found, writes)
        if found and writes:
            stop_itself()  # it has just gone back when it is killed, however busy the machine

    with monkeypatch.context() as patch:
        patch.setattr(Rollbacks, "replace", stopping)
        (process,) = start(touchy(shards, work), tmp_path)
    wait_stopped(process)
    assert (work / "rollbacks.jsonl").exists()
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert wait(start(touchy(shards, work), tmp_path), tmp_path) == [0]
    assert (work / "rollbacks.jsonl").read_bytes() == (rolled / "rollbacks.jsonl").read_bytes()
    assert_same(work, rolled)


def test_ranks_go_back_together(shards: Path, rolled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of the layers and of the experts; one rank is told to stop, all do, and the run goes on."""
    work = tmp_path / "work"
    values = touchy(shards, work)
    values["config"]["run"] |= {"layout": {"pipeline": 2, "expert": 2}, "micro_batch": 2}
    with monkeypatch.context() as patch:
        stop_after(patch, 1)  # before the first spike: where a run stops, a checkpoint more can be gone back to
        processes = start(values, tmp_path, ranks=4)
    wait_stopped(processes[0])
    processes[2].send_signal(signal.SIGTERM)
    processes[0].send_signal(signal.SIGCONT)
    assert wait(processes, tmp_path) == [75] * 4
    assert wait(start(values, tmp_path, ranks=4), tmp_path) == [0] * 4
    mine, other = (
        [(each.update, each.to, each.stream, each.first_sample, each.end_sample) for each in rollbacks.all]
        for rollbacks in (recorded(work), recorded(rolled))
    )
    assert mine == other


def test_a_window_that_comes_again_is_gone_back_over_and_resumed(shards: Path, tmp_path: Path) -> None:
    """Update 7, the first of the last stage, fails four times: the last return goes past the stage between, into the
    one whose samples it goes on with."""
    first, between = STAGES
    last = {**first, "name": "again", "updates": 4, "yarn_factor": 2}
    stages = [{**first, "updates": 4}, {**between, "updates": 2}, last]
    values = job(shards, tmp_path / "work", stages=stages, run={"checkpoint_every": 3}, **EXACT)
    trainer = trainer_of(values)
    step, spikes, read = trainer.objective.step, iter(range(4)), dict[int, range]()

    def spiking(number: int) -> str:
        if number == 7 and next(spikes, None) is not None:
            raise Spike("made up")
        update = next_token(trainer).plan.update(number)
        at = next_token(trainer).streams.first_sample(update)
        read[number] = range(at, at + update.stage.batch)
        return step(number)

    trainer.objective.step = spiking  # type: ignore[method-assign]
    assert trainer.run() == 0
    found = [(each.to, each.stream, each.first_sample, each.end_sample) for each in trainer.rollbacks.all]
    assert found == [(6, 0, 32, 40), (4, 0, 40, 48), (6, 0, 48, 56), (3, 0, 24, 64)]
    assert [read[number].start for number in range(1, 11)] == [0, 8, 16, 64, 0, 4, 72, 80, 88, 96]
    state = checkpoint.load_state(checkpoint.checkpoints(tmp_path / "work" / "checkpoints")[-1])
    assert [(each["stream"], each["first"], each["end"]) for each in state["samples"]] == [
        (0, 0, 72),
        (1, 0, 8),
        (0, 72, 104),
    ]
    shutil.copytree(tmp_path / "work", tmp_path / "killed")
    shutil.rmtree(tmp_path / "killed" / "final")
    shutil.rmtree(tmp_path / "killed" / "checkpoints" / "update-00000010")
    values["work"] = str(tmp_path / "killed")
    assert trainer_of(values).run() == 0
    assert_same(tmp_path / "killed", tmp_path / "work")


def test_a_checkpoint_knows_the_rollbacks_without_their_file(shards: Path, rolled: Path, tmp_path: Path) -> None:
    work = tmp_path / "work"
    shutil.copytree(rolled, work)
    (work / "rollbacks.jsonl").unlink()
    shutil.rmtree(work / "final")
    assert trainer_of(touchy(shards, work)).run() == 0
    assert (work / "rollbacks.jsonl").read_bytes() == (rolled / "rollbacks.jsonl").read_bytes()
    assert_same(work, rolled)


def test_rollbacks_go_with_the_checkpoints_that_somebody_removes(shards: Path, rolled: Path, tmp_path: Path) -> None:
    """The run starts over as it did the first time, and another run in the folder reads every sample."""
    work = tmp_path / "work"
    shutil.copytree(rolled, work)
    assert recorded(work).all[-1].to > 0
    for name in ("checkpoints", "final"):
        shutil.rmtree(work / name)
    another = touchy(shards, work)
    another["config"]["seed"] = 7
    assert trainer_of(another).rollbacks.all == []
    assert trainer_of(touchy(shards, work)).run() == 0
    assert (work / "rollbacks.jsonl").read_bytes() == (rolled / "rollbacks.jsonl").read_bytes()
    assert_same(work, rolled)


def test_a_run_planned_to_its_limit_of_epochs_may_go_back(shards: Path, tmp_path: Path) -> None:
    values = job(shards, tmp_path, stages=STAGES, **EXACT)
    streams = next_token(trainer_of(values)).streams
    planned = sum(epochs["web"] for epochs in streams.epochs())
    for most, allowed in ((planned + 1e-9, True), (planned - 1e-6, False)):
        config = PretrainConfig.model_validate({**values["config"], "most_epochs": {"web": most}})
        left_out = Rollback(5, 2, 0, 16, 40, "a spike")
        with contextlib.nullcontext() if allowed else pytest.raises(OrderError, match="'web'"):
            Streams(config, str(shards), streams.loaders[0].cache, Mesh(), [left_out]).require()


def test_more_rollbacks_than_allowed_end_the_run(shards: Path, tmp_path: Path) -> None:
    trainer = trainer_of(touchy(shards, tmp_path, most_rollbacks=1))
    with pytest.raises(Diverged, match=r"is a spike: gradient norm .*gone back 1 times already.*most_rollbacks is 1"):
        trainer.run()
    assert len(recorded(tmp_path).all) == 1


def test_a_loss_that_is_not_a_number_is_gone_round(shards: Path, tmp_path: Path) -> None:
    """Before the first checkpoint the run goes back to its beginning, and leaves the samples of the update out."""
    trainer = trainer_of(job(shards, tmp_path))
    with torch.no_grad():
        trainer.model.norm.weight[0] = float("nan")
    begin, settle, watched = trainer._begin, trainer.writer.settle, list[bool]()

    def noting(function: Callable[[], None]) -> None:
        watched.append(math.isfinite(trainer.watchdog._since))
        function()

    trainer._begin = partial(noting, begin)  # type: ignore[method-assign]
    trainer.writer.settle = partial(noting, settle)  # type: ignore[method-assign]
    assert trainer.run() == 0
    assert len(watched) > 2
    assert not any(watched)  # to write a checkpoint, or to read a large one, takes as long as at the start
    (rollback,) = recorded(tmp_path).all
    assert (rollback.update, rollback.to, rollback.first_sample, rollback.end_sample) == (1, 0, 0, 8)
    assert all(line["loss"] < 10 for line in lines(tmp_path) if line["event"] == "update")
