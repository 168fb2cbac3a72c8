"""Relations turned round: who does what to whom, before and after, more and less, cause and effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations

from tasks.rephrase.calibration.content import sentence_spans
from tasks.rephrase.calibration.edits import Change, Pool, Span, Text, cased, lists, literal_spans, outside, replaced
from tasks.rephrase.calibration.naming import names, shape
from tasks.rephrase.calibration.numeric import DIGITS, MARKER

SYMMETRIC = re.compile(
    r"\b(?:and|or|between|both|together|with|versus|vs|nor|either|neither)\b|[,;，、和与及或&/–-]", re.I
)


def relation(text: Text, pool: Pool) -> Iterator[Change]:
    """A word turned into its opposite, two names exchanged around a verb, two numbers exchanged."""
    body = text.rewrite
    blocked = literal_spans(body)
    for match in _turns().finditer(body):
        if outside(blocked, *match.span()):
            yield replaced(body, match.span(), cased(_table()[match.group().lower()], match.group()))
    for old, new in lists()["turned_zh"]:
        for one, other in ((old, new), (new, old)):
            for match in re.finditer(one, body):
                yield replaced(body, match.span(), re.sub(r"\(.*?\)", "", other))
    found = names(body)
    for start, end in sentence_spans(body):
        here = [(span, name) for name, spans in found.items() for span in spans if start <= span[0] and span[1] <= end]
        for (one, first), (other, second) in combinations(sorted(here), 2):
            if first != second and _kindred(first, second) and _directed(body[one[1] : other[0]]):
                yield _exchanged(body, one, other)
        markers = [match.span() for match in MARKER.finditer(body)]
        figures = [
            match.span()
            for match in DIGITS.finditer(body, start, end)
            if outside(blocked, *match.span()) and outside(markers, *match.span())
        ]
        for one, other in combinations(figures, 2):
            between = body[one[1] : other[0]]
            alike = len(body[slice(*one)]) - len(body[slice(*other)])
            if body[slice(*one)] != body[slice(*other)] and abs(alike) < 2 and len(re.findall(r"\w+", between)) >= 3:
                yield _exchanged(body, one, other)


def _exchanged(body: str, one: Span, other: Span) -> Change:
    first, second = body[slice(*one)], body[slice(*other)]
    return Change(((*one, second), (*other, first)), f"'{first}' and '{second}' changed places")


def _kindred(one: str, other: str) -> bool:
    """Names that can take each other's place: not a month and a person."""
    kinds = {shape(one), shape(other)}
    return len(kinds) == 1 or not kinds & set(lists()["names"])


def _directed(between: str) -> bool:
    """Whether what stands between two names says something of one about the other, not of both alike."""
    return not SYMMETRIC.search(between) and _verb().search(between) is not None


@cache
def _table() -> dict[str, str]:
    table: dict[str, str] = {}
    for one, other in lists()["turned"]:
        table[one] = other
        table[other] = one
    return table | lists()["turned_once"]


@cache
def _turns() -> re.Pattern[str]:
    ordered = sorted(_table(), key=lambda words: (-len(words), words))
    return re.compile(
        rf"(?<![\w-])(?<!no )(?<!not )(?<!more or )(?:{'|'.join(map(re.escape, ordered))})(?![\w-])", re.I
    )


@cache
def _verb() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(lists()['directed'])})\b")
