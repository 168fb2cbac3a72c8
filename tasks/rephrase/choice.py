"""Which documents are rewritten and how, drawn by seed: nothing depends on how the corpus is cut or ordered."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from tasks.artifact import Artifact, Part
from tasks.rephrase.config import RephraseConfig
from tasks.rephrase.document import Job, draw
from tasks.rephrase.prompts import Manner, Style, compose, details, perspectives, styles

COLUMNS = ("id", "text", "source", "url", "domain", "language", "licence", "meta")
PERSPECTIVES, DETAILS = 0.5, 0.25
"""Shares of rewrites with a perspective and with a level of detail where the configuration leaves them to the full
prompt."""


@dataclass(frozen=True)
class Batch:
    """Chosen documents of one part of the corpus, in the order in which they lie there."""

    key: str
    part: Part | None
    """None only in the batch of a run that chose nothing."""
    ids: tuple[str, ...]


@dataclass(frozen=True)
class Drawn:
    """How one rewrite is made."""

    style: str
    perspective: str
    """Empty where none was drawn."""
    detail: str
    """Empty where it is the source's own."""
    composed: Style
    """All three as one style."""


def drawable(config: RephraseConfig) -> None:
    """Refuse, with ValueError, styles that are not there and more rewrites than styles."""
    fitting = _styles("knowledge", False)
    if unknown := sorted(set(config.styles) - set(fitting)):
        raise ValueError(
            f"`rephrase.styles` names {', '.join(unknown)}: for knowledge there are {', '.join(sorted(fitting))}"
        )
    if config.rewrites > len(config.styles or fitting):
        raise ValueError("`rephrase.rewrites` asks for more rewrites of a document than there are styles to draw from")
    known = {domain for style in styles().values() if style.translates for domain in style.domains}
    if unknown := sorted(set(config.translate.domains) - known):
        raise ValueError(
            f"`rephrase.translate.domains` names {', '.join(unknown)}: translated are {', '.join(sorted(known))}"
        )


def choose(config: RephraseConfig, corpus: Artifact) -> list[Batch]:
    """The documents to rewrite, in batches: of each kind those whose hash with the seed is smallest, so that the choice
    depends neither on how the corpus is cut into parts nor on its order. Never empty: a run that chooses nothing has
    one batch of nothing."""
    parts = corpus.parts("documents")
    chosen: set[tuple[int, str]] = set()
    translate = config.translate
    for domains, languages, count in (
        (("knowledge",), config.languages, config.documents),
        (("math",), config.languages, config.math_documents),
        (translate.domains, translate.languages, translate.documents),
    ):
        if count == 0 or not languages:
            continue
        ranked = (
            (draw(config.seed, "choice", identity), identity, number)
            for number, part in enumerate(parts)
            for identity in _eligible(config, corpus, part, domains, languages)
        )
        best = ranked if count is None else heapq.nsmallest(count, ranked)
        chosen |= {(number, identity) for _, identity, number in best}
    batches = []
    for number, part in enumerate(parts):
        wanted = {identity for place, identity in chosen if place == number}
        if wanted:
            frame = pl.scan_parquet(corpus.file(part)).select("id").filter(pl.col("id").is_in(wanted)).collect()
            ids = frame["id"].to_list()
            for piece, first in enumerate(range(0, len(ids), config.part)):
                batches.append(Batch(f"{number:05d}-{piece:03d}", part, tuple(ids[first : first + config.part])))
    return batches or [Batch("00000-000", None, ())]


def manners(config: RephraseConfig, identity: str, domain: str, language: str) -> list[Drawn]:
    """How one document is rewritten: `rewrites` times for knowledge, each in another style; once for mathematics; once
    into English where its language is one that is translated from. Perspective and level of detail are drawn for each
    by themselves, so that every style meets every one of them."""
    known = styles()
    translates = language in config.translate.languages
    fitting = _styles(domain, translates)
    if config.styles and domain != "math" and not translates:
        fitting = [name for name in config.styles if name in fitting]
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
        found.append(Drawn(name, perspective, detail, composed))
    return found


def _styles(domain: str, translates: bool) -> list[str]:
    return [name for name, style in styles().items() if domain in style.domains and style.translates == translates]


def _drawn(seed: int, axis: str, what: str, share: float, known: dict[str, Manner], domain: str) -> str:
    """One of the manners that fit the domain, or, for all but a share of the documents, none."""
    fitting = [name for name, manner in known.items() if domain in manner.domains]
    if not fitting or draw(seed, axis, "share", what) >= share * 2**31:
        return ""
    return min(fitting, key=lambda name: (draw(seed, axis, what, name), name))


def _eligible(
    config: RephraseConfig, corpus: Artifact, part: Part, domains: Sequence[str], languages: Sequence[str]
) -> list[str]:
    least, most = config.characters
    frame = pl.scan_parquet(corpus.file(part)).filter(
        pl.col("domain").is_in(domains),
        pl.col("language").is_in(languages),
        pl.col("text").str.len_chars().is_between(least, most),
    )
    return frame.select("id").collect()["id"].to_list()


def jobs(config: RephraseConfig, corpus: Artifact, batch: Batch) -> Iterator[tuple[Job, float]]:
    """The rewrites of a batch's documents, each with the share of its document that it is."""
    if batch.part is None:
        return
    frame = pl.scan_parquet(corpus.file(batch.part)).select(COLUMNS).filter(pl.col("id").is_in(batch.ids)).collect()
    for document in frame.iter_rows(named=True):
        drawn = manners(config, document["id"], document["domain"], document["language"])
        for manner in drawn:
            yield Job(document, manner.style, manner.composed, manner.perspective, manner.detail), 1 / len(drawn)
