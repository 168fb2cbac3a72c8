"""Whether every sentence of either text has its content in the other: what was left out, what was put in.

Each sentence is measured in eight ways, all of them readable, and a weighted sum of these says how likely it stands
alone. The weights were fitted to pairs with a sentence dropped or added (benchmarks/coverage_weights.py) and lie in
coverage.json; the threshold is `alignment.coverage`.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from tasks.rephrase.alignment.characters import chinese, loneliest
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.alignment.words import Match, Word, cosines
from tasks.rephrase.config import AlignmentConfig

WEIGHTS = Path(__file__).with_name("coverage.json")

Way = Literal["dropped", "added"]
"""A sentence of the source that the rewrite lacks, or one of the rewrite that the source lacks."""

MEASURES = ("share", "contested", "run", "apart", "short", "number", "question", "first")
"""What is measured of a sentence:

- share: of the weight of its words, how much has no like on the other side
- contested: the same where a partner that is nearer to another word counts only so far, by the root of the weight
- run: the longest stretch of it without a like, in words of full weight: half a sentence left out
- apart: 1 less the cosine to the nearest sentence of the other side
- short: fewer than `SHORT` characters: a label or a heading
- number: it has a number that the other side lacks
- question: it asks and claims nothing
- first: it opens the text, where a rewriter may say what will follow
"""

FAR, NEAR = 0.45, 0.85
"""Cosines of two words below which they have nothing in common, and from which on they say the same."""
SHORT = 40
STEM = 5
"""Letters in which two numbers' or words' beginnings must agree to be the same."""
NUMBER_LIKE = 0.3
"""How far a number counts as found where the other side has only other numbers."""


@dataclass(frozen=True)
class Alone:
    """A sentence and how likely the other side lacks it."""

    sentence: int
    chance: float
    missing: tuple[str, ...]
    """Its words without a like on the other side, the weightiest first."""


def coverage(match: Match, config: AlignmentConfig) -> Verdict | None:
    """Every sentence of the source is told, and every sentence of the rewrite is in the source. The score is 1 less the
    greatest chance that one is not. None across two scripts."""
    here, there = chinese(match.pair.source), chinese(match.pair.rewrite)
    if here or there:
        return _characters(match.pair, config) if here and there else None
    dropped, added = alone(match, "dropped"), alone(match, "added")
    worst = max((*dropped, *added), key=lambda found: found.chance, default=None)
    if worst is None or 1 - worst.chance >= config.coverage:
        return Verdict("coverage", 1.0 if worst is None else 1 - worst.chance, True)
    way, side = ("dropped", match.source) if worst in dropped else ("added", match.rewrite)
    why = f"{way} '{side.sentence(worst.sentence)[:80]}'"
    if worst.missing:
        why += f" (the {'rewrite' if way == 'dropped' else 'source'} has nothing like {', '.join(worst.missing[:5])})"
    return Verdict("coverage", 1 - worst.chance, False, why)


def _characters(pair: Pair, config: AlignmentConfig) -> Verdict:
    dropped, added = loneliest(pair.source, pair.rewrite), loneliest(pair.rewrite, pair.source)
    worst = dropped if pair.adds or dropped.chance >= added.chance else added
    passed = 1 - worst.chance >= config.coverage
    way, side = ("dropped", "rewrite") if worst is dropped else ("added", "source")
    why = f"{way} '{worst.sentence[:40]}' (the {side} has nothing of {worst.missing[:12]})"
    return Verdict("coverage", 1 - worst.chance, passed, "" if passed else why)


def alone(match: Match, way: Way) -> list[Alone]:
    """How likely each sentence stands alone. Where the style adds steps, nothing is held to be added."""
    if way == "added" and match.pair.adds:
        return []
    weights, base = _weights()[way]
    side = match.source if way == "dropped" else match.rewrite
    found = []
    for sentence, measures, missing in measure(match, way):
        total = base + sum(weight * value for weight, value in zip(weights, measures, strict=True))
        words = sorted((side.words[place] for place in missing), key=lambda word: (-word.weight, word.start))
        found.append(Alone(sentence, 1 / (1 + math.exp(-total)), tuple(dict.fromkeys(word.text for word in words))))
    return found


def measure(match: Match, way: Way) -> list[tuple[int, tuple[float, ...], list[int]]]:
    """(sentence, MEASURES, words without a like) of every sentence that has words."""
    if way == "dropped":
        side, other, near, (partner, best), (_, back) = (
            match.source,
            match.rewrite,
            cosines(match.source.sentences_SD, match.rewrite.sentences_SD),
            match.partners,
            match.back,
        )
    else:
        side, other, near, (partner, best), (_, back) = (
            match.rewrite,
            match.source,
            cosines(match.rewrite.sentences_SD, match.source.sentences_SD),
            match.back,
            match.partners,
        )
    if not side.words:
        return []
    weight = np.array([word.weight for word in side.words])
    known = {_stem(word) for word in other.words}
    has = np.array([_stem(word) in known for word in side.words])
    number = np.array([word.text[0].isdigit() for word in side.words])
    rival = back[partner] - best if len(back) else np.zeros_like(best)
    figure = np.where(has, 1.0, np.minimum(_like(best), NUMBER_LIKE))
    like = np.where(number, figure, _like(best))
    owned = np.where(number, figure, _like(best - rival))
    found: list[tuple[int, tuple[float, ...], list[int]]] = []
    for index in range(len(side.sentences)):
        here = np.array(side.among(index), dtype=int)
        if not len(here):
            continue
        text = side.sentence(index)
        total = float(weight[here].sum()) + 1
        measures = (
            float(((1 - like[here]) * weight[here]).sum()) / total,
            float(((1 - owned[here]) * weight[here]).sum()) / math.sqrt(total),
            _longest(weight[here] * (1 - 2 * like[here])),
            1 - float(near[index].max(initial=0.0)),
            float(len(text) < SHORT),
            float((number[here] & ~has[here]).any()),
            float(text.rstrip("*_ ").endswith(("?", "？"))),
            float(index == 0),
        )
        missing = [int(place) for place in here if weight[place] > 0.3 and like[place] < 0.6 and not has[place]]
        found.append((index, measures, missing))
    return found


def _like(near: np.ndarray) -> np.ndarray:
    return np.clip((near - FAR) / (NEAR - FAR), 0, 1)


def _longest(gains: np.ndarray) -> float:
    """The greatest sum of neighbours, 0 where none is above it."""
    sums = np.concatenate([[0.0], np.cumsum(gains)])
    return float((sums - np.minimum.accumulate(sums)).max())


def _stem(word: Word) -> str:
    return word.lower if word.text[0].isdigit() else word.lower[:STEM]


@cache
def _weights() -> dict[str, tuple[list[float], float]]:
    """way -> (a weight for each of MEASURES, what is added to their sum)."""
    read = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    return {way: ([read[way][name] for name in MEASURES], read[way]["base"]) for way in ("dropped", "added")}
