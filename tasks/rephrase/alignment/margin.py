"""How near a pair came to a refusal: what the grey zone and the order of `inspect` are defined by."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.rephrase.alignment.limits import LIMITS
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.config import AlignmentConfig


def margin(pair: Pair, verdicts: Iterable[Verdict], config: AlignmentConfig) -> float | None:
    """The smallest distance of a graded score to its threshold, as a share of the way to the best (or, below 0, to the
    worst) score; from -1 to 1. None where no check with a threshold was reached."""
    found = [
        distance(verdict.score, *_band(verdict.check, pair, config))
        for verdict in verdicts
        if verdict.check in LIMITS and not (verdict.check == "length" and pair.translated)  # bands of its own
    ]
    return min(found, default=None)


def distance(score: float, least: float | None, most: float | None) -> float:
    """1 at the best score, 0 at the threshold, -1 at the worst. Of a band the best is 1."""
    if least is not None and most is not None:
        side = (score - least) / (1 - least) if score <= 1 else (most - score) / (most - 1)
    elif least is not None:
        side = _share(score - least, 1 - least, least)
    elif most is not None:
        side = _share(most - score, most, 1 - most)
    else:
        side = 1.0
    return max(-1.0, min(side, 1.0))


def _share(beyond: float, above: float, below: float) -> float:
    """`beyond` as a share of the room above the threshold, or below it where negative; a threshold at the very end
    leaves no room, and what reaches it has all of it."""
    room = above if beyond >= 0 else below
    return beyond / room if room > 0 else 1.0 if beyond >= 0 else -1.0


def _band(check: str, pair: Pair, config: AlignmentConfig) -> tuple[float | None, float | None]:
    if check == "length" and pair.length:
        return pair.length
    value = getattr(config, LIMITS[check].field)
    side = LIMITS[check].side
    if side == "band":
        return value[0], value[1]
    return (value, None) if side == "least" else (None, value)
