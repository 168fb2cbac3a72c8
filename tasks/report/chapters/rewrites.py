"""Rephrasing: what was attempted, what passed, what it cost, what it looks like side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tasks.report import figures, words
from tasks.report.blocks import Block, Fold, Prose, Table
from tasks.report.book import Absent, Book
from tasks.report.chapter import Chapter, everything
from tasks.report.inspect.rewrites import blocks
from tasks.report.inspect.rewrites.attempts import Cell, Selection, Survey, survey
from tasks.report.inspect.rewrites.limits import SENTENCES, Limits

SHOWN = 2
"""Accepted and refused segments that are shown; those behind a fold besides."""
OUTCOMES = (("at the first attempt", "good"), ("after a retry", "accent"), ("given up", "warm"))
COSTS = {
    "requests": "requests",
    "tokens_prompt": "prompt tokens",
    "tokens_cached": "of them from the prefix cache",
    "tokens_generated": "generated tokens",
    "money": "money",
    "seconds": "seconds",
}


def _summary(book: Book) -> str:
    s = book.stage("rewrites").statistics
    text = (
        f"{words.count(s['segments'])} attempts at segments were made; **{words.share(s['acceptance_rate'])}** "
        f"({words.count(s['accepted'])}) passed every alignment check and {words.count(s['documents'])} documents go "
        "on to training."
    )
    if s["acceptance_rate"] < 0.25:
        text += (
            " A small local model is a poor rephraser and the rate is reported as it is: what passes here proves the "
            "machinery, a stronger model behind `execution.engine_url` raises it."
        )
    generated, seconds = book.optional("rewrites", "tokens_generated"), book.optional("rewrites", "seconds_wall")
    if generated and seconds:
        text += f" {words.short(generated)} tokens were generated, {generated / seconds:,.0f} a second."
    return text


def _attempts(book: Book) -> Iterable[Block]:
    """Acceptance, retries and fallbacks, checks, and samples"""
    artifact = book.stage("rewrites")
    if not artifact.parts("segments"):
        raise Absent("`rewrites` lists no parts under `segments`")
    found = survey(artifact, Selection(), refused=1, accepted=SHOWN)
    if not found.whole().segments:
        yield Prose("No segment was attempted: the configuration chose no document.")
        return
    yield from _outcomes(found)
    yield from _checks(found)
    yield from blocks.diversity(artifact)
    yield from _samples(book, found, Limits.of(artifact))


def _outcomes(found: Survey) -> Iterable[Block]:
    """What became of the segments, by style and by domain."""
    charts = []
    for place, title in ((0, "By style"), (1, "By domain")):
        rows = [_outcome(name, cell) for name, cell in found.by(place).items() if cell.asked]
        if place == 0 and len(rows) > 1:
            rows.append(_outcome("all", found.whole()))
        if rows:
            caption = "Segments by what became of them." if place == 0 else ""
            charts.append(figures.stacked(rows, OUTCOMES, caption, title))
    yield from charts


def _outcome(name: str, cell: Cell) -> tuple[str, list[tuple[float, str]], str]:
    asked = max(cell.asked, 1)
    counts = (cell.accepted_first, cell.accepted - cell.accepted_first, cell.failed)
    shares = [(count / asked, colour) for count, (_, colour) in zip(counts, OUTCOMES, strict=True)]
    return words.name(name) or "–", shares, f"{words.share(cell.final_rate)} of {words.count(cell.asked)}"


def _checks(found: Survey) -> Iterable[Block]:
    """Which check refused."""
    refused = found.whole().refused
    if not refused:
        yield Prose("No segment was refused.")
        return
    caption = "Refused attempts by the first check that refused them."
    yield figures.counted(refused, caption, "Refused, by check", "warm", sum(refused.values()))


def _samples(book: Book, found: Survey, limits: Limits) -> Iterable[Block]:
    """Two accepted and two refused side by side, the rest behind a fold."""
    accepted = found.nearest.get("", [])
    refused = found.whole().refused
    ordered = sorted(refused, key=lambda name: (-refused[name], name))
    tried = [one for name in ordered for one in found.nearest.get(name, []) if one.rewrite_text.strip()]
    if not accepted:
        yield Prose("No segment was accepted.")
    for one in accepted:
        yield blocks.compared(one, limits, "only just accepted", opened=True)
    shown = [blocks.compared(one, limits, SENTENCES.get(one.reason, ""), opened=True) for one in tried]
    yield from shown[:SHOWN]
    if shown[SHOWN:]:
        yield Fold(f"{len(shown) - SHOWN} more refused, one for each check", shown[SHOWN:])
    yield Prose(blocks.LEGEND)
    yield Prose("`openk2 inspect rewrites --html` writes a page with more of each check, and of each style.")


def _costs(book: Book) -> Iterable[Block]:
    """What was predicted and what it came to"""
    compared: Mapping[str, Mapping[str, Any]] = book.optional("rewrites", "comparison", default={})
    rows = []
    for key, name in COSTS.items():
        if entry := compared.get(key):
            predicted, actual, ratio = (entry.get(part) for part in ("predicted", "actual", "ratio"))
            if key == "money" and not (predicted or actual):
                continue
            said = "–" if ratio is None else f"{ratio:.2f}"
            rows.append([name, _amount(key, predicted), _amount(key, actual), said])
    if rows:
        basis = book.optional("rewrites", "prediction", "basis", default="")
        caption = "Predicted before the first attempt"
        if basis:
            caption += f", from {'a measured' if basis == 'measured' else 'an assumed'} rate"
        reused = book.optional("rewrites", "requests_reused", default=0)
        if reused:
            caption += f". {words.count(reused)} answers had been paid for by another run and cost nothing"
        yield Table(("", "#predicted", "#actual", "#actual / predicted"), rows, f"{caption}.")
    if checking := book.optional("rewrites", "seconds_checking"):
        yield Prose(f"The alignment check took {words.duration(checking)} of processor time.")


def _amount(key: str, value: Any) -> str:
    if not isinstance(value, int | float):
        return "–"
    if key == "money":
        return f"{value:,.2f}"
    return words.duration(value) if key == "seconds" else words.count(value)


CHAPTER = Chapter("rewrites", "Rephrasing", ("rewrites",), _summary, (_attempts, _costs, everything("rewrites")))
