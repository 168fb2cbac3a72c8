"""What is put before the alignment check: true pairs and their corruptions, and segments of a real corpus beside
themselves."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tasks.artifact import Artifact
from tasks.rephrase.calibration.corruptions import KINDS, pool_of, text_of, variants
from tasks.rephrase.calibration.edits import Pool, Text, draw
from tasks.rephrase.calibration.pairs import Half, TruePair, half
from tasks.rephrase.segments import segment

TRUE = "true"
"""The kind of a pair that nothing was done to."""

REAL = "segment"
"""The style of a case that is a real segment beside itself."""

SEGMENTS_PER_DOCUMENT = 2


@dataclass(frozen=True)
class Case:
    """A source and a rewrite of it of which it is known whether it is faithful."""

    id: str
    """The pair's, or `document:segment`."""
    half: Half
    kind: str
    """TRUE, or what was done to the rewrite."""
    index: int
    """Which corruption of its kind."""
    style: str
    domain: str
    language: str
    source: str
    rewrite: str
    why: str = ""
    """What was done to the rewrite, for a person."""

    @property
    def faithful(self) -> bool:
        return self.kind == TRUE


Document = list[Case]
"""The cases of one document: what they have in common is embedded once."""


def of_pairs(
    pairs: Sequence[TruePair],
    kinds: Sequence[str] = tuple(KINDS),
    each: int = 1,
    halves: Sequence[str] = ("tune", "test"),
) -> list[Document]:
    """Every pair of `halves` with up to `each` corruptions of every kind; what a corruption borrows comes from the same
    half."""
    documents: list[Document] = []
    for side in halves:
        texts = [text_of(pair) for pair in pairs if pair.half == side]
        pool = pool_of(texts)
        documents += [list(_cases(text, kinds, pool, each)) for text in texts]
    return documents


def of_corpus(
    corpus: Artifact,
    documents: int,
    seed: int,
    tokens: int,
    kinds: Sequence[str] = tuple(KINDS),
    each: int = 1,
) -> list[Document]:
    """Prose segments of `documents` documents drawn by `seed`, each beside itself and beside its corruptions."""
    texts = list(_segments(corpus, documents, seed, tokens))
    found = []
    for side in ("tune", "test"):
        mine = [text for text in texts if half(text.id.partition(":")[0]) == side]
        pool = pool_of(mine)
        found += [list(_cases(text, kinds, pool, each)) for text in mine]
    return found


def _cases(text: Text, kinds: Sequence[str], pool: Pool, each: int) -> Iterator[Case]:
    side = half(text.id.partition(":")[0]) if text.style == REAL else half(text.id)
    common = (text.style, text.domain, text.language, text.source)
    yield Case(text.id, side, TRUE, 0, *common, text.rewrite)
    for kind in kinds:
        for index, change in enumerate(variants(text, kind, pool, each)):
            yield Case(text.id, side, kind, index, *common, change.text, change.why)


def _segments(corpus: Artifact, documents: int, seed: int, tokens: int) -> Iterator[Text]:
    ranked = (
        (draw(seed, "calibration", identity), identity, number)
        for number, part in enumerate(corpus.parts("documents"))
        for identity in pl.scan_parquet(corpus.file(part))
        .filter(pl.col("domain") != "code", pl.col("language").is_in(["en", "zh"]))
        .select("id")
        .collect()["id"]
    )
    chosen = heapq.nsmallest(documents, ranked)
    for number, part in enumerate(corpus.parts("documents")):
        wanted = [identity for _, identity, place in chosen if place == number]
        if not wanted:
            continue
        columns = ["id", "text", "domain", "language"]
        frame = pl.scan_parquet(corpus.file(part)).select(columns).filter(pl.col("id").is_in(wanted)).collect()
        for row in frame.sort("id").iter_rows(named=True):
            prose = [piece for piece in segment(row["text"], tokens) if piece.kind == "prose" and len(piece.text) > 200]
            prose.sort(key=lambda piece: draw(seed, row["id"], piece.index))
            for piece in prose[:SEGMENTS_PER_DOCUMENT]:
                text = piece.text.strip()
                yield Text(f"{row['id']}:{piece.index}", text, text, row["domain"], row["language"], REAL)
