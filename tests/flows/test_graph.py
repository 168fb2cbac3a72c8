"""The recipe's one text: what is derived from it holds together, and what is made anew takes with it what it must."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from flows.graph import Graph, Stages
from flows.recipe import FLOWS
from flows.request import PresetName, Request
from flows.stages import _discard
from flows.steps import graph
from model.config import Config
from tasks.artifact import NotReady, Step
from tasks.code import HOUSE, closure

TRAINED = ("training.pretrain", "training.sft", "training.rl.train")


class Literals(Config):
    size: int = 1


@pytest.fixture
def drawn(tmp_path: Path) -> Graph:
    return graph(Request(preset=PresetName.test, root=str(tmp_path), overrides=["execution.precision=float32"]))


def test_every_flow_runs_some_steps_and_every_step_has_a_flow(drawn: Graph) -> None:
    assert [name for name in FLOWS if not drawn.of(name)] == []
    assert [step for name in FLOWS for step in drawn.of(name)] == drawn.steps
    assert [name for name in FLOWS if drawn.trains(name)] == ["pretrain", "posttrain"]


def test_a_step_reads_none_that_comes_after_it(drawn: Graph) -> None:
    before: set[str] = set()
    for step in drawn.steps:
        assert {given.name for given in step.inputs} <= before, step.name
        before.add(step.name)


def test_nothing_reads_what_tool_servers_answered_on_one_machine(tmp_path: Path) -> None:
    found = graph(Request(preset=PresetName.laptop, root=str(tmp_path), overrides=["execution.precision=float32"]))
    assert [step.leaf for step in found.steps if step.name == "real-tools"] == [True]
    assert not [step.name for step in found.steps if "real-tools" in {given.name for given in step.inputs}]


def test_what_is_gated_is_read_through_its_gate_alone(drawn: Graph) -> None:
    gates = {step.inputs[0].name: step for step in drawn.steps if step.name.endswith("-gate")}
    assert set(gates) == {"corpus", "rewrites", "tokens", "tools", "dialogues", "release-suites"}
    for step in drawn.steps:
        for given in step.inputs:
            if given.name in gates and step.name != f"{given.name}-gate":
                assert given.gate is gates[given.name], f"{step.name} reads {given.name} past its gate"


@pytest.mark.parametrize("module", TRAINED)
def test_a_training_job_asks_for_inputs_that_the_recipe_gives_it(drawn: Graph, module: str) -> None:
    (step,) = (step for step in drawn.steps if step.module == module)
    asked = set()
    for name in closure(module):
        path = HOUSE.joinpath(*name.split(".")).with_suffix(".py")
        for node in ast.walk(ast.parse(path.read_text()) if path.is_file() else ast.Module([], [])):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("job.input"):
                asked |= {each.value for each in node.args if isinstance(each, ast.Constant)}
    assert asked
    assert asked <= {given.name for given in step.inputs}


def chain(root: Path, code: str = "old") -> list[Step]:
    """first -> second -> third, and a step that reads none of them."""
    steps: list[Step] = []
    for name in ("first", "second", "third"):
        steps.append(Step(name, Literals(), str(root), tuple(steps[-1:]), code))
    return [*steps, Step("aside", Literals(), str(root), (), code)]


def published(steps: list[Step], text: str = "a") -> None:
    for step in steps:
        if step.artifact() is None:
            step.put("part", ".txt", lambda path: path.write_text(text))
            step.publish({})


def discarded(steps: list[Step], rebuild: bool, text: str = "a") -> list[str]:
    """What a run makes anew, each step giving `text`."""
    again = []
    for step in steps:
        _discard(step, rebuild)
        if step.artifact() is None:
            again.append(step.name)
            published([step], text if step.name == "first" else "a")
    return again


def test_changed_code_alone_makes_nothing_anew(tmp_path: Path) -> None:
    published(chain(tmp_path))
    assert discarded(chain(tmp_path, "new"), rebuild=False) == []


def test_a_rebuild_makes_anew_what_other_code_made_once(tmp_path: Path) -> None:
    published(chain(tmp_path))
    assert discarded(chain(tmp_path, "new"), rebuild=True) == ["first", "second", "third", "aside"]
    assert discarded(chain(tmp_path, "new"), rebuild=True) == []


def test_what_came_out_otherwise_takes_with_it_what_was_made_from_it(tmp_path: Path) -> None:
    published(chain(tmp_path))
    first = chain(tmp_path)[0]
    first.discard()
    published([first], "other bytes")
    assert discarded(chain(tmp_path), rebuild=False) == ["second"], "and second came out as before"


def test_a_rebuild_that_was_ended_half_way_is_ended_by_the_next_run(tmp_path: Path) -> None:
    steps = chain(tmp_path)
    published(steps)
    steps[0].discard()
    assert discarded(chain(tmp_path), rebuild=False, text="other bytes") == ["first", "second"]


def test_what_was_begun_with_other_bytes_is_not_gone_on_with(tmp_path: Path) -> None:
    """A run is ended in the middle of a step; what the step reads is then made anew, and comes out otherwise."""
    first, second, *_ = chain(tmp_path)
    published([first])
    second.record_inputs()
    second.put("part", ".txt", lambda path: path.write_text("of a"))
    _discard(second, rebuild=False)
    assert second.part("part") is not None, "nothing has changed: it goes on from there"
    first.discard()
    published([first], "other bytes")
    _discard(second, rebuild=False)
    assert second.part("part") is None
    second.record_inputs()
    assert second.begun_from_others() == []


@pytest.mark.parametrize("rebuild", [False, True])
def test_nothing_is_taken_back_that_could_not_be_made_anew(tmp_path: Path, rebuild: bool) -> None:
    """A rebuild of what it reads was ended half way, and this stage alone is asked for."""
    first, second, *_ = chain(tmp_path)
    published([first, second])
    first.discard()
    with pytest.raises(NotReady, match="'first'"):
        _discard(replace(second, code="new"), rebuild)
    assert second.artifact() is not None


def test_a_graph_tells_whether_all_of_it_is_made_from_what_is_there(tmp_path: Path) -> None:
    stages = Stages(str(tmp_path))
    stages.flow("one")
    first = stages("first", "tasks.agentic.dialogues", Literals())
    stages("second", "tasks.agentic.dialogues", Literals(), stages.gate(Literals(), first))
    found = stages.graph
    assert [step.name for step in found.of("one")] == ["first", "first-gate", "second"]
    assert not found.published()
    for step in found.steps:
        step.publish({})
    assert found.published()
    assert found.published("first")
    first.discard()
    published([first], "other bytes")
    assert found.published("first")
    assert not found.published()
    with pytest.raises(KeyError, match="no step 'third'"):
        found["third"]


def test_what_follows_unfetched_sources_waits(drawn: Graph) -> None:
    with pytest.raises(NotReady):
        _ = drawn["corpus"].fingerprint
    assert drawn.made_by_other_code() == []
