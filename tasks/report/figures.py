"""Charts as blocks: the drawing for the page, and its figures in words for markdown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tasks.report import charts, words
from tasks.report.blocks import Chart, Spark
from tasks.report.charts import Line

HALF = 400
"""Width of a drawing that stands beside another."""


def bars(
    rows: Sequence[tuple[str, float, str, str]], caption: str, title: str = "", width: int = charts.WIDTH
) -> Chart:
    """`charts.bars` of rows of (label, value, text, colour)."""
    return Chart(charts.bars(rows, width), caption, title, [(label, text) for label, _, text, _ in rows])


def counted(
    counts: Mapping[str, float], caption: str, title: str = "", colour: str = "accent", total: float = 0
) -> Chart:
    """Bars of counts by name, the largest first; each with its share of `total`, where that is given."""
    rows = []
    for name, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        share = f" · {words.share(count / total)}" if total else ""
        rows.append((words.name(name), count, f"{words.count(count)}{share}", colour))
    return bars(rows, caption, title)


def histogram(
    edges: Sequence[float],
    counts: Sequence[int],
    x_label: str,
    caption: str,
    title: str = "",
    least: float | None = None,
    most: float | None = None,
    width: int = charts.WIDTH,
) -> Chart:
    """`charts.histogram`; in words the bins that hold something."""
    data = [
        (f"{words.figure(low)} to {words.figure(high)}", words.count(count))
        for low, high, count in zip(edges, edges[1:], counts, strict=False)
        if count
    ]
    drawing = charts.histogram(edges, counts, x_label, least, most, width)
    return Chart(drawing, caption, title, data, [("", Spark(edges, counts, least, most))])


def stacked(
    rows: Sequence[tuple[str, Sequence[tuple[float, str]], str]],
    key: Sequence[tuple[str, str]],
    caption: str,
    title: str = "",
) -> Chart:
    """`charts.stacked`; in words the shares of each row by the names of the key."""
    names = {colour: name for name, colour in key}
    data = [
        (label, ", ".join(f"{names.get(colour, colour)} {words.share(share)}" for share, colour in shares if share))
        for label, shares, _ in rows
    ]
    return Chart(charts.stacked(rows, key), caption, title, data)


def spans(rows: Sequence[tuple[str, float, float, float, str, str]], caption: str, title: str = "") -> Chart:
    """`charts.spans` of rows of (label, low, value, high, text, colour)."""
    data = [(label, f"{text} ({100 * low:.0f} to {100 * high:.0f})") for label, low, _, high, text, _ in rows]
    return Chart(charts.spans(rows), caption, title, data)


def scatter(
    points: Sequence[tuple[float, float, str, str]],
    key: Sequence[tuple[str, str]],
    caption: str,
    title: str = "",
) -> Chart:
    """`charts.scatter`; in words how many points there are of each name of the key."""
    counts = Counter(colour for *_, colour in points)
    data = [(name, words.count(counts[colour])) for name, colour in key]
    return Chart(charts.scatter(points, key), caption, title, data)


def lines(series: Sequence[Line], x_label: str, caption: str, title: str = "", **options: Any) -> Chart:
    """`charts.lines`; in words each line is its first and its last value."""
    say = options.get("y_format", words.figure)
    drawn = charts.lines(series, x_label, **options)  # ValueError where there is nothing to say either
    known = {line.label: [y for y in line.ys if _known(y)] for line in series if not line.faint}
    data = [(label, f"{say(ys[0])} to {say(ys[-1])}") for label, ys in known.items() if ys]
    courses = (line for line in series if not line.faint and not line.dots and len(line.ys) > 1)
    sparks = [(line.label, _course(line)) for line in courses]
    return Chart(drawn, caption, title, data, sparks)


def _course(line: Line) -> Spark:
    """A line as a row of characters; what is no number stands at 0."""
    xs = list(line.xs)
    ys = [y if _known(y) else 0.0 for y in line.ys]
    return Spark(xs, [(a + b) / 2 for a, b in pairwise(ys)], course=True)


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def smoothed(
    xs: Sequence[float], ys: Sequence[float], colour: str, x_label: str, caption: str, title: str, **options: Any
) -> Chart:
    """Raw values, pale, behind their running mean."""
    series = [Line("raw", xs, ys, colour, faint=True), Line(title, xs, charts.smooth(ys), colour)]
    return lines(series, x_label, caption, title, **options)
