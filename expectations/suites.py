"""The suite of what a release scores: no benchmark below its floor, and none that the training corpus holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import polars as pl

from expectations.config import SuitesGate
from expectations.rules import Rule, Table

if TYPE_CHECKING:
    from tasks.artifact import Artifact


def tables(gate: SuitesGate, suites: Artifact, inputs: Mapping[str, Artifact]) -> list[Table]:
    """One row for every suite on every model that was measured. A suite that has a floor and could not be measured
    counts as 0: a release that nobody could try is not let through."""
    rows = []
    for model, records in suites.statistics["models"].items():
        for name in dict.fromkeys([*records, *gate.floors]):
            record = records.get(name, {})
            score = (record.get("score") or {}).get("value")
            if score is None and name not in gate.floors:
                continue
            held = record.get("contaminated") or 0
            rows.append(
                {
                    "suite": f"{name} on {model}",
                    "score": float(score or 0.0),
                    "floor": float(gate.floors.get(name, 0.0)),
                    "contaminated": held / record["items"] if held else 0.0,
                }
            )
    schema = {"suite": pl.String, "score": pl.Float64, "floor": pl.Float64, "contaminated": pl.Float64}
    rules = (
        Rule("Every suite reaches its floor", "score", "what leaves the pipeline would be worse than what was promised",
             "find the stage after which the score fell (`openk2 evaluate --compare`), or lower gates.suites.floors",
             floor="floor", unit="share"),
        Rule("No suite's items stand in the training corpus", "contaminated",
             "a score on questions that were learned by heart says nothing",
             "add the suite to sources.evaluations, so that curation keeps it out, and train again; or drop the suite",
             least=0, most=gate.contaminated, unit="share"),
    )  # fmt: skip
    return [Table("suites", "the suites one by one", "suite", pl.DataFrame(rows, schema=schema), rules)]
