"""Rollouts of reinforcement learning: a few responses to look at, and what the detectors suspect."""

from __future__ import annotations

from collections.abc import Iterable

from tasks.report import words
from tasks.report.blocks import Block, Fold, Prose, Transcript
from tasks.report.book import Absent, Book
from tasks.report.chapter import Chapter
from tasks.report.inspect.rollouts import page
from tasks.report.inspect.rollouts.choice import DETECTORS
from tasks.report.inspect.rollouts.responses import GROUP, Response, read

SHOWN = 3
"""Responses of each choice."""


def _responses(book: Book) -> list[Response]:
    files = book.stage("rl").files(GROUP)
    if not files:
        raise Absent(f"`rl` lists no parts under `{GROUP}`: its record.every is 0, or an earlier version made it")
    return read(files)


def _summary(book: Book) -> str:
    count = len(_responses(book))
    return (
        f"{words.count(count)} responses were recorded with every token's log-probability, the reward by source and "
        "what the verifier said: of some iterations, and of the held-out prompts before and after."
    )


def _looked_at(book: Book) -> Iterable[Block]:
    """Rewards, responses and suspected hacks"""
    responses = _responses(book)
    yield from page.rewards(responses)
    yield from page.reasons(responses)
    yield Prose(page.LEGEND)
    for name in ("improved", "best", "worst"):
        found = page.section(responses, name, SHOWN)
        yield Fold(f"{found.title}: {found.summary}", found.blocks)
    yield from page.detected(responses)
    for detector in DETECTORS:
        found = page.section(responses, detector.name, SHOWN)
        if any(isinstance(block, Transcript) for block in found.blocks):
            yield Fold(f"Suspected, {found.title.lower()}: {found.summary}", found.blocks)
    yield Prose("`openk2 inspect rollouts --html` writes a page with more of each, `--document ID` shows one prompt.")


CHAPTER = Chapter("rollouts", "Rollouts", ("rl",), _summary, (_looked_at,))
