"""Translations sentence by sentence, without a network that reads both languages.

A sentence left out or put in shows in the lengths (Gale and Church, 1993): what was translated whole goes in steps of
sentences whose lengths keep step too.
"""

from __future__ import annotations

import math
from itertools import accumulate

from tasks.rephrase.alignment.answer import wording
from tasks.rephrase.alignment.pair import Pair, Verdict, verdict
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentences

STEPS = ((1, 1, 0.0), (1, 2, 0.15), (2, 1, 0.15), (1, 3, 0.3), (3, 1, 0.3), (2, 2, 0.3), (1, 0, 1.6), (0, 1, 1.6))
"""Sentences of the source, of the translation, and what the step costs beside its lengths."""
LONGEST = 200
"""Sentences on one side beyond which nothing is paired: no segment has so many."""
SOFT = 10.0
"""Characters of a source that are added to both sides: short sentences vary more."""
USUAL = 0.75
"""Weight of the language's usual length against that of the pair at hand."""


def sentencewise(pair: Pair, config: AlignmentConfig) -> Verdict:
    """How far the worst step of the best pairing is from the usual length of its translation (a natural logarithm; 0 is
    best)."""
    if not pair.translated:
        return Verdict("sentencewise", 0.0, True)
    old = [size for size in map(_size, sentences(pair.source)) if size]
    new = [size for size in map(_size, sentences(pair.rewrite)) if size]
    if not old or not new or max(len(old), len(new)) > LONGEST:
        passed = bool(old) == bool(new) and max(len(old), len(new)) <= LONGEST
        return verdict("sentencewise", 0.0 if passed else 9.0, passed, f"{len(new)} sentences for {len(old)}")
    least, most = config.translation_length.get(pair.translated, config.translation_length["other"])
    # mostly what is usual, a little of what is so here: a translator may be terse, but not by a sentence
    usual = math.sqrt(least * most) ** USUAL * (sum(new) / sum(old)) ** (1 - USUAL)
    worst, before, after = _worst(old, new, usual)
    why = f"a sentence is missing or added: {after} characters stand for {before}, where {usual * before:.0f} are usual"
    return verdict("sentencewise", worst, worst <= config.sentencewise, why)


def _worst(old: list[int], new: list[int], usual: float) -> tuple[float, int, int]:
    """(worst step, its characters in the source, those in the translation) of the cheapest pairing."""
    olds, news = [0, *accumulate(old)], [0, *accumulate(new)]
    best: dict[tuple[int, int], tuple[float, tuple[int, int]]] = {(0, 0): (0.0, (0, 0))}
    for row in range(len(old) + 1):
        for column in range(len(new) + 1):
            found = []
            for down, right, price in STEPS:
                place = (row - down, column - right)
                if place in best:
                    far = _far(olds[row] - olds[place[0]], news[column] - news[place[1]], usual)
                    found.append((best[place][0] + far * far + price, place))
            if found:
                best[row, column] = min(found)
    worst, place = (0.0, 0, 0), (len(old), len(new))
    while place != (0, 0):
        before = best[place][1]
        sizes = olds[place[0]] - olds[before[0]], news[place[1]] - news[before[1]]
        worst = max(worst, (_far(*sizes, usual), *sizes))
        place = before
    return worst


def _far(old: int, new: int, usual: float) -> float:
    return abs(math.log((new + SOFT * usual) / (usual * (old + SOFT))))


def _size(sentence: str) -> int:
    return len(wording(sentence).replace(" ", ""))
