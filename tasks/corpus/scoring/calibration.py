"""From scores to probabilities, and how good both are. Array legend: N examples"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

BINS = 10
_STEPS = 100


@dataclass(frozen=True)
class Calibration:
    """A logistic curve from a score to a probability, which never falls."""

    slope: float = 1.0
    intercept: float = 0.0

    def apply(self, scores: np.ndarray) -> np.ndarray:
        """float64 [N] in [0, 1]."""
        return _sigmoid(self.slope * scores + self.intercept)


def fit(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> Calibration:
    """The curve that fits the labels (bool [N]) of weighted examples best: logistic regression on the score by Newton's
    method; targets a little inside 0 and 1 (Platt, 1999), so that examples that are parted perfectly do not make it
    infinitely steep. A score that says the opposite is made to say nothing."""
    counts = np.array([np.sum(~labels), np.sum(labels)], np.float64)
    targets = np.where(labels, (counts[1] + 1) / (counts[1] + 2), 1 / (counts[0] + 2))
    middle, spread = float(np.average(scores, weights=weights)), float(np.std(scores)) or 1.0
    columns = np.stack([(scores - middle) / spread, np.ones_like(scores)], axis=1)
    curve = np.zeros(2)
    for _ in range(_STEPS):
        chance = _sigmoid(columns @ curve)
        slope = columns.T @ (weights * (chance - targets)) + 1e-6 * curve
        bend = columns.T @ (columns * (weights * chance * (1 - chance))[:, None]) + 1e-6 * np.eye(2)
        step = np.linalg.solve(bend, slope)
        step /= max(1.0, float(np.abs(step).max()))  # at most one unit: far from the end a full step may overshoot
        curve -= step
        if float(np.abs(step).max()) < 1e-10:
            break
    if curve[0] < 0:
        mean = float(np.average(targets, weights=weights))
        return Calibration(0.0, float(np.log(mean / (1 - mean))))
    return Calibration(float(curve[0] / spread), float(curve[1] - curve[0] * middle / spread))


def _sigmoid(values: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(0.5 * values))


def area(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """Area under the ROC curve: the chance that a positive has the higher score than a negative, a tie counting half.
    None without examples of both sides."""
    positives = int(labels.sum())
    negatives = len(labels) - positives
    if not positives or not negatives:
        return None
    ranks = ranked(scores)
    return float((ranks[labels].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def average_precision(scores: np.ndarray, labels: np.ndarray, weights: np.ndarray) -> float | None:
    """Mean precision over the recalls at which it changes, ties taken together. None without a positive."""
    if not labels.any():
        return None
    order = np.argsort(-scores, kind="stable")
    scores, labels, weights = scores[order], labels[order], weights[order]
    last = np.append(np.flatnonzero(np.diff(scores)), len(scores) - 1)  # of each group of equal scores
    found, taken = np.cumsum(weights * labels)[last], np.cumsum(weights)[last]
    return float(np.sum(found / taken * np.diff(found, prepend=0.0)) / found[-1])


def reliability(
    probabilities: np.ndarray, labels: np.ndarray, weights: np.ndarray
) -> tuple[list[dict[str, Any]], float]:
    """(a row for each tenth of the scale that has examples: what was said, what was so, examples; the expected
    calibration error: the mean distance of the two)."""
    bins = np.minimum((probabilities * BINS).astype(np.int64), BINS - 1)
    rows, error, whole = [], 0.0, float(weights.sum())
    for number in range(BINS):
        inside = bins == number
        weight = float(weights[inside].sum())
        if not weight:
            continue
        said = float(np.average(probabilities[inside], weights=weights[inside]))
        so = float(np.average(labels[inside], weights=weights[inside]))
        error += weight / whole * abs(said - so)
        rows.append({"said": round(said, 4), "so": round(so, 4), "examples": int(inside.sum())})
    return rows, error


def spearman(one: np.ndarray, other: np.ndarray) -> float | None:
    """Rank correlation; None where either is constant or there are fewer than three pairs."""
    if len(one) < 3 or np.ptp(one) == 0 or np.ptp(other) == 0:
        return None
    return float(np.corrcoef(ranked(one), ranked(other))[0, 1])


def ranked(values: np.ndarray) -> np.ndarray:
    """float64 [N]: ranks from 1, equal values sharing the mean of theirs."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]
