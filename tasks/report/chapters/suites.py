"""Benchmarks on every checkpoint of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tasks.report import suites
from tasks.report.blocks import Block
from tasks.report.book import Book
from tasks.report.chapter import Chapter, everything
from tasks.report.comparison import latest, tried
from tasks.report.suites import Tried

STAGES = ("base-suites", "sft-suites", "rl-suites", "release-suites")


def _models(book: Book) -> list[Tried]:
    return latest([model for name in STAGES if book.has(name) for model in tried(book.stage(name))])


def _summary(book: Book) -> str:
    models = _models(book)
    held = book.optional("benchmarks", "suites", default={})
    contaminated = sum(one["contaminated"] for one in held.values())
    items = sum(one["items"] for one in held.values())
    found = f"Of their {items} items the training corpus holds {contaminated or 'none'}. " if items else ""
    return (
        f"{len(suites.suites(models))} suites on {len(models)} models. {found}A model of the quickstart's size is at "
        "chance on most of them."
    )


def _of(make: Callable[[Sequence[Tried]], Iterable[Block]]) -> Callable[[Book], Iterable[Block]]:
    def made(book: Book) -> Iterable[Block]:
        return make(_models(book))

    made.__doc__ = make.__doc__
    return made


MAKERS = (
    suites.side_by_side,
    suites.changes,
    suites.groups,
    suites.needles,
    suites.losses_by_position,
    suites.unmeasured,
)
EVERYTHING = tuple(map(everything, ("benchmarks", *STAGES)))
CHAPTER = Chapter("suites", "Benchmarks", STAGES, _summary, (*map(_of, MAKERS), *EVERYTHING))
