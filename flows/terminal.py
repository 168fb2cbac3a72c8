"""The one outlet to a terminal, and progress shown there: a live bar with rate and time left, or plain lines.

Whatever is printed may hold text of documents, models, files or other people's libraries. So nothing is read as rich's
markup, and what a terminal would obey is spelled out in all that is rendered, whichever table or tree it stands in.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.segment import Segment
from rich.text import Text

from model.visible import visible
from tasks.progress import Tick, clock, listen

EVERY = 10.0  # seconds between two lines of one piece of work where there is no terminal


class Terminal(Console):
    """A console that obeys nothing that it is given to print."""

    def __init__(self, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, emoji=False, highlight=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)

    def render_str(self, text: str, **options: object) -> Text:
        # rich drops some control characters from a string: they are to be seen
        return super().render_str(visible(text), **options)  # type: ignore[arg-type]


@contextmanager
def shown(console: Console) -> Iterator[None]:
    """Show every tick of this process on `console` while the block runs."""
    if console.is_terminal:
        with _bars(console):
            yield
    else:
        with _lines(console):
            yield


@contextmanager
def _bars(console: Console) -> Iterator[None]:
    columns = (
        TextColumn("{task.description:>10}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.percentage:>3.0f} %", markup=False),
        TextColumn("{task.fields[sentence]}", style="dim", markup=False),
    )
    rows: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=False, refresh_per_second=4) as display:

        def hear(tick: Tick) -> None:
            if tick.label not in rows:
                rows[tick.label] = display.add_task(tick.label, total=tick.total, sentence="")
            if tick.finished:
                sentence = f"{tick.done:,.0f} {tick.unit} in {clock(tick.elapsed)}"
            else:
                left = "" if tick.eta is None else f", {clock(tick.eta)} left"
                sentence = f"{tick.done:,.0f}/{tick.total:,.0f} {tick.unit}, {tick.rate:,.1f}/s{left}"
            note = f"  {tick.note}" if tick.note else ""
            display.update(rows[tick.label], completed=tick.done, total=tick.total, sentence=sentence + note)

        with listen(hear):
            yield


@contextmanager
def _lines(console: Console) -> Iterator[None]:
    last: dict[str, float] = {}

    def hear(tick: Tick) -> None:
        now = time.monotonic()
        if tick.finished or now - last.get(tick.label, -EVERY) >= EVERY:
            last[tick.label] = now
            console.print(tick.sentence(), soft_wrap=True)

    with listen(hear):
        yield
