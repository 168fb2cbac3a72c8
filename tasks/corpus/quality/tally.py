"""How often each rule judged, refused and refused alone, and how its measure was distributed: what statistics keep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from tasks.corpus.quality.judge import ActiveRules, Judgement
from tasks.corpus.quality.rules import Rule

BINS = 24
"""Bins of a histogram up to its last edge; one more counts what lies beyond."""
_BATCH = 256


class TallyError(ValueError):
    """Tallies that cannot be added: the same rule was held to two limits."""


class Tally:
    """Counts over judgements. Adding and merging in any order gives the same record."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        # by route and rules: values that are counted together, a batch at a time
        self._waiting: dict[tuple[str, int], tuple[str, ActiveRules, list[np.ndarray]]] = {}

    def add(self, judgement: Judgement) -> None:
        """Count one document and its lines."""
        active = judgement.active
        self._take(active.route, active.documents, judgement.values[None, :])
        if len(judgement.lines):
            self._take(active.route, active.lines, judgement.lines)

    def merge(self, other: Mapping[str, Mapping[str, Any]]) -> None:
        """Add the record of another tally.

        Raises:
            TallyError: a rule of a route has another limit there.
        """
        self._flush()
        for key, item in sorted(other.items()):
            mine = self._entries.setdefault(
                key, _Entry({**item, "judged": 0, "failed": 0, "only": 0, "counts": [0] * (BINS + 1)})
            )
            mine.check(key, item["limit"])
            for name in ("judged", "failed", "only"):
                mine.record[name] += item[name]
            mine.add(item["counts"])

    def record(self) -> dict[str, dict[str, Any]]:
        """By `route/rule`, sorted: {"rule", "route", "unit", "judged", "failed", "only", "limit", "direction", "edges",
        "counts"}; JSON-able. counts[i] lie in [edges[i], edges[i + 1]), the last ones at or beyond the last edge."""
        self._flush()
        return {key: dict(entry.record) for key, entry in sorted(self._entries.items())}

    def _take(self, route: str, rules: ActiveRules, values: np.ndarray) -> None:
        key = (route, id(rules))
        _, _, waiting = self._waiting.setdefault(key, (route, rules, []))
        waiting.append(values)
        if len(waiting) >= _BATCH:
            self._count(route, rules, waiting)
            waiting.clear()

    def _flush(self) -> None:
        for route, rules, waiting in self._waiting.values():
            if waiting:
                self._count(route, rules, waiting)
        self._waiting.clear()

    def _count(self, route: str, rules: ActiveRules, waiting: list[np.ndarray]) -> None:
        values = np.concatenate(waiting)
        refused = rules.refused(values)
        only = refused & (refused.sum(axis=1, keepdims=True) == 1)
        for at, rule in enumerate(rules.rules):
            key, limit = f"{route}/{rule.name}", float(rules.limits[at])
            entry = self._entries.setdefault(key, _Entry(_empty(rule, route, limit)))
            entry.check(key, limit)
            record = entry.record
            record["judged"] += len(values)
            record["failed"] += int(refused[:, at].sum())
            record["only"] += int(only[:, at].sum())
            bins = np.searchsorted(entry.edges, values[:, at], side="right") - 1
            entry.add(np.bincount(np.clip(bins, 0, BINS), minlength=BINS + 1).tolist())


def merged(records: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The sum of the records of many partitions."""
    total = Tally()
    for record in records:
        total.merge(record)
    return total.record()


def edges(limit: float) -> list[float]:
    """0 to twice the limit in 24 bins; 0 to 24 where the limit is 0."""
    return [float(edge) for edge in (np.linspace(0, 2, BINS + 1) * limit if limit else np.arange(BINS + 1.0))]


class _Entry:
    """One rule's record, and its edges as an array."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.record = record
        self.edges = np.array(record["edges"])

    def add(self, counts: Sequence[int]) -> None:
        self.record["counts"] = [a + b for a, b in zip(self.record["counts"], counts, strict=True)]

    def check(self, key: str, limit: float) -> None:
        if self.record["limit"] != limit:
            raise TallyError(
                f"rule '{key}' was held to {self.record['limit']} in one part and to {limit} in another: "
                "parts of two configurations cannot be added"
            )


def _empty(rule: Rule, route: str, limit: float) -> dict[str, Any]:
    return {
        "rule": rule.name,
        "route": route,
        "unit": rule.unit,
        "judged": 0,
        "failed": 0,
        "only": 0,
        "limit": limit,
        "direction": rule.refuses,
        "edges": edges(limit),
        "counts": [0] * (BINS + 1),
    }
