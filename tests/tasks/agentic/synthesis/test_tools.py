"""Synthetic tools: what is kept is legal, different and does what it says; what is broken is refused by the rule that
it breaks; a model's answers are data."""

from __future__ import annotations

import dataclasses
import json
import random
from collections import Counter
from itertools import islice

import polars as pl
import pytest

from tasks.agentic.synthesis import tools as stage
from tasks.agentic.synthesis.config import ProposerConfig, ToolsConfig
from tasks.agentic.synthesis.evolve import categories, domains, tools
from tasks.agentic.synthesis.exercise import exercise, lawful
from tasks.agentic.synthesis.propose import proposals, read
from tasks.artifact import Artifact, Step
from tasks.launch import Execution
from tests.model.engines.test_openai import reply, serving
from training.rl.worlds.synthetic.arguments import valid
from training.rl.worlds.synthetic.operations import OPERATIONS
from training.rl.worlds.synthetic.service import function_of, world_of
from training.rl.worlds.synthetic.spec import DomainSpec, ToolSpec
from training.rl.worlds.world import Function, World

CONFIG = ToolsConfig(count=80, per_domain=7)
LONGEST = CONFIG.declaration_max


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Artifact:
    return stage.run(Step("tools", CONFIG, str(tmp_path_factory.mktemp("tools"))), Execution())


def frame(artifact: Artifact, group: str) -> pl.DataFrame:
    return pl.read_parquet(artifact.files(group))


@pytest.fixture(scope="module")
def clinic() -> DomainSpec:
    return next(domain for domain in domains(0) if domain.name.endswith("veterinary_practice"))


def one_of(domain: DomainSpec, operation: str) -> tuple[World, Function]:
    """A tool of that operation, in its world."""
    for seed in range(50):
        for spec in tools(domain, seed, 31):
            if spec.operation == operation:
                function = function_of(domain, spec)
                return world_of(domain, [function]), function
    raise AssertionError(operation)


def test_as_many_as_asked_for_all_different_from_every_category(made):
    kept, refused = frame(made, "tools"), frame(made, "rejected")
    assert kept.height == kept["name"].n_unique() == CONFIG.count
    assert set(kept["category"]) == set(categories())
    assert made.manifest["accounts"]["in"] == CONFIG.count + refused.height + made.statistics["left_over"]
    assert dict(Counter(refused["reason"])) == made.statistics["rejected_by_reason"]
    card = made.file("card").read_text()
    assert f"| kept | {CONFIG.count} |" in card
    assert "80 rows: a script" in card


def test_the_same_tool_under_another_name_is_refused(clinic):
    rows = list(stage.judged(CONFIG, clinic, tools(clinic, 0, 12), "script"))
    renamed = clinic.model_copy(update={"name": "night_practice", "title": "night practice"})
    rows += stage.judged(CONFIG, renamed, tools(clinic, 0, 12), "script")
    kept, same = stage.distinct(CONFIG, rows)
    passed = [row for row in rows if not row["reason"]]
    assert len(kept) + len(same) == len(passed)
    assert len(kept) <= len({row["compared"] for row in passed}) < len(passed)
    assert all(row["reason"] == "near duplicate" and "like" in row["detail"] for row in same)


def test_a_tool_is_exercised_again_from_its_row(made):
    specs = {row["domain"]: DomainSpec.model_validate_json(row["spec"]) for row in frame(made, "domains").to_dicts()}
    for row in frame(made, "tools").sample(20, seed=1).to_dicts():
        function = function_of(specs[row["domain"]], ToolSpec.model_validate_json(row["spec"]))
        world = world_of(specs[row["domain"]], [function])
        assert function.parameters == json.loads(row["parameters"])
        state, draw = world.start("again"), random.Random(row["name"])
        for _ in range(10):
            outcome = world.call(state, function.name, valid(function.parameters, state, draw))
            assert outcome.error not in ("invalid_arguments", "unknown_tool")
            state = outcome.state


def test_a_run_cut_in_the_middle_ends_with_the_same_bytes(made, tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "BATCH", 4)
    whole = stage.run(Step("tools", CONFIG, str(tmp_path / "whole")), Execution())
    step = Step("tools", CONFIG, str(tmp_path / "cut"))
    publish = stage.publish
    monkeypatch.setattr(stage, "publish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stage.run(step, Execution())
    monkeypatch.setattr(stage, "publish", publish)
    monkeypatch.setattr(stage, "judged", lambda *_: pytest.fail("judged again"))
    again = stage.run(step, Execution())
    assert again.manifest["content"] == whole.manifest["content"]
    assert frame(whole, "tools").equals(frame(made, "tools"))  # nor do bytes depend on the batches


def test_too_few_are_told(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "domains", lambda seed: islice(domains(seed), 3))
    with pytest.raises(stage.ToolsError, match=r"different tools were found: lower tools\.count"):
        stage.run(Step("tools", ToolsConfig(count=40, per_domain=4), str(tmp_path)), Execution())


@pytest.mark.parametrize("operation", OPERATIONS)
def test_every_operation_does_something(clinic, operation):
    """On one of some start states: a record's life may have come to its end in another."""
    world, function = one_of(clinic, operation)
    found = [exercise(world, function, f"{seed}", 30).reason for seed in range(4)]
    assert "" in found, found
    assert set(found) <= {"", "no valid call succeeds", "it should write and changes nothing"}


def broken(function: Function, run, **more) -> Function:
    return dataclasses.replace(function, run=run, **more)


def test_a_tool_that_lies_is_refused_by_the_rule_that_it_breaks(clinic):
    world, update = one_of(clinic, "tag")
    calls = iter(range(10_000))

    def of(function: Function) -> str:
        return exercise(dataclasses.replace(world, functions={function.name: function}), function, "0", 12).reason

    def corrupt(data, **arguments):
        next(iter(data["records"]["patient"].values()))["species"] = "dragon"
        return {}

    open_schema = {name: {"type": "string", "maxLength": 8, "description": "anything"} for name in update.properties}
    assert of(update) == ""
    assert of(broken(update, corrupt)) == "an invariant breaks"
    assert of(broken(update, lambda data, **_: {})) == "it should write and changes nothing"
    assert of(broken(update, lambda data, **_: {"n": next(calls)})) == "the same call gives two results"
    assert of(broken(update, lambda data, **_: {}, writes=False)) == "a record that does not exist is found"
    assert of(broken(update, lambda data, **_: {}, properties=open_schema, writes=False)) == ""  # it names no record


def test_a_declaration_that_no_server_takes_is_refused(clinic):
    _, function = one_of(clinic, "update")

    def why(**changes) -> str | None:
        declaration = json.loads(json.dumps(function.declaration("clinic.update")))
        declaration["function"] |= changes
        return lawful(declaration, LONGEST)

    silent = {"type": "object", "properties": {"id": {"type": "string"}}, "required": [], "additionalProperties": False}
    assert why() is None
    assert why(name="clinic update") == "its name is not legal"
    assert why(name="x" * 65) == "its name is not legal"
    assert why(description="long " * 2000) == "its declaration is too long"
    assert why(parameters={"type": "objekt"}) == "its parameters are no JSON schema"
    assert why(parameters={"type": "object", "properties": {}}) == "its parameters are no closed object"
    assert why(parameters=silent) == "an argument has no type or description"


ANSWER = {
    "domain": {
        "name": "kite_rental", "category": "travel", "title": "kite rental",
        "entities": [{"name": "kite", "life": {"free": ["lent"], "lent": ["free"]},
                      "fields": [{"name": "size", "kind": "integer", "low": 2, "high": 18, "unit": "m2"},
                                 {"name": "wind", "kind": "choice", "values": ["light", "strong"]}]}],
    },
    "tools": [
        {"name": "rank_kites", "description": "Ranks the kites by size.", "operation": "rank", "entity": "kite",
         "fields": ["size"]},
        {"name": "rank_kites", "description": "Ranks the kites by wind.", "operation": "rank", "entity": "kite",
         "fields": ["wind"]},
        {"name": "lend", "description": "Marks a kite as lent to a guest.", "operation": "move", "entity": "kite",
         "target": "lent"},
        {"name": "lend", "description": "Shows one kite with all it has.", "operation": "get", "entity": "kite"},
        {"name": "x;drop", "description": "Ranks the kites by size.", "operation": "rank", "entity": "kite"},
    ],
}  # fmt: skip


def test_what_a_model_proposes_passes_the_same_rules(tmp_path, monkeypatch):
    texts = [f"Sure!\n```json\n{json.dumps(ANSWER)}\n```", "no", json.dumps(ANSWER), '{"tools": [' * 5000]
    answers = iter(texts)
    monkeypatch.setattr(stage, "proposals", lambda *_: (read(next(answers), "travel") for _ in texts))
    config = ToolsConfig(count=30, proposer=ProposerConfig(engine="endpoint", model="m"))
    artifact = stage.run(Step("tools", config, str(tmp_path)), Execution())
    assert artifact.statistics["by_origin"] == {"model": 2, "script": 28}
    refused = Counter(row["reason"] for row in frame(artifact, "rejected").to_dicts() if row["origin"] == "model")
    assert refused == {
        "it asks for what its domain has not": 1,
        "its name is taken": 1,
        "the tool does not fit the layout": 2,
        "the answer is no JSON object in the layout": 2,
        "the name of its domain is taken": 1,
    }
    assert "2 rows: the model m" in artifact.file("card").read_text()


def test_a_run_that_goes_on_with_other_proposals_loses_no_domain(tmp_path, monkeypatch):
    """Another machine has none of the answers that the first one kept."""
    config = ToolsConfig(count=60, proposer=ProposerConfig(engine="endpoint", model="m"))
    taken = next(domains(config.seed))
    proposed = iter([{**ANSWER["domain"], "name": taken.name, "category": taken.category}, ANSWER["domain"]])

    def proposals(*_):
        domain = next(proposed)
        yield read(json.dumps({**ANSWER, "domain": domain}), domain["category"])

    def killed(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(stage, "proposals", proposals)
    with monkeypatch.context() as first:
        first.setattr(stage, "publish", killed)
        with pytest.raises(KeyboardInterrupt):
            stage.run(Step("tools", config, str(tmp_path)), Execution())
    artifact = stage.run(Step("tools", config, str(tmp_path)), Execution())
    kept, models = frame(artifact, "tools"), frame(artifact, "domains")
    assert set(kept["domain"]) == set(models["domain"])
    assert taken.name in set(models["domain"])


def test_a_domain_that_does_not_hold_together_is_refused():
    for change, told in (
        ({"name": "Kite"}, "domain.name"),
        ({"category": "weapons"}, "another category"),
        ({"title": "a<script>"}, "title"),
        ({"entities": []}, "entities"),
        ({"code": "import os"}, "code"),
    ):
        answer = {**ANSWER, "domain": {**ANSWER["domain"], **change}}
        proposed = read(json.dumps(answer), "travel")
        assert proposed.domain is None
        assert told.rpartition(".")[2] in " ".join(proposed.misfits[0])


def test_an_endpoint_is_asked_once(tmp_path):
    def answer(handler, request: dict, number: int) -> None:
        category = "travel" if "car_rental" in request["messages"][-1]["content"] else "health"
        told = {**ANSWER, "domain": {**ANSWER["domain"], "category": category}}
        reply(handler, 200, json.dumps({"choices": [{"message": {"content": json.dumps(told)}}]}).encode())

    config = ToolsConfig(proposer=ProposerConfig(engine="endpoint", model="m", domains=2, tools=3))
    with serving(answer) as server:
        execution = Execution(engine_url=server.url)
        first = list(proposals(config, execution, str(tmp_path)))
        assert list(proposals(config, execution, str(tmp_path))) == first
        assert len(server.requests) == 2
    assert [one.domain and one.domain.category for one in first] == ["health", "travel"]
    assert all(len(one.tools) == 4 for one in first)
