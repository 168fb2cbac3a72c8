"""The tools stage: synthetic tools evolved, validated, exercised and deduplicated.

Category by category, domain by domain, until there are as many different ones as were asked for. Whatever breaks a rule
goes to `rejected` with the rule. Parts:

    tools/all       the columns of `TOOLS`
    domains/all     the columns of `DOMAINS`: the state models that the tools work on
    rejected/all    the columns of `REJECTED`
    server_tools/all, server_calls/all    real tools and what they answered (tasks/agentic/mcp/recording.py)
    card            a data card in markdown

A row is exercised again by `world_of(DomainSpec.model_validate_json(spec), [function_of(domain, ToolSpec...)])`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.dialogue import compact
from tasks.accounts import Balance
from tasks.agentic.card import Origin, data_card
from tasks.agentic.mcp.recording import PARTS, record
from tasks.agentic.synthesis.config import ToolsConfig
from tasks.agentic.synthesis.evolve import domains, tools
from tasks.agentic.synthesis.exercise import exercise, lawful
from tasks.agentic.synthesis.propose import Proposed, proposals
from tasks.artifact import Artifact, Step
from tasks.corpus.dedup.near import near_duplicates
from tasks.launch import Execution
from tasks.part import write_table
from tasks.progress import Progress
from training.draw import problem_id
from training.rl.worlds.synthetic.service import function_of, world_of
from training.rl.worlds.synthetic.spec import DomainSpec, ToolSpec

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)

SCRIPT, MODEL = "script", "model"
_WHO = ("name", "category", "domain", "entity", "operation", "origin", "description", "parameters")
TOOLS = pa.schema(
    [(name, pa.string()) for name in _WHO]  # parameters: JSON schema
    + [(name, pa.string()) for name in ("spec", "arguments", "result")]  # JSON: ToolSpec; a call that succeeded
)
DOMAINS = pa.schema([(name, pa.string()) for name in ("domain", "category", "title", "origin", "spec", "invariants")])
REJECTED = pa.schema([(name, pa.string()) for name in (*_WHO, "reason", "detail")])
CANDIDATES = pa.schema(
    [*TOOLS, *((name, pa.string()) for name in ("reason", "detail", "compared")), ("calls", pa.int32())]
)
BATCH = 12
"""Domains of one part: what a run that was killed does again at most."""
Row = dict[str, Any]


class ToolsError(ValueError):
    """Too few different tools; the message says what to change."""


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: evolve, validate and deduplicate the tools of `step.config`; publish them."""
    config = step.config
    assert isinstance(config, ToolsConfig)
    rows: list[Row] = []
    found: dict[str, DomainSpec] = {}
    enough, passed = config.count, 0
    with Progress("tools", config.count, "tools") as progress:
        for rows_more, domains_more in batches(step, config, execution):
            rows += rows_more
            found |= domains_more
            before, passed = passed, sum(not row["reason"] for row in rows)
            progress.advance(min(passed, config.count) - min(before, config.count))
            if passed >= enough:
                kept, same = distinct(config, rows)
                if len(kept) >= config.count:
                    break
                enough = passed + 2 * (config.count - len(kept))
        else:
            kept, same = distinct(config, rows)
            if len(kept) < config.count:
                raise ToolsError(
                    f"only {len(kept):,} of {config.count:,} different tools were found: lower tools.count, or raise "
                    f"tools.per_domain ({config.per_domain}) or tools.near.threshold ({config.near.threshold})"
                )
    return publish(step, kept, [row for row in rows if row["reason"]] + same, found, rows)


def batches(step: Step, config: ToolsConfig, execution: Execution) -> Iterator[tuple[list[Row], dict[str, DomainSpec]]]:
    """Candidates, each with its verdict, and their domains: those of the model first."""
    taken: set[str] = set()
    if config.proposer is not None:
        answers = list(proposals(config, execution, step.root))
        yield proposed(config, answers, taken)
    evolved = (domain for domain in domains(config.seed) if domain.name not in taken)
    number = 0
    while batch := list(islice(evolved, BATCH)):

        def make(batch: Sequence[DomainSpec] = batch) -> Iterator[Row]:
            for domain in batch:
                yield from judged(config, domain, tools(domain, config.seed, config.per_domain), SCRIPT)

        # By its domains: where the model proposes others than at an earlier attempt, whose answers another machine has,
        # other names are taken, and what was kept under the number would be the tools of other domains.
        found = {domain.name: domain for domain in batch}
        yield kept_part(step, f"candidates/{number:04}-{problem_id('domains', *found)}", make), found
        number += 1


def proposed(
    config: ToolsConfig, answers: Sequence[Proposed], taken: set[str]
) -> tuple[list[Row], dict[str, DomainSpec]]:
    """What a model proposed, judged; `taken` gets the names of its domains."""
    rows: list[Row] = []
    found: dict[str, DomainSpec] = {}
    for answer in answers:
        name, category = (answer.domain.name, answer.domain.category) if answer.domain else ("", "")
        rows += [_refused(name, category, reason, detail) for reason, detail in answer.misfits]
        if answer.domain is None:
            continue
        if name in taken:
            rows.append(_refused(name, category, "the name of its domain is taken", ""))
            continue
        taken.add(name)
        found[name] = answer.domain
        rows += judged(config, answer.domain, answer.tools, MODEL)
    return rows, found


def judged(config: ToolsConfig, domain: DomainSpec, specs: Iterable[ToolSpec], origin: str) -> Iterator[Row]:
    """Tools of one domain as rows, each with the first rule that it broke."""
    names: set[str] = set()
    for spec in specs:
        row = _row(domain, spec, origin)
        try:
            function = function_of(domain, spec)
        except ValueError as error:
            yield row | {"reason": "it asks for what its domain has not", "detail": str(error)}
            continue
        declaration = function.declaration(row["name"])
        row["parameters"] = compact(function.parameters)
        if (reason := lawful(declaration, config.declaration_max)) or spec.name in names:
            yield row | {"reason": reason or "its name is taken"}
            continue
        names.add(spec.name)
        done = exercise(world_of(domain, [function]), function, f"{config.seed}/{domain.name}", config.calls)
        row |= {"reason": done.reason, "detail": done.detail, "calls": done.calls}
        yield row | {"arguments": done.arguments, "result": done.result, "compared": _compared(domain, spec, function)}


def distinct(config: ToolsConfig, rows: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The different ones of those that broke no rule, and the others with what they are like."""
    passed = [row for row in rows if not row["reason"]]
    if not config.near.enabled:
        return passed, []
    lost = {one.index: one for one in near_duplicates([row["compared"] for row in passed], config.near)}
    same = [
        passed[place]
        | {"reason": "near duplicate", "detail": f"{one.similarity:.2f} like {passed[one.survivor]['name']}"}
        for place, one in lost.items()
    ]
    return [row for place, row in enumerate(passed) if place not in lost], same


def publish(
    step: Step, kept: Sequence[Row], refused: Sequence[Row], found: dict[str, DomainSpec], rows: Sequence[Row]
) -> Artifact:
    """Write what was asked for, and say where the rest went."""
    config = step.config
    assert isinstance(config, ToolsConfig)
    chosen = kept[: config.count]
    origins = {row["domain"]: row["origin"] for row in chosen}
    models = [
        {
            "domain": name,
            "category": domain.category,
            "title": domain.title,
            "origin": origins[name],
            "spec": domain.model_dump_json(),
            "invariants": compact(list(world_of(domain, ()).invariants)),
        }
        for name, domain in found.items()
        if name in origins
    ]
    reasons = dict(sorted(Counter(row["reason"] for row in refused).items()))
    statistics = {
        "tools": len(chosen),
        "domains": len(models),
        "candidates": len(rows),
        "rejected": len(refused),
        "rejected_by_reason": reasons,
        "left_over": len(kept) - len(chosen),
        "by_category": dict(sorted(Counter(row["category"] for row in chosen).items())),
        "by_operation": dict(sorted(Counter(row["operation"] for row in chosen).items())),
        "by_origin": dict(sorted(Counter(row["origin"] for row in chosen).items())),
        "calls": sum(row["calls"] for row in rows),
        "longest_declaration": max(len(row["description"]) + len(row["parameters"]) for row in chosen),
    }
    served = record(step, config.servers, config.recorded, config.seed) if config.servers else {}
    if served:
        statistics["servers"] = served
    write_part(step, "tools/all", chosen, TOOLS)
    write_part(step, "domains/all", models, DOMAINS)
    write_part(step, "rejected/all", refused, REJECTED)
    model = f"the model {config.proposer.model}" if config.proposer else ""
    card = data_card(
        "Synthetic tools",
        f"{len(chosen):,} tools on {len(models):,} state models in {len(statistics['by_category'])} categories.",
        step.fingerprint,
        [Origin("a script: grammars over typed entities, by seed", statistics["by_origin"].get(SCRIPT, 0)),
         Origin(model, statistics["by_origin"].get(MODEL, 0), model=True)],
        {"candidates": len(rows), **{f"rejected: {name}": count for name, count in reasons.items()},
         "left over, for enough were there": statistics["left_over"], "kept": len(chosen)},
        others=[f"{count} tools of real servers, with what they answered: {name}"
                for name, count in served.get("licences", {}).items()],
    )  # fmt: skip
    step.put("card", ".md", lambda path: path.write_text(card, encoding="utf-8"))
    balance = Balance("tools", len(rows), out="tools", rejected="rejected", dropped=statistics["left_over"])
    return step.publish(
        statistics, ["tools/all", "domains/all", "rejected/all", *(PARTS if served else ()), "card"], balance
    )


def kept_part(step: Step, key: str, make: Any) -> list[Row]:
    """The rows that `make` gives, or those that an earlier attempt kept of it."""
    part = step.part(key) or write_part(step, key, list(make()), CANDIDATES)
    return pq.read_table(step.path(part)).to_pylist()


def write_part(step: Step, key: str, rows: Sequence[Row], schema: pa.Schema) -> Any:
    """One parquet part with fixed settings."""
    table = pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema)
    return step.put(key, ".parquet", lambda path: write_table(path, table), table.num_rows)


def _row(domain: DomainSpec, spec: ToolSpec, origin: str) -> Row:
    blank = dict.fromkeys(CANDIDATES.names, "") | {"calls": 0}
    return blank | {
        "name": f"{domain.name}.{spec.name}",
        "category": domain.category,
        "domain": domain.name,
        "entity": spec.entity,
        "operation": spec.operation,
        "origin": origin,
        "description": spec.description,
        "spec": spec.model_dump_json(),
    }


def _refused(domain: str, category: str, reason: str, detail: str) -> Row:
    blank = dict.fromkeys(CANDIDATES.names, "") | {"calls": 0}
    return blank | {"domain": domain, "category": category, "origin": MODEL, "reason": reason, "detail": detail}


def _compared(domain: DomainSpec, spec: ToolSpec, function: Any) -> str:
    """What two tools are compared by: not what their application is called, which says nothing of what they do."""
    said = spec.description.split(f" The {domain.title} is ")[0].replace(domain.title, "service")
    arguments = (
        f"{name} {schema['description']} {' '.join(schema.get('enum', ()))}"
        for name, schema in function.properties.items()
    )
    return " ".join([spec.name.replace("_", " "), said, *arguments])
