"""How different the accepted rewrites are: from their sources, and those of one source from one another."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import polars as pl

from tasks.artifact import Artifact
from tasks.rephrase.alignment.pair import words

GRAM = 4
"""Words in a row that are compared, as the fourth order of self-BLEU does."""
MOST = 2000
"""Segments and documents that are read, the first ones."""

Grams = frozenset[tuple[str, ...]]


@dataclass(frozen=True)
class Diversity:
    """Shares of runs of four words; None where nothing was there to compare."""

    new: float | None
    """Of those of accepted segments what the source does not have."""
    cosine: float | None
    """Mean cosine of the embeddings of accepted segments and their sources, as the alignment check recorded it."""
    documents: int
    """Sources with several rewrites."""
    own: float | None
    """Of those of a rewrite what no other rewrite of its source has: 1 less self-BLEU's precision of this order."""


def diversity(artifact: Artifact) -> Diversity:
    """Of the first `MOST` accepted segments and documents."""
    fresh: list[float] = []
    cosines: list[float] = []
    for path in artifact.files("segments"):
        accepted = pl.scan_parquet(path).filter("accepted").select("source_text", "rewrite_text", "scores")
        for source, rewrite, scores in accepted.head(MOST - len(fresh)).collect().iter_rows():
            if grams := _grams(rewrite or ""):
                fresh.append(len(grams - _grams(source or "")) / len(grams))
            if (scores or {}).get("cosine") is not None:
                cosines.append(scores["cosine"])
    by_source: dict[str, list[Grams]] = defaultdict(list)
    for path in artifact.files("rewrites"):
        for source, text in pl.scan_parquet(path).select("source_id", "text").head(MOST).collect().iter_rows():
            by_source[source].append(_grams(text or ""))
    several = [texts for texts in by_source.values() if len(texts) > 1]
    own = [
        len(one - frozenset().union(*(texts[:place] + texts[place + 1 :]))) / len(one)
        for texts in several
        for place, one in enumerate(texts)
        if one
    ]
    return Diversity(_mean(fresh), _mean(cosines), len(several), _mean(own))


def _grams(text: str) -> Grams:
    found = [word.lower() for word in words(text)]
    return frozenset(zip(*(found[place:] for place in range(GRAM)), strict=False))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
