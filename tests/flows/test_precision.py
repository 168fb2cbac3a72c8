"""The precision of a run: decided before anything has a fingerprint, kept wherever the run goes on, and said."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows.graph import Graph
from flows.precision import settle
from flows.preset import load_preset
from flows.request import PresetName, Request
from flows.status import survey
from flows.steps import graph
from model.precision import speed
from tests.model.test_precision import AVX2
from training.precision import PRECISIONS, precisions, undecided

TRAINED = ("base", "sft", "rl")
OTHER = {"bfloat16": "float32", "float32": "bfloat16"}


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A root whose sources are known, so that every step has a fingerprint."""
    graph(request(str(tmp_path)))["sources"].begin().publish({"documents": 1})
    return str(tmp_path)


def request(root: str, *overrides: str, preset: PresetName = PresetName.test) -> Request:
    return Request(preset=preset, root=root, overrides=list(overrides))


def taken(plan: Graph) -> set[str]:
    """The precisions of all training."""
    return {value for name in TRAINED for value in precisions(plan[name].config).values()}


def asked(root: str, precision: str) -> Graph:
    return graph(request(root, f"execution.precision={precision}"))


def test_auto_is_decided_before_the_fingerprint_as_if_it_had_been_asked_for(root: str) -> None:
    plan, fast = graph(request(root)), speed("cpu").fast
    assert taken(plan) == {fast}
    for name in (*TRAINED, "release", "evaluation"):
        assert plan[name].fingerprint == asked(root, fast)[name].fingerprint, name
        assert plan[name].fingerprint != asked(root, OTHER[fast])[name].fingerprint, name
        assert plan.other[name].fingerprint == asked(root, OTHER[fast])[name].fingerprint, name
    assert plan["tokens"].fingerprint == asked(root, OTHER[fast])["tokens"].fingerprint


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("state", ["begun", "published"])
def test_a_run_keeps_the_precision_that_it_began_with(root: str, precision: str, state: str) -> None:
    base = asked(root, precision)["base"]
    base.record_begun() if state == "begun" else base.publish({"updates": 1})
    assert taken(graph(request(root))) == {precision}
    found = settle(request(root))
    assert found.decision == f"Training in {precision}, in which this run was begun"
    assert taken(graph(found.request)) == {precision}
    fast = speed("cpu").fast
    assert ("times slower" in found.warning) == (precision != fast)
    if precision != fast:
        assert "GFLOP/s a core" in found.warning
        assert f"`--set execution.precision={fast}` begins training anew" in found.warning
    # another seed is another run
    assert taken(graph(request(root, "pretrain.seed=7"))) == {fast}


def test_what_is_asked_for_wins_over_what_has_begun(root: str) -> None:
    asked(root, "bfloat16")["base"].record_begun()
    plan = graph(request(root, "pretrain.dtype=float32"))
    assert precisions(plan["base"].config)["dtype"] == "float32"
    assert taken(asked(root, "float32")) == {"float32"}


def test_begun_in_both_it_is_the_machines_own(root: str) -> None:
    for precision in PRECISIONS:
        asked(root, precision)["base"].record_begun()
    assert taken(graph(request(root))) == {speed("cpu").fast}


def test_one_decision_holds_for_the_run_and_all_that_it_starts(root: str) -> None:
    first = settle(request(root)).request
    assert not undecided(load_preset(first))
    # a worker of another kind, and work that somebody else has begun meanwhile, change nothing
    asked(root, OTHER[speed("cpu").fast])["base"].record_begun()
    assert taken(graph(first)) == {speed("cpu").fast}
    assert settle(first).request == first
    assert not settle(first).decision


def test_before_the_sources_are_known_it_is_the_machines_own(tmp_path: Path) -> None:
    assert taken(graph(request(str(tmp_path)))) == {speed("cpu").fast}
    assert taken(graph(settle(request(str(tmp_path))).request)) == {speed("cpu").fast}


def test_whoever_forces_a_slow_one_hears_both_rates(root: str) -> None:
    fast = speed("cpu").fast
    slow = settle(request(root, f"pretrain.dtype={OTHER[fast]}"))
    assert f"pretrain.dtype = {OTHER[fast]}" in slow.warning
    assert "GFLOP/s a core" in slow.warning
    assert f"`--set pretrain.dtype={fast}`" in slow.warning
    assert not settle(request(root, f"pretrain.dtype={fast}")).warning
    every = settle(request(root, f"execution.precision={OTHER[fast]}"))
    assert every.warning.startswith(f"{OTHER[fast]} is slow here: this CPU multiplies")
    assert not every.decision


def test_the_laptops_reinforcement_learning_keeps_its_float32_without_a_word(root: str) -> None:
    found = settle(request(root, preset=PresetName.laptop))
    assert precisions(load_preset(found.request).rl)["dtype"] == "float32"
    assert not found.warning


@pytest.mark.parametrize("name", [PresetName.gpu, PresetName.node, PresetName.k2])
def test_presets_for_gpus_alone_say_bfloat16_on_any_machine(name: PresetName) -> None:
    found = precisions(load_preset(Request(preset=name)))
    assert set(found.values()) == {"bfloat16"}


def test_status_shows_what_exists_in_either_precision(root: str) -> None:
    plan = asked(root, "bfloat16")
    plan["base"].publish({"updates": 60})
    lines = {line.name: line for line in survey(graph(request(root)))}
    assert lines["base"].state == "done"
    assert "in bfloat16" in lines["base"].sentence
    asked(root, "float32")["base"].record_begun()
    fast = speed("cpu").fast
    lines = {line.name: line for line in survey(graph(request(root)))}
    assert f"in {fast}" in lines["base"].sentence
    assert f"in {OTHER[fast]}" in lines["base (other)"].sentence
    assert {lines["base"].state, lines["base (other)"].state} == {"done", "begun"}
    assert "sft (other)" not in lines


def command(root: str, *arguments: str, **environment: str) -> str:
    house = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *arguments, "--preset", "test", "--root", root],
        env={**os.environ, "PYTHONPATH": str(house), "COLUMNS": "160", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_another_machine_finds_what_this_one_made(root: str) -> None:
    """Under the two variables this machine multiplies float32 fast; what it made in bfloat16 is found all the same."""
    assert asked(root, "float32")["base"].fingerprint in command(root, "status", **AVX2)
    base = asked(root, "bfloat16")["base"]
    base.publish({"updates": 60})
    told = command(root, "status", **AVX2)
    assert base.fingerprint in told
    assert "stale" not in told
