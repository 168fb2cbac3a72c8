"""Which documents are rewritten and how, drawn by seed: nothing depends on how the corpus is cut or ordered."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from tasks.artifact import Artifact, Part
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.document import Job, draw
from tasks.rephrase.prompts import Manner, compose, details, perspectives, styles

ROWS = 256
"""Documents read at once."""
Work = tuple[Job, float]
COLUMNS = ("id", "text", "source", "url", "domain", "language", "licence", "meta")
PERSPECTIVES, DETAILS = 0.5, 0.25
"""Shares of rewrites with a perspective and with a level of detail where the configuration leaves them to the full
prompt."""


@dataclass(frozen=True)
class DocumentBatch:
    """Chosen documents of one part of the corpus, in the order in which they lie there."""

    key: str
    part: Part | None
    """None only in the batch of a run that chose nothing."""
    ids: tuple[str, ...]


def drawable(config: RephraseConfig) -> None:
    """Refuse, with ValueError, styles that are not there or twice, and more rewrites than styles."""
    fitting = _styles("knowledge", False)
    if unknown := sorted(set(config.styles) - set(fitting)):
        raise ValueError(
            f"`rephrase.styles` names {', '.join(unknown)}: for knowledge there are {', '.join(sorted(fitting))}"
        )
    if len(set(config.styles)) < len(config.styles):
        raise ValueError("`rephrase.styles` names a style twice, which would write the same rewrite twice")
    drawn = config.styles or [name for name in fitting if not styles()[name].named]
    if config.rewrites > len(drawn):
        raise ValueError("`rephrase.rewrites` asks for more rewrites of a document than there are styles to draw from")
    known = {domain for style in styles().values() if style.translates for domain in style.domains}
    if unknown := sorted(set(config.translate.domains) - known):
        raise ValueError(
            f"`rephrase.translate.domains` names {', '.join(unknown)}: translated are {', '.join(sorted(known))}"
        )


class Chosen:
    """The documents to rewrite, in batches: of each kind those whose hash with the seed is smallest, so that the choice
    depends neither on how the corpus is cut into parts nor on its order. Read part by part each time it is iterated: of
    a kind that is taken whole, no list is kept. Never empty: a run that chooses nothing has one batch of nothing."""

    def __init__(self, config: RephraseConfig, corpus: Artifact) -> None:
        self.config, self.corpus = config, corpus
        self.parts = corpus.parts("documents")
        translate = config.translate
        kinds = (
            (("knowledge",), config.languages, config.documents),
            (("math",), config.languages, config.math_documents),
            (translate.domains, translate.languages, translate.documents),
        )
        self._kinds = [kind for kind in kinds if kind[1] and kind[2] != 0]
        self._best = [
            None if count is None else self._smallest(kind, count) for kind, (_, _, count) in enumerate(self._kinds)
        ]
        """Of each kind the chosen ones, None for all."""

    def __iter__(self) -> Iterator[DocumentBatch]:
        empty = True
        for number, part in enumerate(self.parts):
            ids = [
                identity
                for identity, kind in self._eligible(part)
                if (best := self._best[kind]) is None or (number, identity) in best
            ]
            size = self.config.part
            for piece, first in enumerate(range(0, len(ids), size)):
                yield DocumentBatch(f"{number:05d}-{piece:03d}", part, tuple(ids[first : first + size]))
                empty = False
        if empty:
            yield DocumentBatch("00000-000", None, ())

    def _smallest(self, kind: int, count: int) -> set[tuple[int, str]]:
        ranked = (
            (draw(self.config.seed, "choice", identity), identity, number)
            for number, part in enumerate(self.parts)
            for identity, found in self._eligible(part)
            if found == kind
        )
        return {(number, identity) for _, identity, number in heapq.nsmallest(count, ranked)}

    def _eligible(self, part: Part) -> list[tuple[str, int]]:
        """(id, kind) of the documents of one part that may be chosen, in the order in which they lie there."""
        if not self._kinds:
            return []
        least, most = self.config.characters
        kind = pl.coalesce(
            pl.when(pl.col("domain").is_in(domains) & pl.col("language").is_in(languages)).then(number)
            for number, (domains, languages, _) in enumerate(self._kinds)
        )
        frame = pl.scan_parquet(self.corpus.file(part)).filter(pl.col("text").str.len_chars().is_between(least, most))
        return frame.select("id", kind=kind).filter(pl.col("kind").is_not_null()).collect().rows()


def jobs(config: RephraseConfig, document: dict[str, str]) -> list[Job]:
    """How one document is rewritten: `rewrites` times for knowledge, each in another style; once for mathematics; once
    into English where its language is one that is translated from. Perspective and level of detail are drawn for each
    by themselves, so that every style meets every one of them."""
    known, identity, domain, language = styles(), document["id"], document["domain"], document["language"]
    translates = language in config.translate.languages
    fitting = _styles(domain, translates)
    named = [name for name in config.styles if name in fitting] if not translates else []
    fitting = named or [name for name in fitting if not known[name].named]
    ranked = sorted(fitting, key=lambda name: (draw(config.seed, "style", identity, name), name))
    found = []
    for name in ranked[: 1 if domain == "math" or translates else config.rewrites]:
        style = known[name]
        perspective = detail = ""
        if style.perspectives:
            full = config.prompt == "full"
            share = PERSPECTIVES * full if config.perspectives is None else config.perspectives
            perspective = _drawn(config.seed, "perspective", f"{identity}:{name}", share, perspectives(), domain)
            share = DETAILS * full if config.details is None else config.details
            detail = _drawn(config.seed, "detail", f"{identity}:{name}", share, details(), domain)
        composed = compose(style, perspectives().get(perspective), details().get(detail))
        found.append(Job(document, name, composed, perspective, detail))
    return found


def _styles(domain: str, translates: bool) -> list[str]:
    return [name for name, style in styles().items() if domain in style.domains and style.translates == translates]


def _drawn(seed: int, axis: str, what: str, share: float, known: dict[str, Manner], domain: str) -> str:
    """One of the manners that fit the domain, or, for all but a share of the documents, none."""
    fitting = [name for name, manner in known.items() if domain in manner.domains]
    if not fitting or draw(seed, axis, "share", what) >= share * 2**31:
        return ""
    return min(fitting, key=lambda name: (draw(seed, axis, what, name), name))


def read(
    config: RephraseConfig, corpus: Artifact, batches: Iterable[DocumentBatch]
) -> Iterator[tuple[DocumentBatch, list[Work]]]:
    """Each batch with the rewrites of its documents, and the share of its document that each is. A part of the corpus
    is read once, and no further than the batches are asked for."""
    for _, group in groupby(batches, key=lambda batch: batch.part and batch.part.key):
        some = list(group)
        if some[0].part is None:
            yield from ((batch, []) for batch in some)
            continue
        rows = _rows(corpus.file(some[0].part))
        for batch in some:
            found: list[Work] = []
            for identity in batch.ids:
                document = next(row for row in rows if row["id"] == identity)
                drawn = jobs(config, document)
                found += [(job, 1 / len(drawn)) for job in drawn]
            yield batch, found


def _rows(path: Path) -> Iterator[dict[str, str]]:
    for batch in pq.ParquetFile(path).iter_batches(ROWS, columns=list(COLUMNS)):
        yield from batch.to_pylist()
