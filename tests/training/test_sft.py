"""SFT as a job on a tiny network: it stops in the band; a run that is cut ends with the bytes of one that is not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from model import storage
from tasks.artifact import Step
from tests.posttraining import Cut, Label, World, cut_after, finals, go, summary
from training.checkpoint import checkpoints, number, verify
from training.inputs import Example, load_splits
from training.selection import select, selected
from training.sft import Tuning, awake, staged
from training.sft_config import SftConfig, SftStage
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
    assert found["pass_rate"] >= 0.25
    assert found["updates"] < 300
    assert found["resting"] == ["larger"]
    assert found["selection"]["larger"]["pass_rate"] == found["pass_rate"]
    assert found["selection"]["larger"]["weight"] > 0
    assert found["text"]["after"].keys() == {"web"}
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


def test_stages_have_rows_and_rates_of_their_own():
    second = SftStage(updates=3, sequence_length=64, rows=2, learning_rate=1.0, final_learning_rate=0.4, warmup=1)
    config = SftConfig(max_updates=2, warmup=0, learning_rate=2.0, final_learning_rate=0.2, then=(second,))
    found = [staged(config.stages, number) for number in range(1, config.updates + 1)]
    assert found == [(0, 1), (0, 2), (1, 1), (1, 2), (1, 3)]
    rates = [config.stages[place].rate(own) for place, own in found]
    assert rates == pytest.approx([1.1, 0.2, 1.0, 0.7, 0.4])
    assert config.longest == 256


def test_a_warm_up_that_takes_all_of_a_stage_never_comes_to_the_final_rate():
    stage = {"updates": 4, "sequence_length": 64, "rows": 2, "learning_rate": 1.0, "warmup": 4}
    assert SftStage(**stage).rate(4) == 1.0
    for given in ({"then": [stage | {"final_learning_rate": 0.1}]}, {"max_updates": 10, "final_learning_rate": 0.1}):
        with pytest.raises(ValidationError, match=r"would never come to final_learning_rate = 0\.1"):
            SftConfig.model_validate(given)


def test_a_gate_of_families_that_are_not_there_is_refused_before_the_first_update(world, monkeypatch, capsys):
    assert go(Tuning, world.sft("sft-unknown", gate=["larger", "largr"])) == FAILED
    assert "gate names 'largr', and the dialogues are of larger" in capsys.readouterr().err
    monkeypatch.setattr("training.posttraining.first_of_each", lambda problems, count: [])
    assert go(Tuning, world.sft("sft-unmeasured", gate=["larger"])) == FAILED
    assert "no development problem is of larger" in capsys.readouterr().err


def test_a_run_of_two_stages_is_one_run(world, monkeypatch):
    """Dialogues that are too long for the first stage's rows come in the second; a cut there changes nothing."""
    lengths = sorted(len(each.ids) for each in load_splits(world.dialogues.uri).train.examples)
    middle = lengths[len(lengths) // 2]
    assert 16 <= middle < lengths[-1]
    second = {"updates": 4, "sequence_length": lengths[-1], "rows": 3, "learning_rate": 1e-4}
    staging = {"sequence_length": middle, "rows": 2, "max_updates": 2, "evaluate_every": 6, "then": [second]}
    ends = []
    for name, cut in (("sft-whole", 0), ("sft-halved", 4)):
        job = world.sft(name, **staging, run={"checkpoint_every": 1})
        if cut:
            cut_after(monkeypatch, cut)
            with pytest.raises(Cut):
                go(Tuning, job)
            monkeypatch.undo()
        assert go(Tuning, job) == DONE
        ends.append(finals(job.parent))
    assert ends[0] == ends[1]
    lines = [line for line in json.loads(ends[0]["metrics"]) if line["event"] == "update"]
    assert [line["tokens"] for line in lines] == sorted(line["tokens"] for line in lines)
    assert len(lines) == 6


def test_a_stage_that_cannot_begin_is_refused_before_the_first_update(world):
    """No dialogue fits into the rows of one stage; one is too long for those of all."""
    lengths = sorted(len(each.ids) for each in load_splits(world.dialogues.uri).train.examples)
    second = {"updates": 1, "rows": 3, "learning_rate": 1e-4}
    for name, first, then in (("short", lengths[-1], 16), ("long", lengths[0], lengths[-1] - 1)):
        stages = {"sequence_length": first, "max_updates": 1, "then": [second | {"sequence_length": then}]}
        job = world.sft(f"sft-too-{name}", **stages)
        assert go(Tuning, job) == FAILED
        assert not (job.parent / "metrics.jsonl").exists()


def test_the_last_checkpoint_of_a_stage_stays_where_it_is_asked_for(world):
    second = {"updates": 3, "sequence_length": 160, "rows": 2, "learning_rate": 1e-4}
    kept = {"newest": 1, "stage_ends": True}
    job = world.sft("sft-kept", max_updates=1, evaluate_every=8, then=[second], run={"retention": kept})
    assert go(Tuning, job) == DONE
    assert [number(path) for path in checkpoints(job.parent / "checkpoints")] == [1, 4]


def test_sft_that_never_learns_says_so(world, caplog):
    job = world.sft("sft-short", max_updates=2, evaluate_every=2)
    assert go(Tuning, job) == DONE
    assert summary(job.parent)["stopped"] == "budget"
    assert "never reached the band: larger" in caplog.text


def test_heldout_text_that_is_too_short_for_a_sample_is_warned_of(world, caplog):
    job = world.sft("sft-long-text", max_updates=1, evaluate_every=1, text_sequence_length=1 << 20)
    assert go(Tuning, job) == DONE
    assert "text of 1048576 tokens will have no held-out loss" in caplog.text


def test_text_that_is_mixed_in_is_not_forgotten(world):
    """The stream repeats itself, which the network can learn beside the dialogues."""
    rises = []
    for samples in (0, 4):
        job = world.sft(f"sft-text-{samples}", max_updates=24, evaluate_every=24, text_samples=samples)
        assert go(Tuning, job) == DONE
        found = summary(job.parent)
        rises.append(found["text"]["rise"])
        assert found["text_tokens"] == 24 * samples * 32
    assert rises[1] < rises[0] - 0.1, rises


def test_a_family_that_rests_is_trained_no_further():
    examples = [Example(name, [0], [True]) for name in ("copy", "sort", "tool_call")]
    assert awake(examples, []) == examples
    assert awake(examples, ["copy", "sort"]) == examples[2:]
    assert awake(examples[:1], ["copy"]) == examples[:1], "the run has only not heard yet that it is over"


@pytest.mark.parametrize(
    ("rates", "weights"),
    [
        ({"sort": 0.3, "addition": 0.01, "copy": 0.95}, {"sort": 1.0, "addition": 0.0, "copy": 0.25}),
        ({"sort": 0.6, "addition": 0.1}, {"sort": 0.25, "addition": 0.25}),
        ({"sort": 0.99, "addition": 0.02}, {"sort": 0.25, "addition": 1.0}),
    ],
)
def test_each_family_is_selected_by_its_own_rate(rates, weights, tmp_path):
    """Pooled, the first three would pass for moderate."""
    selection = select(rates, (0.2, 0.5))
    assert {name: entry["weight"] for name, entry in selection.items()} == weights
    for entry in selection.values():
        assert (entry["because"] == "in the band") == (0.2 <= entry["pass_rate"] <= 0.5)
    step = Step("sft", Label(name="sft"), str(tmp_path))
    uri = step.publish({"selection": selection}).uri
    assert selected(uri, {}) == weights
    assert selected(uri, {}, ["math.roots"]) == weights | {"math.roots": 1.0}, "what SFT has not seen is not left out"
    shared = selected(uri, {"sort": 2.0, "math": 0.5}, ["code", "math.linear", "math.roots"])
    assert {name: share for name, share in shared.items() if name != "sort"} == {
        **{"code": 0.0, "math.linear": 0.25, "math.roots": 0.25},
    }
    assert selected(uri, {"sort": 2.0}) == ({"sort": 2 * weights["sort"]} if weights["sort"] else {"sort": 2.0})


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
