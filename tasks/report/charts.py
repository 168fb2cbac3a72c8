"""Charts as small SVG: one look for all, lines labelled where they end, colours from the page's style sheet.

Colours are names (`web`, `math`, `accent`, ...) that the style sheet gives a value for light and for dark. Widths are
in units of the view box; the page scales them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from rich.cells import cell_len, set_cell_size

from model.visible import escape
from tasks.report import words
from tasks.report.blocks import LEVELS, Spark

WIDTH = 720
POINTS = 360  # more than these are averaged: the eye sees no more, and the page stays small


@dataclass(frozen=True)
class Line:
    """One series."""

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: str = "accent"
    faint: bool = False
    """Drawn thin and without a label: the raw values behind a smoothed line."""
    dots: bool = False
    """Points that nothing joins: what lies between them was not measured."""


@dataclass(frozen=True)
class Band:
    """A stretch of the x axis with a name: a stage."""

    label: str
    start: float
    end: float


def lines(
    series: Sequence[Line],
    x_label: str,
    height: int = 260,
    width: int = WIDTH,
    bands: Sequence[Band] = (),
    marks: Sequence[tuple[str, float]] = (),
    y_format: Callable[[float], str] = words.figure,
    x_format: Callable[[float], str] = words.short,
    y_range: tuple[float, float] | None = None,
    log: bool = False,
) -> str:
    """Lines over a common axis. `bands` shade stages, `marks` draw named horizontal lines (a threshold), `log` makes
    the y axis logarithmic. Points that are no numbers are left out; ValueError where none is left."""
    kept = [(line, _clean(line, log)) for line in series]
    kept = [(line, points) for line, points in kept if points]
    if not kept:
        raise ValueError(f"no values to draw for {', '.join(line.label for line in series) or 'the chart'}")
    named = [line for line, _ in kept if not line.faint]
    scale = (lambda y: math.log10(y)) if log else (lambda y: y)
    xs = [x for _, points in kept for x, _ in points]
    ys = [scale(y) for _, points in kept for _, y in points] + [scale(value) for _, value in marks]
    low, high = (scale(y_range[0]), scale(y_range[1])) if y_range else (min(ys), max(ys))
    if high - low <= 1e-6 * max(abs(high), abs(low)):  # a constant: what differs is rounding
        size = max(abs(high), abs(low))
        around = 0.05 * (size if size > 1e-300 else 1.0)  # the smallest floats have no twentieth
        low, high = low - around, high + around
    pad = (high - low) * 0.06
    low, high = (low, high) if y_range else (low - pad if low < 0 or low - pad > 0 else min(low, 0.0), high + pad)
    first, last = min(xs), max(xs) if max(xs) > min(xs) else min(xs) + 1
    label_room = 10 + max((cell_len(line.label) for line in named), default=0) * 7.4 if len(named) > 1 else 12
    left, right, top, bottom = 52, min(label_room, width * 0.3), 34 if bands else 10, 38
    plot_w, plot_h = width - left - right, height - top - bottom

    def px(x: float) -> float:
        return left + (x - first) / (last - first) * plot_w

    def py(y: float) -> float:
        return top + (high - scale(y)) / (high - low) * plot_h

    out = _stages(bands, px, first, last, top, plot_h)
    for y in _log_ticks(low, high) if log else _ticks(low, high, int(max(2, plot_h // 36))):
        out.append(_rule("grid", left, width - right, py(y)))
        out.append(_text("tick", left - 7, py(y) + 4, y_format(y), "end"))
    for x in _ticks(first, last, int(max(2, plot_w // 76))):
        out.append(_text("tick", px(x), height - bottom + 17, x_format(x), "middle"))
    out.append(_text("axis", left + plot_w / 2, height - 5, x_label, "middle"))
    for label, value in marks:
        out.append(_rule("mark", left, width - right, py(value)))
        out.append(_text("tick", left + 6, py(value) - 5, label))
    ends = []
    for line, points in kept:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in _thin(points))
        kind = "raw" if line.faint else "line"
        if line.dots or len(points) == 1:
            radius = 4 if line.dots else 3
            for x, y in points:
                out.append(f'<circle class="dot f-{line.colour}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="{radius}"/>')
        else:
            out.append(f'<polyline class="{kind} c-{line.colour}" points="{path}"/>')
        if not line.faint and len(named) > 1:
            ends.append((py(points[-1][1]), line))
    for y, line in _apart(ends, 14, top + 6, height - bottom):
        out.append(_text(f"end t-{line.colour}", width - right + 6, y + 4, line.label))
    return _svg(width, height, out)


def _stages(
    bands: Sequence[Band], px: Callable[[float], float], first: float, last: float, top: float, plot_h: float
) -> list[str]:
    """Shades of every second stage, and the names over them, on a second row where the first has no room."""
    out, taken = [], [0.0, 0.0]
    for number, band in enumerate(bands):
        begin, end = px(max(band.start, first)), px(min(band.end, last))
        if end <= begin:
            continue
        if number % 2:
            out.append(f'<rect class="band" x="{begin:.1f}" y="{top}" width="{end - begin:.1f}" height="{plot_h}"/>')
        wide = cell_len(band.label) * 5.8
        left = max(min((begin + end - wide) / 2, px(last) - wide), px(first))
        row = 0 if left >= taken[0] else 1
        taken[row] = left + wide + 8
        out.append(_text("tick", left, top - 6 - 13 * row, band.label))
    return out


def smooth(ys: Sequence[float]) -> list[float]:
    """A centred mean over a fortieth of the values. At the beginning the window is narrower, so that a steep start
    stays steep; at the end it is cut, so that the last value is not one draw."""
    half = max(3, len(ys) // 40) // 2
    means = []
    for place in range(len(ys)):
        part = ys[place - min(half, place) : place + min(half, place) + 1]
        if place + half >= len(ys):
            part = ys[max(place - half, 0) :]
        means.append(math.fsum(part) / len(part))
    return means


def bars(rows: Sequence[tuple[str, float, str, str]], width: int = WIDTH) -> str:
    """Horizontal bars from rows of (label, value, what stands beside the bar, colour)."""
    left, plot = _gutters(rows, 2, width)
    top = max([0, *(value for _, value, _, _ in rows)]) or 1
    out = []
    for place, (label, value, text, colour) in enumerate(rows):
        y = place * 24
        length = max(value, 0) / top * plot
        out.append(_text("label", left - 8, y + 16, cut(label, width), "end"))
        out.append(f'<rect class="bar f-{colour}" x="{left:.1f}" y="{y + 5}" width="{length:.1f}" height="14" rx="2"/>')
        out.append(_text("value", left + length + 7, y + 16, cut(text, width)))
    return _svg(width, 24 * len(rows) + 4, out)


def histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    x_label: str,
    least: float | None = None,
    most: float | None = None,
    width: int = WIDTH,
) -> str:
    """Counts between edges as columns over the value's axis. The limits of what passes are drawn as lines; columns
    below `least` and above `most` are warm, one that a line cuts is both. Heights grow with the square root of the
    count, so that the few near a threshold are seen beside the many; the axis says the counts."""
    if len(edges) != len(counts) + 1 or not counts:
        raise ValueError(f"{len(counts)} counts need {len(counts) + 1} edges, not {len(edges)}")
    least, most = (limit if limit is not None and math.isfinite(limit) else None for limit in (least, most))
    marks = [limit for limit in (least, most) if limit is not None]
    low, high = min([edges[0], *marks]), max([edges[-1], *marks])
    high = high if high > low else low + 1.0
    height = 190
    left, right, top, bottom = 46, 14, 20, 38
    plot_w, plot_h = width - left - right, height - top - bottom
    tallest = max(*counts, 1)

    def px(x: float) -> float:
        return left + (x - low) / (high - low) * plot_w

    def tall(count: float) -> float:
        return max(1.5, (count / tallest) ** 0.5 * plot_h) if count else 0.0

    out = []
    for tick in _count_ticks(tallest):
        y = top + plot_h - tall(tick)
        out += [_rule("grid", left, width - right, y), _text("tick", left - 7, y + 4, words.short(tick), "end")]
    for (start, end), count in zip(pairwise(edges), counts, strict=True):
        cuts = [start, *(mark for mark in sorted(marks) if start < mark < end), end]
        for a, b in pairwise(cuts):
            over = (least is not None and b <= least) or (most is not None and a >= most)
            wide = max(px(b) - px(a) - (1 if len(cuts) == 2 else 0), 0.8)
            out.append(
                f'<rect class="f-{"warm" if over else "accent"}" x="{px(a):.1f}" '
                f'y="{top + plot_h - tall(count):.1f}" width="{wide:.1f}" height="{tall(count):.1f}"/>'
            )
    for x in _ticks(low, high, int(max(2, plot_w // 76))):
        out.append(_text("tick", px(x), height - bottom + 17, words.figure(x), "middle"))
    out.append(_text("axis", left + plot_w / 2, height - 5, x_label, "middle"))
    for mark in marks:
        at, label = px(mark), f"limit {words.figure(mark)}"
        fits = at + 6 + 6.4 * len(label) < width
        out.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 6}" y2="{top + plot_h}"/>')
        out.append(_text("end t-warm", at + 6 if fits else at - 6, top - 7, label, "start" if fits else "end"))
    return _svg(width, height, out)


def _count_ticks(most: float) -> list[float]:
    """Round counts up to `most` that stand well apart under a square root."""
    power = 10 ** math.floor(math.log10(max(most, 1)))
    step = next(factor * power for factor in (10, 5, 2, 1) if factor * power <= most)
    return sorted({step, math.ceil(step / 5), math.ceil(step / 25)} - ({math.ceil(step / 25)} if step < 20 else set()))


def stacked(rows: Sequence[tuple[str, Sequence[tuple[float, str]], str]], key: Sequence[tuple[str, str]]) -> str:
    """Bars cut into shares of the width: rows of (label, [(share, colour)], what stands beside it) under a key of
    (name, colour)."""
    left, plot = _gutters(rows, 2, WIDTH)
    out, top = _key(key, left)
    for place, (label, shares, text) in enumerate(rows):
        y, at = top + place * 24, left
        out.append(_text("label", left - 8, y + 16, cut(label), "end"))
        for share, colour in shares:
            long = max(share, 0.0) * plot
            out.append(f'<rect class="f-{colour}" x="{at:.1f}" y="{y + 5}" width="{long:.1f}" height="14"/>')
            at += long
        out.append(_text("value", left + plot + 7, y + 16, cut(text)))
    return _svg(WIDTH, top + 24 * len(rows) + 4, out)


def spans(rows: Sequence[tuple[str, float, float, float, str, str]]) -> str:
    """Estimates with intervals on a scale from 0 to 1: rows of (label, low, value, high, text, colour)."""
    left, plot = _gutters(rows, 4, WIDTH)
    height = 26 * len(rows) + 26
    out = []
    for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
        x = left + tick * plot
        out.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{height - 22}"/>')
        out.append(_text("tick", x, height - 6, f"{100 * tick:.0f} %", "middle"))
    for place, (label, low, value, high, text, colour) in enumerate(rows):
        y = 26 * place + 17
        out.append(_text("label", left - 8, y + 4, cut(label), "end"))
        out.append(_rule(f"span c-{colour}", left + low * plot, left + high * plot, y))
        out.append(f'<circle class="dot f-{colour}" cx="{left + value * plot:.1f}" cy="{y}" r="5"/>')
        out.append(_text("value", left + plot + 8, y + 4, cut(text)))
    return _svg(WIDTH, height, out)


def _gutters(rows: Sequence[tuple[Any, ...]], beside: int, width: int) -> tuple[float, float]:
    """(where bars begin, the width of the longest) between the first texts of the rows and those at `beside`."""
    if not rows:
        raise ValueError("no rows to draw")
    labels = [cut(row[0], width) for row in rows]
    left = 14 + max(6.6 * cell_len(label) + 2 * sum(map(str.isupper, label)) for label in labels)  # capitals are wider
    return left, width - left - 14 - max(cell_len(cut(row[beside], width)) for row in rows) * 6.4


def cut(text: str, width: int = WIDTH) -> str:
    """A label that leaves room for a drawing `width` wide; the words beside the drawing have all of it. Characters of
    East Asia count for two: they are as wide."""
    most = width // 18
    return text if cell_len(text) <= most else f"{set_cell_size(text, most - 1)}…"


def _key(key: Sequence[tuple[str, str]], left: float) -> tuple[list[str], int]:
    """(names with their colours, in as many lines as they take; where what they explain begins)."""
    out, x, row = [], left, 0
    for name, colour in key:
        wide = 26 + 6.6 * cell_len(name)
        if x + wide > WIDTH and x > left:
            x, row = left, row + 1
        out.append(f'<rect class="f-{colour}" x="{x:.1f}" y="{4 + 18 * row}" width="10" height="10" rx="2"/>')
        out.append(_text("tick", x + 15, 13 + 18 * row, name))
        x += wide
    return out, 18 * (row + 1) + 4 if key else 0


def scatter(points: Sequence[tuple[float, float, str, str]], key: Sequence[tuple[str, str]]) -> str:
    """Points of the unit square from (x, y, what it is, colour) under a key of (name, colour); a pointer that rests on
    one is told what it is."""
    out, top = _key(key, 8.0)
    top, height = top + 6, 520

    for across, down, said, colour in points:
        cx, cy = 6 + across * (WIDTH - 12), top + 6 + down * (height - top - 12)
        spot = f'<circle class="spot f-{colour}" cx="{cx:.1f}" cy="{cy:.1f}" r="3.2"/>'
        out.append(f"<g><title>{escape(said)}</title>{spot}</g>")
    return _svg(WIDTH, height, out)


def heat(rows: Sequence[tuple[str, Sequence[float]]], x_label: str, top: float) -> str:
    """One strip per row over time, the deeper the larger the value; `top` is the value of the deepest colour."""
    steps = max((len(values) for _, values in rows), default=0)
    if not steps:
        raise ValueError("no values to draw")
    columns = min(90, steps)
    left = 14 + max(cell_len(cut(label)) for label, _ in rows) * 6.6
    cell = (WIDTH - left - 10) / columns
    tall = 16 if len(rows) <= 16 else max(4, 256 // len(rows))
    out = []
    for place, (label, values) in enumerate(rows):
        if len(rows) <= 16 or place % 10 == 0:
            out.append(_text("tick", left - 7, place * tall + tall - 4, cut(label), "end"))
        for column in range(columns):
            part = values[
                column * steps // columns : max((column + 1) * steps // columns, column * steps // columns + 1)
            ]
            depth = min(max(part, default=0.0) / (top or 1), 1.0)
            if depth > 0.01:
                out.append(
                    f'<rect class="f-accent" x="{left + column * cell:.1f}" y="{place * tall}" '
                    f'width="{cell + 0.3:.1f}" height="{tall - 1}" opacity="{depth:.2f}"/>'
                )
    height = tall * len(rows) + 22
    out.append(_text("axis", (left + WIDTH) / 2, height - 5, x_label, "middle"))
    return _svg(WIDTH, height, out)


def spark(drawn: Spark) -> str:
    """A `Spark` for the cell of a table: refused columns warm, limits as lines; empty where nothing can be drawn."""
    out, x = [], 0
    for mark, side in drawn.drawn(24):
        if side == "limit":
            out.append(f'<line class="mark" x1="{x}" x2="{x}" y1="0" y2="16"/>')
            continue
        tall = 2 * (LEVELS.find(mark) + 1)
        colour = "warm" if side == "refused" else "accent"
        out.append(f'<rect class="f-{colour}" x="{x}" y="{16 - tall}" width="4" height="{tall}"/>')
        x += 5
    return _svg(x, 16, out) if out else ""


def _svg(width: float, height: float, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {width:.0f} {height:.0f}" role="img">{"".join(parts)}</svg>'


def _text(kind: str, x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(kind: str, left: float, right: float, y: float) -> str:
    return f'<line class="{kind}" x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'


def _clean(line: Line, log: bool) -> list[tuple[float, float]]:
    pairs = [(float(x), float(y)) for x, y in zip(line.xs, line.ys, strict=True) if x is not None and y is not None]
    return [(x, y) for x, y in pairs if math.isfinite(x) and math.isfinite(y) and (y > 0 or not log)]


def _thin(points: Sequence[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    """At most POINTS of them: means of equal stretches, the first and the last kept as they are."""
    if len(points) <= POINTS:
        return points
    inner = points[1:-1]
    buckets = [inner[i * len(inner) // POINTS : (i + 1) * len(inner) // POINTS] for i in range(POINTS)]
    means = [
        (sum(x for x, _ in bucket) / len(bucket), sum(y for _, y in bucket) / len(bucket))
        for bucket in buckets
        if bucket
    ]
    return [points[0], *means, points[-1]]


def _ticks(low: float, high: float, wanted: int) -> list[float]:
    """Round values within [low, high], about `wanted` of them."""
    raw = (high - low) / max(wanted, 1)
    if raw <= 0:
        return [low]
    power = 10 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    values = [round(index * step, 12) for index in range(first, math.floor(high / step + 1e-9) + 1)]
    return [0.0 if value == 0 else value for value in values]


def _log_ticks(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)] or [10**low, 10**high]


def _apart(ends: list[tuple[float, Line]], gap: float, top: float, bottom: float) -> list[tuple[float, Line]]:
    """Labels moved up or down until none covers another."""
    ends = sorted(ends, key=lambda end: end[0])
    placed: list[float] = []
    for y, _ in ends:
        placed.append(max(y, placed[-1] + gap) if placed else max(y, top))
    over = placed[-1] - bottom if placed else 0
    if over > 0:
        placed[-1] -= over
        for place in range(len(placed) - 2, -1, -1):
            placed[place] = min(placed[place], placed[place + 1] - gap)
    return [(y, line) for y, (_, line) in zip(placed, ends, strict=True)]
