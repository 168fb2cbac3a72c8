"""What a person reviews: a sample of the dialogues, each with its rubric and what the filters said of it, and some that
they refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from flows.review.rubric import marked
from model import storage
from tasks.artifact import MANIFEST, Artifact, Step
from training.draw import draw

SPLIT = "train"
"""People see what is trained on. The other sides measure, and stay unread."""
COLUMNS = ("id", "environment", "player", "persona", "messages", "tools", "rubric", "reason", "verdicts")
"""Columns that the page shows, where a dataset has them."""
SHOWN = 40_000
"""Characters of a text that the page gets; a dialogue of megabytes would only hang it."""


@dataclass(frozen=True)
class Item:
    """One dialogue to look at."""

    id: str
    """Empty where a rule has refused it: there is nothing left to decide."""
    environment: str
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    filters: list[tuple[str, str]]
    """(filter, what it said), in their order."""
    rubric: dict[str, Any] = field(default_factory=dict)
    """What a right dialogue meets, and where this one does (flows/review/rubric.py)."""
    player: str = ""
    persona: str = ""
    """Who plays the assistant, and who the user is."""

    def record(self) -> dict[str, Any]:
        """As JSON for the page."""
        return _cut(asdict(self))


def reviewable(step: Step) -> Artifact:
    """The dialogues of `step`; while those without what was refused last are not made yet, the ones that it was refused
    in. Raises NotReady where there are none."""
    if (made := step.artifact()) is not None:
        return made
    found = []
    for address in storage.matching(f"{step.name}/*/{MANIFEST}", under=step.root):
        earlier = Artifact.load(address.removesuffix(f"/{MANIFEST}"))
        if _settings(earlier.manifest["config"]) == _settings(step.config.model_dump(mode="json")):
            found.append(earlier)
    return max(found, key=lambda one: one.manifest["finished"], default=None) or step.require()


def _settings(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "refused"}


def queue(dialogues: Artifact, count: int) -> list[Item]:
    """About `count` dialogues, an equal share of each environment, then a fifth as many that a rule refused."""
    parts = [part for part in dialogues.parts("dialogues") if part.key.split("/")[1] == SPLIT]
    share = -(-count // max(len(parts), 1))
    items: list[Item] = []
    for part in parts:
        rows = _rows(dialogues.file(part), "id")
        items += [_item(row, row.get("verdicts") or '{"rules":"passed"}') for row in rows[:share]]
    return items + list(_refused(dialogues, count // 5))


def _refused(dialogues: Artifact, most: int) -> Iterable[Item]:
    parts = [part for part in dialogues.parts("rejected") if f"/{SPLIT}/" in f"/{part.key}/"]
    rows = [row for part in parts for row in _rows(dialogues.file(part), "messages")]
    for row in rows[:most]:
        yield _item(row, json.dumps({"rules": f"refused: {row['reason']}"}))


def _item(row: Mapping[str, Any], verdicts: str) -> Item:
    tools, filters = json.loads(row.get("tools") or "[]"), json.loads(verdicts)
    messages = json.loads(row["messages"])
    return Item(
        row.get("id", ""),
        row["environment"],
        messages,
        tools,
        [(name, str(said)) for name, said in filters.items()],
        marked(json.loads(row.get("rubric") or "{}"), messages),
        row.get("player", ""),
        row.get("persona", ""),
    )


def _rows(path: Path, key: str) -> list[dict[str, Any]]:
    """What there is of a row's text columns, in an order drawn by one of them."""
    names = [name for name in COLUMNS if name in pq.read_schema(path).names]
    return sorted(pq.read_table(path, columns=names).to_pylist(), key=lambda row: draw("review", 0, row[key]))


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SHOWN else f"{value[:SHOWN]} … ({len(value):,} characters)"
    if isinstance(value, dict):
        return {key: _cut(item) for key, item in value.items()}
    return [_cut(item) for item in value] if isinstance(value, list | tuple) else value
