"""Numbers and names as people write them."""

from __future__ import annotations

import re
from typing import Any

from model.visible import flat

SCALES = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
BYTES = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
BINARY = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"))

NOTHING = "–"
"""What stands for a value that is not known."""


def count(value: float | None) -> str:
    """`1,204`, exactly."""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float) -> str:
    """`12.3M`: three figures and a scale."""
    for factor, name in SCALES:
        if abs(value) >= 0.9995 * factor and abs(value) >= 1000:  # what would be rounded to 1000 of the scale below
            return f"{value / factor:.3g}{name}" if abs(value) < 999.5 * factor else f"{value / factor:,.0f}{name}"
    return figure(value)


def size(value: float, binary: bool = False) -> str:
    """Bytes: `3.1 MB`, or `3.0 MiB` where powers of two are meant."""
    for factor, name in BINARY if binary else BYTES:
        if abs(value) >= 0.99995 * factor:
            return f"{value / factor:,.1f} {name}"
    return f"{value:,.0f} B"


def share(value: float | None) -> str:
    """`12.5 %`."""
    if value is None:
        return NOTHING
    return f"{100 * value:.1f} %" if abs(value) >= 0.001 or value == 0 else f"{100 * value:.2g} %"


def percent(value: float) -> str:
    """`25 %`, for axes."""
    return f"{100 * value:.3g} %"


def figure(value: float) -> str:
    """Whole numbers whole, others with four figures."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:,.4g}" if abs(value) >= 1e-4 else f"{value:.2e}"


def duration(seconds: float) -> str:
    """`4.2 s`, `3:07 min`, `2:05 h`."""
    if seconds < 59.95:
        return f"{max(0.0, seconds):.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}:{rest:02} min"
    return f"{minutes // 60}:{minutes % 60:02} h"


def name(text: str) -> str:
    """`near_duplicates` as `near duplicates`."""
    return text.replace("_", " ")


def anchor(text: str) -> str:
    """The id of a section of this title."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def unmarked(text: str) -> str:
    """A name from data as text of our own: no markup can stand in it."""
    return re.sub(r"[^\w .:/-]", "?", flat(text))


def plain(value: Any) -> str:
    """Any statistic as a cell of a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return figure(value)
    if value is None:
        return NOTHING
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value[:12])) + (f", … ({len(value):,} in all)" if len(value) > 12 else "")
    return str(value)
