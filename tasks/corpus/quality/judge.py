"""The judgement of one document: every rule of its route, the first that refuses it, and all others."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from model.config import Config
from tasks.corpus.quality import lines
from tasks.corpus.quality.route import ROUTES, route_of
from tasks.corpus.quality.rules import Rule

if TYPE_CHECKING:
    from tasks.corpus.config import CorpusConfig


@dataclass(frozen=True, eq=False)
class ActiveRules:
    """The rules of one unit that sit on a route under one configuration, ready to be compared with their measures."""

    rules: tuple[Rule, ...]
    limits: np.ndarray
    """float64 [R]."""
    columns: np.ndarray
    """int64 [R]: which of the measured numbers each rule looks at."""
    signs: np.ndarray
    """float64 [R]: 1 where values above the limit are refused, -1 where those below are."""

    def refused(self, values: np.ndarray) -> np.ndarray:
        """bool [..., R] for values [..., R]."""
        return (values - self.limits) * self.signs > 0


@dataclass(frozen=True, eq=False)
class ActiveRoute:
    """A route under one configuration."""

    route: str
    documents: ActiveRules
    lines: ActiveRules


@dataclass(frozen=True)
class Judgement:
    """What the rules say of one document."""

    reason: str | None
    """The first rule that refuses the document; None keeps it."""
    number: float | None
    """What that rule measured."""
    limit: float | None
    """What it was held to."""
    others: tuple[str, ...]
    """Further rules that would have refused it."""
    text: str
    """The document without the lines that line rules refused; the text as it was where they refused none."""
    active: ActiveRoute = field(repr=False, compare=False)
    values: np.ndarray = field(repr=False, compare=False)
    """float64 [R]: what each rule of `active.documents` measured."""
    lines: np.ndarray = field(repr=False, compare=False)
    """float64 [L, R]: what each rule of `active.lines` measured, for every line of prose."""


def judge(text: str, domain: str, language: str, code: bool, config: CorpusConfig, path: str = "") -> Judgement:
    """Judges one document by every rule of its route.

    Args:
        text: the document after repair.
        domain: web, code, math or knowledge.
        language: ISO 639-1.
        code: whether it is a program or a data file.
        config: the limits.
        path: its file's path, for what names say; '' where unknown.
    """
    route = route_of(text, domain, language, code, path)
    section = getattr(config, route.section)
    active = active_route(route.name, section)
    text, measured_L = _trimmed(text, active.lines)
    values = np.array(route.measure(text, section, path))[active.documents.columns]
    failed = np.flatnonzero(active.documents.refused(values)).tolist()
    names = [active.documents.rules[at].name for at in failed]
    return Judgement(
        reason=names[0] if failed else None,
        number=round(float(values[failed[0]]), 6) if failed else None,
        limit=float(active.documents.limits[failed[0]]) if failed else None,
        others=tuple(names[1:]),
        text=text,
        active=active,
        values=values,
        lines=measured_L,
    )


@lru_cache(maxsize=32)
def active_route(route: str, section: Config) -> ActiveRoute:
    """The rules of a route that `section` does not switch off."""
    found = ROUTES[route]
    return ActiveRoute(
        route,
        _active(found.rules, "document", found.measures, section),
        _active(found.rules, "line", lines.NAMES, section),
    )


def limit(section: Config, name: str) -> Any:
    """The value of a field, dots parting nested ones."""
    value: Any = section
    for part in name.split("."):
        value = getattr(value, part)
    return value


def _active(rules: tuple[Rule, ...], unit: str, measures: tuple[str, ...], section: Config) -> ActiveRules:
    active = tuple(
        rule
        for rule in rules
        if rule.unit == unit
        and limit(section, rule.limit) is not None
        and not (rule.needs and limit(section, rule.needs) is None)
    )
    return ActiveRules(
        active,
        np.array([float(limit(section, rule.limit)) for rule in active]),
        np.array([measures.index(rule.measure) for rule in active], np.int64),
        np.array([1.0 if rule.refuses == "above" else -1.0 for rule in active]),
    )


def _trimmed(text: str, rules: ActiveRules) -> tuple[str, np.ndarray]:
    """The text without the lines that a rule refuses and without the marks that one cuts out, and what was measured of
    its lines of prose [L, R]."""
    if not rules.rules:
        return text, np.empty((0, 0))
    mends = np.array([rule.measure == "line_citations" for rule in rules.rules])
    citations: dict[int, int] = {}
    if mends.any():
        text, citations = lines.without_citations(text, float(rules.limits[mends][0]))
    measured, prose = lines.measure(text)
    for number, count in citations.items():
        measured[number, lines.CITATIONS] = count
    values = measured[:, rules.columns]
    dropped = (rules.refused(values) & ~mends).any(axis=1) & prose
    if dropped.any():
        kept = (line for line, drop in zip(text.split("\n"), dropped.tolist(), strict=True) if not drop)
        text = "\n".join(kept).strip("\n")
    return text, values[prose]
