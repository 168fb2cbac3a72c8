"""The kinds of suites: how each is measured. A suite is a row of the preset; a new kind is a row here, and a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.artifact import Artifact
from tasks.evaluate.suites import answer, calls, choice, code, external, needle, played, positions, refusal
from tasks.evaluate.suites.config import SuitesConfig
from tasks.evaluate.suites.item import Item, Measured, Unmeasurable
from tasks.evaluate.suites.subject import Subject
from tasks.progress import Progress
from training.intervals import mean

log = logging.getLogger(__name__)

KINDS: Mapping[str, Callable[..., Measured]] = {
    "code": code.measure,
    "calls": calls.measure,
    "multi_turn": played.measure_dialogues,
    "choice": choice.measure,
    "answer": answer.measure,
    "refusals": refusal.measure,
    "environment": played.measure,
    "needle": needle.measure,
    "positions": positions.measure,
    "external": external.measure,
}
"""By a row's `kind`: (row, subject, items, seed) -> what was measured; `positions` takes the held-out tokens for
items."""


@dataclass(frozen=True)
class Chosen:
    """The items of one suite, and which of them the training corpus holds."""

    items: Sequence[Item] = ()
    contaminated: frozenset[str] | None = frozenset()
    """Ids; None where no corpus was looked through."""
    missing: str = ""
    """Why there are no items, where there should be."""


def measure(
    config: SuitesConfig, subject: Subject, chosen: Mapping[str, Chosen], tokens: Artifact | None, name: str
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Every suite on one model: (records by suite, a row for every item). What cannot be measured says so in its
    record."""
    records: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    with Progress(f"suites {name}", len(config.rows), "suites") as progress:
        # harnesses first: where one fails, nothing else has been measured in vain
        for suite in sorted(config.rows, key=lambda suite: suite.kind != "external"):
            of = chosen[suite.name]
            try:
                if of.missing:
                    raise Unmeasurable(of.missing)
                given = tokens if suite.kind == "positions" else of.items
                found = KINDS[suite.kind](suite, subject, given, config.seed)
            except Unmeasurable as reason:
                log.warning("suite '%s' is not measured on %s: %s", suite.name, name, reason)
                records[suite.name] = {"kind": suite.kind, "unmeasured": str(reason)}
            else:
                records[suite.name] = {"kind": suite.kind} | record(found, of)
                rows += [
                    {
                        "suite": suite.name,
                        "item": one.id,
                        "score": one.score,
                        "contaminated": None if of.contaminated is None else one.id in of.contaminated,
                        "reply": one.reply,
                        "why": one.why,
                    }
                    for one in found.scored
                ]
            progress.advance(note=suite.name)
    return records, rows


def record(found: Measured, of: Chosen) -> dict[str, Any]:
    """What is kept of a suite on one model: the score with its interval, and contamination beside it."""
    told: dict[str, Any] = {
        "measure": found.measure,
        "items": len(found.scored) if found.counted is None else found.counted,
        "score": found.score and found.score.rounded(),
        "details": dict(found.details),
    }
    if found.counted is not None:
        told["counted_only"] = True  # no rows: nothing is known of each item
    if any(one.text for one in of.items):
        told["contaminated"] = None if of.contaminated is None else len(of.contaminated)
        if of.contaminated:
            clean = [one.score for one in found.scored if one.id not in of.contaminated]
            told["clean"] = mean(clean).rounded() if clean else None
    return told
