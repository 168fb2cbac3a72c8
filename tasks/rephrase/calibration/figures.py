"""What the results say: shares with their intervals, areas under curves, each per check, per kind and per group."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from tasks.rephrase.calibration.cases import Case
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

ALL = "all"
"""Every kind of corruption together."""

LOWER_IS_BETTER = frozenset({"repetition", "copied", "seam", "ahead"})
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
        """The share, None of nothing."""
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
    """Kind -> corruptions refused: the check's recall."""
    precision: Share
    """Of what it refuses, corruptions."""
    auc: dict[str, float | None]
    """Kind -> area under the curve of its score; under ALL for every kind together."""

    @property
    def idle(self) -> bool:
        """Whether it refuses nothing at all."""
        return not self.precision.of

    @property
    def tells(self) -> bool:
        """Whether its score tells anything apart."""
        return any(area is not None and abs(area - 0.5) >= 0.02 for area in self.auc.values())


@dataclass(frozen=True)
class Figures:
    """What the stack does with some cases."""

    acceptance: Share
    """True pairs that pass every check."""
    recall: dict[str, Share]
    """Kind -> corruptions that some check refuses."""
    clean: dict[str, Share]
    """The same of pairs alone whose true rewrite passes: what is refused for the corruption and nothing else."""
    precision: Share
    """Of what the stack refuses, corruptions."""
    auc: dict[str, float | None]
    """Kind -> area under the curve of the stack's score (`stack_scores`); under ALL for every kind together."""
    checks: list[CheckFigures]
    by: dict[str, dict[str, Share]]
    """`style`, `domain`, `language` -> value -> acceptance of true pairs."""
    refused_by: dict[str, int]
    """Check -> true pairs that it is the first to refuse."""

    def broken(self, whole: bool = True) -> list[str]:
        """Promises that do not hold, in words; of a stack that is not `whole` only what it accepts is held to one."""
        refused = TARGETS if whole else {}
        shares = [(f"{kind}: %s refused", self.recall.get(kind), target) for kind, target in refused.items()]
        shares.append(("true pairs: %s accepted", self.acceptance, TARGET_TRUE))
        return [
            f"{told % f'{100 * share.value:.1f} %'}, {100 * target:.0f} % promised"
            for told, share, target in shares
            if share is not None and share.value is not None and share.value < target
        ]


def figures(results: Sequence[Result]) -> Figures:
    """Figures over all of `results`; give the results of one half."""
    true = [result for result in results if result.case.faithful]
    seen = {result.case.kind for result in results}
    wrong = {kind: [r for r in results if r.case.kind == kind] for kind in KINDS if kind in seen}
    sound = {result.case.id for result in true if result.accepted}
    corrupted = [result for some in wrong.values() for result in some]
    checks = list(dict.fromkeys(verdict.check for result in results for verdict in result.verdicts))
    first = Counter(result.refused_by[0] for result in true if not result.accepted)
    return Figures(
        acceptance=_share(true, _accepted),
        recall={kind: _share(some, _refused) for kind, some in wrong.items()},
        clean={kind: _share([r for r in some if r.case.id in sound], _refused) for kind, some in wrong.items()},
        precision=_precision(true, corrupted, _refused),
        auc=_areas(stack_scores(results, true), true, wrong),
        checks=[_check(check, true, wrong, corrupted) for check in checks],
        by={name: _by(true, name) for name in ("style", "domain", "language")},
        refused_by={check: first[check] for check in checks if first[check]},
    )


def stack_scores(results: Sequence[Result], true: Sequence[Result]) -> dict[Case, float]:
    """One score for the whole stack: the least, over the checks, of the share of true pairs that score no higher. The
    worst check decides, and checks are compared by how unusual a score is."""
    ordered: dict[str, np.ndarray] = {}
    for check in dict.fromkeys(verdict.check for result in results for verdict in result.verdicts):
        ordered[check] = np.sort([oriented(check, score) for r in true if (score := r.score(check)) is not None])
    return {
        result.case: min(
            float(np.searchsorted(ordered[v.check], oriented(v.check, v.score), side="right"))
            / max(len(ordered[v.check]), 1)
            for v in result.verdicts
        )
        for result in results
    }


def _check(
    check: str, true: Sequence[Result], wrong: dict[str, list[Result]], corrupted: Sequence[Result]
) -> CheckFigures:
    def refuses(result: Result) -> bool:
        return check in result.refused_by

    scores = {
        result.case: oriented(check, score)
        for result in (*true, *corrupted)
        if (score := result.score(check)) is not None
    }
    return CheckFigures(
        check,
        _share(true, refuses),
        _share(true, lambda result: result.refused_by == (check,)),
        {kind: _share(some, refuses) for kind, some in wrong.items()},
        _precision(true, corrupted, refuses),
        _areas(scores, true, wrong),
    )


def _areas(
    scores: dict[Case, float], true: Sequence[Result], wrong: dict[str, list[Result]]
) -> dict[str, float | None]:
    good = [scores[result.case] for result in true if result.case in scores]
    bad = {kind: [scores[result.case] for result in some if result.case in scores] for kind, some in wrong.items()}
    return {kind: auc(good, some) for kind, some in bad.items()} | {
        ALL: auc(good, [s for b in bad.values() for s in b])
    }


def _precision(true: Sequence[Result], corrupted: Sequence[Result], refuses: Callable[[Result], bool]) -> Share:
    caught = sum(refuses(result) for result in corrupted)
    return Share(caught, caught + sum(refuses(result) for result in true))


def _by(true: Sequence[Result], name: str) -> dict[str, Share]:
    values = sorted({str(getattr(result.case, name)) for result in true})
    return {value: _share([r for r in true if getattr(r.case, name) == value], _accepted) for value in values}


def _share(results: Sequence[Result], wanted: Callable[[Result], bool]) -> Share:
    return Share(sum(wanted(result) for result in results), len(results))


def _accepted(result: Result) -> bool:
    return result.accepted


def _refused(result: Result) -> bool:
    return not result.accepted
