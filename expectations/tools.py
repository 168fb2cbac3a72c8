"""The suite of the tools: every declaration can be shown to a model, every example call fits it, nobody's name is
another's, nothing was refused without a reason, and the categories are covered."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl
from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable

from expectations.config import ToolsGate
from expectations.rules import Rule, Table, few, never, shares
from expectations.similarity import Sample

if TYPE_CHECKING:
    from tasks.artifact import Artifact

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
ORIGINS = ("script", "model")
EVOLVE = "look at the tools stage (tasks/agentic/synthesis): a rule of it has stopped working"
AGAIN = "delete the tools artifact and run its stage again"


def tables(gate: ToolsGate, tools: Artifact, inputs: Mapping[str, Artifact]) -> list[Table]:
    """The metrics of `tools` with their rules."""
    frame = pl.concat([pl.read_parquet(path) for path in tools.files("tools")])
    domains = pl.concat([pl.read_parquet(path) for path in tools.files("domains")])
    rejected = pl.concat([pl.read_parquet(path) for path in tools.files("rejected")])
    return [_whole(gate, tools, frame, domains, rejected), _categories(gate, frame)]


def _whole(
    gate: ToolsGate, tools: Artifact, frame: pl.DataFrame, domains: pl.DataFrame, rejected: pl.DataFrame
) -> Table:
    twice = frame.group_by("name").len().filter(pl.col("len") > 1).sort("name").rename({"name": "id"})
    faults = pl.DataFrame(list(_faults(frame)), schema=dict.fromkeys(("id", "fault"), pl.String))
    homeless = frame.join(domains.select("domain"), on="domain", how="anti").select(id="name", domain="domain")
    similar, looked_at = _similar(tools, gate, frame)
    stated = tools.statistics
    row = {
        "tools_artifact": tools.fingerprint,
        "tools": frame.height,
        "domains": frame["domain"].n_unique(),
        "operations": frame["operation"].n_unique(),
        "twice": twice.height,
        "faulty": faults.height,
        "homeless": homeless.height,
        "similar": similar["other"].n_unique() / max(looked_at, 1),
        "rejected_share": rejected.height / max(frame.height + rejected.height, 1),
        "unexplained": rejected.filter(pl.col("reason").fill_null("").str.strip_chars() == "").height,
        "anonymous": frame.filter(~pl.col("origin").fill_null("").is_in(ORIGINS)).height,
        "misstated": abs(int(stated.get("tools", 0)) - frame.height)
        + abs(int(stated.get("rejected", 0)) - rejected.height),
    }
    rules = (
        Rule("There are enough tools", "tools", "a model learns the few tools by heart and not to read declarations",
             "raise `tools.count`, or lower `gates.tools.tools`", least=gate.tools),
        Rule("They work on enough state models", "domains", "tools on one state teach that state",
             "lower `tools.per_domain`, so that more domains are evolved", least=gate.domains),
        Rule("They do enough different things", "operations", "variety of names is not variety of use",
             "add operations (training/rl/worlds/synthetic/operations.py)", least=gate.operations),
        never("No two tools have the same name", "twice", "a call could not say which it means", EVOLVE,
              examples=twice.lazy()),
        never("Every declaration is legal and every example call fits it", "faulty",
              "a server would refuse the tool, or a dialogue would be trained that the schema forbids", EVOLVE,
              examples=faults.lazy()),
        never("Every tool's state model is there", "homeless", "its calls could not be simulated", AGAIN,
              examples=homeless.lazy()),
        few("Few tools are near duplicates of another", "similar", "the same tool under many names is one tool",
            "compare the two under `examples`, and lower `tools.near.threshold`", gate.similar,
            examples=similar.lazy()),
        Rule("The share that was refused is in its band", "rejected_share",
             "none means that the rules did not run, nearly all that what proposes tools is broken",
             "see the reasons in the report", least=gate.rejected[0], most=gate.rejected[1], unit="share"),
        never("Whatever was refused says why", "unexplained", "nobody can tell a bad rule from a bad tool", EVOLVE),
        never("Every tool says who wrote it", "anonymous", "what a model wrote has that model's terms", EVOLVE),
        never("The manifest counts what the files hold", "misstated", "the figures that all read are of other data",
              AGAIN),
    )  # fmt: skip
    return Table("tools", "the tools as a whole", "tools_artifact", pl.DataFrame([row]), rules)


def _faults(frame: pl.DataFrame) -> Iterator[dict[str, str]]:
    """What is wrong with a tool, found by other code than the stage's."""
    columns = ("name", "description", "parameters", "arguments", "result")
    for name, description, parameters, arguments, result in frame.select(columns).iter_rows():
        fault = _fault(name, description, parameters, arguments, result)
        if fault:
            yield {"id": name, "fault": fault}


def _fault(
    name: str | None, description: str | None, parameters: str | None, arguments: str | None, result: str | None
) -> str:
    if not LEGAL.fullmatch(name or ""):
        return "its name is not legal"
    if not (description or "").strip():
        return "it has no description"
    try:
        schema, call, answer = (json.loads(text or "") for text in (parameters, arguments, result))
        draft = validator_for(schema, default=Draft202012Validator)
        draft.check_schema(schema)
        draft(schema).validate(call)
    except (ValueError, TypeError, AttributeError, RecursionError, SchemaError, Unresolvable) as error:
        return f"it holds what is no JSON, or no schema: {type(error).__name__}"
    except ValidationError:
        return "its example call does not fit its schema"
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "its parameters are no object"
    return "its example call failed" if isinstance(answer, dict) and "error" in answer else ""


def _similar(tools: Artifact, gate: ToolsGate, frame: pl.DataFrame) -> tuple[pl.DataFrame, int]:
    """Pairs of a sample that are alike at the stage's own threshold (`id`, `other`, `similarity`), and its size."""
    near: Mapping[str, Any] = (tools.manifest.get("config") or {}).get("near") or {}
    sample = Sample(int(near.get("ngram", 3)), gate.sample / max(frame.height, 1))
    words = pl.concat_str("name", "description", "parameters", separator=" ")
    sample.add(frame.select(id="name", text=words.str.replace_all("_", " ")))
    return sample.pairs(float(near.get("threshold", 0.8))), len(sample.ids)


def _categories(gate: ToolsGate, frame: pl.DataFrame) -> Table:
    counted = frame.group_by("category").agg(documents=pl.len().cast(pl.Int64), bytes=pl.len().cast(pl.Int64))
    rows = shares(counted, "category", gate.categories).select("category", "share", "floor", tools="documents")
    rules = (
        Rule("Every category has its least share of the tools", "share", "what no tool covers, no agent learns",
             "raise `tools.count`, or lower `gates.tools.categories`", floor="floor", unit="share"),
        Rule("No category crowds the others out", "share", "the model would be an agent for one field of life",
             "look at what proposes tools: the grammar takes the categories in turn", most=gate.largest_category,
             unit="share"),
    )  # fmt: skip
    return Table("categories", "the tools by category", "category", rows, rules)
