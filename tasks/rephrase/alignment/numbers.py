"""No number that contradicts the source: each is there, in any notation, or one step of arithmetic from what is there.

A rewrite may say `a week` for seven days, `three of five stayed` where two of five left, and `for 120 years` for the
time between two years. What follows is no invention.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from tasks.rephrase.alignment import chinese
from tasks.rephrase.alignment.bounds import OPPOSITE, bounds, courses
from tasks.rephrase.alignment.dates import mentioned, opposite, sides
from tasks.rephrase.alignment.pair import FORMULA, Pair, Verdict, difference, words
from tasks.rephrase.alignment.quantities import MARKER, days, quantities, ranges
from tasks.rephrase.alignment.quantity import Kind, Quantity, Value
from tasks.rephrase.alignment.units import Unit, mentions, named
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_at

ANYWHERE = re.compile(
    r"(?:(?<!\d)(?P<times>\d+(?:\.\d+)?)\s?(?:\\times|\\cdot|[×·])\s?)?10\^\{?(?P<power>[-−]?\d{1,2})\b"
    rf"|\d+(?:[.,]\d+)*|{chinese.NUMERAL.pattern}"
)
BREAK = re.compile(r"[.!?](?=\s)|[。！？\n]")
CONVERTED = 0.07
"""How far a number in another unit may be off: half a month is two weeks, a third 33 or 32 percent."""
APART = 0.035
"""And how far a share that is written another way: nine out of ten are not 95 percent."""
EXACT = 1e-12
FOLLOWING = re.compile(
    r"\b(?:next|following|previous|preceding|(?:year|month|day)s? (?:before|after|later|earlier))\b"
    r"|[次翌隔前后]一?[年月日天]|第二[年天]|[上下]个?月",
    re.I,
)
"""What puts a year, a month or a day beside another one."""
TIMES = re.compile(r"[- ]?(?:times\b|fold\b)")
MULTIPLE = re.compile(r"twice|thrice|doubl\w+|tripl\w+|quadrupl\w+|\w+fold", re.I)
NUMBERED = re.compile(r"(?:\b(?:version|release|section|chapter|figure|table|v|[A-Z]\w*[a-z]\w*) |版本 ?|第)$")
"""Before a number of two parts, which is no decimal: Python 3.10 came long after 3.1."""
LARGEST = 1e30
SMALL = 100
"""Below it two bare numbers make others by chance, and are only combined within a sentence."""
ROUND = 1000
"""From here on a number of one digit and noughts may be a rounded one: over a thousand years."""
MOST = 24
"""Numbers of a text that are combined with each other."""
DEGREES = {"kelvin": (0.0, 1.0), "Celsius": (273.15, 1.0), "Fahrenheit": (459.67, 1.8)}
"""Of a scale, how far its zero is above absolute zero, in its degrees, and how many of them are a kelvin."""
SIGNED = ("Celsius", "Fahrenheit")
"""Elsewhere a verb may say the minus: `fell by 15 percent`."""


@dataclass(frozen=True)
class Found:
    """The numbers of both texts that do not agree."""

    invented: tuple[Quantity, ...] = ()
    """Numbers of the rewrite that the source neither has nor leads to."""
    gone: tuple[Quantity, ...] = ()
    """Numbers of the source that the rewrite neither has nor leads to."""
    lost: tuple[Quantity, ...] = ()
    """Numbers of the source that the rewrite does not have, though they may follow from it."""


def numbers(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No number is invented, none is gone: each is one of the other text's in some notation, or one step of arithmetic
    from them."""
    found = compare(pair.source, pair.rewrite, adds=pair.adds)
    if pair.context and found.invented:
        found = _in_context(found, pair)
    if not found.invented and not found.gone:
        return Verdict("numbers", 1.0, True)
    total = len({one.value for one in (*quantities(pair.source), *quantities(pair.rewrite))})
    score = max(0.0, 1 - (len(found.invented) + len(found.gone)) / total)
    if not found.invented:
        why = difference([_shown(pair.source, one) for one in found.gone], [])
        return Verdict("numbers", score, False, why, sentence_at(pair.source, found.gone[0].start))
    first = found.invented[0]
    rival = next((other for other in found.lost if _measured(other) == _measured(first)), None)
    source = sentence_at(pair.source, rival.start) if rival else ""
    return Verdict("numbers", score, False, _why(pair, found), source, sentence_at(pair.rewrite, first.start))


def _in_context(found: Found, pair: Pair) -> Found:
    """Without what the segments beside it say, or lead to, and with it what the rewrite said in its words: `in that
    year` became `in 1871`. Not where the source has another number of the kind that is lost."""
    known = [Known(text, quantities(text)) for text in (pair.source, f"{pair.source}\n\n{pair.context}")]
    lost = {_measured(one) for one in found.lost}
    invented = tuple(
        one
        for one in found.invented
        if _measured(one) in lost or known[0].states(one) or not (known[1].states(one) or known[1].gives(one))
    )
    if len(invented) == len(found.invented):
        return found
    told = f"{pair.rewrite}\n\n{pair.context}"
    new = Known(told, quantities(told))
    return Found(invented, tuple(one for one in found.gone if not new.gives(one)), found.lost)


def compare(source: str, rewrite: str, adds: bool = False) -> Found:
    """The numbers that were invented and lost. A count such as `two of them` may come or go, but not in another's
    place; a style that `adds` steps may add numbers without a unit."""
    before, after = quantities(source), quantities(rewrite)
    if not before and not after:
        return Found()
    old, new = Known(source, before), Known(rewrite, after)
    lost = [one for one in before if not new.states(one)]
    told, turned = sides(source), sides(rewrite)
    # 8 a.m. that became 8 p.m., 44 BC that became AD 44
    invented = [one for name, one in turned.items() if name not in told and opposite(name) in told]
    # 31 March that became 31 May, though another day of March is there
    dates, new_dates = days(source), days(rewrite)
    for (day, month), one in new_dates.items():
        moved = any(date[0] == day and date not in new_dates for date in dates)
        if moved and (day, month) not in dates and not old.states(one):
            invented.append(one)
    invented += _replaced(source, rewrite)
    # What became of `3 to 5` if it is `2 to 5`, though 2 is 5 less 3
    old_ranges, new_ranges = list(ranges(source)), list(ranges(rewrite))
    for one in after:
        # 5 km that became 5 m: that the source has a 5 elsewhere does not help.
        rivals = [other for other in lost if _measured(one) and _measured(one) == _measured(other)]
        if one in invented or old.states(one, measured=bool(one.unit and rivals)):
            continue
        if one.kind == "said":
            wrong = one.unit is not None and bool(rivals)
        else:
            beside = {(kept.value, first) for other, kept, first in old_ranges if other in rivals}
            slipped = any(one is end and (kept.value, first) in beside for end, kept, first in new_ranges)
            slipped |= bool(one.unit) and any(other.value == one.value for other in rivals)  # 4,000 m are no 4,000 ft
            wrong = (one.fact or (one.value != 1 and bool(rivals))) and (slipped or not old.gives(one, rivals, new))
        if wrong and (not adds or one.unit or any(_measured(one) == _measured(other) for other in lost)):
            invented.append(one)
    # In free wording a number may hide in words that no rule knows: only what nothing of the rewrite leads to is gone.
    gone = [one for one in lost if one.fact and not new.gives(one)]
    return Found(tuple(invented), tuple(gone), tuple(lost))


def _replaced(source: str, rewrite: str) -> Iterator[Quantity]:
    """What stands where another stood, though the source has such a number elsewhere: `the first of 3` that became
    `the third of 3`, `twice a day` that became `four times`, at least ten that became at most ten, `from 4 to 6` that
    became `from 6 to 4`, Python 3.10 that became 3.1."""
    for kind in (_places, _multiples, _versions):
        old, new = kind(source), kind(rewrite)
        gone, values = {name for value, name in old.keys() - new.keys()}, {value for value, _ in old}
        yield from (one for (value, name), one in new.items() if value not in values and name in gone)
    old_bounds = list(bounds(source))
    for one, bound in bounds(rewrite):
        known = {other for number, other in old_bounds if _equal(number, one)}
        if OPPOSITE[bound] in known and bound not in known:
            yield one
    old_courses = list(courses(source))
    for one, other in courses(rewrite):
        if any(_equal(one, last) and _equal(other, first) for first, last in old_courses):
            yield one


def _places(text: str) -> dict[tuple[Value, str], Quantity]:
    """Ordinals, each with the word behind it."""
    return {
        (one.value, _behind(text, one)): one
        for one in quantities(text)
        if one.kind == "ordinal" or text[one.start : one.end].lower() == "first"
    }


def _behind(text: str, one: Quantity) -> str:
    return next(iter(words(text[one.end : one.end + 24])), "").lower()


def _multiples(text: str) -> dict[tuple[Value, str], Quantity]:
    """Twice, four times, tripled."""
    return {
        (one.value, "times"): one
        for one in quantities(text)
        if (one.kind == "cardinal" and not one.unit and TIMES.match(text, one.end))
        or MULTIPLE.fullmatch(text[one.start : one.end])
    }


def _versions(text: str) -> dict[tuple[Value, str], Quantity]:
    """Versions and sections as they are written, each with the decimal that it seems to be."""
    return {
        (written, str(one.value)): one
        for one in quantities(text)
        if re.fullmatch(r"\d+\.\d+", written := text[one.start : one.end])
        and NUMBERED.search(text[max(0, one.start - 24) : one.start])
    }


def _equal(one: Quantity, other: Quantity) -> bool:
    return any(_same(mine, theirs) for mine in sizes(one) for theirs in sizes(other))


def _measured(one: Quantity) -> str:
    """What it is a number of: numbers of the same may have taken each other's place. Nothing for `both` or `twice`."""
    if one.unit:
        return one.unit.dimension
    if one.kind == "said":
        return ""
    year = one.kind == "year" or (one.digits and not isinstance(one.value, str) and 1000 <= one.value <= 2100)
    return "year" if year else one.kind


def _why(pair: Pair, found: Found) -> str:
    """`1958 became 1985` where one may have taken another's place, then what else was invented."""
    left, rest, became = list(found.lost), [], []
    for one in found.invented:
        rival = next((other for other in left if _measured(other) == _measured(one)), None)
        if rival is None:
            rest.append(_shown(pair.rewrite, one))
            continue
        left.remove(rival)
        became.append(f"{_shown(pair.source, rival)} became {_shown(pair.rewrite, one)}")
    return "; ".join(part for part in (*became[:3], difference([], rest)) if part)


def _shown(text: str, quantity: Quantity) -> str:
    return " ".join(text[quantity.start : quantity.end].split())


@dataclass(frozen=True, slots=True)
class Size:
    """A number as it is written, and in the base unit of what it measures."""

    written: float
    number: float
    dimension: str = ""
    """Nothing where it has no unit."""
    unit: Unit | None = None
    not_of: tuple[str, ...] = ()
    """Of a product of two units: dimensions that it cannot have. All others it may."""


class Known:
    """The numbers of a text, to ask whether another follows from them."""

    def __init__(self, text: str, found: Sequence[Quantity]) -> None:
        breaks = [match.start() for match in BREAK.finditer(text)]
        elsewhere = list(_elsewhere(text, [(one.start, one.end) for one in found]))
        self.names = {name for one in found for name in _names(one)}
        self.names |= {value for value, _ in elsewhere if isinstance(value, str)} | mentioned(text)
        told: list[tuple[Size, int, Kind]] = [(size, one.start, one.kind) for one in found for size in sizes(one)]
        told += [(Size(value, value), start, "cardinal") for value, start in elsewhere if isinstance(value, float)]
        placed: dict[tuple[Size, int, Kind], int] = {}
        for size, start, kind in told:
            placed.setdefault((size, bisect(breaks, start), kind), start)
        self.counted = [(*each[:2], start) for each, start in placed.items() if each[2] != "said"][:MOST]
        self.said = [(*each[:2], start) for each, start in placed.items() if each[2] == "said" and not each[0].unit]
        # A unit without a number is one of it; per cent are of a hundred; 百 alone is not read.
        self.sizes = {size for size, _, _ in placed} | {_size(1, unit) for unit in mentions(text)}
        if "百" in text or any(size.dimension == "ratio" for size in self.sizes):
            self.sizes.add(Size(100.0, 1.0, "ratio"))
        self.sizes |= {size for one in found for size in (*_temperatures(one), *_parts(one))}
        spans = [one for one in found if one.kind == "year" and text[one.end - 1] in "s代"]
        decades = [size.number for one in spans for size in sizes(one) if size.number % 10 == 0]
        self.sizes |= {Size(year + 9, year + 9) for year in decades}  # the 1990s end with 1999
        times = [(one, 0) for one in _multiples(text).values()]
        # 快四倍 may be five times as fast.
        times += [(one, more) for one in found if text[one.end : one.end + 1] == "倍" for more in (0, 1)]
        self.multiples = {(size, size.number + more) for one, more in times for size in sizes(one)}
        self.ordinals = {size for size, _, kind in placed if kind == "ordinal"}
        self.following = bool(FOLLOWING.search(text))

    def states(self, quantity: Quantity, measured: bool = False) -> bool:
        """Whether the text has this number, in any notation; if it must be `measured`, with a unit."""
        first = quantity.value == 1 and not quantity.digits and not quantity.unit  # it may be said in any words
        if first or not self.names.isdisjoint(_names(quantity)):
            return True
        if quantity.parts and all(any(_same(one, other) for other in self.sizes) for one in _parts(quantity)):
            return True
        return any(
            _same(one, other)
            for one in sizes(quantity)
            for other in self.sizes
            if other.unit or not (measured and one.unit)
        )

    def gives(self, quantity: Quantity, instead: Sequence[Quantity] = (), beside: Known | None = None) -> bool:
        """Whether one step of arithmetic leads to it. What stands `instead` of other numbers, which are lost, must
        come of one of them, and is no sum of it and a measure that `beside` has still: 200 m by 20 m are no 220 m."""
        wanted = list(sizes(quantity))
        lost = {size for one in instead for size in sizes(one)}
        measured = _measured(quantity)
        if measured == "ordinal" and instead and not self.following:
            return False  # no sum of places makes a place
        if measured == "year" and not self._years(quantity):
            return False
        if measured == "year" and self.following and not lost:
            return True
        return any(
            _reaches(result, size)
            for result, operands in self._steps(within=bool(lost))
            if not lost
            or (not lost.isdisjoint(operands) and not (beside and _kept_sum(result, operands, lost, beside)))
            if measured != "day" or any(one.dimension == "time" for one in operands)  # 14 May, and three days later
            for size in wanted
        )

    def _years(self, quantity: Quantity) -> bool:
        """Whether a year is exactly what a step leads to (2019 is not about 2020), the next of one that the text has,
        where it says so, or the decade of one."""
        wanted = {size.written for size in sizes(quantity)}
        near = 1 if self.following else 0
        return any(
            abs(year - other) <= near or (quantity.kind == "year" and other % 10 == 0 and 0 <= year - other < 10)
            for year in [
                *(size.written for size in self.sizes),
                *(step.written for step, of in self._steps(within=False) if self.ordinals.isdisjoint(of)),
            ]
            for other in wanted
        )

    def _steps(self, within: bool) -> Iterator[tuple[Size, tuple[Size, ...]]]:
        """What one step of arithmetic makes of the numbers, and of which."""
        for size, _, _ in self.counted:
            if 0 < size.number < 1 and size.dimension in ("", "ratio"):
                for share in (1 - size.number, 1 + size.number):
                    yield Size(share, share, "ratio"), (size,)
        for size, times in self.multiples:  # three times the other one: that is a third, or two thirds less
            for share in (1 / times, 1 - 1 / times, times - 1) if times > 1 else ():
                yield Size(share, share, "ratio"), (size,)
        for (one, here, place), (other, there, elsewhere) in combinations(self.counted, 2):
            bare = not one.unit and not other.unit and max(one.written, other.written) < SMALL
            if here != there and (within or bare):
                continue
            if place != elsewhere:  # a number and what else it may mean are no two numbers: 1/8 leads to no 9
                for result in _sums(one, other):
                    yield result, (one, other)
            for result in _products(one, other):
                yield result, (one, other)
        for (one, here, _), (other, there, _) in product(self.counted, self.said):
            if here == there and not within:
                for result in _products(one, other):
                    yield result, (one, other)


def _kept_sum(result: Size, operands: tuple[Size, ...], lost: set[Size], text: Known) -> bool:
    """Whether it is the sum of two measures, and the one that is not lost stands in the text."""
    measures = [size for size in operands if size.unit]
    rest = [size for size in measures if size not in lost]
    total = sum(size.number for size in measures)
    return len(measures) == 2 and bool(rest) and _near(result.number, total) and text.sizes.issuperset(rest)


def _sums(one: Size, other: Size) -> Iterator[Size]:
    unit = one.unit or other.unit
    if one.unit and other.unit:
        numbers = one.number + other.number, abs(one.number - other.number)
    else:  # 14 May and three days: what has no unit has that of the other
        numbers = (one.written + other.written) * _factor(unit), abs(one.written - other.written) * _factor(unit)
    for number in numbers:
        yield Size(number / _factor(unit), number, unit.dimension if unit else "", unit)


def _products(one: Size, other: Size) -> Iterator[Size]:
    unit = None if one.unit and other.unit else one.unit or other.unit
    neither = (one.dimension, other.dimension) if one.unit and other.unit else ()  # a length times a length is none
    numbers = [one.number * other.number]
    if one.number and other.number:
        numbers += [one.number / other.number, other.number / one.number]
    for number in numbers:
        yield Size(number / _factor(unit), number, unit.dimension if unit else "", unit, neither)


def _factor(unit: Unit | None) -> float:
    return float(unit.factor) if unit else 1.0


def _names(quantity: Quantity) -> set[str]:
    """What it is compared by where it is no number to reckon with: a time of day, a version, 10^999."""
    return {str(value) for value, _ in quantity.meanings if isinstance(value, str) or abs(value) >= LARGEST}


def sizes(quantity: Quantity) -> Iterator[Size]:
    """The sizes that a quantity may mean."""
    for value, unit in quantity.meanings:
        if quantity.kind == "said" and quantity.unit and not unit:
            continue  # `an hour` is no 1
        if not isinstance(value, str) and abs(value) < LARGEST:
            yield _size(float(value), unit)


def _parts(quantity: Quantity) -> Iterator[Size]:
    """What is above and below the stroke of a fraction."""
    return (_size(float(part), None) for part in quantity.parts)


def _temperatures(quantity: Quantity) -> Iterator[Size]:
    """A temperature on the other scales, as they round it."""
    for size in sizes(quantity):
        if size.dimension in DEGREES:
            above, steps = DEGREES[size.dimension]
            for name, (zero, part) in DEGREES.items():
                exact = (size.written + above) / steps * part - zero
                if name != size.dimension:
                    yield from (_size(round(exact, digits), named(name)) for digits in (0, 1, 2))


def _size(value: float, unit: Unit | None) -> Size:
    if unit is None:
        return Size(abs(value), abs(value))
    value = value if unit.dimension in SIGNED else abs(value)
    return Size(value, value * float(unit.factor), unit.dimension, unit)


def _same(one: Size, other: Size) -> bool:
    if one.unit and other.unit:
        if one.dimension == other.dimension:
            # 64 KB are not about 64 KiB: the same number in another unit is a slip.
            converted = one.unit.factor != other.unit.factor and not _near(one.written, other.written)
            return _near(one.number, other.number, max(_coarse(one), _coarse(other)) if converted else EXACT)
        if one.unit.above and other.unit.above:
            return False
        mine, theirs = one.unit.above or one.unit, other.unit.above or other.unit  # `5 percent` of `5 percent a year`
        return mine.dimension == theirs.dimension and _near(
            one.written * _factor(mine), other.written * _factor(theirs)
        )
    share = "ratio" in (one.dimension, other.dimension) and 1 not in (one.written, other.written)
    if share and abs(one.number - other.number) <= APART and _near(one.number, other.number, CONVERTED):
        return True
    # What has no unit may stand for what has one; a hundred of the per cent has a dimension, and may not.
    bare = not (one.dimension and other.dimension)
    return bare and _near(abs(one.written), abs(other.written))


def _coarse(size: Size) -> float:
    """How far off a number may be as it is rounded: 9 weeks and a century and a half by much, 8,867 seconds by half a
    second."""
    if size.written < 10 and size.written * 2 % 1 == 0:
        return CONVERTED
    digits = f"{size.written:.8e}".partition("e")[0].rstrip("0").rstrip(".")
    places = len(digits.lstrip("-").replace(".", "")) - 1
    return max(EXACT, min(CONVERTED, 0.5 * 10.0**-places / abs(float(digits))))


def _reaches(step: Size, size: Size) -> bool:
    """Whether the result of a step is the number, as it was rounded."""
    if step.not_of:
        return size.dimension not in step.not_of and _rounded(step.number / _factor(size.unit), size.written)
    points = {step.dimension, size.dimension} == {"ratio", "percentage point"}  # from 9 % to 13 %: 4 points
    if points or step.dimension == size.dimension:
        return _rounded(step.number / _factor(size.unit), size.written)
    if not size.dimension or (not step.dimension and size.dimension == "time"):  # from ten to seven: three hours
        return _rounded(step.written, size.written)
    return not step.dimension and size.dimension == "ratio" and _rounded(step.written, size.number)


def _rounded(exact: float, written: float) -> bool:
    if _near(exact, written):
        return True
    digits = len(f"{written:.9g}".replace(".", "").strip("0"))
    return (digits >= 2 or written >= ROUND) and f"{exact:.{digits}g}" == f"{written:.{digits}g}"


def _near(one: float, other: float, share: float = EXACT) -> bool:
    return abs(one - other) <= share * max(abs(one), abs(other))


def _elsewhere(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[tuple[float | str, int]]:
    """Numbers in formulas, code, names and words."""
    numbered = {place for match in MARKER.finditer(text) for place in range(*match.span())}
    # Where `prose` puts the number that is a whole formula is not where the formula has it.
    formulas = [match.span() for match in FORMULA.finditer(text)]
    spans = [*spans, *((first, end) for first, end in formulas if any(first <= start < end for start, _ in spans))]
    for match in ANYWHERE.finditer(text):
        known = any(start <= match.start() < end for start, end in spans)
        if known or match.start() in numbered or len(match.group()) > 20:
            continue
        if match["power"]:
            yield float(match["times"] or 1) * 10.0 ** int(match["power"].replace("−", "-")), match.start()
        elif match.group()[0].isdigit():
            plain = re.sub(r",(?=\d{3})", "", match.group()).replace(",", ".")
            yield float(plain) if plain.count(".") < 2 else plain, match.start()
            if re.fullmatch(r"\d+,\d+", match.group()):  # [0,5]
                yield from ((float(end), match.start()) for end in match.group().split(","))
        elif number := chinese.value(match.group()):
            yield float(number), match.start()
