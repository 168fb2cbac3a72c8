"""What a report, an inspection or a plan is made of, before it is a page, markdown or lines of a terminal: sections of
blocks. Our own text may hold `code`, **strong** and [links](address); text that comes from data is `Verbatim`.

One function builds the blocks; `html`, `markdown` and `terminal` render them, so that none tells other things.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Literal

LEVELS = "▁▂▃▄▅▆▇█"
Side = Literal["", "passed", "refused", "limit"]


class Verbatim(str):
    """Text of a document or a model: shown as it is, whatever markup it holds."""


@dataclass(frozen=True)
class Prose:
    """A paragraph."""

    text: str


@dataclass(frozen=True)
class Headline:
    """A few large numbers."""

    figures: Sequence[tuple[str, str, str]]
    """(number, what it is, a remark)."""


@dataclass(frozen=True)
class Spark:
    """A distribution, or the course of a value, small enough for a cell of a table."""

    edges: Sequence[float]
    """One more than `values`."""
    values: Sequence[float]
    least: float | None = None
    """The smallest place on the axis that passes a threshold; None where there is no such limit."""
    most: float | None = None
    course: bool = False
    """Whether `values` follow each other and are drawn to scale; counts are added up, and drawn by their square root so
    that the few near a limit are seen beside the many."""

    def drawn(self, cells: int) -> list[tuple[str, Side]]:
        """At most `cells` characters, each with the side of the limits it is on; empty where nothing can be drawn."""
        if not self.values or not all(map(isfinite, (*self.edges, *self.values))) or self.edges[-1] <= self.edges[0]:
            return []
        ends = [limit if limit is not None and isfinite(limit) else None for limit in (self.least, self.most)]
        limits = [limit for limit in ends if limit is not None]
        low, high = min(self.edges[0], *limits, self.edges[0]), max(self.edges[-1], *limits, self.edges[-1])
        if self.course:
            places = (low + cell / max(cells - 1, 1) * (high - low) for cell in range(cells))
            heights = [self.values[min(bisect_right(self.edges, at), len(self.values)) - 1] for at in places]
        else:
            cells = min(cells, len(self.values))
            heights = [0.0] * cells
            for (start, end), value in zip(pairwise(self.edges), self.values, strict=True):
                heights[min(int(((start + end) / 2 - low) / (high - low) * cells), cells - 1)] += value
        top, power = max(heights) or 1.0, 1.0 if self.course else 0.5
        under, over = (None if limit is None else round((limit - low) / (high - low) * cells) for limit in ends)
        found: list[tuple[str, Side]] = []
        for cell, height in enumerate(heights):
            if cell in (under, over):
                found.append(("│", "limit"))
            refused = (under is not None and cell < under) or (over is not None and cell >= over)
            level = 0 if height <= 0 else max(1, round((height / top) ** power * len(LEVELS)))
            side: Side = "" if not limits else "refused" if refused else "passed"
            found.append((LEVELS[level - 1] if level else " ", side))
        return [*found, ("│", "limit")] if cells in (under, over) else found


@dataclass(frozen=True)
class Table:
    """Rows of cells; a column whose name starts with `#` is numeric and set to the right. A row of a single cell is a
    heading over the rows below it."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | Spark]]
    caption: str = ""


@dataclass(frozen=True)
class Chart:
    """A drawing, with what it shows in a sentence."""

    svg: str
    caption: str
    title: str = ""
    data: Sequence[tuple[str, str]] = ()
    """What the drawing says, as (label, text): what cannot draw has this in its place."""
    sparks: Sequence[tuple[str, Spark]] = ()
    """The drawing in rows of characters, each with its label: a terminal has these in its place."""


@dataclass(frozen=True)
class Charts:
    """Small drawings side by side."""

    charts: Sequence[Chart]


@dataclass(frozen=True)
class Pair:
    """Two texts side by side: a source and its rewrite, a prompt and its answer."""

    titles: tuple[str, str]
    texts: tuple[str, str]
    note: str = ""
    good: bool | None = None


@dataclass(frozen=True)
class Excerpt:
    """A document's text, with what matters in it marked."""

    title: str
    pieces: Sequence[tuple[str, bool]]
    """The text in order, each piece with whether it is marked."""
    note: str = ""


@dataclass(frozen=True)
class Choice:
    """A control that hides, without a script, the `Compared` and `Transcript` blocks below it that have other values of
    one tag."""

    key: str
    """The tag."""
    label: str
    values: Sequence[str]


@dataclass(frozen=True)
class Score:
    """What one check said: its score and threshold in words, and whether it passed (None: it was not reached)."""

    name: str
    score: str
    threshold: str
    passed: bool | None


@dataclass(frozen=True)
class Compared:
    """Two texts with what differs marked, the verdicts on them, and where they come from; behind a line that opens
    it."""

    title: str
    remark: str
    titles: tuple[str, str]
    halves: tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]
    """Each text in order, in pieces of (text, marks): of `copied`, `lost`, `new` and `weighty`, or nothing."""
    scores: Sequence[Score]
    note: str = ""
    good: bool | None = None
    tags: Sequence[tuple[str, str]] = ()
    """(tag, value) for a `Choice`."""
    open: bool = True


@dataclass(frozen=True)
class Turn:
    """What one side of a dialogue said, token by token."""

    who: str
    tokens: Sequence[tuple[str, float | None]]
    """Each with the probability that it was drawn by; None where nobody drew it."""

    @property
    def drawn(self) -> bool:
        """Whether a model drew any of it."""
        return any(probability is not None for _, probability in self.tokens)


@dataclass(frozen=True)
class Transcript:
    """A dialogue with a model, every token of whose is shaded the deeper the less likely it was; behind a line that
    opens it."""

    title: str
    remark: str
    turns: Sequence[Turn]
    scores: Sequence[Score]
    note: str = ""
    good: bool | None = None
    tags: Sequence[tuple[str, str]] = ()
    """(tag, value) for a `Choice`."""
    open: bool = True


SURPRISE = (0.8, 0.5, 0.2, 0.05)
"""Probabilities of a token below which it is shaded one step deeper."""


def surprise(probability: float | None) -> int:
    """How deep a token is shaded, 0 to 4."""
    return 0 if probability is None else sum(probability < bound for bound in SURPRISE)


@dataclass(frozen=True)
class Heat:
    """A table of shares, the deeper the larger; None where there is nothing."""

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[float, str] | None]]]
    """(name, [(share from 0 to 1, what stands in the cell)])."""
    caption: str = ""

    def table(self) -> Table:
        """The same without its ground, for what has no colours."""
        numeric = [type(name)(f"#{name}") for name in self.columns]  # what is Verbatim stays so
        cells = [[name, *("–" if cell is None else cell[1] for cell in row)] for name, row in self.rows]
        return Table((self.corner, *numeric), cells, self.caption)


@dataclass(frozen=True)
class Code:
    """Text as it is."""

    text: str
    caption: str = ""


@dataclass(frozen=True)
class Graph:
    """A graph: drawn on the page, as Mermaid in markdown."""

    svg: str
    mermaid: str
    caption: str


@dataclass(frozen=True)
class Problem:
    """Something that could not be shown, and why: never left out in silence."""

    text: str


@dataclass(frozen=True)
class Fold:
    """Blocks behind a line that opens them."""

    title: str
    blocks: Sequence[Block]


Block = (
    Prose
    | Headline
    | Table
    | Chart
    | Charts
    | Pair
    | Excerpt
    | Compared
    | Transcript
    | Heat
    | Code
    | Graph
    | Problem
    | Fold
)


@dataclass(frozen=True)
class Section:
    """One chapter: a heading, a sentence that says what the numbers mean, and the numbers."""

    key: str
    title: str
    summary: str
    blocks: Sequence[Block] = field(default_factory=tuple)
    waiting: str = ""
    """Why there is nothing yet, where there is nothing."""
    group: str = ""
    """A heading in the contents that sections in a row share."""


@dataclass(frozen=True)
class Document:
    """The report."""

    title: str
    subtitle: str
    lead: str
    headline: Headline
    sections: Sequence[Section]
    choices: Sequence[Choice] = ()
    """Controls that stay in sight below the first section."""
