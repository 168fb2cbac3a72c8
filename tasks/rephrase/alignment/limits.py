"""Which threshold a check's score is held to, where a preset sets it, and how near a pair came to a refusal.

A check whose score has no threshold of its own (a number kept or lost) is not here; its verdict is all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.prompts import Style, details


@dataclass(frozen=True)
class Limit:
    """One threshold."""

    field: str
    """The field of `AlignmentConfig` that sets it."""
    side: Literal["least", "most", "band"]
    """What the field holds: the smallest score that passes, the greatest, or both."""


LIMITS: dict[str, Limit] = {
    "length": Limit("length", "band"),
    "repetition": Limit("repeated", "most"),
    "copied": Limit("copied", "most"),
    "seam": Limit("seam", "most"),
    "fluency": Limit("fluency", "least"),
    "sentencewise": Limit("sentencewise", "most"),
    "answerable": Limit("answerable", "least"),
    "cosine": Limit("cosine", "least"),
    "fidelity": Limit("fidelity", "least"),
}
"""By the name of the check."""


def thresholds(config: AlignmentConfig, styles: Mapping[str, Style]) -> dict[str, dict[str, Any]]:
    """check -> {field, least, most}, None on a side without a threshold; `by_style` has the bands of styles that have
    one of their own (of a translation's, which differ by language, the outermost ends), `by_detail` those of levels of
    detail; where both have one the outer ends hold."""
    found: dict[str, dict[str, Any]] = {}
    for check, limit in LIMITS.items():
        value = getattr(config, limit.field)
        least, most = {"least": (value, None), "most": (None, value)}.get(limit.side) or value
        found[check] = {"field": f"rephrase.alignment.{limit.field}", "least": least, "most": most}
    bands = {name: list(style.length) for name, style in sorted(styles.items()) if style.length}
    # a translation's band is its language's, which a score does not name: the outer limits of all
    languages = config.translation_length.values()
    outermost = [min(least for least, _ in languages), max(most for _, most in languages)]
    bands |= {name: outermost for name, style in sorted(styles.items()) if style.translates}
    found["length"]["by_style"] = bands
    found["length"]["by_detail"] = {name: list(manner.length) for name, manner in details().items() if manner.length}
    return found


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
