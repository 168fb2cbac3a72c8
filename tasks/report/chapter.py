"""A chapter: from which stages it is written, the sentence that sums it up, and the functions that give its blocks.

Each block is made apart from the others: one that cannot be made says why in its place, and the rest stays.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.report import words
from tasks.report.blocks import Block, Fold, Problem, Section, Table, Verbatim
from tasks.report.book import Absent, Book, NotRun

log = logging.getLogger(__name__)
Maker = Callable[[Book], Iterable[Block]]


@dataclass(frozen=True)
class Chapter:
    """One section of the report, still to be written."""

    key: str
    title: str
    stages: tuple[str, ...]
    """It is written as soon as one of these is published."""
    summary: Callable[[Book], str]
    makers: tuple[Maker, ...]

    def write(self, book: Book) -> Section:
        """The section; never raises: what fails is said in place, and logged."""
        if self.stages and not any(book.has(stage) for stage in self.stages):
            return Section(self.key, self.title, "", waiting=f"It is written from `{'`, `'.join(self.stages)}`.")
        summary, blocks = "", []
        for block in safely(lambda book: [self.summary(book)], book, "the summary"):
            if isinstance(block, str):
                summary = block
            else:
                blocks.append(block)
        for maker in self.makers:
            blocks += safely(maker, book, (maker.__doc__ or maker.__name__).split(".")[0])
        return Section(self.key, self.title, summary, blocks)


def safely(maker: Callable[[Book], Iterable[Any]], book: Book, what: str) -> list[Any]:
    """What `maker` gives; a Problem that says why, and a line in the log, where it fails."""
    try:
        return list(maker(book))
    except NotRun as reason:
        return [Problem(f"{what}: {reason}.")]
    except Absent as reason:
        log.warning("report: %s cannot be shown: %s", what, reason)
        return [Problem(f"{what}: {reason}.")]
    except Exception as error:
        log.exception("report: %s could not be made", what)
        return [Problem(f"{what} could not be made ({type(error).__name__}: {error}).")]


def everything(name: str) -> Maker:
    """A fold with every statistic of a stage, so that the page has no fewer than the manifest; of a long list it says
    how many entries there are, and shows the first."""

    def make(book: Book) -> Iterable[Block]:
        """Every statistic of the stage"""
        if book.has(name):
            yield Fold(f"Every statistic of `{name}`", grids(book.stage(name).statistics))

    return make


def grids(record: Mapping[str, Any], title: str = "") -> list[Block]:
    """Nested statistics as tables: plain values in one, each mapping of mappings in a grid of its own, and each list
    of mappings, too, by their places in it. Cells are `Verbatim`: among them are texts that a model wrote."""
    record = {key: _by_place(value) for key, value in record.items()}
    plain = {key: value for key, value in record.items() if not isinstance(value, dict) or "value" in value}
    blocks: list[Block] = []
    if plain:
        rows = [[Verbatim(words.name(key)), Verbatim(_cell(value))] for key, value in plain.items()]
        blocks.append(Table((words.name(title) or "figure", "value"), rows))
    for key, value in record.items():
        if key in plain:
            continue
        inner = list(value.values())
        place = f"{title} · {key}" if title else key
        if inner and all(isinstance(entry, dict) for entry in inner) and _alike(inner):
            blocks.append(grid(value, place))
        elif value:
            blocks += grids(value, place)
    return blocks


def _alike(records: Sequence[Mapping[str, Any]]) -> bool:
    """Whether they can be rows of one table: with enough figures in common, each of which a cell can hold."""
    kinds = {frozenset(record) for record in records if record}
    if not all(_shallow(value) for record in records for value in record.values()):
        return False
    return not kinds or (len(kinds) <= 3 and bool(frozenset.intersection(*kinds)))


def _shallow(value: Any) -> bool:
    """Whether there is no mapping in it, but for one that is all of it."""
    inner = value.values() if isinstance(value, dict) else [value]
    return not any(isinstance(each, dict) or _records(each) for each in inner)


def _by_place(value: Any) -> Any:
    """A list of mappings as a mapping of them."""
    return {str(place): each for place, each in enumerate(value, start=1)} if _records(value) else value


def grid(record: Mapping[str, Mapping[str, Any]], title: str) -> Table:
    """A mapping of mappings as a table: one row per name, one column per figure."""
    names = list(dict.fromkeys(key for entry in record.values() for key in entry))
    rows = []
    for name, entry in record.items():
        cells = [entry.get(key) for key in names]
        rows.append([Verbatim(words.name(str(name))), *(Verbatim(_cell(cell)) for cell in cells)])
    numeric = [all(_number(entry.get(key)) for entry in record.values()) for key in names]
    head = [f"#{words.name(key)}" if right else words.name(key) for key, right in zip(names, numeric, strict=True)]
    return Table((words.name(title), *head), rows)


def _cell(value: Any) -> str:
    if isinstance(value, dict) and "value" in value:
        around = f" ({words.plain(value['low'])} to {words.plain(value['high'])})" if "low" in value else ""
        return f"{words.plain(value['value'])}{around}"
    if isinstance(value, dict):
        return ", ".join(f"{words.name(str(key))} {words.plain(item)}" for key, item in value.items())
    return words.plain(value)


def _number(value: Any) -> bool:
    return value is None or isinstance(value, int | float) or (isinstance(value, dict) and "value" in value)


def _records(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, dict) for each in value)
