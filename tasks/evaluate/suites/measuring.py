"""The stage that measures the suites on a checkpoint, or on both variants of a release.

Parts: `suites/MODEL` (JSON, the record of every suite) and `answers/MODEL` (Parquet, a row for every item). One model
is one unit of resumption.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from tasks.accounts import Balance
from tasks.artifact import Artifact, Step
from tasks.evaluate.card import table
from tasks.evaluate.config import VARIANTS
from tasks.evaluate.release import load_checkpoint
from tasks.evaluate.suites.config import SuitesConfig
from tasks.evaluate.suites.sets import chosen
from tasks.evaluate.suites.subject import Network
from tasks.evaluate.suites.table import measure
from tasks.launch import Execution
from tasks.part import write_table
from training.inputs import load_chat

VERSION = 12  # raise it where the same inputs give other bytes (tasks/code.py)

READ = ("benchmarks", "tokenizer", "tokens")
SCHEMA = pa.schema(
    [
        ("suite", pa.string()),
        ("item", pa.string()),
        ("score", pa.float64()),
        ("contaminated", pa.bool_()),
        ("reply", pa.string()),
        ("why", pa.string()),
    ]
)


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: every suite on the checkpoint among the inputs, rounded as it would be released."""
    torch.set_num_threads(execution.threads)
    config, inputs = step.config, step.read()
    assert isinstance(config, SuitesConfig)
    (checkpoint,) = (name for name in inputs if name not in READ)
    models = VARIANTS if checkpoint == "release" else (checkpoint,)
    ready, chat = chosen(inputs["benchmarks"]), load_chat(inputs["tokenizer"].uri)
    for name in models:
        if step.part(f"suites/{name}") is None or step.part(f"answers/{name}") is None:
            subject = Network(load_checkpoint(name, inputs[checkpoint]), chat)
            records, rows = measure(config, subject, ready, inputs["tokens"], name)
            step.put(f"answers/{name}", ".parquet", partial(_write_rows, rows), len(rows))
            step.put(f"suites/{name}", ".json", partial(_write_records, records))
    keys = [f"{group}/{name}" for name in models for group in ("suites", "answers")]
    told = {name: json.loads(step.path(step.parts([f"suites/{name}"])[0]).read_text("utf-8")) for name in models}
    asked = sum(
        one.get("items", 0) for records in told.values() for one in records.values() if not one.get("counted_only")
    )
    return step.publish({"models": told, "seed": config.seed}, keys, Balance("answers", taken=asked, out="answers"))


def run_page(artifact: Artifact) -> str:
    """Markdown for the page of a run in Prefect (`tasks.stage`)."""
    return markdown(artifact.statistics["models"])


def markdown(models: Mapping[str, Mapping[str, Any]]) -> str:
    """Scores of some models as a table."""
    names = list(dict.fromkeys(suite for records in models.values() for suite in records))
    rows = [(suite, *(said(of.get(suite, {})) for of in models.values())) for suite in names]
    return table(*rows, header=("suite", *models)) + "\n"


def said(record: Mapping[str, Any]) -> str:
    """A suite's record in a few words: score, interval, items, contamination."""
    if not record:
        return "–"
    if "unmeasured" in record:
        return f"not measured: {record['unmeasured']}"
    if record["score"] is None:
        return record["measure"]
    value, low, high = (100 * record["score"][key] for key in ("value", "low", "high"))
    text = f"{value:.1f} % ({low:.1f} to {high:.1f}) of {record['items']}"
    if "contaminated" in record:
        held = record["contaminated"]
        text += ", contamination not looked for" if held is None else f", {held} contaminated" if held else ""
    return text


def _write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    write_table(path, pa.Table.from_pylist(rows, SCHEMA))


def _write_records(records: Mapping[str, Any], path: Path) -> None:
    path.write_text(json.dumps(records, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
