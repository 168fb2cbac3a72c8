"""Segments of a real corpus beside themselves: a check that refuses one of them refuses real text for being real."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import polars as pl

from tasks.artifact import Artifact
from tasks.rephrase.calibration.pairs import FAITHFUL, Row
from tasks.rephrase.document import draw
from tasks.rephrase.segments import segment

SEGMENTS_PER_DOCUMENT = 2
SHORTEST = 200
"""Characters of a segment worth reading."""


def of_corpus(corpus: Artifact, documents: int, seed: int, tokens: int) -> Iterator[Row]:
    """Prose segments of `documents` documents drawn by `seed`, each as source and rewrite at once."""
    ranked = (
        (draw(seed, identity), identity, part)
        for part in corpus.parts("documents")
        for identity in pl.scan_parquet(corpus.file(part))
        .filter(pl.col("domain") != "code", pl.col("language").is_in(["en", "zh"]))
        .select("id")
        .collect()["id"]
    )
    chosen = heapq.nsmallest(documents, ranked)
    for part in corpus.parts("documents"):
        wanted = [identity for _, identity, place in chosen if place == part]
        if not wanted:
            continue
        columns = ["id", "text", "domain", "language"]
        frame = pl.scan_parquet(corpus.file(part)).select(columns).filter(pl.col("id").is_in(wanted)).collect()
        for row in frame.sort("id").iter_rows(named=True):
            pieces = segment(row["text"], tokens)
            prose = [piece for piece in pieces if piece.kind == "prose" and len(piece.text) > SHORTEST]
            prose.sort(key=lambda piece: draw(seed, row["id"], piece.index))
            for piece in prose[:SEGMENTS_PER_DOCUMENT]:
                text, place = piece.text.strip(), f"{row['id']}:{piece.index}"
                yield Row(place, "corpus", row["language"], row["domain"], FAITHFUL, text, text)
