"""The page that holds checkpoints and releases side by side: everything that was measured under a root, and records of
models from elsewhere.

path = write_comparison("data")      # data/comparison.html
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq

from model import storage
from tasks.artifact import MANIFEST, Artifact
from tasks.evaluate.config import MODELS
from tasks.part import ArtifactError
from tasks.report import html
from tasks.report.blocks import Block, Document, Headline, Section
from tasks.report.suites import (
    Tried,
    changes,
    groups,
    losses_by_position,
    needles,
    over_time,
    side_by_side,
    suites,
    unmeasured,
)


class ComparisonError(ValueError):
    """Nothing to compare, or a record that is none; the sentence says what to run."""


def tried(artifact: Artifact) -> list[Tried]:
    """The models that one published measurement holds."""
    found = []
    for name, records in artifact.statistics["models"].items():
        table = pq.read_table(artifact.file(f"answers/{name}"), columns=["suite", "item", "score"]).to_pylist()
        scores: dict[str, dict[str, float]] = {}
        for row in table:
            scores.setdefault(row["suite"], {})[row["item"]] = row["score"]
        found.append(Tried(name, records, artifact.manifest["finished"], artifact.fingerprint, scores))
    return found


def gathered(root: str) -> list[Tried]:
    """Everything that was measured under `root`, oldest first."""
    found: list[Tried] = []
    for path in storage.matching(f"*-suites/*/{MANIFEST}", under=root):
        found += tried(Artifact.load(path.removesuffix(f"/{MANIFEST}")))
    return sorted(found, key=lambda one: (one.finished, place(one)))


def read_record(path: str) -> Tried:
    """A model from elsewhere: what `openk2 evaluate TARGET --json PATH` wrote."""
    try:
        record = json.loads(storage.read(path))
        if not all(isinstance(one, dict) for one in (record["suites"], record["scores"], *record["suites"].values())):
            raise TypeError("its suites or scores are no objects")
        for one in record["suites"].values():
            if "unmeasured" not in one and one["score"] is not None:
                _ = one["measure"], one["items"], [100 * one["score"][end] for end in ("low", "value", "high")]
        return Tried(str(record["label"]), record["suites"], str(record["finished"]), path, record["scores"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, ArtifactError) as error:
        raise ComparisonError(f"{path} is no record of `openk2 evaluate TARGET --json {path}`: {error}") from None


def compose(models: Sequence[Tried]) -> Document:
    """The page as blocks: of each model the newest measurement, and behind them how it went over time."""
    newest = latest(models)
    of_chain = [model for model in newest if model.label in MODELS]
    count = len({model.run for model in models})
    sections = [
        _section("scores", "Side by side", "Each model's newest measurement.",
                 [side_by_side(newest), unmeasured(newest)]),
        _section("changes", "What changed", "From each model to the one after it.", [changes(of_chain)]),
        _section("parts", "Part by part", "With 95 % intervals: each part has few items.", [groups(newest)]),
        _section("time", "Over time", "Each checkpoint of the chain, run after run, between the ends of its intervals.",
                 [over_time(models)]),
        _section("context", "Long context", "How far back the models use what they read.", 
                 [needles(newest), losses_by_position(newest)]),
    ]  # fmt: skip
    return Document(
        title="Checkpoints and releases, side by side",
        subtitle=f"{len(newest)} models, {count} measurements, {len(suites(newest))} suites.",
        lead="Two scores whose intervals overlap may still differ; what changed on the same items tells more.",
        headline=Headline([]),
        sections=[section for section in sections if section.blocks or section.waiting],
    )


def latest(models: Sequence[Tried]) -> list[Tried]:
    """Of each label the newest, in the order of the chain."""
    found = {model.label: model for model in sorted(models, key=lambda model: model.finished)}
    return sorted(found.values(), key=place)


def place(model: Tried) -> tuple[int, str]:
    """Where a model stands on the page: in the order of the chain; models from elsewhere follow."""
    return [*MODELS, model.label].index(model.label), model.label


def write_comparison(root: str, records: Sequence[str] = ()) -> str:
    """Write `{root}/comparison.html`; returns where it lies. ComparisonError where nothing has been measured."""
    models = gathered(root)
    for path in dict.fromkeys(records):
        models.append(_apart(read_record(path), path, {model.label for model in models}))
    if not models:
        raise ComparisonError(f"nothing has been measured under {root}: `openk2 run evaluate`, then this")
    path = f"{root.rstrip('/')}/comparison.html"
    storage.write(path, html.page(compose(models)).encode())
    return path


def _apart(model: Tried, path: str, taken: Collection[str]) -> Tried:
    """A model from elsewhere under a label of its own: of those that share one, `latest` keeps one. Another root's
    `int4` is called like ours."""
    return replace(model, label=f"{model.label} ({path})") if model.label in taken else model


def _section(key: str, title: str, summary: str, parts: Iterable[Iterable[Block]]) -> Section:
    blocks: list[Any] = [block for part in parts for block in part]
    waiting = "" if blocks else "It takes two measurements of one checkpoint." if key == "time" else ""
    return Section(key, title, summary if blocks else "", blocks, waiting)
