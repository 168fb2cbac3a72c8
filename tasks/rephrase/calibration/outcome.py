"""A whole calibration: the results, what they say of each half and of real text, and as data for a machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tasks.rephrase.calibration.figures import TARGET_TRUE, TARGETS, Figures, Share, figures
from tasks.rephrase.calibration.measure import Result
from tasks.rephrase.calibration.tune import Tuned, tune
from tasks.rephrase.config import AlignmentConfig

REPORTED = "test"
"""The half that promises are held to."""


@dataclass(frozen=True)
class Outcome:
    """What a calibration found."""

    config: AlignmentConfig
    results: Sequence[Result]
    """Of pairs."""
    real: Sequence[Result] = ()
    """Of segments of a corpus beside themselves."""
    corpus: str = ""
    """Which corpus, in words."""
    budget: float = 0.01
    """Share of true pairs that one threshold may refuse."""
    groups: dict[str, Figures] = field(default_factory=dict)
    """`tune`, `test` and, where there is real text, `corpus`."""
    tuned: Sequence[Tuned] = ()
    left_out: tuple[str, ...] = ()
    """Checks that were not asked."""

    @property
    def broken(self) -> list[str]:
        """Promises that do not hold on the half that is reported. They are the whole stack's: what some checks refuse
        without the others breaks none, what they accept does."""
        return self.groups[REPORTED].broken(whole=not self.left_out) if REPORTED in self.groups else []


def outcome(
    config: AlignmentConfig,
    results: Sequence[Result],
    real: Sequence[Result] = (),
    corpus: str = "",
    budget: float = 0.01,
    left_out: tuple[str, ...] = (),
) -> Outcome:
    """Everything that the results say."""
    groups = {half: figures(some) for half in ("tune", "test") if (some := [r for r in results if r.case.half == half])}
    if real:
        groups["corpus"] = figures(real)
    return Outcome(config, results, real, corpus, budget, groups, tune(results, config, budget), left_out)


def data(found: Outcome) -> dict[str, Any]:
    """The figures as plain data, in a fixed order."""
    return {
        "pairs": len({result.case.id for result in found.results}),
        "segments": len({result.case.id for result in found.real}),
        "corpus": found.corpus,
        "alignment": found.config.model_dump(mode="json"),
        "promised": {"true": TARGET_TRUE, **TARGETS},
        "broken": found.broken,
        "left_out": list(found.left_out),
        "groups": {name: _figures(some) for name, some in found.groups.items()},
        "thresholds": [
            {
                "field": tuned.threshold.name,
                "configured": tuned.configured,
                "chosen": tuned.chosen,
                "budget": found.budget,
                "refused": {
                    half: {
                        "configured": [_share(share) for share in tuned.before[half]],
                        "chosen": [_share(share) for share in tuned.after[half]],
                    }
                    for half in tuned.before
                },
            }
            for tuned in found.tuned
        ],
    }


def _figures(found: Figures) -> dict[str, Any]:
    return {
        "accepted": _share(found.acceptance),
        "precision": _share(found.precision),
        "recall": _shares(found.recall),
        "recall_where_true_passes": _shares(found.clean),
        "auc": _areas(found.auc),
        "accepted_by": {name: _shares(values) for name, values in found.by.items()},
        "first_refused_by": found.refused_by,
        "checks": {
            check.check: {
                "refused_true": _share(check.rejects_true),
                "refused_true_alone": _share(check.alone_true),
                "precision": _share(check.precision),
                "recall": _shares(check.rejects),
                "auc": _areas(check.auc),
            }
            for check in found.checks
        },
    }


def _shares(shares: dict[str, Share]) -> dict[str, Any]:
    return {name: _share(share) for name, share in shares.items()}


def _share(share: Share) -> dict[str, Any]:
    low, high = share.interval
    value = None if share.value is None else round(share.value, 6)
    return {"count": share.count, "of": share.of, "share": value, "interval": [round(low, 6), round(high, 6)]}


def _areas(areas: dict[str, float | None]) -> dict[str, float | None]:
    return {name: None if area is None else round(area, 6) for name, area in areas.items()}
