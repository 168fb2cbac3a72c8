"""What every inspection prints with: a histogram in a row of characters, and blocks printed as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from rich.console import Console, RenderableType
from rich.text import Text

BARS = "▁▂▃▄▅▆▇█"
REFUSED, KEPT = "red", "green"


def sparkline(
    edges: Sequence[float], counts: Sequence[int], least: float | None, most: float | None, cells: int
) -> Text:
    """The histogram in a row of characters, the thresholds as lines at their places, what lies outside of them red.
    Empty where there is nothing to draw."""
    line = Text()
    if not counts or edges[-1] <= edges[0]:
        return line
    limits = [limit for limit in (least, most) if limit is not None]
    low, high = min(edges[0], *limits, edges[0]), max(edges[-1], *limits, edges[-1])
    cells = min(cells, len(counts))
    heights = [0.0] * cells
    for (start, end), count in zip(pairwise(edges), counts, strict=False):
        place = ((start + end) / 2 - low) / (high - low)
        heights[min(int(place * cells), cells - 1)] += count
    top = max(heights) or 1.0
    under, over = (None if limit is None else round((limit - low) / (high - low) * cells) for limit in (least, most))
    for cell, height in enumerate(heights):
        if cell in (under, over):
            line.append("│", style="bold yellow")
        refused = (under is not None and cell < under) or (over is not None and cell >= over)
        level = 0 if not height else max(1, round((height / top) ** 0.5 * len(BARS)))
        line.append(BARS[level - 1] if level else " ", style="" if not limits else REFUSED if refused else KEPT)
    if cells in (under, over):
        line.append("│", style="bold yellow")
    return line


def print_all(console: Console, blocks: Iterable[RenderableType]) -> None:
    """Print blocks as they are: nothing in them is markup."""
    for block in blocks:
        console.print(block, markup=False, highlight=False, emoji=False)
