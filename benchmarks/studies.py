"""What the studies of docs/claims/ share: tables as CSV and Markdown, and means with their intervals."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
# Student's t, two-sided 95 %, by degrees of freedom (any table of it)
STUDENT: tuple[float, ...] = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
STUDENT += (2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


def read_table(path: Path) -> list[Row]:
    """A CSV file's rows, numbers as numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def write_table(path: Path, rows: Sequence[Row]) -> None:
    """The rows, which have the same columns, as a CSV file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its 95 % interval by Student's t; infinite for a single value."""
    freedom = min(len(values) - 1, len(STUDENT) - 1)
    if not freedom:
        return values[0], math.inf
    return statistics.fmean(values), STUDENT[freedom] * statistics.stdev(values) / math.sqrt(len(values))


def spread(values: Sequence[float], form: str) -> str:
    """The mean and half its interval, each as `form` has it; of a single value no interval."""
    mean, half = interval(values)
    return f"{mean:{form}}" + (f" ± {half:{form.lstrip('+')}}" if math.isfinite(half) else "")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
