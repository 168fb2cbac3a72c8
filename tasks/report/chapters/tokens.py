"""The tokenizer and the shards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tasks.report import figures, words
from tasks.report.blocks import Block, Table
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything
from tasks.report.chapters.corpus import colour


def _summary(book: Book) -> str:
    if not book.has("tokens"):
        vocabulary = book.optional("tokenizer", "vocabulary")
        size = f" of {words.count(vocabulary)} entries" if vocabulary else ""
        return f"The byte-level BPE{size} has been trained; nothing is tokenised yet."
    s = book.stage("tokens").statistics
    held = sum(entry["tokens"] for entry in s["heldout"].values())
    size = sum(entry.get("bytes", 0) for entry in s["by_domain"].values())
    ratio = f" {size / s['tokens']:.2f} bytes of text to a token;" if size and s["tokens"] else ""
    rewritten = book.optional("tokens", "rewrites", "tokens", default=0)
    return (
        f"{words.short(s['tokens'])} training tokens in a vocabulary of {words.count(s['vocabulary'])};{ratio} "
        f"{words.short(held)} tokens are held out by document, so that nothing of them is trained on, not even in "
        f"other words."
        + (f" {words.short(rewritten)} of the training tokens are rewrites." if rewritten else "")
        + _mixed(s)
    )


def _mixed(s: dict[str, Any]) -> str:
    """What the mix did to the documents, where it did anything."""
    copies, documents, left_out = s.get("copies", s["documents"]), s["documents"], s.get("left_out", 0)
    if copies == documents and not left_out:
        return ""
    return (
        f" By the mix {words.count(documents)} documents stand there {words.count(copies)} times in all, and "
        f"{words.count(left_out)} were left out."
    )


def _compression(book: Book) -> Iterable[Block]:
    """Compression by domain"""
    ratios = book.statistic("tokenizer", "bytes_per_token")
    entries = {name: entry["bytes_per_token"] if isinstance(entry, dict) else entry for name, entry in ratios.items()}
    rows = [
        (name, value, f"{value:.2f} bytes per token", colour(name))
        for name, value in sorted(entries.items(), key=lambda item: -item[1])
    ]
    caption = "Bytes of UTF-8 text per token, on documents outside the tokenizer's sample where there are any."
    yield figures.bars(rows, caption, "Compression by domain")


def _shards(book: Book) -> Iterable[Block]:
    """Tokens by domain"""
    s = book.stage("tokens").statistics
    total = max(s["tokens"], 1)
    rows = []
    for name in sorted(set(s["by_domain"]) | set(s["heldout"])):
        train, held = s["by_domain"].get(name, {}), s["heldout"].get(name, {})
        rows.append(
            [
                name,
                words.count(train.get("documents", 0)),
                words.count(train.get("tokens", 0)),
                words.share(train.get("tokens", 0) / total),
                f"{train.get('bytes_per_token', 0):.2f}",
                words.count(held.get("documents", 0)),
                words.count(held.get("tokens", 0)),
            ]
        )
    columns = ("domain", "#documents", "#tokens", "#share", "#bytes/token", "#held-out documents", "#held-out tokens")
    yield Table(columns, rows)


CHAPTER = Chapter(
    "tokens",
    "Tokens",
    ("tokenizer", "tokens"),
    _summary,
    (_compression, _shards, everything("tokenizer"), everything("tokens")),
)
