"""What went into the corpus, what came out, and, from `dropped`, what was thrown away."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from tasks.report import figures, rejects, words
from tasks.report.blocks import Block, Fold, Table
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything, grid
from tasks.report.chapters import dropped
from tasks.report.chapters.dropped import head
from tasks.report.inspect.rows import first

DOMAINS = ("web", "code", "math", "knowledge")
"""Those that the style sheet has a colour for."""
SAMPLE = 50_000  # documents whose length is looked at


def colour(domain: str) -> str:
    """The style sheet's name of a domain's colour."""
    return domain if domain in DOMAINS else "accent"


def _summary(book: Book) -> str:
    s = book.stage("corpus").statistics
    kept = s["documents"] / max(s["read"], 1)
    text = (
        f"Of {words.count(s['read'])} documents read, {words.count(s['documents'])} ({words.share(kept)}) were kept: "
        f"{words.size(s['bytes'])} of text from {len(s['by_source'])} sources. {words.count(s['rejected'])} were "
        f"rejected, each with its reason, and {words.count(s['unreadable'])} could not be read"
    )
    exact, near = s["exact_duplicates"], s["near_duplicates"]
    if exact or near:
        text += f"; {words.count(exact)} of the rejected were exact and {words.count(near)} near duplicates"
    return f"{text}. `openk2 inspect` shows samples of every rule, those nearest to its threshold first."


def _domains(book: Book) -> Iterable[Block]:
    """Text by domain"""
    domains = book.statistic("corpus", "by_domain")
    total = max(sum(entry["bytes"] for entry in domains.values()), 1)
    rows = [
        (
            name,
            entry["bytes"],
            f"{words.size(entry['bytes'])} · {words.share(entry['bytes'] / total)} · "
            f"{words.count(entry['documents'])} documents",
            colour(name),
        )
        for name, entry in sorted(domains.items(), key=lambda item: -item[1]["bytes"])
    ]
    yield figures.bars(rows, "Curated text by domain: bytes of UTF-8, their share, documents.", "Text by domain")


def _sources(book: Book) -> Iterable[Block]:
    """The sources and their licences"""
    sources = book.statistic("corpus", "by_source")
    rows = [
        [
            name,
            entry["domain"],
            entry["language"],
            entry["licence"] or "unknown",
            words.count(entry["read"]),
            words.count(entry["documents"]),
            words.share(entry["documents"] / entry["read"] if entry["read"] else None),
            words.size(entry["bytes"]),
        ]
        for name, entry in sorted(sources.items(), key=lambda item: -item[1]["bytes"])
    ]
    columns = ("source", "domain", "language", "licence", "#read", "#kept", "#share", "#text")
    yield Table(columns, rows, "Every source with the licence it declares. Read and kept count documents.")


def _lengths(book: Book) -> Iterable[Block]:
    """How long the kept documents are"""
    bins, seen = rejects.lengths(book.stage("corpus"), SAMPLE)
    if not seen:
        return
    rows = [
        (
            f"{words.count(low)} to {words.count(high)}",
            float(count),
            f"{words.count(count)} · {words.share(count / seen)}",
            "accent",
        )
        for low, high, count in bins
    ]
    whole = book.statistic("corpus", "documents")
    of = "all documents" if seen >= whole else f"{words.count(seen)} of {words.count(whole)} documents"
    yield figures.bars(rows, f"Kept documents by characters, in doublings: {of}.", "Length")


def _snapshots(book: Book) -> Iterable[Block]:
    """The snapshots that it was made from"""
    snapshots = book.optional("corpus", "snapshots", default=[])
    if len(snapshots) > 1:
        yield grid({str(number): added for number, added in enumerate(snapshots)}, "snapshot")


def _documents(book: Book) -> Iterable[Block]:
    """A few documents as they were kept"""
    sample = sorted(first(book.files("corpus", "documents"), ["domain"], 2), key=itemgetter("domain", "id"))
    rows = [[row["domain"], row["source"], f"`{row['id'][:12]}`", head(row["text"][:160])] for row in sample]
    yield Fold(
        "Two documents of each domain",
        [Table(("domain", "source", "id", "the text begins"), rows, "`openk2 lineage ID` tells where one comes from.")],
    )


CHAPTER = Chapter(
    "corpus",
    "Corpus",
    ("corpus",),
    _summary,
    (
        dropped.flow,
        _domains,
        _sources,
        _lengths,
        dropped.reasons,
        dropped.personal,
        dropped.contamination,
        dropped.duplicates,
        dropped.unreadable,
        _snapshots,
        _documents,
        everything("sources"),
        everything("corpus"),
    ),
)
