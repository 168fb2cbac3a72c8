"""Suites as blocks: models side by side, what changed between them, and long context. The report's chapter and the page
of `openk2 evaluate --compare` are made of these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tasks.evaluate.statistics import paired_difference
from tasks.report import figures, words
from tasks.report.blocks import Block, Charts, Heat, Problem, Table
from tasks.report.charts import Line

COLOURS = ("accent", "web", "math", "code", "knowledge", "soft")
LEAST = 2  # points that make a line


@dataclass(frozen=True)
class Tried:
    """One model that was measured."""

    label: str
    records: Mapping[str, Any]
    """By suite."""
    finished: str = ""
    run: str = ""
    """Which measurement it is of: the artifact's fingerprint."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By suite and item; empty where only the records are at hand."""


def suites(models: Sequence[Tried]) -> list[str]:
    """The names of all suites, in the order of the presets."""
    return list(dict.fromkeys(name for model in models for name in model.records))


def scored(model: Tried, suite: str) -> Mapping[str, float] | None:
    """The suite's score on a model; None where there is none."""
    found: Mapping[str, float] | None = model.records.get(suite, {}).get("score")
    return found


def side_by_side(models: Sequence[Tried]) -> Iterable[Block]:
    """Every suite's score on every model"""
    rows = []
    for name in suites(models):
        of = [model.records.get(name, {}) for model in models]
        told = next((one for one in of if one.get("score")), None)
        if told is not None:
            held = {one["contaminated"] for one in of if "contaminated" in one}
            rows.append([f"**{name}**, {told['measure']}", _held(held), *(_cell(one) for one in of)])
    if rows:
        head = ("suite", "contaminated", *(f"#{model.label}" for model in models))
        caption = (
            "Share of the items, its 95 % interval, and how many items there were. Contaminated: items of which the "
            "training corpus holds a run of words, by the rule that keeps evaluation sets out of it."
        )
        yield Table(head, rows, caption)


def intervals(models: Sequence[Tried]) -> Iterable[Block]:
    """The scores with their intervals, drawn"""
    charts = []
    for name in suites(models):
        rows = [
            (model.label, score["low"], score["value"], score["high"], words.share(score["value"]), _colour(model))
            for model in models
            if (score := scored(model, name))
        ]
        if rows:
            charts.append(figures.spans(rows, "", name))
    if charts:
        yield Charts(charts)


def changes(models: Sequence[Tried]) -> Iterable[Block]:
    """What changed from each model to the next, on the same items"""
    rows = []
    for before, after in pairwise(models):
        for name in suites([before, after]):
            one, other = before.scores.get(name, {}), after.scores.get(name, {})
            if one and one.keys() == other.keys():
                found = paired_difference([one[item] for item in one], [other[item] for item in one])
                spread = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
                verdict = "rose" if found.low > 0 else "fell" if found.high < 0 else "no difference shown"
                rows.append([name, f"{before.label} to {after.label}", f"{100 * found.value:+.1f}", spread, verdict])
    if rows:
        caption = "Points of the score, paired over items, with 95 % intervals: narrower than those of the scores."
        yield Table(("suite", "models", "#change", "#interval", ""), rows, caption)


def long_context(models: Sequence[Tried]) -> Iterable[Block]:
    """Long context: needles by length and depth, loss by position"""
    for model in models:
        for name, record in model.records.items():
            grid = record.get("details", {}).get("grid")
            if grid:
                depths = list(next(iter(grid.values())))
                rows = [
                    (f"{int(length):,} tokens", [(found[depth], words.percent(found[depth])) for depth in depths])
                    for length, found in grid.items()
                ]
                corner = f"{model.label}, {name}: found"
                yield Heat(corner, [f"depth {words.percent(float(depth))}" for depth in depths], rows)
    charts = []
    for model in models:
        for name, record in model.records.items():
            details = record.get("details", {})
            if bins := details.get("bins"):
                xs = [(one["from"] + one["to"]) / 2 for one in bins]
                lines = [Line("as it is", xs, [one["loss"] for one in bins])]
                if "without_yarn" in bins[0]:
                    lines.append(Line("without YaRN", xs, [one["without_yarn"] for one in bins], "math"))
                caption = (
                    f"Held-out loss over {details['windows']} windows of {details['length']:,} tokens; trained on "
                    f"{details['trained_window']:,} before the window was stretched."
                )
                options = {"width": figures.HALF, "height": 220}
                charts.append(
                    figures.lines(lines, "position in the window", caption, f"{model.label}, {name}, nats", **options)
                )
    if charts:
        yield Charts(charts)


def over_time(models: Sequence[Tried]) -> Iterable[Block]:
    """How the scores went from measurement to measurement"""
    charts = []
    for name in suites(models):
        of: dict[str, list[tuple[int, float]]] = {}
        runs = list(dict.fromkeys(model.run for model in sorted(models, key=lambda model: model.finished)))
        for model in models:
            if score := scored(model, name):
                of.setdefault(model.label, []).append((runs.index(model.run) + 1, score["value"]))
        lines = [
            Line(label, [x for x, _ in points], [y for _, y in points], COLOURS[place % len(COLOURS)])
            for place, (label, found) in enumerate(of.items())
            if len(points := sorted(found)) >= LEAST
        ]
        if lines:
            options = {"y_format": words.percent, "y_range": (0.0, 1.0), "width": figures.HALF, "height": 200}
            charts.append(figures.lines(lines, "measurement, oldest first", "", name, **options))
    if charts:
        yield Charts(charts)


def unmeasured(models: Sequence[Tried]) -> Iterable[Block]:
    """What could not be measured"""
    said: dict[tuple[str, str], list[str]] = {}
    for model in models:
        for name, record in model.records.items():
            if "unmeasured" in record:
                said.setdefault((name, record["unmeasured"]), []).append(model.label)
    for (name, why), labels in said.items():
        yield Problem(f"`{name}` is not measured on {', '.join(labels)}: {why}")


def _cell(record: Mapping[str, Any]) -> str:
    if "unmeasured" in record:
        return "not measured"
    if not record.get("score"):
        return "–"
    score = record["score"]
    return f"{words.share(score['value'])} ({100 * score['low']:.0f} to {100 * score['high']:.0f}) of {record['items']}"


def _held(held: set[int | None]) -> str:
    if not held:
        return "–"
    return "not looked for" if None in held else " or ".join(str(count) for count in sorted(held, key=str))


def _colour(model: Tried) -> str:
    return "accent" if model.label.startswith(("bf16", "int4")) else "soft"
