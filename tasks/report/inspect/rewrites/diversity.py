"""How different the accepted rewrites are: from their sources, and those of one source from one another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import polars as pl

from tasks.artifact import Artifact
from tasks.rephrase.alignment.meaning import chinese
from tasks.rephrase.alignment.pair import words

GRAM = 4
"""Words in a row that are compared: the longest that self-BLEU counts."""
MOST = 2000
"""Segments and documents that are read."""
FILES = 40
"""Files that these are of, evenly spaced: of each the first ones, so that a source's rewrites are read together."""
EMBEDDED = 50
"""Sources whose rewrites are embedded, the first ones: a document takes up to half a second."""

Grams = frozenset[tuple[str, ...]]
Embed = Callable[[str], np.ndarray]
"""A text's vector, of length 1."""


@dataclass(frozen=True)
class Diversity:
    """Means; None where nothing was there to compare."""

    new: float | None
    """Of the runs of four words of accepted segments the share that the source does not have."""
    documents: int
    """Sources with several rewrites."""
    overlap: float | None
    """Of the runs of four words of a rewrite the share that another rewrite of its source has too. Self-BLEU is the
    geometric mean of this and the same for runs of one to three words."""
    spread: float | None
    """1 less the cosine of the embeddings, of every two English rewrites of a source."""


def diversity(artifact: Artifact, embed: Embed | None = None) -> Diversity:
    """Of `MOST` accepted segments and documents; `embed` is MiniLM unless given."""
    fresh: list[float] = []
    accepted = [pl.scan_parquet(path).filter("accepted") for path in artifact.files("segments")]
    for source, rewrite in _some(accepted, "source_text", "rewrite_text"):
        if grams := _grams(rewrite or ""):
            fresh.append(len(grams - _grams(source or "")) / len(grams))
    by_source: dict[str, list[str]] = defaultdict(list)
    written = [pl.scan_parquet(path) for path in artifact.files("rewrites")]
    for source, text in _some(written, "source_id", "text"):
        by_source[source].append(text or "")
    several = [texts for texts in by_source.values() if len(texts) > 1]
    overlaps = [share for texts in several for share in _overlaps([_grams(text) for text in texts])]
    english = [texts for texts in several if not any(map(chinese, texts))][:EMBEDDED]
    return Diversity(_mean(fresh), len(several), _mean(overlaps), _mean(_spreads(english, embed)))


def _some(files: Sequence[pl.LazyFrame], *columns: str) -> Iterator[tuple[str, str]]:
    """At most `MOST` rows, from files that lie evenly over all of them; what one has not falls to those after it."""
    chosen = files[:: -(-len(files) // FILES) or 1]
    left = MOST
    for place, file in enumerate(chosen):
        rows = file.select(columns).head(-(-left // (len(chosen) - place))).collect()
        left -= rows.height
        yield from rows.iter_rows()


def _overlaps(texts: list[Grams]) -> list[float]:
    return [
        len(one & frozenset().union(*texts[:place], *texts[place + 1 :])) / len(one)
        for place, one in enumerate(texts)
        if one
    ]


def _spreads(several: list[list[str]], embed: Embed | None) -> list[float]:
    """Of every source the mean over its pairs of rewrites."""
    if not several:
        return []
    embed = embed or _network()
    vectors = [[embed(text) for text in texts] for texts in several]
    return [float(np.mean([1 - one @ other for one, other in combinations(some, 2)])) for some in vectors]


def _network() -> Embed:
    from model.engines.embedding import MiniLM  # torch takes seconds, which a report without such rewrites is spared

    network = MiniLM()
    return lambda text: network.vector(text).vector_D


def _grams(text: str) -> Grams:
    found = [word.lower() for word in words(text)]
    return frozenset(zip(*(found[place:] for place in range(GRAM)), strict=False))


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None
