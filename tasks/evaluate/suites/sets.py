"""The stage that makes suites ready: their items, drawn and normalised, and which of them the training corpus holds.

Parts: `items/NAME` (JSON lines, one item each) and `contamination` (JSON lines, one line for every document that shares
a passage with an item), by the rule and the code that keep evaluation sets out of the corpus.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from model.cache import cache_folder
from model.config import Config
from model.storage import local_path
from tasks.accounts import Balance
from tasks.artifact import Artifact, Step
from tasks.corpus import evaluations
from tasks.corpus.safety.config import DecontaminationConfig
from tasks.corpus.safety.decontamination import Decontamination
from tasks.corpus.safety.decontamination import Item as Looked
from tasks.corpus.unavailable import UnavailableError
from tasks.evaluate.suites import played
from tasks.evaluate.suites.config import Calls, Data, MultiTurn, Played, Refusals, SuitesConfig
from tasks.evaluate.suites.item import Item, SuiteError, drawn
from tasks.evaluate.suites.table import Chosen
from tasks.launch import Execution
from training.rl.environments.apis import practised

VERSION = 6  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)
STAND_INS = Path(__file__).with_name("refusals.yaml")


def run(step: Step, execution: Execution) -> Artifact:
    """The stage: read every suite's items and look for them in the corpus and its rewrites."""
    config = step.config
    assert isinstance(config, SuitesConfig)
    found: dict[str, list[Item]] = {}
    missing: dict[str, str] = {}
    for suite in config.rows:
        try:
            found[suite.name] = items_of(suite, config.seed)
        except UnavailableError as error:
            if not getattr(suite, "optional", False):
                raise SuiteError(f"{error}; correct it, leave the suite out, or say `optional: true`") from error
            log.warning("suite '%s' is not measured: %s", suite.name, error)
            found[suite.name], missing[suite.name] = [], str(error)
    corpus, rewrites = step.input("corpus"), step.input("rewrites")
    config_of = corpus.manifest["config"]["safety"]["decontamination"]
    lines, short = contamination(found, DecontaminationConfig.model_validate(config_of), texts(corpus, rewrites))
    for name, items in found.items():
        step.put(f"items/{name}", ".jsonl", _lines(_stored(item) for item in items), rows=len(items))
    step.put("contamination", ".jsonl", _lines(lines), rows=len(lines))
    suites = {
        name: {
            "items": len(items),
            "contaminated": len({line["item"] for line in lines if line["suite"] == name}),
            "too_short": short[name],
        }
        for name, items in found.items()
    }
    count = sum(map(len, found.values()))
    keys = [*(f"items/{name}" for name in found), "contamination"]
    return step.publish({"suites": suites, "missing": missing}, keys, Balance("items", taken=count, out="items"))


def chosen(benchmarks: Artifact) -> dict[str, Chosen]:
    """What the stage published, by suite."""
    hits: dict[str, set[str]] = {name: set() for name in benchmarks.statistics["suites"]}
    for line in _read(benchmarks.file("contamination")):
        hits[line["suite"]].add(line["item"])
    items = {name: [Item(**one) for one in _read(benchmarks.file(f"items/{name}"))] for name in hits}
    missing = benchmarks.statistics["missing"]
    return {name: Chosen(items[name], frozenset(of), missing.get(name, "")) for name, of in hits.items()}


def unchecked(config: SuitesConfig) -> dict[str, Chosen]:
    """The items of suites that no stage made ready, not looked for in any corpus."""
    found = {}
    for suite in config.rows:
        try:
            found[suite.name] = Chosen(items_of(suite, config.seed), None)
        except UnavailableError as error:
            found[suite.name] = Chosen(missing=str(error))
    return found


def items_of(suite: Config, seed: int) -> list[Item]:
    """The items of one suite, drawn; none for a suite that makes its own. Raises UnavailableError where the data cannot
    be had, SuiteError where they are not what the row says."""
    if isinstance(suite, Refusals):
        return _refusals(suite)
    if isinstance(suite, Played):
        return played.made(suite, seed)
    if not isinstance(suite, Data):
        return []
    answers = _answers(suite) if isinstance(suite, Calls | MultiTurn) else {}
    found = []
    for name, number, row in evaluations.records(suite, cache_folder(), False):
        told = evaluations.item(suite, row, name, number)
        _require(suite, suite.needed, row, name, number)
        if answers and told["item"] not in answers:
            raise SuiteError(f"suite '{suite.name}': `answers` has nothing for item {told['item']}")
        if isinstance(suite, MultiTurn) and suite.held_out and practised(told["item"]):
            continue
        more = {"ground_truth": answers[told["item"]]} if answers else {}
        found.append(Item(told["item"], told["text"], row | more))
    return drawn(_told_apart(suite, found, "item_field"), suite.items, seed)


def _answers(suite: Calls | MultiTurn) -> dict[str, Any]:
    """The calls that are due, by item: from files beside the questions, in the wheel or where `path` lies."""
    if suite.answers is None:
        return {}
    source = suite.model_copy(update={"files" if suite.path is None else "path": suite.answers})
    found = {}
    for name, number, row in evaluations.records(source, cache_folder(), False):
        _require(suite, ("id", "ground_truth"), row, name, number)
        found[str(row["id"])] = row["ground_truth"]  # as `evaluations.item` spells a number
    return found


def _require(suite: Data, fields: Sequence[str], row: Any, name: str, number: int) -> None:
    """SuiteError where a record lacks a field, before any model is measured by it."""
    if missing := [field for field in fields if not isinstance(row, dict) or field not in row]:
        told = f"record {number} of {name} has no field {missing[0]!r}; every one needs {' and '.join(fields)}"
        raise SuiteError(f"suite '{suite.name}': {told}")


def _refusals(suite: Refusals) -> list[Item]:
    path = local_path(suite.path) if suite.path else STAND_INS
    try:
        rows = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnavailableError(f"suite '{suite.name}': {path} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise SuiteError(f"suite '{suite.name}': {path} is no YAML: {error}") from error
    found = []
    for number, row in enumerate(rows if isinstance(rows, list) else [rows]):
        good = isinstance(row, dict) and {"id", "style", "due", "prompt"} <= row.keys()
        if not good or row["due"] not in ("refuse", "answer") or not (row["prompt"] and isinstance(row["prompt"], str)):
            raise SuiteError(f"suite '{suite.name}': entry {number} of {path.name} needs id, style, prompt (a text), "
                             "and due (refuse or answer)")  # fmt: skip
        found.append(Item(str(row["id"]), row["prompt"], row))
    return _told_apart(suite, found, "their `id`")


def _told_apart(suite: Data | Refusals, items: list[Item], by: str) -> list[Item]:
    """SuiteError where there is none, or two have one id: a score is known by its item's."""
    if not items:
        raise SuiteError(f"suite '{suite.name}' has no items")
    if len({item.id for item in items}) < len(items):
        raise SuiteError(f"suite '{suite.name}' has several items of one id: set {by} to what tells them apart")
    return items


def texts(corpus: Artifact, rewrites: Artifact) -> Iterator[tuple[str, str]]:
    """(id, text) of everything that pretraining may read."""
    for path in [*corpus.files("documents"), *rewrites.files("rewrites")]:
        for batch in pq.ParquetFile(path).iter_batches(512, columns=["id", "text"]):
            yield from zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True)


def contamination(
    items: Mapping[str, Iterable[Item]], config: DecontaminationConfig, documents: Iterable[tuple[str, str]]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """(a line for each document and item that share a passage, items by suite that are too short to be looked for)."""
    looked = [Looked(name, item.id, item.text) for name, of in items.items() for item in of if item.text]
    search = Decontamination(config, looked)
    held = {(one.set, one.item) for one in search.items}
    short = {name: sum((name, item.id) not in held for item in of if item.text) for name, of in items.items()}
    lines = [
        {"suite": hit.set, "item": hit.item, "document": document, "share": hit.share, "passage": hit.passage}
        for document, text in (documents if looked else ())
        for hit in search.hits(text)
    ]
    return lines, short


def _stored(item: Item) -> dict[str, Any]:
    return {"id": item.id, "text": item.text, "row": item.row}


def _lines(rows: Iterable[Mapping[str, Any]]) -> Any:
    # a date or an image in a column of Parquet that no suite reads is kept as its text
    text = "".join(f"{json.dumps(row, ensure_ascii=False, sort_keys=True, default=str)}\n" for row in rows)
    return lambda path: path.write_text(text, encoding="utf-8")


def _read(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)
