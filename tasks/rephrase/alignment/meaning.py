"""What the vectors say of two texts as a whole."""

from __future__ import annotations

from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.alignment.words import Match
from tasks.rephrase.config import AlignmentConfig


def cosine(match: Match, config: AlignmentConfig) -> Verdict:
    """The two texts speak of the same."""
    whole = float(match.source.vector_D @ match.rewrite.vector_D)
    passed = whole >= config.cosine
    return Verdict(
        "cosine", whole, passed, "" if passed else f"cosine {whole:.2f} to its source; {config.cosine:g} is wanted"
    )
