"""Weights of the sentence coverage, fitted to faithful pairs and to the same with a sentence dropped or added.

Which sentence of the source a dropped sentence of the rewrite belongs to is not known: it is taken to be the one that
the weights so far find loneliest, and the fit is repeated. Ridge logistic regression by Newton's method: the same
examples give the same weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tasks.rephrase.alignment.coverage import MEASURES, Way, measure
from tasks.rephrase.alignment.words import Match

ROUNDS = 6
STEPS = 40
RIDGE = 3.0
REFUSED = 0.01
"""Share of the faithful texts that either half may refuse; it sets what is added to the sum, so that a sentence at the
limit has a chance of one half."""

KINDS: dict[Way, str] = {"dropped": "dropped_sentence", "added": "added_sentence"}


def fit(examples: Iterable[tuple[str, Match]]) -> dict[str, dict[str, float]]:
    """(kind, pair) of faithful pairs (`true`) and of the corruptions in `KINDS` -> what coverage.json holds."""
    known = list(examples)
    fitted: dict[str, dict[str, float]] = {}
    for way, kind in KINDS.items():
        texts: dict[bool, list[np.ndarray]] = {True: [], False: []}
        for found, match in known:
            if found in ("true", kind) and not (way == "added" and match.pair.adds):
                rows = [measures for _, measures, _ in measure(match, way)]
                if rows:
                    texts[found == "true"].append(np.array(rows))
        weights = _fit(texts[True], texts[False])
        worst = np.sort([float((rows @ weights).max()) for rows in texts[True]])
        limit = float(np.quantile(worst, 1 - REFUSED))
        fitted[way] = {name: round(float(value), 3) for name, value in zip(MEASURES, weights, strict=True)}
        fitted[way]["base"] = round(-limit, 3)
    return fitted


def _fit(faithful: Sequence[np.ndarray], wrong: Sequence[np.ndarray]) -> np.ndarray:
    """One weight for each measure."""
    weights = np.array([float(name == "contested") for name in MEASURES])
    for _ in range(ROUNDS):
        worst = [rows[int((rows @ weights).argmax())] for rows in wrong]
        rows = np.concatenate([*faithful, np.array(worst)])
        wanted = np.concatenate([np.zeros(len(rows) - len(worst)), np.ones(len(worst))])
        middle, spread = rows.mean(axis=0), rows.std(axis=0) + 1e-9
        weights = _logistic((rows - middle) / spread, wanted) / spread
    return weights


def _logistic(rows: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Ridge logistic regression by Newton's method; the constant is left out of the answer."""
    rows = np.column_stack([rows, np.ones(len(rows))])
    weights = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = 1 / (1 + np.exp(-np.clip(rows @ weights, -30, 30)))
        slope = rows.T @ (chance - wanted) + RIDGE * np.r_[weights[:-1], 0]
        bend = (rows * (chance * (1 - chance))[:, None]).T @ rows + RIDGE * np.eye(len(weights))
        weights -= np.linalg.solve(bend, slope)
    return weights[:-1]
