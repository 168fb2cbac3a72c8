"""What the results say: shares with their intervals, areas under curves, and the curve over the learned check's
threshold."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tasks.rephrase.alignment.judge import JUDGE
from tasks.rephrase.alignment.limits import LIMITS
from tasks.rephrase.alignment.stack import RECORDED
from tasks.rephrase.calibration.measure import LEARNED, Result
from tasks.rephrase.calibration.pairs import DEFECTS, KINDS
from tasks.rephrase.config import AlignmentConfig
from training.intervals import wilson

THRESHOLDS = (0.01, 0.02, *(n / 20 for n in range(1, 20)), 0.98, 0.99)
"""Thresholds to choose from."""


@dataclass(frozen=True)
class Share:
    """`count` of `of`, with its Wilson 95 % interval."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        """The share, None of nothing."""
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        """Of nothing: all there is."""
        if not self.of:
            return 0.0, 1.0
        found = wilson(self.count, self.of)
        return found.low, found.high


def auc(good: Sequence[float], bad: Sequence[float]) -> float | None:
    """Chance that a faithful rewrite scores higher than a defect, ties counted half; None without both."""
    if not good or not bad:
        return None
    ordered = np.sort(np.asarray(bad))
    below = np.searchsorted(ordered, good, side="left")
    up_to = np.searchsorted(ordered, good, side="right")
    return float((below + up_to).sum() / 2 / (len(good) * len(bad)))


@dataclass(frozen=True)
class Point:
    """What is accepted with one threshold of the learned check, all other checks as they are."""

    threshold: float
    faithful: Share
    defects: Share

    @property
    def balanced(self) -> float | None:
        passed = self.defects.value
        return _balanced(self.faithful.value, None if passed is None else 1 - passed)


@dataclass(frozen=True)
class Figures:
    """What the whole check does with some pairs."""

    faithful: Share
    """Faithful rewrites that are accepted."""
    defects: Share
    """Rewrites with a defect that are refused."""
    kinds: dict[str, Share]
    """Kind -> the share on which the check is right: accepted of the faithful ones, refused of the others."""
    areas: dict[str, float | None]
    """Kind of defect -> AUC of the learned check's score against every faithful rewrite; None where none was asked."""
    auc: float | None
    """The same of all defects."""

    @property
    def balanced(self) -> float | None:
        """The mean of the two shares, whatever there is more of."""
        return _balanced(self.faithful.value, self.defects.value)


def figures(results: Sequence[Result]) -> Figures:
    """The figures over all of `results`."""
    faithful, defects = sides(results)
    kinds = {kind: [result for result in results if result.row.kind == kind] for kind in KINDS}
    asked = any(verdict.check == result.learned for result in results for verdict in result.verdicts)
    scores = [result.score for result in faithful] if asked else []
    return Figures(
        share(faithful, lambda result: result.accepted),
        share(defects, lambda result: not result.accepted),
        {
            kind: share(some, lambda result: result.accepted == result.row.faithful)
            for kind, some in kinds.items()
            if some
        },
        {kind: auc(scores, [result.score for result in kinds[kind]]) for kind in DEFECTS if kinds[kind]},
        auc(scores, [result.score for result in defects]),
    )


@dataclass(frozen=True)
class CheckFigures:
    """What one check refuses."""

    check: str
    faithful: Share
    faithful_alone: Share
    """Faithful rewrites that no other check refuses: its price."""
    defects: Share
    defects_alone: Share
    """Defects that no other check refuses: its worth."""


def _check(name: str, faithful: Sequence[Result], defects: Sequence[Result]) -> CheckFigures:
    def refuses(result: Result) -> bool:
        return name in result.refused_by

    def alone(result: Result) -> bool:
        return result.refused_by == (name,)

    return CheckFigures(
        name, share(faithful, refuses), share(faithful, alone), share(defects, refuses), share(defects, alone)
    )


@dataclass(frozen=True)
class Outcome:
    """A whole measurement."""

    config: AlignmentConfig
    results: Sequence[Result]
    """Of pairs."""
    pairs: str = ""
    """Which pairs, in words."""
    real: Sequence[Result] = ()
    """Of segments of a corpus beside themselves."""
    corpus: str = ""
    """Which corpus, in words."""

    @property
    def learned(self) -> str:
        """The check over whose threshold the curve is."""
        return JUDGE if self.config.judge else LEARNED

    @property
    def threshold(self) -> str:
        """The field that sets it."""
        return f"alignment.{JUDGE}.least" if self.config.judge else f"alignment.{LEARNED}"

    @cached_property
    def whole(self) -> Figures:
        return figures(self.results)

    def by(self, name: str) -> dict[str, Figures]:
        """`language` or `domain` -> value -> figures, the most frequent value first."""
        counts = Counter(getattr(result.row, name) for result in self.results)
        return {
            value: figures([result for result in self.results if getattr(result.row, name) == value])
            for value, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        }

    @cached_property
    def checks(self) -> list[CheckFigures]:
        """In the order in which they run; those that refuse nothing are left out."""
        found = [_check(name, *sides(self.results)) for name in RECORDED]
        return [check for check in found if check.faithful.count or check.defects.count]

    def curve(self, thresholds: Iterable[float] | None = None) -> list[Point]:
        """At `thresholds`, or at every one that changes something; the smallest first."""
        steps = sorted(set(thresholds or (0.0, *(result.score for result in self.results), 1.0)))
        kept = [(sorted(r.score for r in side if r.accepted_but), len(side)) for side in sides(self.results)]
        return [
            Point(step, *(Share(len(scores) - bisect_left(scores, step), of) for scores, of in kept)) for step in steps
        ]

    @property
    def table(self) -> list[Point]:
        """Points to choose from, the configured one among them."""
        return self.curve((*THRESHOLDS, limit(self.learned, self.config)))

    @property
    def milliseconds(self) -> float:
        """CPU-milliseconds a pair, every check asked."""
        return 1e3 * sum(result.seconds for result in self.results) / max(len(self.results), 1)


def limit(check: str, config: AlignmentConfig) -> Any:
    """What a check's score is held against, None where it has no threshold."""
    if check == JUDGE:
        return config.judge.least if config.judge else None
    return getattr(config, LIMITS[check].field) if check in LIMITS else None


def data(found: Outcome) -> dict[str, Any]:
    """The figures as plain data, in a fixed order."""
    return {
        "pairs": found.pairs,
        "alignment": found.config.model_dump(mode="json"),
        "cpu_milliseconds": round(found.milliseconds, 2),
        **_figures(found.whole),
        "by": {
            name: {value: _figures(some) for value, some in found.by(name).items()} for name in ("language", "domain")
        },
        "checks": {
            check.check: {
                "limit": limit(check.check, found.config),
                "refused_faithful": _share(check.faithful),
                "refused_faithful_alone": _share(check.faithful_alone),
                "refused_defects": _share(check.defects),
                "refused_defects_alone": _share(check.defects_alone),
            }
            for check in found.checks
        },
        "curve": [
            {
                "threshold": point.threshold,
                "accepted_faithful": _share(point.faithful),
                "accepted_defects": _share(point.defects),
                "balanced_accuracy": _rounded(point.balanced),
            }
            for point in found.table
        ],
        "corpus": {"name": found.corpus, "accepted": _share(share(found.real, lambda result: result.accepted))},
    }


def sides(results: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """(faithful, not)."""
    return [r for r in results if r.row.faithful], [r for r in results if not r.row.faithful]


def share(results: Sequence[Result], wanted: Callable[[Result], bool]) -> Share:
    """Of `results` those that are `wanted`."""
    return Share(sum(wanted(result) for result in results), len(results))


def _balanced(faithful: float | None, defects: float | None) -> float | None:
    return None if faithful is None or defects is None else (faithful + defects) / 2


def _figures(found: Figures) -> dict[str, Any]:
    return {
        "accepted_faithful": _share(found.faithful),
        "refused_defects": _share(found.defects),
        "balanced_accuracy": _rounded(found.balanced),
        "auc": _rounded(found.auc),
        "right_by_kind": {kind: _share(some) for kind, some in found.kinds.items()},
        "auc_by_kind": {kind: _rounded(area) for kind, area in found.areas.items()},
    }


def _share(share: Share) -> dict[str, Any]:
    low, high = share.interval
    return {
        "count": share.count,
        "of": share.of,
        "share": _rounded(share.value),
        "interval": [round(low, 6), round(high, 6)],
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
