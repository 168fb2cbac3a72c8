"""Relations turned round: who does what to whom, before and after, more and less, cause and effect."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import combinations, zip_longest

from tasks.rephrase.calibration.edits import (
    Change,
    Pool,
    Span,
    Text,
    cased,
    draw,
    lists,
    literal_spans,
    outside,
    replaced,
    shuffled,
)
from tasks.rephrase.calibration.naming import names, shape
from tasks.rephrase.calibration.numeric import DIGITS, MARKER
from tasks.rephrase.segments import sentence_spans

SYMMETRIC = re.compile(
    r"\b(?:and|or|between|both|together|with|versus|vs|nor|either|neither)\b|[,;，、和与及或&/–-]", re.I
)
YEAR = re.compile(r"1\d{3}|20\d{2}")


def relation(text: Text, pool: Pool) -> Iterator[Change]:
    """A word turned into its opposite, two names exchanged around a verb, two numbers exchanged: in turns, beginning
    with a kind that is drawn."""
    changes = [shuffled(some, text.id) for some in (_turned(text), _names(text), _numbers(text))]
    first = draw(text.id, "relation") % len(changes)
    for some in zip_longest(*changes[first:], *changes[:first]):
        yield from (change for change in some if change is not None)


def _turned(text: Text) -> Iterator[Change]:
    body = text.rewrite
    blocked = literal_spans(body)
    for pattern, new in _turns():
        for match in pattern.finditer(body):
            # A capital inside a sentence is a name's: Let's Encrypt, the Middle East.
            inner = match.group()[0].isupper() and not re.search(r"(?:^|[.!?:]\W*\s|\n)\W*$", body[: match.start()])
            if outside(blocked, *match.span()) and not inner:
                yield replaced(body, match.span(), cased(new, match.group()))
    for old, new in lists()["turned_zh"].items():
        for match in re.finditer(old, body):
            yield replaced(body, match.span(), new)


def _names(text: Text) -> Iterator[Change]:
    body = text.rewrite
    found = names(body)
    for start, end in sentence_spans(body):
        here = [(span, name) for name, spans in found.items() for span in spans if start <= span[0] and span[1] <= end]
        for (one, first), (other, second) in combinations(sorted(here), 2):
            if first != second and _kindred(first, second) and _directed(body[one[1] : other[0]]):
                yield _exchanged(body, one, other)


def _numbers(text: Text) -> Iterator[Change]:
    """Two numbers of one sentence, both years or neither, with words of their own between them."""
    body = text.rewrite
    blocked = sorted([*literal_spans(body), *(match.span() for match in MARKER.finditer(body))])
    for start, end in sentence_spans(body):
        figures = [
            match.span()
            for match in DIGITS.finditer(body, start, end)
            if outside(blocked, *match.span())
            and not match.group()[-1].isalpha()
            and not _date().match(body, match.end())
        ]
        for one, other in combinations(figures, 2):
            first, second = body[slice(*one)], body[slice(*other)]
            alike = bool(YEAR.fullmatch(first)) == bool(YEAR.fullmatch(second)) and abs(len(first) - len(second)) < 2
            apart = len(re.findall(r"[A-Za-z]+|[㐀-鿿]", body[one[1] : other[0]])) >= 3
            if first != second and alike and apart:
                yield _exchanged(body, one, other)


def _exchanged(body: str, one: Span, other: Span) -> Change:
    first, second = body[slice(*one)], body[slice(*other)]
    return Change(((*one, second), (*other, first)), f"'{first}' and '{second}' changed places")


def _kindred(one: str, other: str) -> bool:
    """Names that can take each other's place: not a month and a person."""
    kinds = {shape(one), shape(other)}
    return len(kinds) == 1 or not kinds & {*lists()["names"], "adjective"}


def _directed(between: str) -> bool:
    """Whether what stands between two names says something of one about the other, not of both alike."""
    return not SYMMETRIC.search(between) and _verb().search(between) is not None


@cache
def _turns() -> list[tuple[re.Pattern[str], str]]:
    number = rf"(?:[£$€¥]?\d|(?:{'|'.join(lists()['cardinals'])}|one|a|half)\b)"
    return [
        (re.compile(rf"(?<![\w-])(?<!no )(?<!not )(?<!more or )(?:{old.replace('#', number)})(?![\w-])", re.I), new)
        for old, new in lists()["turned"].items()
    ]


@cache
def _date() -> re.Pattern[str]:
    return re.compile(rf"\s*(?:[月日]|(?:{'|'.join(lists()['names']['months'])})\b)")


@cache
def _verb() -> re.Pattern[str]:
    return re.compile(rf"\b(?:{'|'.join(lists()['directed'])})\b|由|于|被|的")
