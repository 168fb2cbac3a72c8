"""The same numbers with the same units, in digits or words; none lost, none invented, none in another's place."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from tasks.rephrase.alignment.neighbours import exchanged, likeness
from tasks.rephrase.alignment.pair import Pair, Verdict, difference
from tasks.rephrase.alignment.quantities import Quantity, Value, prose, quantities
from tasks.rephrase.alignment.units import Unit
from tasks.rephrase.config import AlignmentConfig

ANYWHERE = re.compile(r"\d+(?:[.,]\d+)*")


class Stated:
    """The quantities of a text, to ask whether one is among them."""

    def __init__(self, found: Iterable[Quantity], elsewhere: Iterable[Value] = ()) -> None:
        self.bare: set[Value] = set(elsewhere)
        self.values: dict[Value, set[str]] = {}
        self.bases: set[tuple[str, Fraction]] = set()
        for quantity in found:
            self.add(quantity)

    def add(self, quantity: Quantity) -> None:
        for value, unit in quantity.meanings:
            if unit is None:
                self.bare.add(value)
            else:
                self.values.setdefault(value, set()).add(unit.dimension)
                if isinstance(value, Fraction):
                    self.bases.add((unit.dimension, value * unit.factor))

    def __contains__(self, quantity: object) -> bool:
        assert isinstance(quantity, Quantity)
        return any(self.holds(value, unit) for value, unit in quantity.meanings)

    def holds(self, value: Value, unit: Unit | None) -> bool:
        """The value with that unit, one that is the same after conversion, or one whose unit is not said."""
        if value in self.bare:
            return True
        if unit is None:
            return value in self.values or ("ratio", value) in self.bases
        if isinstance(value, Fraction):
            base = value * unit.factor
            if (unit.dimension, base) in self.bases or (unit.dimension == "ratio" and base in self.bare):
                return True
        # `100 km` of what was `100 km/h`: the hour may be said elsewhere.
        return any(
            one.startswith(f"{other}/") or other.startswith(f"{one}/")
            for one in self.values.get(value, ())
            for other in (unit.dimension,)
        )


def numbers(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The same numbers with the same units, in digits or words; none lost, none invented, none in another's place.

    A style that adds steps may add small numbers. A count such as `two of them` may come or go, but not become another.
    """
    before, after = quantities(pair.source), quantities(pair.rewrite)
    old, new = Stated(before, _anywhere(pair.source, before)), Stated(after, _anywhere(pair.rewrite, after))
    lost = [quantity for quantity in before if quantity.fact and quantity not in new]
    invented = [quantity for quantity in after if quantity.fact and quantity not in old]
    lost, invented = _without_derived(lost, invented, before, after)
    if pair.adds and not lost:
        invented = [quantity for quantity in invented if quantity.unit is not None]
    if not lost and not invented:
        lost, invented = _counts(before, after, old, new)
    total = max(len({q.value for q in (*before, *after)}), 1)
    score = max(0.0, 1 - (len(lost) + len(invented)) / total)
    if lost or invented:
        return Verdict("numbers", score, False, _why(pair, lost, invented))
    for one, other in exchanged(pair, before, after, config.numbers):
        return Verdict("numbers", score - 2 / total, False, f"'{one.text}' and '{other.text}' changed places")
    return Verdict("numbers", 1.0, True)


def _anywhere(text: str, found: Sequence[Quantity]) -> set[Value]:
    """Numbers in formulas, code, names: nothing is lost that stands in one of those."""
    bare = prose(text)
    if len(bare.strip()) == len(text.strip()) and "-" not in text:
        return set()
    spans = [(quantity.start, quantity.end) for quantity in found]
    values: set[Value] = set()
    for match in ANYWHERE.finditer(text):
        if any(start <= match.start() < end for start, end in spans) or len(match.group()) > 20:
            continue
        # A list's own numbering says nothing.
        if bare[match.start()] == " " and re.match(r"[ \t]*(?:[-*+#>]+ ?)*(?:\*\*)?$", text[text.rfind("\n", 0, match.start()) + 1 : match.start()]):
            continue
        plain = re.sub(r",(?=\d{3})", "", match.group()).replace(",", ".")
        values.update({Fraction(plain)} if plain.count(".") < 2 else {plain})
    return values


def _without_derived(
    lost: list[Quantity], invented: list[Quantity], before: Sequence[Quantity], after: Sequence[Quantity]
) -> tuple[list[Quantity], list[Quantity]]:
    """Without what can be worked out: `two years later` after 2014 is 2016."""
    for wrong, others, known, there in ((invented, lost, before, after), (lost, invented, after, before)):
        for year in list(wrong):
            if not _year(year):
                continue
            years = [quantity.value for quantity in known if _year(quantity) and quantity.value != year.value]
            for span in known:
                if _span(span) and any(_apart(year, then, span) for then in years):
                    wrong.remove(year)
                    if span in others:
                        others.remove(span)
                    break
    return lost, invented


def _year(quantity: Quantity) -> bool:
    return (
        quantity.digits and isinstance(quantity.value, Fraction) and 1000 <= quantity.value <= 2100 and quantity.unit is None
    )


def _span(quantity: Quantity) -> bool:
    return quantity.unit is not None and quantity.unit.dimension == "years" and isinstance(quantity.value, Fraction)


def _apart(year: Quantity, then: Value, span: Quantity) -> bool:
    assert isinstance(year.value, Fraction) and isinstance(then, Fraction) and isinstance(span.value, Fraction) and span.unit
    return abs(year.value - then) * 12 == span.value * span.unit.factor


def _counts(
    before: Sequence[Quantity], after: Sequence[Quantity], old: Stated, new: Stated
) -> tuple[list[Quantity], list[Quantity]]:
    """Small counts and ordinals that became others; one that only comes or goes sums something up."""
    for kinds in (("cardinal", "part"), ("ordinal",), ("month",)):
        mine = [quantity for quantity in before if quantity.kind in kinds and not quantity.fact and quantity.value != 1]
        theirs = [quantity for quantity in after if quantity.kind in kinds and not quantity.fact and quantity.value != 1]
        invented = [quantity for quantity in theirs if quantity not in old]
        if not invented:
            continue
        lost = [quantity for quantity in mine if quantity not in new]
        if not lost:
            fewer = Counter(q.value for q in before) - Counter(q.value for q in after)
            lost = [quantity for quantity in mine if quantity.value in fewer]
        if lost:
            return lost[:1], invented[:1]
    return [], []


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
