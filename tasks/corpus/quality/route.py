"""Which rules judge which documents: the routes, each with its rules in order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tasks.corpus.quality import formats, measures, rules
from tasks.corpus.quality.rules import Rule

GOPHER = (*rules.GOPHER_WORDS, *rules.GOPHER_SIGNS, *rules.GOPHER_SENSE)


def _without(name: str, found: tuple[Rule, ...]) -> tuple[Rule, ...]:
    return tuple(rule for rule in found if rule.name != name)


@dataclass(frozen=True)
class Route:
    """The rules for one kind of document, in the order in which the first that refuses names the reason."""

    name: str
    section: str
    """The field of CorpusConfig that holds the limits."""
    measure: Callable[[str, Any, str], list[float]]
    """(text, limits, path of the file) -> the numbers of `measures`."""
    measures: tuple[str, ...]
    rules: tuple[Rule, ...]


ROUTES = {
    route.name: route
    for route in (
        Route(
            "prose", "prose", measures.prose, tuple(measures.PROSE),
            (*rules.C4_LINES, *GOPHER, *rules.C4_PAGES, *rules.FINEWEB, *rules.REPETITION),
        ),
        Route(
            "other", "prose", measures.prose, tuple(measures.PROSE),
            (*rules.C4_LINES, *_without("gopher_stop_words", GOPHER), *rules.C4_PAGES, *rules.FINEWEB,
             *rules.REPETITION),
        ),
        Route(
            "mathematics", "mathematics", measures.mathematics, tuple(measures.MATHEMATICS),
            (*rules.C4_LINES, *GOPHER, *rules.C4_PAGES, *rules.FINEWEB, *rules.MATHEMATICS, *rules.REPETITION),
        ),
        Route(
            "chinese", "chinese", measures.chinese, tuple(measures.CHINESE),
            (*rules.CHINESE_WORDS, *rules.GOPHER_SIGNS, *rules.CHINESE_SENSE,
             *_without("fineweb_short_lines", rules.FINEWEB), *rules.CHINESE_MARKS, *rules.REPETITION),
        ),
        Route("code", "code", measures.file, tuple(measures.FILE), (*rules.CODE, *rules.FILES)),
        Route("data", "data", measures.file, tuple(measures.FILE), (*rules.DATA, *rules.FILES)),
    )
}  # fmt: skip
"""English prose; prose in languages whose stop words we do not have; English mathematics; Chinese; programs; data."""


def registry() -> dict[str, Rule]:
    """Every rule, by name, in the order of the routes."""
    return {rule.name: rule for route in ROUTES.values() for rule in route.rules}


def route_of(text: str, domain: str, language: str, code: bool, path: str = "") -> Route:
    """The route of a document; `path` is its file's, '' where unknown."""
    if code:
        return ROUTES["data" if formats.is_data(path, text) else "code"]
    if language == "zh":
        return ROUTES["chinese"]
    if language != "en":
        return ROUTES["other"]
    return ROUTES["mathematics" if domain == "math" else "prose"]
