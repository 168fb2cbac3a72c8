"""What runs.csv of `rephrasing_study.py` says: statistics, Markdown tables and a drawing."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from benchmarks.rephrasing_people import CHANCE
from benchmarks.studies import Row, read_table, spread, table
from tasks.report import charts
from tasks.report.html import drawing

Runs = Sequence[Row]
PAIRS = (
    ("1 rewriting x 10", "original x 10"),
    ("10 rewritings x 1", "1 rewriting x 10"),
    ("10 rewritings x 1", "original x 10"),
    ("10 rewritings x 1, 5 % false", "10 rewritings x 1"),
    ("10 rewritings x 1, 10 % false", "10 rewritings x 1"),
    ("10 rewritings x 1, 20 % false", "10 rewritings x 1"),
)
"""Conditions that are compared seed by seed: the first minus the second."""


def conditions(runs: Runs) -> list[str]:
    """Those that have run, in the order of the study."""
    return list(dict.fromkeys(run["condition"] for run in runs))


def column(runs: Runs, condition: str, key: str = "accuracy") -> dict[float, float]:
    """A condition's values in percent, by seed."""
    return {run["seed"]: 100 * run[key] for run in runs if run["condition"] == condition}


def differences(runs: Runs, one: str, other: str) -> list[float]:
    """Accuracy of the first minus that of the second, in points, over the seeds that have both."""
    first, second = column(runs, one), column(runs, other)
    return [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]


def publish(out: Path) -> str:
    """Draw what runs.csv holds, beside it; its tables as Markdown."""
    runs = read_table(out / "runs.csv")
    (out / "accuracy.svg").write_text(picture(runs), encoding="utf-8")
    return markdown(runs)


def markdown(runs: Runs) -> str:
    """All tables of the page."""
    parts = (_accuracy(runs), _compared(runs), _cost(runs), _control(runs))
    return "\n\n".join(part for part in parts if part)


def picture(runs: Runs) -> str:
    """Every condition's mean accuracy with its interval, as an SVG file."""
    bars = []
    for name in conditions(runs):
        values = list(column(runs, name).values())
        bars.append((name, statistics.fmean(values), f"{_mean(values)} %", "warm" if "false" in name else "accent"))
    return drawing(charts.bars([*bars, ("chance", 100 * CHANCE, f"{100 * CHANCE:.0f} %", "soft")]))


def _mean(values: Sequence[float], sign: str = "") -> str:
    return spread(values, f"{sign}.1f")


def _accuracy(runs: Runs) -> str:
    seeds = sorted({run["seed"] for run in runs})
    rows = []
    for name in conditions(runs):
        found = column(runs, name)
        each = [f"{found[seed]:.1f}" if seed in found else "-" for seed in seeds]
        continued = f"{statistics.fmean(column(runs, name, 'recited').values()):.1f}"
        rows.append([name, *each, _mean(list(found.values())), continued])
    head = ["texts", *(f"seed {seed:.0f}" for seed in seeds), "right, mean and 95 % interval", "own text continued"]
    return table(head, rows)


def _compared(runs: Runs) -> str:
    rows = []
    for one, other in PAIRS:
        if found := differences(runs, one, other):
            ahead = f"{sum(each > 0 for each in found)} of {len(found)}"
            rows.append([f"{one} - {other}", _mean(found, "+"), ahead])
    return table(["points, seed by seed", "mean, 95 % interval", "seeds above 0"], rows)


def _cost(runs: Runs) -> str:
    keys = ("touched", "touched_accuracy", "touched_false", "false")
    rows = [
        [name, *(_mean(list(column(runs, name, key).values())) for key in keys)]
        for name in conditions(runs)
        if "false" in name
    ]
    head = ["corrupted", "facts with a false text", "right there", "false value answered there", "of all questions"]
    return table(head, rows) if rows else ""


def _control(runs: Runs) -> str:
    """The same questions about background people: mean over each seed's runs, which began with the same weights."""
    rows = []
    for label, key in (("told and asked about", "background"), ("told, never asked about", "only_read")):
        by_seed: dict[float, list[float]] = {}
        for run in runs:
            by_seed.setdefault(run["seed"], []).append(100 * run[key])
        rows.append([label, _mean([statistics.fmean(values) for values in by_seed.values()])])
    return table(["background people", "right, mean and 95 % interval"], rows)
