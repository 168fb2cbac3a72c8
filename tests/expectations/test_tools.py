from __future__ import annotations

import json
import random
from pathlib import Path

import polars as pl
import pytest

from expectations.config import ToolsGate
from expectations.tools import _faults, _similar
from tasks.agentic.synthesis.config import ToolsConfig
from tasks.agentic.synthesis.tools import run
from tasks.artifact import Artifact, Step
from tasks.launch import Execution
from tests.expectations.data import Plain


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Artifact:
    return run(Step("tools", ToolsConfig(count=36, per_domain=3), str(tmp_path_factory.mktemp("tools"))), Execution())


def copy(root: Path, good: Artifact, **changed: pl.DataFrame) -> Step:
    """The same tools, some of their tables changed."""
    step = Step("tools", Plain(), str(root))
    for group in ("tools", "domains", "rejected"):
        frame = changed.get(group, pl.read_parquet(good.files(group)))
        step.put(f"{group}/all", ".parquet", frame.write_parquet, frame.height)
    step.publish(good.statistics)
    return step


def test_good_tools_pass(tmp_path, good, passed):
    artifact = passed(ToolsGate(tools=36, domains=10, operations=12, categories={"health": 0.02}), copy(tmp_path, good))
    assert artifact.statistics["success"]


def test_the_share_of_near_duplicates_is_that_of_the_sample_they_are_looked_for_in(tmp_path):
    """Held against all tools, the pairs of a sample of a quarter are a quarter of what there is."""

    def words(seed: int) -> str:
        drawn = random.Random(seed)
        return " ".join(f"{drawn.choice('abcdefgh')}{drawn.randrange(999)}" for _ in range(40))

    described = [words(number // 2 if number < 400 else number) for number in range(800)]
    frame = pl.DataFrame(
        {"name": [f"t{number}" for number in range(800)], "description": described, "parameters": "{}"}
    )
    step = Step("tools", Plain(), str(tmp_path))
    step.publish({})
    for sample in (800, 200):
        pairs, looked_at = _similar(step.require(), ToolsGate(sample=sample), frame)
        assert looked_at == pytest.approx(sample, rel=0.3)
        assert pairs["other"].n_unique() / looked_at == pytest.approx(0.25, rel=0.4)


def test_every_defect_is_named(tmp_path, good, blocked):
    tools, domains = (pl.read_parquet(good.files(group)) for group in ("tools", "domains"))
    rejected = tools.head(3).select("name", reason=pl.Series(["", None, " "], dtype=pl.String))
    one, other, third, *_ = tools["name"]
    name = pl.when(pl.col("name") == one).then(pl.lit(other)).otherwise(pl.col("name"))
    call = pl.when(pl.col("name") == third).then(pl.lit('{"nonsense": 1}')).otherwise(pl.col("arguments"))
    tools = tools.with_columns(arguments=call, origin=pl.Series(["somebody", None, *["nobody"] * (len(tools) - 2)]))
    tools = tools.with_columns(name=name)
    lost = domains.filter(pl.col("domain") != tools["domain"][0])
    failure = blocked(
        ToolsGate(tools=100, operations=50, categories={"weapons": 0.1}, largest_category=0.01, rejected=(0.5, 0.9)),
        copy(tmp_path, good, tools=tools, domains=lost, rejected=rejected),
    )
    for sentence in (
        "There are enough tools: expected at least 100, observed 36",
        "They do enough different things",
        "No two tools have the same name: expected none, observed 1",
        "Every declaration is legal and every example call fits it: expected none, observed 1",
        "Every tool's state model is there",
        "The share that was refused is in its band",
        "Whatever was refused says why: expected none, observed 3",
        "Every tool says who wrote it: expected none, observed 36",
        "Every category has its least share of the tools",
        "No category crowds the others out",
    ):
        assert sentence in str(failure), sentence
    assert f"id {third}, fault its example call does not fit its schema" in str(failure)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"name": None}, "its name is not legal"),
        ({"description": None}, "it has no description"),
        ({"parameters": None}, "no JSON"),
        ({"parameters": "[" * 100_000}, "no JSON"),
        ({"parameters": '{"type": "object", "properties": {"x": {"$ref": "#/definitions/no"}}}'}, "no schema"),
        ({"parameters": '{"type": "object", "properties": {"x": {"$ref": "http://nowhere.invalid"}}}'}, "no schema"),
        ({"parameters": '{"type": "object", "$ref": "#"}'}, "no schema"),
        ({"parameters": '{"type": "object", "$schema": 5}'}, "no schema"),
    ],
)
def test_a_tool_that_cannot_be_read_is_a_fault_and_no_traceback(changed, fault):
    good = {"name": "a", "description": "b", "parameters": '{"type": "object"}', "arguments": '{"x": 1}', "result": "1"}
    (found,) = _faults(pl.DataFrame([good | changed], schema=dict.fromkeys(good, pl.String)))
    assert fault in found["fault"]


def test_a_schema_is_read_by_the_draft_that_it_names():
    """A pair of draft 7, which draft 2020-12 cannot read."""
    pair = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"x": pair}}
    row = {"name": "a", "description": "b", "parameters": json.dumps(schema), "result": "1"}
    calls = [row | {"arguments": json.dumps({"x": given})} for given in ([1, "one"], ["one", 1])]
    (found,) = _faults(pl.DataFrame(calls))
    assert found["fault"] == "its example call does not fit its schema"
