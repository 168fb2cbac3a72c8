"""Numbers with their uncertainty: pass rates with intervals, paired differences. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

Z = 1.959963984540054  # the normal quantile of a two-sided 95 % interval


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float

    def rounded(self) -> dict[str, float]:
        """As statistics keep it: {"value", "low", "high"}, four decimals."""
        return {"value": round(self.value, 4), "low": round(self.low, 4), "high": round(self.high, 4)}


def wilson(passed: int, total: int) -> Interval:
    """The Wilson score interval of a proportion: holds at 0 and 1 and for small counts.

    Raises:
        ValueError: nothing was counted, or more passed than there were.
    """
    if total < 1 or not 0 <= passed <= total:
        raise ValueError(f"{passed} of {total} is no proportion")
    return _score_interval(passed / total, total)


def mean(values: Sequence[float]) -> Interval:
    """The mean over prompts with a normal interval from the spread between them.

    The prompt is the unit: several samples of one prompt are not independent and enter as that prompt's own mean, in
    0..1. Where all values are the same the spread says nothing, and the interval is Wilson's.
    """
    if not values:
        raise ValueError("the mean of nothing")
    n = len(values)
    if min(values) == max(values):  # by the values: the mean of 25 thirds is not a third
        return _score_interval(values[0], n)
    centre = math.fsum(values) / n
    spread = math.fsum((value - centre) ** 2 for value in values)
    half = Z * math.sqrt(spread / (n - 1) / n)
    return Interval(centre, max(0.0, centre - half), min(1.0, centre + half))


def kappa(pairs: Sequence[tuple[bool, bool]]) -> Interval:
    """Cohen's kappa of two yes-or-no verdicts on the same things, with its normal interval: 0 is chance, 1 is always.
    Where all agree, or none, the spread says nothing: the interval is Wilson's, of the agreement.

    Raises:
        ValueError: there are no pairs.
    """
    if not pairs:
        raise ValueError("the agreement on nothing")
    n = len(pairs)
    agreed = sum(one == other for one, other in pairs) / n
    yes, also = sum(one for one, _ in pairs) / n, sum(other for _, other in pairs) / n
    chance = yes * also + (1 - yes) * (1 - also)
    if chance == 1:
        return Interval(0.0, -1.0, 1.0)  # both always say the same one thing: that tells nothing
    centre = (agreed - chance) / (1 - chance)
    if agreed in (0, 1):
        bounds = wilson(round(agreed * n), n)
        low, high = ((bound - chance) / (1 - chance) for bound in (bounds.low, bounds.high))
    else:
        half = Z * math.sqrt(agreed * (1 - agreed) / n) / (1 - chance)
        low, high = centre - half, centre + half
    return Interval(centre, max(-1.0, low), min(1.0, high))


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Interval:
    """Mean of `after - before` over the SAME prompts, with its paired 95 % interval (in -1..1). Where all differences
    are the same the spread says nothing: it is as wide as Wilson's interval of so many prompts at 0, to either side.

    Raises:
        ValueError: the two were not measured on the same prompts.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"{len(before)} and {len(after)} prompts are not the same prompts")
    differences = [b - a for a, b in zip(before, after, strict=True)]
    n = len(differences)
    centre = math.fsum(differences) / n
    if min(differences) == max(differences):
        half = wilson(0, n).high
    else:
        spread = math.fsum((value - centre) ** 2 for value in differences)
        half = Z * math.sqrt(spread / (n - 1) / n)
    return Interval(centre, max(-1.0, centre - half), min(1.0, centre + half))


def _score_interval(rate: float, total: int) -> Interval:
    centre = (rate + Z**2 / (2 * total)) / (1 + Z**2 / total)
    half = Z / (1 + Z**2 / total) * math.sqrt(rate * (1 - rate) / total + Z**2 / (4 * total**2))
    # at the ends the bound IS the end; rounding must not push it inside
    low = 0.0 if rate == 0 else max(0.0, centre - half)
    high = 1.0 if rate == 1 else min(1.0, centre + half)
    return Interval(rate, low, high)
