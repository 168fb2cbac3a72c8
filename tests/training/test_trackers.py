"""Trackers show what metrics.jsonl says, and none of them can end a run."""

from pathlib import Path

import pytest

from tests.training.runs import job, lines, trainer_of
from training.metrics import Metrics
from training.trackers import scalars


def test_every_number_of_a_line_has_a_path() -> None:
    values = {"loss": 1, "stage": "x", "by_layer": [0.5, 2], "losses": {"web": 3.5}, "timing": {"mfu": None}}
    assert dict(scalars("update", values)) == {
        "update/loss": 1.0,
        "update/by_layer/0": 0.5,
        "update/by_layer/1": 2.0,
        "update/losses/web": 3.5,
    }


def test_tensorboard_reads_what_the_metrics_say(tmp_path: Path) -> None:
    """Also after a return to an earlier update: the points that were undone are gone."""
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for after, factor in ((0, 1.0), (2, 10.0)):
        metrics = Metrics(tmp_path / "metrics.jsonl", after, trackers=["tensorboard"])
        for step in range(after + 1, 5):
            metrics.write("update", step, loss=factor * step, timing={"tokens_per_second": 7.0})
            metrics.write("evaluation", step, losses={"web": 0.5})
        metrics.write("evaluation", 4, split="development", sampled=0.25)
        metrics.write("evaluation", 4, split="test", sampled=0.75)
        metrics.close()
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    assert set(found.Tags()["scalars"]) == {
        "update/loss",
        "update/timing/tokens_per_second",
        "evaluation/losses/web",
        "evaluation/development/sampled",
        "evaluation/test/sampled",
    }
    assert [(point.step, point.value) for point in found.Scalars("update/loss")] == [(1, 1), (2, 2), (3, 30), (4, 40)]


def test_a_tracker_that_cannot_begin_or_go_on_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "tensorboard").write_text("a file where the folder should be")
    metrics = Metrics(tmp_path / "metrics.jsonl", after=0, trackers=["tensorboard"])
    assert "no tensorboard" in caplog.text
    assert "the run goes on without it" in caplog.text
    metrics.write("update", 1, loss=1.0)
    metrics.close()
    assert "loss" in (tmp_path / "metrics.jsonl").read_text()


def test_a_tracker_that_breaks_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    metrics = Metrics(tmp_path / "metrics.jsonl", after=0, trackers=["tensorboard"])
    metrics.write("update", 1, loss=1.0)
    metrics.write("update", 2, loss=10**400)  # no float holds it; JSON does
    assert "tensorboard failed" in caplog.text
    metrics.write("update", 3, loss=3.0)
    metrics.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 3


def test_a_run_shows_what_it_measures(shards: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = {"trackers": ["tensorboard"], "peak_flops": 1e12}
    assert trainer_of(job(shards, tmp_path, run=run)).run() == 0
    found = EventAccumulator(str(tmp_path / "tensorboard"))
    found.Reload()
    names = ("tokens_per_second", "mfu", "memory_bytes")
    assert {f"update/timing/{name}" for name in names} <= set(found.Tags()["scalars"])
    for event, path in (
        ("update", ["loss"]),
        ("update", ["max_logit"]),
        ("update", ["expert_load_max_by_layer", 0]),
        ("evaluation", ["losses", "web"]),
        ("heads", ["gamma", 1, 1]),
    ):
        told = []
        for line in lines(tmp_path):
            if line["event"] == event:
                value = line
                for key in path:
                    value = value[key]
                told.append((line["step"], pytest.approx(value, rel=1e-6)))
        shown = found.Scalars("/".join(map(str, [event, *path])))
        assert [(point.step, point.value) for point in shown] == told
