"""Every expectation of every gate, passed or failed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tasks.report.blocks import Block, Fold, Problem, Prose, Table
from tasks.report.book import Book
from tasks.report.chapter import Chapter


def names(book: Book) -> list[str]:
    """The gates of the recipe, in their order."""
    return [step.name for step in book.steps if step.name.endswith("-gate")]


def verdicts(book: Book) -> list[tuple[str, list[dict[str, Any]], str]]:
    """(gate, its expectations, where its pages lie) of every gate that has judged."""
    found = []
    for name in names(book):
        if book.has(name):
            artifact = book.stage(name)
            pages = artifact.parts("docs/index")
            page = f"{artifact.uri}/{pages[0].path}" if pages else artifact.uri
            found.append((name, book.statistic(name, "expectations"), page))
        elif (left := book.blocked(name)) is not None:
            found.append((name, *left))
    return found


def _summary(book: Book) -> str:
    judgements = verdicts(book)
    judged = sum(len(expectations) for _, expectations, _ in judgements)
    failed = sum(not expectation["success"] for _, expectations, _ in judgements for expectation in expectations)
    waiting = [name for name in names(book) if name not in {gate for gate, *_ in judgements}]
    text = f"{judged} expectations over {len(judgements)} datasets were judged before anything read on: "
    text += f"**{failed} failed, and the run stopped there**" if failed else "all of them hold"
    return text + (f". Not judged yet: {', '.join(waiting)}." if waiting else ".")


def _gates(book: Book) -> Iterable[Block]:
    """The expectations of each gate"""
    judgements = verdicts(book)
    if not judgements:
        yield Prose("No gate has judged anything yet.")
    for name, expectations, page in judgements:
        failed = [one for one in expectations if not one["success"]]
        for one in failed:
            yield Problem(
                f"**{name}: {one['sentence']}**: expected {one['expected']}, observed {one['observed']}. "
                f"{one['remedy'][:1].upper()}{one['remedy'][1:]}."
            )
        columns = ("sentence", "expected", "observed")
        rows = [["✓" if one["success"] else "✗", *(one[key] for key in columns)] for one in expectations]
        link = f"[Great Expectations' Data Docs]({book.address(page)})"
        outcome = f"{len(failed)} failed" if failed else "all hold"
        table = Table(("", "expectation", "expected", "observed"), rows, link)
        yield Fold(f"**{name}**: {len(expectations)} expectations, {outcome}", [table])


CHAPTER = Chapter("gates", "Quality gates", (), _summary, (_gates,))
