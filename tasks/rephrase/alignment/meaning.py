"""What the vectors say of two texts as a whole, and which sentence was dropped or added."""

from __future__ import annotations

import numpy as np

from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.alignment.words import Match, Side
from tasks.rephrase.config import AlignmentConfig

SHORTEST = 20
"""Characters below which a sentence (a heading, a label) is not asked to be covered."""


def cosine(match: Match, config: AlignmentConfig) -> Verdict:
    """The two texts speak of the same."""
    whole = float(match.source.vector_D @ match.rewrite.vector_D)
    passed = whole >= config.cosine
    return Verdict(
        "cosine", whole, passed, "" if passed else f"cosine {whole:.2f} to its source; {config.cosine:g} is wanted"
    )


def coverage(match: Match, config: AlignmentConfig) -> Verdict:
    """The words of every sentence have their like on the other side."""
    kept = _found(match.source, match.partners[1])
    backed = _found(match.rewrite, match.back[1])
    least = float(min(kept.min(initial=1), backed.min(initial=1)))
    if least >= config.coverage:
        return Verdict("coverage", least, True)
    if kept.min(initial=1) <= backed.min(initial=1):
        return Verdict("coverage", least, False, f"dropped '{match.source.sentence(int(kept.argmin()))[:80]}'")
    return Verdict("coverage", least, False, f"added '{match.rewrite.sentence(int(backed.argmin()))[:80]}'")


def _found(side: Side, near_W: np.ndarray) -> np.ndarray:
    """[sentences of side]: mean cosine of its longer words to their nearest on the other side; 1 for what is short."""
    found = []
    for index, (begin, end) in enumerate(side.sentences):
        places = [place for place in side.among(index) if len(side.words[place].text) > 3]
        found.append(float(near_W[places].mean()) if places and end - begin >= SHORTEST else 1.0)
    return np.array(found)
