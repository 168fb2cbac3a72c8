"""The quality classifier: a linear model over hashed n-grams, trained by Adagrad, calibrated, kept as two small files.

    model = train(texts, labels, config)
    model = calibrate(model, other_texts, other_labels)
    probabilities = score(model, texts)

Array legend: N texts, F features, W weights.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from model.compiled import compiled
from tasks.corpus.codepoints import rolling, token_hashes
from tasks.corpus.scoring.calibration import Calibration, fit
from tasks.corpus.scoring.config import ClassifierConfig

BATCH = 512
"""Texts hashed at once: what memory holds the features of."""


@dataclass(frozen=True)
class Classifier:
    """What is needed to score a text."""

    weights: np.ndarray
    """float32 [W]."""
    bias: float
    ngrams: int
    bits: int
    characters: int
    """Of a text, from its beginning, that are read."""
    calibration: Calibration = field(default_factory=Calibration)

    def save_weights(self, path: Path) -> None:
        """Write the weights as safetensors."""
        save_file({"weights": self.weights}, path)

    def save_card(self, path: Path) -> None:
        """Write all but the weights as JSON."""
        record = {
            "bias": self.bias,
            "ngrams": self.ngrams,
            "bits": self.bits,
            "characters": self.characters,
            "calibration": asdict(self.calibration),
        }
        path.write_text(json.dumps(record, sort_keys=True) + "\n")

    @classmethod
    def load(cls, weights: Path, card: Path) -> Classifier:
        """The classifier of a file of weights and its card."""
        record = json.loads(card.read_text())
        calibration = Calibration(**record.pop("calibration"))
        return cls(weights=load_file(weights)["weights"], calibration=calibration, **record)


def features(texts: Sequence[str], ngrams: int, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """(uint32 [F], starts int64 [N + 1]): the weights that a text's n-grams of 1 to `ngrams` tokens stand for, in
    [0, 2^bits); those of text i at starts[i]:starts[i + 1], the single tokens first. A token is a word in lower case or
    one Han character."""
    hashes, starts = token_hashes(texts)
    runs = [rolling(hashes, starts, n) for n in range(1, ngrams + 1)]
    borders = np.sum([some for _, some in runs], axis=0)
    found = np.empty(int(borders[-1]), np.uint32)
    first = borders[:-1].copy()
    for values, some in runs:
        counts = np.diff(some)
        # where each text's n-grams of this length go: after its shorter ones
        places = np.repeat(first - some[:-1], counts) + np.arange(len(values))
        found[places] = values >> np.uint64(64 - bits)
        first += counts
    return found, borders


def balanced(labels: np.ndarray) -> np.ndarray:
    """float64 [N]: weights by which both sides weigh the same and all of them N."""
    positives = int(labels.sum())
    sides = np.array([len(labels) - positives, positives], np.float64)
    return len(labels) / (2 * np.maximum(sides, 1))[labels.astype(np.int64)]


def train(texts: Sequence[str], labels: np.ndarray, config: ClassifierConfig) -> Classifier:
    """Learn weights from `texts` and `labels` (bool [N]) in an order that the seed decides; not yet calibrated.

    Both sides weigh the same. Deterministic: the same texts in the same order give the same bytes.
    """
    heads = [text[: config.characters] for text in texts]
    parts = [features(heads[at : at + BATCH], config.ngrams, config.bits) for at in range(0, len(heads), BATCH)]
    ids = np.concatenate([found for found, _ in parts])
    starts = np.concatenate([[0], np.cumsum(np.concatenate([np.diff(some) for _, some in parts]))]).astype(np.int64)
    order = np.random.default_rng(config.seed)
    weights = np.zeros(1 << config.bits, np.float32)
    gathered = np.full(len(weights) + 1, 1e-8, np.float32)  # squared gradients; the bias's is the last
    bias = np.zeros(1, np.float64)
    importance = balanced(labels)
    for _ in range(config.epochs):
        turn = order.permutation(len(heads))
        _adagrad(ids, starts, labels, importance, turn, weights, gathered, bias, config.learning_rate)
    return Classifier(weights, float(bias[0]), config.ngrams, config.bits, config.characters)


def calibrate(model: Classifier, texts: Sequence[str], labels: np.ndarray) -> Classifier:
    """The model with a calibration fitted on texts it was not trained on, both sides weighing the same."""
    return replace(model, calibration=fit(raw_scores(model, texts), labels, balanced(labels)))


def score(model: Classifier, texts: Sequence[str]) -> np.ndarray:
    """float64 [N]: the calibrated probability that a text is one of the positives, where both are equally many."""
    return model.calibration.apply(raw_scores(model, texts))


def raw_scores(model: Classifier, texts: Sequence[str]) -> np.ndarray:
    """float64 [N]: bias plus the mean weight of a text's n-grams, before calibration; the bias for no n-grams."""
    scores = np.empty(len(texts), np.float64)
    for at in range(0, len(texts), BATCH):
        batch = [text[: model.characters] for text in texts[at : at + BATCH]]
        ids, starts = features(batch, model.ngrams, model.bits)
        _means(ids, starts, model.weights, model.bias, scores[at : at + BATCH])
    return scores


@compiled
def _means(ids, starts, weights, bias, scores):  # type: ignore[no-untyped-def]
    for text in range(len(starts) - 1):
        total = 0.0
        for place in range(starts[text], starts[text + 1]):
            total += weights[ids[place]]
        scores[text] = bias + total / max(starts[text + 1] - starts[text], 1)


@compiled
def _adagrad(ids, starts, labels, importance, turn, weights, gathered, bias, rate):  # type: ignore[no-untyped-def]
    """One pass of logistic regression; an n-gram that a text has twice moves twice."""
    last = len(weights)
    for text in turn:
        first, stop = starts[text], starts[text + 1]
        if first == stop:
            continue
        total = 0.0
        for place in range(first, stop):
            total += weights[ids[place]]
        wrong = 1.0 / (1.0 + np.exp(-(bias[0] + total / (stop - first)))) - labels[text]
        slope = importance[text] * wrong
        gathered[last] += slope * slope
        bias[0] -= rate * slope / np.sqrt(gathered[last])
        slope /= stop - first
        for place in range(first, stop):
            at = ids[place]
            gathered[at] += slope * slope
            weights[at] -= rate * slope / np.sqrt(gathered[at])
