"""What stands around a number: two numbers that changed places keep the set of numbers, not their neighbours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from tasks.rephrase.alignment.pair import WORD, Pair
from tasks.rephrase.alignment.quantity import Quantity

BREAK = re.compile(r"[.!?](?=\s)|[。！？；;\n]")
DECAY = 0.15
"""How fast a word counts less with each word between it and the number."""
REACH = 14
"""Words on either side that are looked at."""
COMMON = frozenset(
    "the a an and or of in on at to for from by with as is are was were be been it its this that these those which who "
    "he she they his her their there then than but not no had has have did do does can may will would also into about "
    "around roughly some nearly over under after before when while where only both each every year years more less "
    "most least between during since until such so very one two three first second".split()
)


def likeness(pair: Pair, one: Quantity, other: Quantity) -> float:
    """How alike a number of the source and one of the rewrite are: in kind, unit and neighbours."""
    alike = 2.0 * (one.kind == other.kind) + (one.digits == other.digits)
    alike += 2.0 * ((one.unit and one.unit.dimension) == (other.unit and other.unit.dimension))
    alike += isinstance(one.value, Fraction) and isinstance(other.value, Fraction) and len(one.text) == len(other.text)
    return alike + 3 * _overlap(
        _around(pair.source, one.start, one.end), _around(pair.rewrite, other.start, other.end), {}
    )


def exchanged(
    pair: Pair, before: Sequence[Quantity], after: Sequence[Quantity], least: float
) -> Iterator[tuple[Quantity, Quantity]]:
    """Pairs of numbers that stand among each other's words in the rewrite, by at least `least` in likeness."""
    mine, theirs = _single(before), _single(after)
    shared = [key for key in mine if key in theirs]
    if len(shared) < 2:
        return
    old = {key: _around(pair.source, mine[key].start, mine[key].end) for key in shared}
    new = {key: _around(pair.rewrite, theirs[key].start, theirs[key].end) for key in shared}
    spread = Counter(word for key in shared for word in old[key])
    alike = {(one, other): _overlap(old[one], new[other], spread) for one in shared for other in shared}
    for place, one in enumerate(shared):
        for other in shared[place + 1 :]:
            if _class(mine[one]) != _class(mine[other]):
                continue
            straight = alike[one, one] + alike[other, other]
            crossed = alike[one, other] + alike[other, one]
            if crossed - straight >= least:
                yield mine[one], theirs[other]


def moved(
    pair: Pair, before: Sequence[Quantity], after: Sequence[Quantity], least: float
) -> Iterator[tuple[Quantity, Quantity]]:
    """(what it was, what it is): a number said less often than in the source whose words another now stands among that
    is said more often, by at least `least` in likeness."""
    mine, theirs = Counter(q.value for q in before), Counter(q.value for q in after)
    fewer = [q for q in before if mine[q.value] > theirs[q.value] and q.kind not in ("said", "month")]
    more = [q for q in after if 0 < mine[q.value] < theirs[q.value] and q.kind not in ("said", "month")]
    for other in more if fewer else ():
        words = _around(pair.rewrite, other.start, other.end)
        own = max(_overlap(_around(pair.source, q.start, q.end), words, {}) for q in before if q.value == other.value)
        for one in fewer:
            if one.kind != other.kind or one.value == other.value:
                continue
            if _overlap(_around(pair.source, one.start, one.end), words, {}) - own >= least:
                yield one, other


def same_noun(pair: Pair, one: Quantity, other: Quantity) -> bool:
    """Whether the same word follows both, at most one other word between in one of the two."""
    mine, theirs = _noun(pair.source, one.end), _noun(pair.rewrite, other.end)
    return any(distance + theirs.get(word, 9) <= 3 for word, distance in mine.items()) and not _labels(
        pair.source, one.start
    )


def _labels(text: str, start: int) -> bool:
    """Whether a number is a name's: Python 3, PEP 8."""
    return re.search(r"[A-Z][\w+#]* $", text[max(0, start - 16) : start]) is not None


@lru_cache(maxsize=1024)
def _noun(text: str, end: int) -> Mapping[str, float]:
    return {word: distance for word, distance in _walk(text, end, True) if distance <= 2}


def _single(found: Sequence[Quantity]) -> dict[object, Quantity]:
    counts = Counter(quantity.value for quantity in found if quantity.kind != "said")
    return {
        quantity.value: quantity
        for quantity in found
        if counts[quantity.value] == 1 and quantity.kind != "said" and quantity.value != 1
    }


def _class(quantity: Quantity) -> tuple[object, ...]:
    """What could be mistaken for one another: two lengths, two years, two small counts."""
    year = isinstance(quantity.value, Fraction) and 1000 <= quantity.value <= 2100
    return quantity.kind, quantity.unit.dimension if quantity.unit else "", year, quantity.fact


@lru_cache(maxsize=4096)
def _around(text: str, start: int, end: int) -> Mapping[str, float]:
    """Word -> how near it stands to [start, end), from 1 down; a clause's end counts as three words."""
    found: dict[str, float] = {}
    for words in (_walk(text, end, True), _walk(text, start, False)):
        for word, distance in words:
            found[word] = max(found.get(word, 0.0), 1 / (1 + DECAY * (distance - 1)))
    return found


def _walk(text: str, place: int, onwards: bool) -> Iterator[tuple[str, float]]:
    window = text[place : place + 160] if onwards else text[max(0, place - 160) : place]
    breaks = [match.start() for match in BREAK.finditer(window)]
    if onwards and breaks:
        window = window[: breaks[0]]
    elif breaks:
        window = window[breaks[-1] + 1 :]
    matches = list(WORD.finditer(window))
    if not onwards:
        matches.reverse()
    distance, edge, before = 0.0, 0 if onwards else len(window), ""
    for match in matches[:REACH]:
        gap = window[edge : match.start()] if onwards else window[match.end() : edge]
        distance += 1 + 2 * any(sign in gap for sign in ",:，、：()（）")
        edge = match.end() if onwards else match.start()
        word = match.group().lower()
        if "㐀" <= word[0] <= "鿿":
            pair = before + word if onwards else word + before
            if before:
                yield pair, distance
            before = word
            continue
        before = ""
        if word not in COMMON and not word[0].isdigit():
            yield _stem(word), distance


def _stem(word: str) -> str:
    word = re.sub(r"['’]s$", "", word)
    return word[:6] if len(word) > 6 else word.rstrip("s")


def _overlap(one: Mapping[str, float], other: Mapping[str, float], spread: Mapping[str, int]) -> float:
    return sum(one[word] * other[word] / spread.get(word, 1) for word in one.keys() & other.keys())
