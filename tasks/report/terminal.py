"""Blocks for a terminal: the same that a page shows, in the columns there are.

Texts stand side by side where there is room and one over the other where there is not. Without colours what differs and
is of weight (numbers, names, negations, formulas, code) stands in `[-lost-]` and `{+new+}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.columns import Columns
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table as Grid
from rich.text import Text

from model.visible import visible
from tasks.report.blocks import (
    Block,
    Chart,
    Charts,
    Code,
    Compared,
    Document,
    Excerpt,
    Fold,
    Graph,
    Headline,
    Heat,
    Pair,
    Problem,
    Prose,
    Section,
    Spark,
    Table,
    Transcript,
    Turn,
    Verbatim,
    surprise,
)

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
    for block in _document(shown, whole) if isinstance(shown, Document) else _section(shown, whole):
        console.print(block, markup=False, highlight=False, emoji=False)


def _document(document: Document, whole: bool) -> Iterator[RenderableType]:
    yield Text.assemble((visible(document.title), "bold"))
    yield _text(document.subtitle, "dim")
    yield _text(document.lead)
    yield _block(document.headline, whole)
    for section in document.sections:
        yield ""
        yield from _section(section, whole)


def _section(section: Section, whole: bool) -> Iterator[RenderableType]:
    group = f"  {visible(section.group)}" if section.group else ""
    yield Text.assemble((visible(section.title), "bold cyan"), (group, "dim"))
    if section.waiting:
        yield _text(f"Not run yet. {section.waiting}", "dim")
    elif section.summary:
        yield _text(section.summary)
    for block in section.blocks:
        yield _block(block, whole)


def _block(block: Block, whole: bool) -> RenderableType:
    match block:
        case Prose(text):
            return _text(text)
        case Headline(figures):
            said = [f"{number} {what}" + (f" ({remark})" if remark else "") for number, what, remark in figures]
            return Text(visible("; ".join(said)))
        case Table():
            return _Table(block)
        case Chart():
            return _chart(block)
        case Charts(several):
            return Group(*map(_chart, several))
        case Pair(titles, texts, note, good):
            halves = [Text(_tight(text, 0 if whole else QUOTED)) for text in texts]
            colour = "dim" if good is None else "green" if good else "red"
            return Group("", _side_by_side([_text(title) for title in titles], halves), *_note(note, colour))
        case Excerpt(title, pieces, note):
            return Group(*_below(_text(title, "bold"), _marked_excerpt(pieces), note))
        case Compared():
            return _Compared(block, 0 if whole else CUT)
        case Transcript():
            return Group(*_transcript(block))
        case Heat(corner, columns, rows, caption):
            cells = [[name, *("–" if cell is None else cell[1] for cell in row)] for name, row in rows]
            return _Table(Table((corner, *(_numeric(name) for name in columns)), cells, caption))
        case Code(text, caption):
            return Group(Padding(Text(visible(text).rstrip(), style="dim"), (0, 0, 0, 2)), *_note(caption))
        case Graph(_, mermaid, caption):
            return Group(Padding(Text(visible(mermaid)), (0, 0, 0, 2)), *_note(caption))
        case Problem(text):
            return Text.assemble(("Not shown: ", "red"), _text(text))
        case Fold(title, blocks):
            return Group("", _text(title, "underline"), *(_block(inner, whole) for inner in blocks))


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


def _below(title: Text, text: Text, note: str) -> list[RenderableType]:
    return ["", title, Padding(text, (0, 0, 0, 2)), *_note(note)]


def _numeric(name: str) -> str:
    """A column's name as that of a numeric one."""
    return Verbatim(f"#{name}") if isinstance(name, Verbatim) else f"#{name}"


class _Table:
    """One grid for the whole table, or one under every heading; a column is as wide in each as it is in all."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = self.table
        rows = [[_cell(cell) for cell in row] for row in table.rows]
        heads = [visible(name.removeprefix("#")) for name in table.columns]
        full = [row for row in rows if len(row) == len(heads)]
        widths = [
            max([*map(len, head.split()), *(cell_len(row[at].plain) for row in full)]) for at, head in enumerate(heads)
        ]
        # where there is no room for all, words are broken over lines and figures are not
        wordy = [at for at, name in enumerate(table.columns) if not name.startswith("#")]
        while sum(widths) + len(widths) > options.max_width and max((widths[at] for at in wordy), default=0) > NARROW:
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


def _chart(chart: Chart) -> RenderableType:
    title = ["", Text(visible(chart.title), style="bold")] if chart.title else [""]
    drawn: list[RenderableType] = []
    data = dict(chart.data)
    for label, spark in chart.sparks:
        line = _spark(spark, LARGE)
        if line.plain:
            # of a course its first and last value is told, of a distribution the ends of its axis
            ends = data.get(label) or f"{spark.edges[0]:,.6g} to {spark.edges[-1]:,.6g}"
            drawn += [Text.assemble("  ", line), Text(visible(f"  {label}: {ends}" if label else f"  {ends}"), "dim")]
    if chart.data and not drawn:
        drawn.append(_Table(Table(("", ""), [[Verbatim(label), Verbatim(text)] for label, text in chart.data])))
    return Group(*title, *drawn, *_note(chart.caption))


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


class _Compared:
    """Two texts with what differs marked, laid out for the width that there is."""

    def __init__(self, block: Compared, cut: int) -> None:
        self.block, self.cut = block, cut

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        block = self.block
        colour = {True: "bold green", False: "bold red", None: "bold"}[block.good]
        yield Group(Rule(style="dim"), _text(block.title, colour), *_note(block.remark))
        plain = console.no_color or console.color_system is None
        halves = [_halve(half, plain, self.cut) for half in block.halves]
        titles = [_text(title) for title in block.titles]
        if options.max_width >= BESIDE:
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


def _transcript(block: Transcript) -> Iterator[RenderableType]:
    """Every turn; without colours a token that was unlikely stands in braces."""
    colour = {True: "bold green", False: "bold red", None: "bold"}[block.good]
    yield from ("", Rule(style="dim"), _text(block.title, colour), *_note(block.remark))
    for turn in block.turns:
        yield Text.assemble(_text(turn.who), style="dim underline")
        yield Padding(_Spoken(turn), (0, 0, 0, 2))
    yield from _scores(block)
    yield from _note(block.note)


class _Spoken:
    """The tokens of a turn."""

    def __init__(self, turn: Turn) -> None:
        self.turn = turn

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        plain = console.no_color or console.color_system is None
        line = Text(overflow="fold")
        for text, probability in self.turn.tokens:
            depth, shown = surprise(probability), visible(text)
            line.append(f"{{{shown}}}" if plain and depth == len(SHADES) - 1 else shown, style=SHADES[depth])
        if all(probability is None for _, probability in self.turn.tokens):
            line.stylize("dim")
        line.rstrip()
        yield line


def _scores(block: Compared | Transcript) -> Iterator[RenderableType]:
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
