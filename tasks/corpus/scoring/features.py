"""Texts as hashed n-grams. Array legend: N texts, F features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tasks.corpus.codepoints import rolling, token_hashes


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
