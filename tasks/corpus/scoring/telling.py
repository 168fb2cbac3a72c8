"""What a classifier has learned, in words: the n-grams that move scores most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tasks.corpus.codepoints import tokens
from tasks.corpus.scoring.classifier import Classifier, features

READ = 4000
"""Examples that words are looked up in."""
NAMED = 3
"""Different n-grams shown of one weight: more than one where they share a hash."""


def telling(
    model: Classifier, texts: Sequence[str], labels: np.ndarray, most: int = 20
) -> dict[str, list[dict[str, Any]]]:
    """The n-grams that raise (`positive`) and lower (`negative`) the scores of `texts` most: by their weight times
    their mean share of a text. Each with the words that were met, its weight, and the share of the positives and
    negatives that have it."""
    heads = [text[: model.characters] for text in texts[:READ]]
    labels = labels[: len(heads)]
    ids, starts = features(heads, model.ngrams, model.bits)
    counts = np.diff(starts)
    text_of = np.repeat(np.arange(len(heads)), counts)
    used, place = np.unique(ids, return_inverse=True)
    frequency = np.bincount(place, 1.0 / counts[text_of], len(used)) / max(len(heads), 1)
    pairs = np.unique(np.stack([place, text_of], axis=1), axis=0)
    having = [np.bincount(pairs[labels[pairs[:, 1]] == side, 0], minlength=len(used)) for side in (False, True)]
    effect = model.weights[used].astype(np.float64) * frequency
    effect[having[0] + having[1] < 3] = 0  # met in one or two texts: told nothing that holds elsewhere
    order = np.lexsort((used, -effect))
    chosen = {
        "positive": [at for at in order[:most] if effect[at] > 0],
        "negative": [at for at in order[::-1][:most] if effect[at] < 0],
    }
    wanted = {int(used[at]) for side in chosen.values() for at in side}
    words = _words(model, heads, ids, starts, wanted)
    totals = [max(int((labels == side).sum()), 1) for side in (False, True)]
    return {
        side: [
            {
                "ngrams": words[int(used[at])],
                "weight": round(float(model.weights[used[at]]), 4),
                "effect": round(float(effect[at]), 6),
                "positives": round(float(having[1][at]) / totals[1], 4),
                "negatives": round(float(having[0][at]) / totals[0], 4),
            }
            for at in places
        ]
        for side, places in chosen.items()
    }


def _words(
    model: Classifier, texts: Sequence[str], ids: np.ndarray, starts: np.ndarray, wanted: set[int]
) -> dict[int, list[str]]:
    """The n-grams that were met for each of the wanted features."""
    found: dict[int, list[str]] = {feature: [] for feature in sorted(wanted)}
    hits = np.flatnonzero(np.isin(ids, np.array(sorted(wanted), ids.dtype)))
    placed = tokens(texts)
    for hit in hits.tolist():
        seen = found[int(ids[hit])]
        if len(seen) == NAMED:
            continue
        text = int(np.searchsorted(starts, hit, "right")) - 1
        first, count = int(placed.starts[text]), int(placed.starts[text + 1] - placed.starts[text])
        at = hit - int(starts[text])
        for length in range(1, model.ngrams + 1):
            if at < max(count - length + 1, 0):
                break
            at -= max(count - length + 1, 0)
        words = " ".join(
            texts[text][placed.begins[place] : placed.ends[place]].lower()
            for place in range(first + at, first + at + length)
        )
        if words not in seen:
            seen.append(words)
    return found
