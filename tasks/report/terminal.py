"""Blocks for a terminal: the same that a page shows, in the columns there are.

Texts stand side by side where there is room and one over the other where there is not. Without colours what differs and
is of weight (numbers, names, negations, formulas, code) stands in `[-lost-]` and `{+new+}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from model.visible import visible
from tasks.report import blocks
from tasks.report.blocks import Block, Document, Section, Spark, Table, Verbatim, surprise

BESIDE = 100
"""Columns from which a source and its rewrite stand side by side."""
CUT = 1_400
"""Characters of a compared text that are shown; a whole document's have no such end."""
QUOTED = 420
"""Characters of any other text that are shown."""
NARROW = 10
"""Columns of a table's words that are left, however little room there is."""
SMALL, LARGE = 13, 48
"""Characters of a `Spark` in a table, and of one that stands alone."""
SIDES = {"": "", "passed": "green", "refused": "red", "limit": "bold yellow"}
MARKS = {"": "", "copied": "blue underline", "lost": "red", "new": "green"}
SHADES = ("", "on grey15", "on #4a3a10", "on #6b4a0c", "bold white on #8a3a12")
"""Of tokens, the less likely the deeper (`blocks.surprise`)."""
WEIGHTY = {"lost": "bold white on red", "new": "bold black on green"}
_MARKUP = re.compile(r"`([^`]+)`|\*\*([^*]+)\*\*|\[([^\]]+)\]\(#?[\w./-]+\)")


def show(console: Console, shown: Document | Section, whole: bool = False) -> None:
    """Print a document or one of its sections: nothing in it is rich's markup. `whole` cuts no text."""
    place = _Place(console.width, console.no_color or console.color_system is None, whole)
    for block in _document(shown, place) if isinstance(shown, Document) else _section(shown, place):
        console.print(block, markup=False, highlight=False, emoji=False)


@dataclass(frozen=True)
class _Place:
    """Where blocks are printed."""

    width: int
    """Columns."""
    plain: bool
    """Whether there are no colours."""
    whole: bool
    """Whether no text is cut."""


def _document(document: Document, place: _Place) -> Iterator[RenderableType]:
    yield Text.assemble((visible(document.title), "bold"))
    yield _text(document.subtitle, "dim")
    yield _text(document.lead)
    yield _block(document.headline, place)
    for section in document.sections:
        yield ""
        yield from _section(section, place)


def _section(section: Section, place: _Place) -> Iterator[RenderableType]:
    group = f"  {visible(section.group)}" if section.group else ""
    yield Text.assemble((visible(section.title), "bold cyan"), (group, "dim"))
    if section.waiting:
        yield _text(f"Not run yet. {section.waiting}", "dim")
    elif section.summary:
        yield _text(section.summary)
    for block in section.blocks:
        yield _block(block, place)


def _block(block: Block, place: _Place) -> RenderableType:
    match block:
        case blocks.Prose(text):
            return _text(text)
        case blocks.Headline(figures):
            said = [f"{number} {what}" + (f" ({remark})" if remark else "") for number, what, remark in figures]
            return Text(visible("; ".join(said)))
        case Table():
            return Group(*_table(block, place.width))
        case blocks.Chart():
            return Group(*_chart(block, place.width))
        case blocks.Charts(several):
            return Group(*(line for chart in several for line in _chart(chart, place.width)))
        case blocks.Pair(titles, texts, note, good):
            halves = [Text(_tight(text, 0 if place.whole else QUOTED)) for text in texts]
            colour = "dim" if good is None else "green" if good else "red"
            return Group("", _side_by_side([_text(title) for title in titles], halves), *_note(note, colour))
        case blocks.Excerpt(title, pieces, note):
            quoted = Padding(_marked_excerpt(pieces), (0, 0, 0, 2))
            return Group("", _text(title, "bold"), quoted, *_note(note))
        case blocks.Compared():
            return Group(*_compared(block, place))
        case blocks.Transcript():
            return Group(*_transcript(block, place))
        case blocks.Heat():
            return Group(*_table(block.table(), place.width))
        case blocks.Code(text, caption):
            return Group(Padding(Text(visible(text).rstrip(), style="dim"), (0, 0, 0, 2)), *_note(caption))
        case blocks.Graph(_, mermaid, caption):
            return Group(Padding(Text(visible(mermaid)), (0, 0, 0, 2)), *_note(caption))
        case blocks.Problem(text):
            return Text.assemble(("Not shown: ", "red"), _text(text))
        case blocks.Fold(title, folded):
            return Group("", _text(title, "underline"), *(_block(inner, place) for inner in folded))


def _text(text: str, style: str = "") -> Text:
    """A line of ours with its **strong** parts bold; `code` keeps its quotes, and of a link its words are left. Text
    that comes from data is shown as it is."""
    line = Text(style=style, overflow="fold")
    shown, at = visible(text), 0
    for match in () if isinstance(text, Verbatim) else _MARKUP.finditer(shown):
        line.append(shown[at : match.start()])
        code, strong, link = match.groups()
        line.append(f"`{code}`" if code else strong or link, style="bold" if strong else "")
        at = match.end()
    return line.append(shown[at:])


def _note(text: str, style: str = "dim") -> list[RenderableType]:
    return [_text(text, style)] if text else []


def _table(table: Table, room: int) -> Iterator[RenderableType]:
    """One grid for the whole table, or one under every heading; a column is as wide in each as it is in all."""
    rows = [[_cell(cell) for cell in row] for row in table.rows]
    heads = [visible(name.removeprefix("#")) for name in table.columns]
    full = [row for row in rows if len(row) == len(heads)]
    widths = [
        max([*map(len, head.split()), *(cell_len(row[at].plain) for row in full)]) for at, head in enumerate(heads)
    ]
    # where there is no room for all, words are broken over lines and figures are not
    wordy = [at for at, name in enumerate(table.columns) if not name.startswith("#")]
    while sum(widths) + len(widths) > room and max((widths[at] for at in wordy), default=0) > NARROW:
        widths[max(wordy, key=widths.__getitem__)] -= 1
    yield ""
    grid, first = _grid(table.columns, widths, header=any(heads)), True
    for row in rows:
        if len(row) == len(heads):
            grid.add_row(*row)
            continue
        if grid.row_count:
            yield grid
            yield ""
            grid, first = _grid(table.columns, widths, header=False), False
        yield row[0]
    if grid.row_count or first:
        yield grid
    yield from _note(table.caption)


def _grid(columns: Sequence[str], widths: Sequence[int], header: bool) -> Grid:
    grid = Grid(box=None, padding=(0, 1, 0, 0), header_style="dim", show_header=header)
    for name, width in zip(columns, widths, strict=True):
        grid.add_column(
            Text(visible(name.removeprefix("#"))),
            justify="right" if name.startswith("#") else "left",
            width=width,
            overflow="fold",
        )
    return grid


def _cell(cell: str | Spark) -> Text:
    if isinstance(cell, Spark):
        return _spark(cell, SMALL)
    return _text(cell, {"✓": "green", "✗": "red"}.get(cell[:1], ""))


def _spark(spark: Spark, cells: int) -> Text:
    return Text.assemble(*((mark, SIDES[side]) for mark, side in spark.drawn(cells)), no_wrap=True)


def _chart(chart: blocks.Chart, room: int) -> Iterator[RenderableType]:
    yield ""
    if chart.title:
        yield Text(visible(chart.title), style="bold")
    data, drawn = dict(chart.data), False
    for label, spark in chart.sparks:
        line = _spark(spark, LARGE)
        if line.plain:
            # of a course its first and last value is told, of a distribution the ends of its axis
            ends = data.get(label) or f"{spark.edges[0]:,.6g} to {spark.edges[-1]:,.6g}"
            yield Text.assemble("  ", line)
            yield Text(visible(f"  {label}: {ends}" if label else f"  {ends}"), "dim")
            drawn = True
    if chart.data and not drawn:
        yield from _table(Table(("", ""), [[Verbatim(label), Verbatim(text)] for label, text in chart.data]), room)
    yield from _note(chart.caption)


def _marked_excerpt(pieces: Iterable[tuple[str, bool]]) -> Text:
    line, left = Text(), QUOTED
    for piece, marked in pieces:
        if left > 0:
            line.append(_tight(piece, left), style="black on yellow" if marked else "")
        left -= len(piece)
    return line


def _tight(text: str, most: int) -> str:
    """A text without blank lines, which a terminal has no room for; its beginning where `most` is not 0."""
    cut = f"{text[:most]}…" if 0 < most < len(text) else text
    return re.sub(r"\n(?:[ ]*\n)+", "\n", visible(cut))


def _side_by_side(titles: Sequence[Text], halves: Sequence[Text]) -> RenderableType:
    grid = Grid(box=box.SIMPLE_HEAD, expand=True, padding=(0, 1), show_edge=False, header_style="dim")
    for title in titles:
        grid.add_column(title, ratio=1, overflow="fold")
    grid.add_row(*halves)
    return grid


def _head(block: blocks.Compared | blocks.Transcript) -> Iterator[RenderableType]:
    colour = {True: "bold green", False: "bold red", None: "bold"}[block.good]
    yield from (Rule(style="dim"), _text(block.title, colour), *_note(block.remark))


def _compared(block: blocks.Compared, place: _Place) -> Iterator[RenderableType]:
    """Two texts with what differs marked, laid out for the width that there is."""
    yield from _head(block)
    halves = [_halve(half, place.plain, 0 if place.whole else CUT) for half in block.halves]
    titles = [_text(title) for title in block.titles]
    if place.width >= BESIDE:
        yield Padding(_side_by_side(titles, halves), (0, 0, 0, 1))
    else:
        for title, half in zip(titles, halves, strict=True):
            yield Text.assemble(title, style="dim underline")
            yield Padding(half, (0, 0, 0, 2))
    yield from _scores(block)
    yield from _note(block.note)


def _halve(pieces: Sequence[tuple[str, str]], plain: bool, cut: int) -> Text:
    """One of two compared texts, at most `cut` characters where given."""
    line = Text(overflow="fold")
    whole = sum(len(text) for text, _ in pieces)
    left = cut or whole
    for text, marks in pieces:
        kind, weighty = next((mark for mark in marks.split() if mark in MARKS), ""), "weighty" in marks
        shown = visible(text[:left])
        left -= len(text)
        if plain and weighty and shown:
            shown = f"[-{shown}-]" if kind == "lost" else f"{{+{shown}+}}"
        line.append(shown, style=WEIGHTY.get(kind, "") if weighty else MARKS[kind])
        if left <= 0:
            break
    if not whole:
        return Text("(empty)", style="dim")
    line.rstrip()
    return line.append(" …", style="dim") if cut and whole > cut else line


def _transcript(block: blocks.Transcript, place: _Place) -> Iterator[RenderableType]:
    """Every turn; without colours a token that was unlikely stands in braces."""
    yield ""
    yield from _head(block)
    for turn in block.turns:
        yield Text.assemble(_text(turn.who), style="dim underline")
        line = Text(overflow="fold", style="" if turn.drawn else "dim")
        for text, probability in turn.tokens:
            depth, shown = surprise(probability), visible(text)
            line.append(f"{{{shown}}}" if place.plain and depth == len(SHADES) - 1 else shown, style=SHADES[depth])
        line.rstrip()
        yield Padding(line, (0, 0, 0, 2))
    yield from _scores(block)
    yield from _note(block.note)


def _scores(block: blocks.Compared | blocks.Transcript) -> Iterator[RenderableType]:
    """Every check's score beside its threshold; those that say nothing but passed, or were not reached, by name."""
    chips, plainly, ahead = [], [], []
    for score in block.scores:
        name = visible(score.name)
        if score.passed is None:
            ahead.append(name)
        elif not score.score:
            plainly.append(name)
        else:
            said = f"{'✓' if score.passed else '✗'} {name} {visible(score.score)}"
            limit = f" ({visible(score.threshold)})" if score.threshold else ""
            chips.append(Text.assemble((said, "green" if score.passed else "red"), (limit, "dim")))
    rows: list[tuple[str, RenderableType]] = [("scores", Columns(chips, padding=(0, 2)))] if chips else []
    rows += [(title, Text(", ".join(names))) for title, names in (("passed", plainly), ("not reached", ahead)) if names]
    grid = Grid.grid(padding=(0, 1))
    for title, shown in rows:
        grid.add_row(Text(title, style="dim"), shown, style="" if title == "scores" else "dim")
    if rows:
        yield Padding(grid, (0, 0, 0, 2))
