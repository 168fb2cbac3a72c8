"""What the results say: shares with their intervals, areas under curves, each per check, per kind and per group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from tasks.rephrase.calibration.cases import TRUE
from tasks.rephrase.calibration.corruptions import KINDS
from tasks.rephrase.calibration.measure import Result

TARGETS = {
    "number_swap": 0.97,
    "formula": 0.97,
    "negation": 0.97,
    "entity_swap": 0.9,
    "dropped_sentence": 0.9,
    "added_sentence": 0.9,
}
"""Smallest share of each kind of corruption that the stack must refuse."""

TARGET_TRUE = 0.9
"""Smallest share of true pairs that must pass the whole stack."""

LOWER_IS_BETTER = frozenset({"repetition", "copied", "seam"})
"""Checks whose score is best at 0."""

Z = 1.959964
"""Standard deviations of a 95 % interval."""


@dataclass(frozen=True)
class Share:
    """`count` of `of`, with its Wilson 95 % interval."""

    count: int
    of: int

    @property
    def value(self) -> float | None:
        return self.count / self.of if self.of else None

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.count, self.of)


def wilson(count: int, of: int, z: float = Z) -> tuple[float, float]:
    """The Wilson score interval of a share; (0, 1) of nothing."""
    if not of:
        return 0.0, 1.0
    share = count / of
    middle = (share + z * z / (2 * of)) / (1 + z * z / of)
    reach = z / (1 + z * z / of) * sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, middle - reach), min(1.0, middle + reach)


def auc(good: Sequence[float], bad: Sequence[float]) -> float | None:
    """Chance that a faithful rewrite scores higher than a corrupted one, ties counted half; None without both."""
    if not good or not bad:
        return None
    ordered = np.sort(np.asarray(bad))
    below = np.searchsorted(ordered, good, side="left")
    up_to = np.searchsorted(ordered, good, side="right")
    return float((below + up_to).sum() / 2 / (len(good) * len(bad)))


def oriented(check: str, score: float) -> float:
    """A score for which more is better."""
    if check == "length":
        return -abs(np.log(max(score, 1e-6)))
    return -score if check in LOWER_IS_BETTER else score


@dataclass(frozen=True)
class CheckFigures:
    """What one check does alone."""

    check: str
    rejects_true: Share
    alone_true: Share
    """True pairs that no other check refuses."""
    rejects: dict[str, Share]
    """Kind -> corruptions refused."""
    auc: dict[str, float | None]
    """Kind -> area under the curve of its score."""


@dataclass(frozen=True)
class Figures:
    """What the stack does with some cases."""

    acceptance: Share
    """True pairs that pass every check."""
    recall: dict[str, Share]
    """Kind -> corruptions that some check refuses."""
    precision: Share
    """Of what is accepted, true pairs (each corruption counted once, as they are)."""
    checks: list[CheckFigures]
    by: dict[str, dict[str, Share]]
    """`style`, `domain`, `language` -> value -> acceptance of true pairs."""

    def broken(self) -> list[str]:
        """Promises that do not hold, in words."""
        found = []
        for kind, target in TARGETS.items():
            share = self.recall.get(kind)
            if share is not None and share.value is not None and share.value < target:
                found.append(f"{kind}: {share.value:.1%} refused, {target:.0%} promised")
        if self.acceptance.value is not None and self.acceptance.value < TARGET_TRUE:
            found.append(f"true pairs: {self.acceptance.value:.1%} accepted, {TARGET_TRUE:.0%} promised")
        return found


def figures(results: Sequence[Result]) -> Figures:
    """Figures over all of `results`; give the results of one half."""
    true = [result for result in results if result.case.kind == TRUE]
    seen = {result.case.kind for result in results}
    kinds = [kind for kind in KINDS if kind in seen]
    wrong = {kind: [result for result in results if result.case.kind == kind] for kind in kinds}
    passed = sum(result.accepted for result in true)
    let_through = sum(result.accepted for some in wrong.values() for result in some)
    checks = list(dict.fromkeys(verdict.check for result in results for verdict in result.verdicts))
    return Figures(
        Share(passed, len(true)),
        {kind: _share(wrong[kind], lambda result: not result.accepted) for kind in kinds},
        Share(passed, passed + let_through),
        [_check(check, true, wrong) for check in checks],
        {name: _by(true, name) for name in ("style", "domain", "language")},
    )


def _check(check: str, true: Sequence[Result], wrong: dict[str, list[Result]]) -> CheckFigures:
    return CheckFigures(
        check,
        _share(true, lambda result: check in result.refused_by),
        _share(true, lambda result: result.refused_by == (check,)),
        {kind: _share(some, lambda result: check in result.refused_by) for kind, some in wrong.items()},
        {kind: auc(_scores(check, true), _scores(check, some)) for kind, some in wrong.items()},
    )


def _scores(check: str, results: Iterable[Result]) -> list[float]:
    return [oriented(check, score) for result in results if (score := result.score(check)) is not None]


def _by(true: Sequence[Result], name: str) -> dict[str, Share]:
    values = sorted({str(getattr(result.case, name)) for result in true})
    return {
        value: _share([r for r in true if getattr(r.case, name) == value], lambda result: result.accepted)
        for value in values
    }


def _share(results: Sequence[Result], wanted: Callable[[Result], bool]) -> Share:
    return Share(sum(wanted(result) for result in results), len(results))
