"""SFT as a job on a tiny network: it stops in the band; a run that is cut ends with the bytes of one that is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from model import storage
from tests.posttraining import Cut, World, cut_after, finals, go, summary
from training.checkpoint import verify
from training.sft import Tuning
from training.sft_config import SftConfig
from training.trainer import DONE, FAILED


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> World:
    return World(tmp_path_factory.mktemp("posttraining"))


@pytest.fixture(scope="module")
def tuned(world) -> Path:
    """An undisturbed run's folder."""
    job = world.sft("sft")
    assert go(Tuning, job) == DONE
    return job.parent


def test_sft_stops_in_the_band(tuned):
    found = summary(tuned)
    assert found["stopped"] == "band"
    assert 0.25 <= found["pass_rate"] <= 0.5
    assert found["updates"] < 300
    verify(tuned / "final")


@pytest.mark.parametrize("after", [4, 30])
def test_a_killed_sft_run_ends_with_the_same_bytes(world, tuned, monkeypatch, after):
    job = world.sft(f"sft-cut-{after}")
    cut_after(monkeypatch, after)
    with pytest.raises(Cut):
        go(Tuning, job)
    monkeypatch.undo()
    assert go(Tuning, job) == DONE
    assert finals(job.parent) == finals(tuned)


def test_sft_goes_back_where_the_rate_jumps_over_the_band(world):
    """Evaluated too rarely, it finds the band with a finer step."""
    job = world.sft("sft-jump", evaluate_every=160)
    assert go(Tuning, job) == DONE
    found = summary(job.parent)
    assert found["stopped"] == "band", found["stopped_because"]
    assert found["updates"] < 160, "it has not gone back"
    low, high = json.loads(job.read_text())["config"]["band"]
    assert low <= found["pass_rate"] <= high
    steps = [json.loads(line)["step"] for line in (job.parent / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps), "what was undone is not in the metrics"


def test_sft_that_never_learns_says_so(world, caplog):
    job = world.sft("sft-short", max_updates=2, evaluate_every=2)
    assert go(Tuning, job) == DONE
    assert summary(job.parent)["stopped"] == "budget"
    assert "never reached the band" in caplog.text


@pytest.mark.parametrize("band", [(0.5, 0.2), (0.0, 0.5), (0.3, 1.2)])
def test_an_impossible_band_is_refused(band):
    with pytest.raises(ValueError, match="band"):
        SftConfig(band=band)


def test_inputs_on_an_object_store_give_the_same_bytes(world, bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path))  # everything is fetched
    here = world.sft("sft-here", max_updates=2, evaluate_every=2)
    there = world.sft("sft-there", max_updates=2, evaluate_every=2)
    job = json.loads(there.read_text())
    for name, uri in job["inputs"].items():
        job["inputs"][name] = f"{bucket}/{name}"
        for path in storage.sizes(uri):
            storage.write(f"{bucket}/{name}/{path}", storage.read(f"{uri}/{path}"))
    there.write_text(json.dumps(job))
    assert go(Tuning, here) == go(Tuning, there) == DONE
    assert finals(there.parent) == finals(here.parent)


def test_an_input_that_is_not_there_is_one_sentence(world, bucket, capsys):
    job = world.sft("sft-nothing")
    text = json.loads(job.read_text())
    text["inputs"]["base"] = f"{bucket}/never"
    job.write_text(json.dumps(text))
    assert go(Tuning, job) == FAILED
    assert f"{bucket}/never/manifest.json does not exist" in capsys.readouterr().err
