"""Runs on two ranks that are killed in the middle of checkpoints and go on, in their own layout and in others."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator, Mapping
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.ranks import among, free_ports, start, stop_itself, wait_stopped
from tests.training.runs import assert_same, job, lines, trainer_of
from training import checkpoint, checkpoint_writer
from training.checkpoint import CheckpointError
from training.layout import Layout
from training.mesh import arrange
from training.parallel import RankError

RUN = {"micro_batch": 4, "checkpoint_every": 1, "retention": {"newest": 100}}
EXACT = {"dtype": "float32", "optimizer": {"newton_schulz_dtype": "float32"}}


def rank_work(rank: int, ranks: int, port: int, shards: Path, work: Path, run: dict[str, Any]) -> None:
    """One rank of a run; it ends with the run's exit code, or 3 where another rank is lost."""
    with among(rank, ranks, port) as world:
        try:
            code = trainer_of(job(shards, work, run, **EXACT), arrange(world, Layout(**run["layout"]))).run()
        except (RankError, CheckpointError):
            code = 3
        os._exit(code)  # the process group of a lost rank cannot be taken down in order


def begin(shards: Path, work: Path, layout: dict[str, int], ranks: int = 2) -> list[ForkProcess]:
    arguments = (ranks, *free_ports(1), shards, work, {**RUN, "layout": layout})
    return start(ranks, lambda rank: rank_work(rank, *arguments))[0]


def codes(processes: list[ForkProcess]) -> list[int | None]:
    for process in processes:
        process.join(500)
    return [process.exitcode for process in processes]


def kill_while_writing(shards: Path, work: Path, layout: dict[str, int], update: int) -> list[ForkProcess]:
    """Begin a run and kill its second rank, its part of that update's checkpoint half written."""
    save = checkpoint_writer._save_tensors

    def stopping(tensors: Mapping[str, Tensor], path: Path) -> None:
        if path == work / "checkpoints" / f".update-{update:08d}.partial" / "optimizer-1-of-2.safetensors":
            stop_itself()  # it is killed here, however busy the machine
        save(tensors, path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint_writer, "_save_tensors", stopping)
        processes = begin(shards, work, layout)
    wait_stopped(processes[1])
    assert any(unfinished(work / "checkpoints"))
    processes[1].kill()
    return processes


def unfinished(root: Path) -> Iterator[Path]:
    """Folders of checkpoints of which the second rank's last file is not there yet."""
    for path in root.glob(".update-*.partial"):
        if not path.name.endswith(".old.partial") and not (path / "optimizer-1-of-2.safetensors").exists():
            yield path


def test_killed_twice_while_writing_it_ends_with_the_same_bytes(shards: Path, tmp_path: Path) -> None:
    undisturbed, work = tmp_path / "undisturbed", tmp_path / "work"
    assert codes(begin(shards, undisturbed, {"expert": 2})) == [0, 0]
    root = work / "checkpoints"
    for writing in (2, 5):
        processes = kill_while_writing(shards, work, {"expert": 2}, writing)
        assert codes(processes) == [3, -signal.SIGKILL]
        newest = checkpoint.newest(root)
        assert newest is not None
        assert checkpoint.number(newest) == writing - 1
    assert codes(begin(shards, work, {"expert": 2})) == [0, 0]
    assert_same(work, undisturbed)
    assert not list(root.glob(".*"))
    assert len(list((work / "final").glob("model-*-of-2.safetensors"))) == 2


def back_to(work: Path, update: int) -> None:
    """As if the run had been lost after an update."""
    shutil.rmtree(work / "final")
    for directory in checkpoint.checkpoints(work / "checkpoints"):
        if checkpoint.number(directory) > update:
            shutil.rmtree(directory)


def test_a_run_goes_on_in_other_layouts(shards: Path, tmp_path: Path) -> None:
    """Two copies of the model, two halves of its experts, of its layers, one rank: one run, to float32's rounding."""
    alone, work = tmp_path / "alone", tmp_path / "work"
    assert codes(begin(shards, alone, {}, ranks=1)) == [0]
    for update, layout, ranks in ((3, {}, 2), (6, {"expert": 2}, 2), (8, {"pipeline": 2}, 2), (10, {}, 1)):
        assert codes(begin(shards, work, layout, ranks)) == [0] * ranks
        state = checkpoint.load_state(work / "checkpoints" / f"update-{update:08d}")
        assert state["ranks"] == ranks
        assert state["layout"] == {"pipeline": 1, "virtual": 1, "expert": 1, **layout}
        assert state["samples"] == checkpoint.load_state(alone / "checkpoints" / f"update-{update:08d}")["samples"]
        if update < 10:
            back_to(work, update)
    expected, got = (checkpoint.load_model(run / "final").state_dict() for run in (alone, work))
    for name, tensor in expected.items():
        torch.testing.assert_close(got[name], tensor, rtol=0, atol=1e-5, msg=lambda text, name=name: f"{name}: {text}")
    for mine, other in zip(lines(work), lines(alone), strict=True):
        if mine["event"] == "update":
            assert mine["loss"] == pytest.approx(other["loss"], rel=1e-5)
