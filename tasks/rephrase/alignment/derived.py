"""Numbers that can be worked out from others: the time between two years or dates, the rest of a share, a century."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

from tasks.rephrase.alignment.quantity import SMALL, Quantity
from tasks.rephrase.alignment.units import Unit

NEAR = Fraction(1, 10)
"""How far a round number of years may be from the difference of two years: `more than a thousand years`."""
MONTH = Fraction(2629746)
"""Seconds."""


def without_derived(
    lost: list[Quantity], invented: list[Quantity], before: Sequence[Quantity], after: Sequence[Quantity]
) -> tuple[list[Quantity], list[Quantity]]:
    """The lost and the invented without what the other text's numbers give.

    A number that has taken another's place is no sum: what is invented may only be worked out where nothing like it was
    lost, but for what the lost one itself is needed for (`two years later` became 2016).
    """
    lost, invented = list(lost), list(invented)
    for wrong, others, known in ((invented, lost, before), (lost, invented, after)):
        for quantity in list(wrong):
            used = next((one for one in others if _same(one, quantity, known)), None)
            if used is not None:
                others.remove(used)
            elif any(_rivals(one, quantity) for one in others) or not _given(quantity, known):
                continue
            wrong.remove(quantity)
    return lost, invented


def _rivals(one: Quantity, other: Quantity) -> bool:
    """Whether one may have taken the other's place."""
    return one.kind == other.kind and _dimension(one) == _dimension(other)


def _dimension(quantity: Quantity) -> str:
    return quantity.unit.dimension if quantity.unit else "year" if _year(quantity) else ""


def _same(one: Quantity, other: Quantity, known: Sequence[Quantity]) -> bool:
    """Whether one says what the other does, by a number that is known: nine tenths less, two years later."""
    if isinstance(one.value, str) or isinstance(other.value, str):
        return False
    if one.kind == other.kind == "part" and not (one.digits or other.digits):
        return one.value + other.value == 1
    if _about(one, other):
        return True
    span, year = (one, other) if _span(one) else (other, one)
    return _span(span) and _year(year) and any(_apart(year, then, span) for then in known if _year(then))


def _about(one: Quantity, other: Quantity) -> bool:
    """Days and months: 90 days are three months."""
    if not one.unit or not other.unit or {one.unit.dimension, other.unit.dimension} != {"time", "years"}:
        return False
    first, second = (_seconds(quantity.value, quantity.unit) for quantity in (one, other) if quantity.unit)
    return first is not None and second is not None and abs(first - second) <= second / 20


def _seconds(value: Fraction | str, unit: Unit) -> Fraction | None:
    return None if isinstance(value, str) else value * unit.factor * (MONTH if unit.dimension == "years" else 1)


def _given(quantity: Quantity, known: Sequence[Quantity]) -> bool:
    """Whether the known numbers give this one."""
    value = quantity.value
    if quantity.kind == "year":
        return any(one.kind == "said" and one.unit and one.unit.name == "decade" for one in known)
    if isinstance(value, str):
        return False
    years = [one for one in known if _year(one)]
    if _year(quantity):
        return any(_apart(quantity, year, span) for span in known if _span(span) for year in years)
    if quantity.kind == "ordinal" and quantity.unit and quantity.unit.name == "century":
        return any(not isinstance(one.value, str) and -(-one.value // 100) == value for one in years)
    if quantity.unit is not None:
        if _span(quantity):
            months = value * quantity.unit.factor
            gaps = {abs(one - other) * 12 for one, other in combinations(_values(years), 2)}
            if months in gaps or (months >= 120 and any(0 <= gap - months <= gap * NEAR for gap in gaps)):
                return True
        if quantity.unit.dimension == "time" and quantity.unit.name == "day":
            return any(abs(one - other) == value for one, other in combinations(_days(known), 2))
        return quantity.unit.dimension == "ratio" and value == 100
    if quantity.kind == "part" and any(1 - value == other for one in known for other, _ in one.meanings):
        return True  # a quarter finished, three quarters unbuilt
    # `An hour` became `around 60`, against some ten minutes by car; a small number would come out by chance.
    return value > SMALL and (value * 60 in _bases(known, "time") or value in _bases(known, "years"))


def _year(quantity: Quantity) -> bool:
    return (
        quantity.digits
        and not isinstance(quantity.value, str)
        and quantity.value.denominator == 1
        and 700 <= quantity.value <= 2100
        and quantity.unit is None
    )


def _span(quantity: Quantity) -> bool:
    return quantity.unit is not None and quantity.unit.dimension == "years" and not isinstance(quantity.value, str)


def _apart(year: Quantity, then: Quantity, span: Quantity) -> bool:
    """Whether two years are a span of years apart."""
    if isinstance(year.value, str) or isinstance(then.value, str) or isinstance(span.value, str) or not span.unit:
        return False
    months, wanted = (year.value - then.value) * 12, span.value * span.unit.factor
    return months == wanted if span.kind == "said" else abs(months) == wanted


def _values(known: Sequence[Quantity]) -> list[Fraction]:
    """Distinct numbers without a unit."""
    bare = [one.value for one in known if one.unit is None and one.kind != "said"]
    return list(dict.fromkeys(value for value in bare if not isinstance(value, str)))


def _days(known: Sequence[Quantity]) -> list[Fraction]:
    """The days of dates."""
    months = [one for one in known if one.kind == "month"]
    near = [
        one
        for one in known
        if any(one.end <= m.start <= one.end + 4 or m.end <= one.start <= m.end + 2 for m in months)
    ]
    return _values([one for one in near if not isinstance(one.value, str) and one.value <= 31])


def _bases(known: Sequence[Quantity], dimension: str) -> list[Fraction]:
    """Distinct sizes of one dimension, in its base unit."""
    sizes = [
        one.value * one.unit.factor
        for one in known
        if one.unit and one.unit.dimension == dimension and not isinstance(one.value, str)
    ]
    return list(dict.fromkeys(sizes))
