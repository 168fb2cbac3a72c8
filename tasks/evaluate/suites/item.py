"""What suites pass among themselves: items to be asked, and what came of them on one model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from training.intervals import Interval, wilson


@dataclass(frozen=True)
class Item:
    """One question of a suite."""

    id: str
    text: str
    """What contamination is looked for by; empty where there is no text that a corpus could hold."""
    row: Mapping[str, Any]
    """What its suite reads of it, as JSON."""


@dataclass(frozen=True)
class Scored:
    """One item and what a model made of it."""

    id: str
    score: float
    """From 0 to 1."""
    reply: str
    why: str = ""
    """What was wrong, in a few words."""


@dataclass(frozen=True)
class Measured:
    """A suite on one model."""

    measure: str
    """What the score is: `pass@1`, `right calls`."""
    scored: Sequence[Scored]
    score: Interval | None = None
    """None where the suite has no single figure."""
    details: Mapping[str, Any] = field(default_factory=dict)
    counted: int | None = None
    """How many items there were, where nothing is known of each."""


class SuiteError(ValueError):
    """A suite whose data or harness are not what its row says; the sentence names the suite and what to change."""


class Unmeasurable(RuntimeError):
    """A suite that cannot be measured on this model or machine; the sentence says why, and stands in its place."""


def rate(scored: Sequence[Scored]) -> Interval:
    """The share of items that are right."""
    return wilson(sum(one.score == 1.0 for one in scored), len(scored))


def rates(names: Sequence[str], scored: Sequence[Scored]) -> dict[str, dict[str, float]]:
    """The share of each group of items, by the names of their groups, in the order in which these come."""
    of: dict[str, list[Scored]] = {}
    for name, one in zip(names, scored, strict=True):
        of.setdefault(name, []).append(one)
    return {name: rate(found).rounded() for name, found in of.items()}


def drawn(items: Sequence[Item], count: int | None, seed: int) -> list[Item]:
    """`count` of the items by the hash of their ids, in their order: the same for every model, and of a longer draw the
    first are those of a shorter."""
    if count is None or count >= len(items):
        return list(items)
    ranked = sorted(range(len(items)), key=lambda place: hashlib.sha256(f"{seed}/{items[place].id}".encode()).digest())
    return [items[place] for place in sorted(ranked[:count])]
