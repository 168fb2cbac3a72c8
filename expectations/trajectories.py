"""The suites of what agents learn from: the tasks (problems, prompts, answers, which side of a split they are on) and
the trajectories (turns, calls, results, tokens), read from the dialogues.

The splits are whatever the parts are called (`dialogues/SPLIT/ENVIRONMENT`), so that two or three of them are judged
alike.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable

from expectations.config import NOT_CHOSEN, TrajectoriesGate
from expectations.rules import Rule, Table, batches, never

if TYPE_CHECKING:
    from tasks.artifact import Artifact

COLUMNS = ("id", "problem", "environment", "verifier", "messages", "tools", "prompt_turns", "answer")
TOKENS = ("ids", "mask")
STAGE = "look at the rules of the dialogues stage: one of them has stopped working"
AGAIN = "delete the dialogues artifact and run its stage again"
_ROW = dict.fromkeys(("id", "problem", "split", "environment", "request", "task_fault", "fault"), pl.String)


def tables(gate: TrajectoriesGate, dialogues: Artifact, inputs: Mapping[str, Artifact]) -> list[Table]:
    """The metrics of `dialogues` with their rules."""
    rows: list[dict[str, str]] = []
    for part, path in zip(dialogues.parts("dialogues"), dialogues.files("dialogues"), strict=True):
        split = part.key.split("/")[1]
        for batch in batches(path, (*COLUMNS, *TOKENS), rows=512):
            rows += [_looked_at(row, split) for row in batch.iter_rows(named=True)]
    frame = pl.DataFrame(rows, schema=_ROW)
    rejected = [pl.read_parquet(path, columns=["reason"]) for path in dialogues.files("rejected")]
    refused = pl.concat(rejected) if rejected else pl.DataFrame(schema={"reason": pl.String})
    return [
        _tasks(gate, dialogues, frame),
        _trajectories(gate, dialogues, frame, refused),
        _environments(gate, dialogues, frame),
    ]


def _tasks(gate: TrajectoriesGate, dialogues: Artifact, frame: pl.DataFrame) -> Table:
    sides = frame.group_by("problem").agg(
        pl.col("split").unique().sort().str.join(", "), count=pl.col("split").n_unique()
    )
    shared = sides.filter(pl.col("count") > 1).sort("problem").select(id="problem", splits="split")
    faults = frame.filter(pl.col("task_fault") != "").select("id", "task_fault")
    row = {
        "dialogues_artifact": dialogues.fingerprint,
        "tasks": frame["problem"].n_unique(),
        "splits": frame["split"].n_unique(),
        "shared": shared.height,
        "faulty": faults.height,
        "wordings": frame["request"].n_unique() / max(frame.height, 1),
    }
    rules = (
        Rule("There are enough tasks", "tasks", "a few tasks are learned by heart", "raise the counts of `dialogues`",
             least=gate.tasks),
        Rule("Something is held out", "splits", "nobody could tell learning from remembering",
             "hold some problems out (`dialogues.heldout_share`)", least=2),
        never("No problem is on two sides of a split", "shared", "what is measured would have been trained on", STAGE,
              examples=shared.lazy()),
        never("Every task has a request, an answer that is JSON, and a verifier", "faulty",
              "no reward can be worked out for it", STAGE, examples=faults.lazy()),
        Rule("Requests are worded in enough ways", "wordings", "one wording teaches that wording",
             "add phrasings to the families", least=gate.wordings, unit="share"),
    )  # fmt: skip
    return Table("tasks", "the tasks", "dialogues_artifact", pl.DataFrame([row]), rules)


def _trajectories(gate: TrajectoriesGate, dialogues: Artifact, frame: pl.DataFrame, refused: pl.DataFrame) -> Table:
    stated = dialogues.statistics
    faults = frame.filter(pl.col("fault") != "").select("id", "fault")
    twice = frame.group_by("id").len().filter(pl.col("len") > 1).sort("id")
    by_filters = refused.filter(pl.col("reason").ne_missing(NOT_CHOSEN)).height
    row = {
        "dialogues_artifact": dialogues.fingerprint,
        "trajectories": frame.height,
        "twice": twice.height,
        "faulty": faults.height,
        "rejected_share": by_filters / max(frame.height + by_filters, 1),
        "unexplained": refused.filter(pl.col("reason").fill_null("") == "").height,
        "misstated": abs(int(stated.get("dialogues", 0)) - frame.height)
        + abs(int(stated.get("rejected", 0)) - refused.height),
    }
    rules = (
        Rule("There are enough trajectories", "trajectories", "fine-tuning needs more than a handful",
             "raise the counts of `dialogues`", least=gate.trajectories),
        never("No trajectory is there twice", "twice", "it would be trained on twice", AGAIN, examples=twice.lazy()),
        never("Every call is of a declared tool, fits its schema and has its result; the assistant has the last word",
              "faulty", "the model would learn calls that no server takes", STAGE, examples=faults.lazy()),
        Rule("The share that was refused is in its band", "rejected_share",
             "none means that the filters did not run, nearly all that what makes dialogues is broken",
             "see the reasons in the report", least=gate.rejected[0], most=gate.rejected[1], unit="share"),
        never("Whatever was refused says why", "unexplained", "nobody can tell a bad rule from a bad dialogue", STAGE),
        never("The manifest counts what the files hold", "misstated", "the figures that all read are of other data",
              AGAIN),
    )  # fmt: skip
    return Table("trajectories", "the trajectories", "dialogues_artifact", pl.DataFrame([row]), rules)


def _environments(gate: TrajectoriesGate, dialogues: Artifact, frame: pl.DataFrame) -> Table:
    # By the parts, which the stage puts for all that was asked for: what nothing came of has no rows.
    asked = (part.key.split("/")[1:] for part in dialogues.parts("dialogues"))
    counts = Counter(frame.select("environment", "split").iter_rows())
    found = sorted((f"{environment}, {split}", counts[environment, split]) for split, environment in asked)
    rows = pl.DataFrame(found, {"where": pl.String, "trajectories": pl.Int64}, orient="row")
    rules = (
        Rule("Every environment has enough on each side", "trajectories", "a rate over a few is chance",
             "raise its counts, or leave the environment out", least=gate.environment),
    )  # fmt: skip
    return Table("environments", "the trajectories by environment and split", "where", rows, rules)


def _looked_at(row: Mapping[str, Any], split: str) -> dict[str, str]:
    """What is wrong with one row, found by other code than the stage's."""
    try:
        messages, tools, _ = (json.loads(row[name]) for name in ("messages", "tools", "answer"))
        request = str(messages[row["prompt_turns"] - 1].get("content"))
        task = "" if row["verifier"] and request.strip() else "it has no verifier or no request"
        fault = turns_fault(messages, tools) or _tokens_fault(row["ids"], row["mask"])
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        request, task, fault = "", f"it can't be read: {type(error).__name__}", "it can't be read"
    named = {name: str(row[name]) for name in ("id", "problem", "environment")}
    return {**named, "split": split, "request": request, "task_fault": task, "fault": fault}


def _tokens_fault(ids: Sequence[int], mask: Sequence[bool]) -> str:
    if len(ids) != len(mask):
        return "tokens and mask differ in length"
    return "" if any(mask) else "nothing of it is trained"


def turns_fault(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> str:
    """The first thing that is wrong with the turns of a dialogue; empty where nothing is."""
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    waiting: set[str] = set()
    for message in messages:
        for call in message.get("tool_calls") or ():
            name = call["function"]["name"]
            if name not in schemas:
                return "a tool is called that was not declared"
            try:
                draft = validator_for(schemas[name], default=Draft202012Validator)
                draft.check_schema(schemas[name])
                fits = draft(schemas[name]).is_valid(json.loads(call["function"]["arguments"]))
            except (ValueError, TypeError, AttributeError, RecursionError, SchemaError, Unresolvable):
                fits = False
            if not fits:
                return "a call does not fit its schema"
            waiting.add(call["id"])
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "a result answers no call"
            waiting.remove(message["tool_call_id"])
    if waiting:
        return "a call has no result"
    last = messages[-1]
    return "" if last["role"] == "assistant" and last.get("content") else "the assistant has not the last word"
