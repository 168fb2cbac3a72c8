"""The same numbers with the same units, in digits or words; none lost, none invented, none in another's place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction

from tasks.rephrase.alignment.neighbours import exchanged, likeness, moved, same_noun
from tasks.rephrase.alignment.pair import Pair, Verdict, difference
from tasks.rephrase.alignment.quantities import MARKER, quantities
from tasks.rephrase.alignment.quantity import Quantity, Value
from tasks.rephrase.alignment.units import Unit, mentioned
from tasks.rephrase.config import AlignmentConfig

ANYWHERE = re.compile(r"\d+(?:[.,]\d+)*")


class Stated:
    """The quantities of a text, to ask whether one is among them."""

    def __init__(self, text: str, found: Sequence[Quantity]) -> None:
        self.text = text
        self.bare: Counter[Value] = Counter()
        self.said: set[Value] = set()
        self.counts: set[Value] = set()
        self.bases: set[tuple[str, Value]] = set()
        self.units: dict[Value, list[Unit]] = {}
        self.sizes = {unit.size for quantity in found for _, unit in quantity.meanings if unit}
        self._elsewhere: set[Value] | None = None
        self._spans = [(quantity.start, quantity.end) for quantity in found]
        for quantity in found:
            for value, unit in quantity.meanings:
                if unit is not None:
                    self.units.setdefault(value, []).append(unit)
                    self.bases.add((unit.dimension, _base(value, unit)))
                elif quantity.kind == "said":
                    self.said.add(value)
                elif not quantity.fact and not quantity.digits and quantity.kind == "cardinal":
                    self.counts.add(value)
                else:
                    self.bare[value] += 1

    def has(self, quantity: Quantity, own: Stated, invented: bool = False) -> bool:
        """Whether `quantity` of the text `own` stands here in one of its meanings; a unit that was left out is
        forgiven, one that was `invented` is not."""
        if any(self._holds(value, unit, own, invented) for value, unit in quantity.meanings):
            return True
        if not quantity.fact:
            return False
        # What stands in code or a formula is only asked for numbers that are no quantity here.
        value = quantity.value
        return (
            value not in self.units and value not in self.bare and value not in self.counts and value in self.elsewhere
        )

    def names(self, unit: Unit) -> bool:
        """Whether the unit stands anywhere in the text."""
        return unit.size in self.sizes or mentioned(self.text, unit)

    def _holds(self, value: Value, unit: Unit | None, own: Stated, invented: bool) -> bool:
        if unit is None:
            return (
                value in self.bare
                or value in self.said
                or value in self.counts
                or ("ratio", value) in self.bases
                or value in self.units
                or (100 in own.bare and ("ratio", value / 100 if isinstance(value, Fraction) else value) in self.bases)
            )
        if (unit.dimension, _base(value, unit)) in self.bases:
            return True
        if unit.dimension == "ratio" and (
            _base(value, unit) in self.bare
            or _base(value, unit) in self.counts
            or (value in self.bare and 100 in self.bare)
        ):
            return True
        for other in self.units.get(value, ()):
            # `100 km` of what was `100 km/h`: the hour may be said elsewhere.
            if other.size == (unit.above or unit).size or unit.size == (other.above or other).size:
                return True
        # A number without a unit may stand for it, if it is not already there for one without a unit in the other text
        # and the unit is not new to this text.
        left_out = self.bare[value] > own.bare[value] or (value in self.counts and value not in own.counts)
        return left_out and (not invented or self.names(unit))

    @property
    def elsewhere(self) -> set[Value]:
        """Numbers in formulas, code and names."""
        if self._elsewhere is None:
            self._elsewhere = set(_elsewhere(self.text, self._spans))
        return self._elsewhere


def _base(value: Value, unit: Unit) -> Value:
    return value if isinstance(value, str) else value * unit.factor


def _elsewhere(text: str, spans: Sequence[tuple[int, int]]) -> Iterator[Value]:
    numbered = {place for match in MARKER.finditer(text) for place in range(*match.span())}
    for match in ANYWHERE.finditer(text):
        if match.start() in numbered or len(match.group()) > 20:
            continue
        if not any(start <= match.start() < end for start, end in spans):
            plain = re.sub(r",(?=\d{3})", "", match.group()).replace(",", ".")
            yield Fraction(plain) if plain.count(".") < 2 else plain


def numbers(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The same numbers with the same units, in digits or words; none lost, none invented, none in another's place.

    A style that adds steps may add small numbers. A count such as `two of them` may come or go, but not become another.
    """
    before, after = quantities(pair.source), quantities(pair.rewrite)
    old, new = Stated(pair.source, before), Stated(pair.rewrite, after)
    lost = [quantity for quantity in before if quantity.fact and not new.has(quantity, old)]
    invented = [quantity for quantity in after if quantity.fact and not old.has(quantity, new, True)]
    invented += [one for one in after if _single(one) and not old.has(one, new, True)]
    lost, invented = _without_derived(lost, invented, before, after)
    if pair.adds and not lost:
        invented = [quantity for quantity in invented if quantity.unit is not None]
    if not lost and not invented:
        lost, invented = _counts(pair, config, before, after, old, new)
    total = max(len({q.value for q in (*before, *after)}), 1)
    score = max(0.0, 1 - (len(lost) + len(invented)) / total)
    if lost or invented:
        return Verdict("numbers", score, False, _why(pair, lost, invented))
    for one, other in moved(pair, before, after, config.moved):
        return Verdict("numbers", score - 1 / total, False, f"{_shown(one)} became {_shown(other)}")
    for one, other in exchanged(pair, before, after, config.exchanged):
        return Verdict("numbers", score - 2 / total, False, f"{_shown(one)} and {_shown(other)} changed places")
    return Verdict("numbers", 1.0, True)


def _without_derived(
    lost: list[Quantity], invented: list[Quantity], before: Sequence[Quantity], after: Sequence[Quantity]
) -> tuple[list[Quantity], list[Quantity]]:
    """Without what can be worked out: `two years later` after 2014 is 2016, 1325 is of the 14th century."""
    for wrong, others, known in ((invented, lost, before), (lost, invented, after)):
        years = {quantity.value for quantity in known if _year(quantity)}
        for quantity in list(wrong):
            if quantity.kind == "year":
                if any(one.kind == "said" and one.unit and one.unit.name == "decade" for one in known):
                    wrong.remove(quantity)
                continue
            if _year(quantity) and any(_year(other) for other in others):
                continue
            if _year(quantity):
                span = next(
                    (span for span in known if _span(span) and any(_apart(quantity, y, span) for y in years)), None
                )
                found = span is not None
                if span in others:
                    others.remove(span)
            else:
                found = (
                    (
                        _span(quantity)
                        and any(_apart(_at(quantity, one), other, quantity) for one in years for other in years)
                    )
                    or _period(quantity, years)
                    or (
                        quantity.value == 100
                        and any(unit.dimension == "ratio" for one in known for _, unit in one.meanings if unit)
                    )
                )
                rest = next((one for one in others if _rest(one, quantity)), None)
                if rest is not None:
                    others.remove(rest)
                    found = True
            if found:
                wrong.remove(quantity)
    return lost, invented


def _single(quantity: Quantity) -> bool:
    """A 1 in digits, or with a unit that takes no article by habit."""
    if quantity.value != 1 or quantity.kind != "cardinal":
        return False
    return quantity.digits if quantity.unit is None else quantity.unit.dimension not in ("time", "years")


def _year(quantity: Quantity) -> bool:
    return (
        quantity.digits
        and isinstance(quantity.value, Fraction)
        and quantity.value.denominator == 1
        and 1000 <= quantity.value <= 2100
        and quantity.unit is None
    )


def _span(quantity: Quantity) -> bool:
    return quantity.unit is not None and quantity.unit.dimension == "years" and isinstance(quantity.value, Fraction)


def _at(span: Quantity, year: Value) -> Quantity:
    return replace(span, value=year, unit=None)


def _apart(year: Quantity, then: Value, span: Quantity) -> bool:
    if isinstance(year.value, str) or isinstance(then, str) or isinstance(span.value, str) or span.unit is None:
        return False
    months, wanted = (year.value - then) * 12, span.value * span.unit.factor
    return months == wanted if span.kind == "said" else abs(months) == wanted


def _period(quantity: Quantity, years: set[Value]) -> bool:
    """Whether it is the century of one of the years."""
    if isinstance(quantity.value, str) or quantity.unit is None or quantity.unit.name != "century":
        return False
    return quantity.kind == "ordinal" and any(not isinstance(y, str) and -(-y // 100) == quantity.value for y in years)


def _rest(one: Quantity, other: Quantity) -> bool:
    """`Shrunk to a tenth` is shrunk by nine tenths."""
    parts = one.kind == other.kind == "part" and not (one.digits or other.digits)
    return (
        parts and isinstance(one.value, Fraction) and isinstance(other.value, Fraction) and one.value + other.value == 1
    )


def _counts(
    pair: Pair,
    config: AlignmentConfig,
    before: Sequence[Quantity],
    after: Sequence[Quantity],
    old: Stated,
    new: Stated,
) -> tuple[list[Quantity], list[Quantity]]:
    """Small counts and ordinals that became others; one that only comes or goes sums something up."""
    fewer = _times(before) - _times(after)
    mine = [quantity for quantity in before if quantity.kind not in ("said", "month")]
    months = [quantity for quantity in before if quantity.kind == "month"]
    for other in after:
        if other.fact or other.kind == "said" or other.value == 1 or old.has(other, new, True):
            continue
        if other.kind == "month":
            gone = [one for one in months if not new.has(one, old)]
        else:
            gone = [one for one in mine if one.value != 1 and not one.fact and not new.has(one, old)]
            if not pair.adds:
                gone = gone or [
                    one
                    for one in mine
                    if one.value in fewer and one.kind == other.kind and (one.value != 1 or one.digits)
                ]
                # `Five full twists` of what were two full twists.
                gone = gone or [one for one in mine if one.value != other.value and same_noun(pair, one, other)]
        if gone:
            return [max(gone, key=lambda one: likeness(pair, one, other))], [other]
        if other.kind == "cardinal" and not pair.adds and Fraction(config.counts) < _size(other.value):
            return [], [other]
    return [], []


def _times(found: Sequence[Quantity]) -> Counter[Value]:
    return Counter(quantity.value for quantity in found if quantity.kind != "said")


def _size(value: Value) -> Fraction:
    return Fraction(0) if isinstance(value, str) else value


def _why(pair: Pair, lost: list[Quantity], invented: list[Quantity]) -> str:
    """`1958 became 1985` where one number took another's place, then what else was lost or invented."""
    became, left, right = [], list(lost), list(invented)
    ranked = sorted(
        ((-likeness(pair, one, other), i, j) for i, one in enumerate(lost) for j, other in enumerate(invented)),
    )
    for _, i, j in ranked:
        if lost[i] in left and invented[j] in right:
            left.remove(lost[i])
            right.remove(invented[j])
            became.append(f"{_shown(lost[i])} became {_shown(invented[j])}")
    parts = [*became[:3], difference([_shown(one) for one in left], [_shown(one) for one in right])]
    return "; ".join(part for part in parts if part)


def _shown(quantity: Quantity) -> str:
    return " ".join(quantity.text.split())
