"""Thresholds chosen from the true pairs of one half: the strictest that refuse no more of them than a stated share, and
what they do on the other half.

A threshold stands in one row of THRESHOLDS; whoever adds a number to AlignmentConfig adds a row here, or its name with
a reason to UNTUNED (a test holds this).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any, Literal

from tasks.rephrase.calibration.figures import Share
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.prompts import styles

Side = Literal["least", "most"]


@dataclass(frozen=True)
class Threshold:
    """A number in AlignmentConfig that one check's score is held against."""

    field: str
    check: str
    side: Side
    """`least`: a score under it is refused; `most`: a score over it is."""
    index: int | None = None
    """Which of the field's two numbers, where it is a band."""
    own: bool = False
    """Whether styles may have their own, which then holds instead."""

    @property
    def name(self) -> str:
        return self.field if self.index is None else f"{self.field}[{self.index}]"

    def value(self, config: AlignmentConfig) -> float:
        """What is configured."""
        found: Any = getattr(config, self.field)
        return float(found if self.index is None else found[self.index])

    def refuses(self, score: float, value: float) -> bool:
        return score < value if self.side == "least" else score > value


THRESHOLDS: tuple[Threshold, ...] = (
    Threshold("length", "length", "least", 0, own=True),
    Threshold("length", "length", "most", 1, own=True),
    Threshold("copied", "copied", "most"),
    Threshold("repeated", "repetition", "most"),
    Threshold("seam", "seam", "most"),
    Threshold("ahead", "ahead", "most"),
    Threshold("entities", "entities", "least"),
    Threshold("cosine", "cosine", "least"),
    Threshold("coverage", "coverage", "least"),
)
"""Every threshold that a score is held against."""

UNTUNED: dict[str, str] = {
    "negations": "a count, and its score a share of it",
    "echoes": "held against whole documents",
    "displaced": "held against whole documents",
    "foreign": "held against translations alone",
    "sentencewise": "held against translations alone",
}
"""Numbers of AlignmentConfig that are no threshold of a score, and why."""


@dataclass(frozen=True)
class Tuned:
    """One threshold as configured, and as the tune half would have it."""

    threshold: Threshold
    configured: float
    chosen: float
    """The strictest value, rounded to the lenient side, that refuses at most the budget of the tune half."""
    before: dict[str, tuple[Share, Share]]
    """Half -> true pairs and corruptions that the configured value refuses."""
    after: dict[str, tuple[Share, Share]]
    """Half -> the same with the chosen value."""


def tune(results: Sequence[Result], config: AlignmentConfig, budget: float = 0.01) -> list[Tuned]:
    """Every threshold, chosen so that at most the share `budget` of the tune half's true pairs lies beyond it."""
    found = []
    for threshold in THRESHOLDS:
        scores = _scores(results, threshold)
        if len(set(scores("tune", True))) < 2:
            continue  # nothing of the set reaches it
        configured = threshold.value(config)
        chosen = choose(scores("tune", True), threshold.side, budget)
        before, after = (
            {
                half: (_beyond(scores(half, True), threshold, value), _beyond(scores(half, False), threshold, value))
                for half in ("tune", "test")
            }
            for value in (configured, chosen)
        )
        found.append(Tuned(threshold, configured, chosen, before, after))
    return found


def choose(scores: Sequence[float], side: Side, budget: float, digits: int = 2) -> float:
    """The strictest threshold, of `digits` decimals, beyond which at most the share `budget` of `scores` lies."""
    allowed = floor(budget * len(scores) + 1e-9)
    scale = 10**digits
    if side == "least":
        return floor(sorted(scores)[allowed] * scale + 1e-9) / scale
    return ceil(sorted(scores, reverse=True)[allowed] * scale - 1e-9) / scale


def _scores(results: Sequence[Result], threshold: Threshold) -> Callable[[str, bool], list[float]]:
    known = styles()
    found: dict[tuple[str, bool], list[float]] = {}
    for result in results:
        case = result.case
        style = known.get(case.style)
        score = result.score(threshold.check)
        if score is not None and not (threshold.own and style is not None and style.length is not None):
            found.setdefault((case.half, case.faithful), []).append(score)
    return lambda half, faithful: found.get((half, faithful), [])


def _beyond(scores: Sequence[float], threshold: Threshold, value: float) -> Share:
    return Share(sum(threshold.refuses(score, value) for score in scores), len(scores))
