"""What the vectors say of two texts as a whole."""

from __future__ import annotations

from tasks.rephrase.alignment.pair import HAN, WORD, Verdict
from tasks.rephrase.alignment.words import Match
from tasks.rephrase.config import AlignmentConfig

CHINESE = 0.3
"""Share of a text's words and characters that are Chinese, from which on it is a Chinese text."""


def cosine(match: Match, config: AlignmentConfig) -> Verdict | None:
    """The two texts speak of the same. None where one of them is Chinese: the network reads English only."""
    if chinese(match.pair.source) or chinese(match.pair.rewrite):
        return None
    whole = float(match.source.vector_D @ match.rewrite.vector_D)
    passed = whole >= config.cosine
    return Verdict(
        "cosine", whole, passed, "" if passed else f"cosine {whole:.2f} to its source; {config.cosine:g} is wanted"
    )


def chinese(text: str) -> bool:
    found = WORD.findall(text)
    return sum(bool(HAN.match(word)) for word in found) > CHINESE * max(len(found), 1)
