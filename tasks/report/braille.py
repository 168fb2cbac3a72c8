"""Curves for a terminal in braille dots, over panels that each have a scale of their own.

One axis for a whole run would give a warm-up of 0.2 % of it less than a column. So every stage is a panel, wide enough
for its name and otherwise by the square root of its length: within a panel the axis is to scale, and the numbers at the
borders say what it spans.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character's dots, by row and column (Unicode block U+2800)."""
LEAST = 3  # columns of a panel, however little room there is


@dataclass(frozen=True)
class Panel:
    """A stretch of the x axis."""

    name: str
    """Stands above it."""
    length: float
    """Beside the other panels'."""
    notes: tuple[str, ...] = ()
    """Stand under its right border, a row each."""


@dataclass(frozen=True)
class Curve:
    """One drawing over all panels."""

    title: str
    values: Callable[[int, float], float]
    """(panel, share of it in [0, 1]) -> y, at least 0."""
    rows: int
    """Its height in rows of text."""
    say: Callable[[float], str]
    """A number on its axis in words."""


def draw(panels: Sequence[Panel], curves: Sequence[Curve], width: int = 80) -> list[str]:
    """`curves` one under the other, at most `width` columns wide; names of panels above, their notes below."""
    tops = [max(curve.values(at, share / 64) for at in range(len(panels)) for share in range(65)) for curve in curves]
    labels = [_labels(curve, top) for curve, top in zip(curves, tops, strict=True)]
    margin = max(len(label) for rows in labels for label in rows) + 1
    widths = _widths(panels, width - margin - 1)
    pad = " " * margin
    names = (_fit(panel.name, wide).center(wide) for panel, wide in zip(panels, widths, strict=True))
    lines = [pad + " " + " ".join(names)]
    for curve, top, said in zip(curves, tops, labels, strict=True):
        lines.append(f"{pad} {curve.title}")
        drawn = [_panel(curve, at, wide, top) for at, wide in enumerate(widths)]
        for row, label in enumerate(said):
            lines.append(f"{label:>{margin - 1}} ┤" + "┊".join(each[row] for each in drawn))
        lines.append(pad + "└" + "┴".join("─" * wide for wide in widths))
    for row in range(max(len(panel.notes) for panel in panels)):
        notes = [panel.notes[row] if row < len(panel.notes) else "" for panel in panels]
        fitted = (_fit(note, wide).rjust(wide) for note, wide in zip(notes, widths, strict=True))
        lines.append(pad + " " + " ".join(fitted))
    return [line.rstrip() for line in lines]


def _labels(curve: Curve, top: float) -> list[str]:
    """What stands beside each row: the largest value, half of it where the rows have a middle, and 0."""
    labels = [""] * curve.rows
    labels[0], labels[-1] = curve.say(top), curve.say(0)
    if curve.rows >= 5 and curve.rows % 2:
        labels[curve.rows // 2] = curve.say(top / 2)
    return labels


def _panel(curve: Curve, at: int, wide: int, top: float) -> list[str]:
    """One panel's rows of characters: each column of dots runs over the values it spans, so that no curve breaks."""
    height = curve.rows * 4 - 1
    cells = [[0] * wide for _ in range(curve.rows)]
    heights = [round(curve.values(at, x / (2 * wide)) / (top or 1) * height) for x in range(2 * wide + 1)]
    for x, ends in enumerate(pairwise(heights)):
        # a steep column leaves its last dot to the next one
        low, high = min(ends), max(ends)
        for y in range(low, max(high, low + 1) if ends[0] <= ends[1] else high + 1):
            row, dot = divmod(height - y, 4)
            cells[row][x // 2] |= DOTS[dot][x % 2]
    return ["".join(chr(0x2800 + cell) if cell else " " for cell in row) for row in cells]


def _widths(panels: Sequence[Panel], room: int) -> list[int]:
    """Columns of each panel: what its words need, the rest by the roots of the lengths; less for all where they do not
    fit."""
    room -= len(panels) - 1
    needed = [max(LEAST, *(len(text) for text in (panel.name, *panel.notes))) for panel in panels]
    while sum(needed) > room and max(needed) > LEAST:
        needed[needed.index(max(needed))] -= 1
    roots = [math.sqrt(panel.length) for panel in panels]
    spare = max(0, room - sum(needed))
    ends = [round(spare * sum(roots[: at + 1]) / (sum(roots) or 1)) for at in range(len(panels))]
    return [least + end - begin for least, end, begin in zip(needed, ends, [0, *ends], strict=False)]


def _fit(text: str, wide: int) -> str:
    return text if len(text) <= wide else text[: wide - 1] + "…"
