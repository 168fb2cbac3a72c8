"""The dear checks: what sentence embeddings say of two texts, and which sentence was dropped or added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentences

SHORTEST = 20
"""Characters below which a sentence (a heading, a label) is not asked to be covered."""


class Embedder(Protocol):
    """Unit vectors of texts."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[len(texts), dimension] float32, rows of length 1."""
        ...


def meaning(pair: Pair, config: AlignmentConfig, embedder: Embedder) -> tuple[Verdict, Verdict]:
    """Cosine of the two texts, and the smallest over their sentences of the greatest cosine on the other side."""
    old = [text for text in sentences(pair.source) if len(text) >= SHORTEST] or [pair.source]
    new = [text for text in sentences(pair.rewrite) if len(text) >= SHORTEST] or [pair.rewrite]
    vectors = embedder.embed([pair.source, pair.rewrite, *old, *new])
    whole = float(vectors[0] @ vectors[1])
    cosine = Verdict(
        "cosine",
        whole,
        whole >= config.cosine,
        "" if whole >= config.cosine else f"cosine {whole:.2f} to its source; {config.cosine:g} is wanted",
    )
    similar = vectors[2 : 2 + len(old)] @ vectors[2 + len(old) :].T
    # A sentence may be spread over several or drawn into one: the other text as a whole can cover it too.
    kept = np.maximum(similar.max(axis=1), vectors[2 : 2 + len(old)] @ vectors[1])
    backed = np.maximum(similar.max(axis=0), vectors[2 + len(old) :] @ vectors[0])
    least = float(min(kept.min(), backed.min()))
    dropped = kept.min() <= backed.min()
    sentence = old[int(kept.argmin())] if dropped else new[int(backed.argmin())]
    why = f"{'dropped' if dropped else 'added'} '{sentence[:80]}'"
    return cosine, Verdict("coverage", least, least >= config.coverage, "" if least >= config.coverage else why)
