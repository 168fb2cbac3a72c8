from __future__ import annotations

import json

import polars as pl
import pytest

from expectations.config import NOT_CHOSEN, TrajectoriesGate
from expectations.trajectories import tables, turns_fault
from tasks.agentic.config import CallsConfig, DialoguesConfig, TaskConfig
from tasks.artifact import Artifact, Step
from tests.expectations.data import Plain
from tests.posttraining import dialogues_artifact, tokenizer_artifact

CONFIG = DialoguesConfig(
    tasks=(TaskConfig(family="copy", train=12, development=6, test=6),),
    calls=CallsConfig(train=8, no_call=0.5, development=4, test=4),
    max_tokens=1400,
)


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Artifact:
    root = tmp_path_factory.mktemp("dialogues")
    return dialogues_artifact(root, tokenizer_artifact(root), CONFIG)


def copy(root, good: Artifact, change=lambda key, frame: frame) -> Step:
    """The same dialogues, some of their parts changed."""
    step = Step("dialogues", Plain(), str(root))
    for part in (*good.parts("dialogues"), *good.parts("rejected")):
        frame = change(part.key, pl.read_parquet(good.file(part)))
        step.put(part.key, ".parquet", frame.write_parquet, frame.height)
    step.publish(good.statistics)
    return step


def test_good_dialogues_pass(tmp_path, good, passed):
    gate = TrajectoriesGate(tasks=20, trajectories=30, environment=4, wordings=0.5)
    assert passed(gate, copy(tmp_path, good)).statistics["success"]


def test_plays_that_another_outdid_are_not_refused_by_a_filter(tmp_path, good):
    def share(root, reason: str) -> float:
        def change(key: str, frame: pl.DataFrame) -> pl.DataFrame:
            if key != "rejected/train/tool_call":
                return frame
            row = dict.fromkeys(frame.columns, "") | {"reason": reason}
            return pl.concat([frame, pl.DataFrame([row] * 900, schema=frame.schema)])

        artifact = copy(root, good, change).require()
        (row,) = tables(TrajectoriesGate(), artifact, {})[1].frame.to_dicts()
        return row["rejected_share"]

    assert share(tmp_path / "one", NOT_CHOSEN) < 0.5
    assert share(tmp_path / "other", "the tool failed") > 0.8


def test_every_defect_is_named(tmp_path, good, blocked):
    held = next(pl.read_parquet(good.file(part)) for part in good.parts("dialogues") if "test/copy" in part.key)

    def change(key: str, frame: pl.DataFrame) -> pl.DataFrame:
        if key == "dialogues/train/copy":
            leaked = frame.head(1).with_columns(problem=pl.lit(held["problem"][0]), answer=pl.lit("{no"))
            return pl.concat([leaked, frame[1:], frame[-1:]])
        if key == "dialogues/train/tool_call":
            return frame.with_columns(tools=pl.lit("[]"))
        return frame.with_columns(reason=pl.lit("")) if key == "rejected/train/tool_call" else frame

    step = copy(tmp_path, good, change)
    gate = TrajectoriesGate(tasks=900, trajectories=900, environment=5, wordings=1.0, rejected=(0.9, 1.0))
    message = str(blocked(gate, step))
    for sentence in (
        "There are enough tasks",
        "No problem is on two sides of a split: expected none, observed 1",
        "has a request, an answer that is JSON, and a verifier: expected none, observed 1",
        "Requests are worded in enough ways",
        "There are enough trajectories",
        "No trajectory is there twice: expected none, observed 1",
        "the assistant has the last word: expected none, observed 9",
        "The share that was refused is in its band",
        "The manifest counts what the files hold",
        "Every environment has enough on each side",
    ):
        assert sentence in message, sentence


def test_an_environment_of_which_nothing_came_on_one_side_is_named(tmp_path, good, blocked):
    step = copy(tmp_path, good, lambda key, frame: frame.clear() if key == "dialogues/test/copy" else frame)
    message = str(blocked(TrajectoriesGate(tasks=1, trajectories=1, environment=1, wordings=0.1), step))
    assert "Every environment has enough on each side" in message
    (row,) = tables(TrajectoriesGate(), step.require(), {})[2].frame.filter(pl.col("trajectories") == 0).to_dicts()
    assert row["where"] == "copy, test"


def test_turns_that_are_wrong_are_told_apart():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]

    def fault(arguments: object = None, name: str = "f", answered: str = "0", last: str = "done") -> str:
        call = {"id": "0", "function": {"name": name, "arguments": json.dumps(arguments or {"n": 1})}}
        turns = [{"role": "user", "content": "do"}, {"role": "assistant", "content": "", "tool_calls": [call]}]
        turns += [{"role": "tool", "tool_call_id": answered, "content": "1"}] if answered else []
        return turns_fault([*turns, {"role": "assistant", "content": last}], tools)

    assert fault() == ""
    assert fault({"n": "one"}) == "a call does not fit its schema"
    assert fault(name="g") == "a tool is called that was not declared"
    assert fault(answered="7") == "a result answers no call"
    assert fault(answered="") == "a call has no result"
    assert fault(last="") == "the assistant has not the last word"


def test_a_schema_is_read_by_the_draft_that_it_names():
    """A pair of draft 7, which draft 2020-12 cannot read."""
    pair = {"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "properties": {"x": pair}}
    for given, fault in (([1, "one"], ""), (["one", 1], "a call does not fit its schema")):
        call = {"id": "1", "function": {"name": "f", "arguments": json.dumps({"x": given})}}
        turns = [{"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_call_id": "1", "content": "1"}]
        last = {"role": "assistant", "content": "done"}
        assert turns_fault([*turns, last], [{"function": {"name": "f", "parameters": schema}}]) == fault


@pytest.mark.parametrize(
    "schema", [{"$ref": "#/definitions/no"}, {"$ref": "#"}, {"$ref": "http://nowhere.invalid"}, {"$schema": 5}, 5]
)
@pytest.mark.parametrize("arguments", ["{}", "[" * 100_000])
def test_a_schema_that_leads_nowhere_is_a_fault_and_no_traceback(schema, arguments):
    tools = [{"function": {"name": "f", "parameters": schema}}]
    turn = {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}
    assert turns_fault([turn], tools) == "a call does not fit its schema"
