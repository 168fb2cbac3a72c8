"""Which bound a number is (at least ten, fewer than ten), and from which number to which something goes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise

from tasks.rephrase.alignment.pair import lists
from tasks.rephrase.alignment.quantities import prose, quantities
from tasks.rephrase.alignment.quantity import Quantity
from tasks.rephrase.segments import sentence_at

OPPOSITE = {"more": "less", "less": "more", "at least": "at most", "at most": "at least"}
"""Two that cannot both hold. `Over ten` and `ten or less` are the two halves of one rule: who tells of the one half may
tell of the other with an exception or a denial."""
NEAR = 28
"""Characters before or behind a number in which a word may make a bound of it."""
DENIED = re.compile(
    r"\b(?:not?|never|without|neither|nor|cannot|hardly|seldom|rarely|fail\w*)\b|n['’]t\b|[不没未无非]", re.I
)
FROM = re.compile(r"\b(?:from|between)(?: (?:about|some|roughly|around))? [$€£¥]?$|[从由自]$", re.I)
TO = re.compile(r" ?(?:to|and|until|till)(?: (?:about|some|roughly|around))? |[至到]", re.I)


def bounds(text: str) -> Iterator[tuple[Quantity, str]]:
    """The numbers that are bounds, with the word that says so, and of which kind. None in a sentence that denies
    something besides."""
    bare = prose(text)
    for one in quantities(text):
        first = max(0, one.start - NEAR)
        before = {name: pattern.search(bare[first : one.start]) for name, pattern in _before().items()}
        behind = {name: pattern.match(bare[one.end : one.end + NEAR]) for name, pattern in _behind().items()}
        found = [
            (name, first + match.start() if here is before else one.start, one.end + match.end() * (here is behind))
            for here in (before, behind)
            for name, match in here.items()
            if match
        ]
        # `no more than` ends in `more than`
        name, start, end = max(found, key=lambda each: each[2] - each[1], default=("", 0, 0))
        if not name or OPPOSITE[name] in (other for other, _, _ in found):
            continue
        if not DENIED.search(sentence_at(bare, one.start).replace(bare[start:end], " ")):
            yield replace(one, start=start, end=end), name


def courses(text: str) -> Iterator[tuple[Quantity, Quantity]]:
    """From which number to which something goes: from 40 to 60, between 1914 and 1918. The first has the place of
    both."""
    bare = prose(text)
    for one, other in pairwise(quantities(text)):
        if FROM.search(bare[: one.start]) and TO.fullmatch(bare[one.end : other.start]):
            yield replace(one, end=other.end), other


@cache
def _before() -> dict[str, re.Pattern[str]]:
    rows = {name: "|".join(some.splitlines()) for name, some in lists()["bounds"].items()}
    return {
        name: re.compile(rf"(?:{any_of})(?: (?:about|some|the|an?)|[有为达是要])? ?[$€£¥]?$", re.I)
        for name, any_of in rows.items()
    }


@cache
def _behind() -> dict[str, re.Pattern[str]]:
    rows = {name: "|".join(some.splitlines()) for name, some in lists()["bounds behind"].items()}
    return {name: re.compile(rf"[\w%°³² ]{{0,12}}?(?:{any_of})", re.I) for name, any_of in rows.items()}
