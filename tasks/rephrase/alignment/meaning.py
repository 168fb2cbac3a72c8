"""What the vectors say of two texts as a whole."""

from __future__ import annotations

from tasks.rephrase.alignment.characters import chinese
from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.alignment.words import Match
from tasks.rephrase.config import AlignmentConfig


def cosine(match: Match, config: AlignmentConfig) -> Verdict | None:
    """The two texts speak of the same. None where one of them is Chinese: the network reads English only."""
    if chinese(match.pair.source) or chinese(match.pair.rewrite):
        return None
    whole = float(match.source.vector_D @ match.rewrite.vector_D)
    passed = whole >= config.cosine
    return Verdict(
        "cosine", whole, passed, "" if passed else f"cosine {whole:.2f} to its source; {config.cosine:g} is wanted"
    )
