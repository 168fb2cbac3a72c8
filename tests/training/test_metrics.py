"""The metrics file after a kill, and the summary of a run."""

import json
from pathlib import Path

import pytest

from tests.training.test_checkpoint import full_disk
from training.metrics import Metrics, read_metrics, summarise, write_progress


def test_lines_after_the_checkpoint_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    metrics = Metrics(path, after=0)
    for step in range(1, 6):
        metrics.write("update", step, loss=float(step))
        metrics.write("evaluation", step, losses={"web": 1.0})
    metrics.close()
    path.write_text(path.read_text() + '{"event": "update", "step": 6, "lo')  # cut short by a kill
    metrics = Metrics(path, after=3)
    metrics.write("update", 4, loss=0.5)
    metrics.close()
    records = read_metrics(path)
    assert [(record["event"], record["step"]) for record in records] == [
        *[(event, step) for step in (1, 2, 3) for event in ("update", "evaluation")],
        ("update", 4),
    ]
    assert records[-1]["loss"] == 0.5


def test_what_is_no_number_is_no_json(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", after=0)
    with pytest.raises(ValueError):
        metrics.write("update", 1, loss=float("nan"))
    metrics.close()


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", after=0)
    with full_disk(10), pytest.raises(OSError, match=r"metrics\.jsonl"):
        metrics.write("update", 1, loss=1.0)
    metrics.close()


def test_other_ranks_write_nothing(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", after=0, writes=False)
    metrics.write("update", 1)
    metrics.sync()
    metrics.close()
    assert not list(tmp_path.iterdir())


def test_a_run_in_totals(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "metrics.jsonl", after=0)
    for step, stage, tokens in ((1, "warm-up", 10), (2, "decay", 30), (3, "decay", 50)):
        metrics.write(
            "update",
            step,
            stage=stage,
            tokens=tokens,
            learning_rate=0.1 * step,
            loss=4.0 - step,
            max_logit=float(step),
            clipped_heads=step // 3,
            timing={"seconds": 2.0},
        )
        metrics.write("evaluation", step, stage=stage, losses={"web": 5.0 - step})
    metrics.close()
    summary = summarise(tmp_path / "metrics.jsonl")
    assert (summary["updates"], summary["tokens"], summary["seconds"]) == (3, 50, 6.0)
    assert summary["tokens_per_second"] == pytest.approx(50 / 6)
    assert summary["heldout"] == {"web": 2.0}
    first, second = summary["stages"]
    assert (first["name"], first["updates"], first["tokens"], first["heldout"]) == ("warm-up", 1, 10, {"web": 4.0})
    assert (second["tokens"], second["max_logit"], second["clipped_updates"], second["seconds"]) == (40, 3.0, 1, 4.0)
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[-2:]))  # a checkpoint came here without it
    assert [(stage["name"], stage["updates"]) for stage in summarise(path)["stages"]] == [("decay", 1)]
    path.write_text("")
    summary = summarise(path)
    assert (summary["updates"], summary["seconds"], summary["loss"], summary["stages"]) == (0, 0, None, [])


def test_progress_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "progress.json"
    write_progress(path, 1, 10, "running", note="a")
    write_progress(path, 2, 10, "finished")
    assert json.loads(path.read_text()) == {"done": 2, "total": 10, "unit": "updates", "status": "finished"}
    assert [file.name for file in tmp_path.iterdir()] == ["progress.json"]
