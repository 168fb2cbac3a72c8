"""What a text states, to ask whether a number of another text is among it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

from tasks.rephrase.alignment.quantities import MARKER
from tasks.rephrase.alignment.quantity import Quantity, Value
from tasks.rephrase.alignment.units import Unit, mentioned

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
                elif any(other for _, other in quantity.meanings):
                    continue  # `2.4 and 5 GHz`: the unit may be left out, but for no other
                elif quantity.kind == "said":
                    self.said.add(value)
                elif not quantity.fact and not quantity.digits and quantity.kind == "cardinal":
                    self.counts.add(value)
                else:
                    self.bare[value] += 1

    def has(self, quantity: Quantity, own: Stated, invented: bool = False) -> bool:
        """Whether `quantity` of the text `own` stands here in one of its meanings; a unit that was left out is
        forgiven, one that was `invented` only where it is years (aged 20 to 40)."""
        if any(self._holds(value, unit, own, invented) for value, unit in quantity.meanings):
            return True
        if not quantity.fact:
            return False
        # What stands in code or a formula is only asked for numbers that are no quantity here.
        value = quantity.value
        return (
            value not in self.units and value not in self.bare and value not in self.counts and value in self.elsewhere
        )

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
            or _base(value, unit) in self.said
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
        return left_out and (not invented or unit.name == "year" or self.names(unit))

    def names(self, unit: Unit) -> bool:
        """Whether the unit stands anywhere in the text."""
        return unit.size in self.sizes or mentioned(self.text, unit)

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
