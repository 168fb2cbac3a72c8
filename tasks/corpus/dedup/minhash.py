"""MinHash signatures and the banding that finds similar pairs (Broder 1997; Leskovec et al., Mining of Massive
Datasets, 3.3-3.4).

Legend: N documents, S shingles of a batch, K permutations, B bands of R rows, W words of a sketch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import rolling, token_hashes
from tasks.corpus.dedup.config import NearConfig, banding

_ODD = np.uint64(0x9E3779B97F4A7C15)
_S29, _S32 = np.uint64(29), np.uint64(32)
_FLIP = np.uint32(0x85EBCA6B)
# Standard deviations by which a sketch may fall short of its expectation at the threshold: 3 in 100,000 fall further.
_DEVIATIONS = 4.0


@dataclass(frozen=True)
class Signed:
    """What near-duplicate search keeps of N documents."""

    shingles: np.ndarray
    """uint32 [S], in text order and with repeats: those of document i stand at starts[i]:starts[i + 1]."""
    starts: np.ndarray
    """int64 [N + 1]; a document without a word or ideograph has no shingle."""
    keys: np.ndarray
    """uint64 [N, B]: documents that share one are candidates; the band is part of the key."""
    sketches: np.ndarray
    """uint64 [N, W]: one bit of each MinHash value (b-bit minwise hashing, Li and König 2010)."""


def sign(texts: Sequence[str], config: NearConfig) -> Signed:
    """Shingles, band keys and sketches of a batch; nothing depends on what else is in it."""
    return sign_tokens(*token_hashes(texts), config)


def sign_tokens(hashes: np.ndarray, borders: np.ndarray, config: NearConfig) -> Signed:
    """The same from the hashes of tokens and the borders of texts among them."""
    windows, starts = rolling(hashes, borders, config.ngram, short=True)
    shingles = (windows >> _S32).astype(np.uint32)
    bands, rows = banding(config.threshold, config.permutations, config.recall)
    keys_NB = np.empty((len(starts) - 1, bands), np.uint64)
    sketches_NW = np.zeros((len(starts) - 1, -(-config.permutations // 64)), np.uint64)
    factors_K, offsets_K = _permutations(config.permutations, config.seed)
    _sign(shingles, starts, factors_K, offsets_K, rows, keys_NB, sketches_NW)
    return Signed(shingles, starts, keys_NB, sketches_NW)


def agreement(threshold: float, permutations: int) -> int:
    """Bits that the sketches of two documents must share before their true similarity is looked at: a bit agrees with
    a chance of (1 + similarity) / 2."""
    share = (1 + threshold) / 2
    return math.floor(permutations * share - _DEVIATIONS * math.sqrt(permutations * share * (1 - share)))


@cache
def _permutations(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    # Multiply-shift hashing (Dietzfelbinger 1996), modulo 2^32 and over hashes that are mixed already.
    random = np.random.Generator(np.random.PCG64(seed))
    factors_K = random.integers(0, 1 << 32, count, np.uint32) | np.uint32(1)
    return factors_K, random.integers(0, 1 << 32, count, np.uint32)


@compiled
def _minima(shingles, first, stop, factors_K, offsets_K, out_K):  # type: ignore[no-untyped-def]
    """The smallest value of each permutation; the inner loop runs over permutations, so that it is vectorised and its
    state stays in the first-level cache."""
    out_K[:] = np.uint32(0xFFFFFFFF)
    for at in range(first, stop):
        shingle = shingles[at]
        for k in range(len(factors_K)):
            value = np.uint32((shingle ^ offsets_K[k]) * factors_K[k])
            out_K[k] = min(value, out_K[k])


@compiled
def _sign(shingles, starts, factors_K, offsets_K, rows, keys_NB, sketches_NW):  # type: ignore[no-untyped-def]
    values_K = np.empty(len(factors_K), np.uint32)
    for row in range(len(starts) - 1):
        _minima(shingles, starts[row], starts[row + 1], factors_K, offsets_K, values_K)
        for band in range(keys_NB.shape[1]):
            key = np.uint64(band + 1) * _ODD
            for k in range(band * rows, (band + 1) * rows):
                key = (key ^ np.uint64(values_K[k])) * _ODD
                key ^= key >> _S29
            keys_NB[row, band] = key * _ODD
        for k in range(len(values_K)):
            bit = np.uint64(np.uint32(values_K[k] * _FLIP) >> np.uint32(31))
            sketches_NW[row, k >> 6] |= bit << np.uint64(k & 63)
