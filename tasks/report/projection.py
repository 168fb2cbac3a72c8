"""Texts as points of a plane, so that a person sees what a set of them covers: similar ones lie together.

Hashed words weighted by how rare they are, their principal components, then t-SNE (van der Maaten and Hinton 2008), by
which K2's authors looked at their tools. Exact and small: for a sample of some hundreds. The same texts give the same
points on one machine.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import xxhash

WIDTH = 1024
COMPONENTS = 24
PERPLEXITY = 20.0
ITERATIONS, EARLY = 300, 80
_WORD = re.compile(r"[^\W\d_]{3,}")


def plane(texts: Sequence[str]) -> np.ndarray:
    """float64 [N, 2], each coordinate from 0 to 1."""
    points = principal(features(texts), COMPONENTS)
    if len(texts) > 3 * PERPLEXITY:  # of fewer the principal components say it as well
        points = neighbours(points)
    points = points[:, :2]
    spread = np.ptp(points, axis=0)
    return (points - points.min(axis=0)) / np.where(spread > 0, spread, 1.0)


def features(texts: Sequence[str]) -> np.ndarray:
    """float64 [N, WIDTH]: logarithmic counts of hashed words times the logarithm of their rarity, of length 1."""
    counts = np.zeros((len(texts), WIDTH))
    for row, text in enumerate(texts):
        for word in _WORD.findall(text.lower().replace("_", " ")):
            counts[row, xxhash.xxh3_64_intdigest(word.encode()) % WIDTH] += 1.0
    rarity = np.log((1 + len(texts)) / (1 + (counts > 0).sum(axis=0)))
    weighted = np.log1p(counts) * rarity
    return weighted / np.maximum(np.linalg.norm(weighted, axis=1, keepdims=True), 1e-12)


def principal(points: np.ndarray, count: int) -> np.ndarray:
    """float64 [N, at least 2]: the first principal components, each with its largest entry positive."""
    centred = points - points.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    found = (left * values)[:, :count]
    found *= np.sign(found[np.abs(found).argmax(axis=0), np.arange(found.shape[1])] + 1e-300)
    return found if found.shape[1] > 1 else np.pad(found, ((0, 0), (0, 1)))


def neighbours(points: np.ndarray) -> np.ndarray:
    """float64 [N, 2]: t-SNE from the first two principal components on."""
    count = len(points)
    likely = _likely(_distances(points))
    at = points[:, :2] / max(float(points[:, 0].std()), 1e-12) * 1e-2
    speed, gains = np.zeros_like(at), np.ones_like(at)
    rate = max(count / 48.0, 20.0)
    for step in range(ITERATIONS):
        near = 1.0 / (1.0 + _distances(at))
        np.fill_diagonal(near, 0.0)
        pull = (likely * (12.0 if step < EARLY else 1.0) - near / near.sum()) * near
        slope = 4.0 * (pull.sum(axis=1)[:, None] * at - pull @ at)
        gains = np.where(np.sign(slope) != np.sign(speed), gains + 0.2, np.maximum(gains * 0.8, 0.01))
        speed = (0.5 if step < EARLY else 0.8) * speed - rate * gains * slope
        at = at + speed
        at -= at.mean(axis=0)
    return at


def _distances(points: np.ndarray) -> np.ndarray:
    squares = (points**2).sum(axis=1)
    return np.maximum(squares[:, None] + squares[None, :] - 2.0 * points @ points.T, 0.0)


def _likely(distances: np.ndarray) -> np.ndarray:
    """The chance of each pair to be neighbours, with widths that give every point about PERPLEXITY of them."""
    count = len(distances)
    low, high = np.full(count, 1e-9), np.full(count, 1e9)
    closer = np.minimum(np.sort(distances, axis=1)[:, 1:2] - distances, 0.0)
    for _ in range(50):
        beta = np.sqrt(low * high)
        chances = np.exp(closer * beta[:, None])
        np.fill_diagonal(chances, 0.0)
        chances /= chances.sum(axis=1, keepdims=True)
        entropy = -(chances * np.log(np.maximum(chances, 1e-300))).sum(axis=1)
        wide = entropy > np.log(PERPLEXITY)
        low, high = np.where(wide, beta, low), np.where(wide, high, beta)
    both = chances + chances.T
    return np.maximum(both / both.sum(), 1e-12)
