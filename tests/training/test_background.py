"""Checkpoints written while a run trains: kills and full disks in the middle of one lose nothing but that one."""

import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from torch import Tensor

from tests.training.ranks import stop_itself, wait_stopped
from tests.training.runs import assert_same, job, start, wait
from training import checkpoint, checkpoint_writer


def test_a_kill_in_the_middle_of_a_write_loses_that_write_only(
    shards: Path, undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process stops itself at a moment when a checkpoint is half written, is looked at, and killed."""
    work = tmp_path / "work"
    root = work / "checkpoints"
    values = job(shards, work, run={"checkpoint_every": 1, "retention": {"newest": 100}})
    save = checkpoint_writer._save_tensors

    def stopping(tensors: Mapping[str, Tensor], path: Path) -> None:
        save(tensors, path)
        if path.parent.name == ".update-00000004.partial":
            stop_itself()

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint_writer, "_save_tensors", stopping)
        (process,) = start(values, tmp_path)
    wait_stopped(process)
    half = [path for path in root.glob(".update-*.partial") if not path.name.endswith(".old.partial")]
    writing = int(half[0].name.split("-")[1].split(".")[0])
    complete = [checkpoint.number(path) for path in checkpoint.checkpoints(root)]
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert writing not in complete
    assert checkpoint.newest(root) == root / f"update-{max(complete):08d}"
    assert wait(start(values, tmp_path), tmp_path) == [0]
    assert f"resuming at update {max(complete)} " in (tmp_path / "rank0.log").read_text()
    assert not list(root.glob(".*"))
    assert_same(work, undisturbed)


def test_a_rank_whose_disk_is_full_ends_all_at_the_next_step(shards: Path, tmp_path: Path) -> None:
    """A limit on the length of files stands for the full disk of one rank."""
    work = tmp_path / "work"
    values = job(shards, work, run={"checkpoint_every": 1})
    assert wait(start(values, tmp_path, ranks=2, file_limits={1: 10_000}), tmp_path) == [1, 1]
    logs = [(tmp_path / f"rank{rank}.log").read_text() for rank in range(2)]
    assert "CheckpointError: could not write checkpoint update-00000001: " in logs[1]
    assert "update-00000001" in logs[0] or "another rank" in logs[0]
    assert all(log.splitlines()[-1].split(":")[0] in ("CheckpointError", "RankError") for log in logs)
    assert not checkpoint.checkpoints(work / "checkpoints")
    assert wait(start(values, tmp_path, ranks=2), tmp_path) == [0, 0]
