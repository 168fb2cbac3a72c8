"""Suites as blocks: models side by side, what changed between them, and long context. The report's chapter and the page
of `openk2 evaluate --compare` are made of these."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tasks.report import figures, words
from tasks.report.blocks import Block, Charts, Heat, Problem, Table
from tasks.report.charts import Line
from training.intervals import paired_difference

COLOURS = ("accent", "math", "code", "knowledge", "soft")
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
        told = [one for one in of if one.get("score")]
        if told:
            items = _each(one["items"] for one in told)
            held = _each(one["contaminated"] for one in told if "contaminated" in one)
            rows.append([f"**{name}**, {told[0]['measure']}", items, held, *map(_cell, of)])
            if any(one.get("clean") for one in told):
                clean = [_rate(one["clean"]) if one.get("clean") else "–" for one in of]
                rows.append([f"{name}, without those", "", "", *clean])
    if rows:
        head = ("suite", "#items", "#contaminated", *(f"#{model.label}" for model in models))
        caption = (
            "Share of the items with its 95 % interval. Contaminated: items of which the training corpus holds a run "
            "of words, by the rule that keeps evaluation sets out of it."
        )
        yield Table(head, rows, caption)


def changes(models: Sequence[Tried]) -> Iterable[Block]:
    """What changed from each model to the next, on the same items"""
    rows: list[list[str]] = []
    for before, after in pairwise(models):
        of: list[list[str]] = []
        alike = []
        for name in suites([before, after]):
            one, other = before.scores.get(name, {}), after.scores.get(name, {})
            if not one or one.keys() != other.keys():
                continue
            if one == other:
                alike.append(name)
                continue
            found = paired_difference([one[item] for item in one], [other[item] for item in one])
            spread = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
            verdict = "rose" if found.low > 0 else "fell" if found.high < 0 else "no difference shown"
            of.append([name, f"{100 * found.value:+.1f}", spread, verdict])
        if alike:
            of.append([", ".join(alike), "–", "–", "every item scored as before"])
        if of:
            rows += [[f"{before.label} to {after.label}"], *of]
    if rows:
        caption = "Points of the score, paired over items, with 95 % intervals: narrower than those of the scores."
        yield Table(("suite", "#change", "#interval", ""), rows, caption)


def needles(models: Sequence[Tried]) -> Iterable[Block]:
    """Needles found, by length of the context and depth"""
    for name in suites(models):
        grids = [(model.label, model.records.get(name, {}).get("details", {}).get("grid", {})) for model in models]
        # a model from elsewhere may have been tried at others
        depths = sorted({depth for _, grid in grids for found in grid.values() for depth in found}, key=float)
        rows = [
            (
                f"{label}, {int(length):,} tokens",
                [(found[depth], words.percent(found[depth])) if depth in found else None for depth in depths],
            )
            for label, grid in grids
            for length, found in sorted(grid.items(), key=lambda one: int(one[0]))
        ]
        if rows:
            caption = "Share of the hidden numbers that the model gives; depth 0 is the beginning of the context."
            yield Heat(name, [f"depth {words.percent(float(depth))}" for depth in depths], rows, caption)


def groups(models: Sequence[Tried]) -> Iterable[Block]:
    """Suites that have parts (generators and levels, styles of attack, APIs), part by part"""
    for name in suites(models):
        of = {model.label: model.records.get(name, {}).get("details", {}).get("by", {}) for model in models}
        parts = dict.fromkeys(part for found in of.values() for part in found)
        labels = [label for label, found in of.items() if found]
        rows = [[part, *(_rate(of[label][part]) if part in of[label] else "–" for label in labels)] for part in parts]
        if len(rows) > 1:
            yield Table((name, *(f"#{label}" for label in labels)), rows)


def losses_by_position(models: Sequence[Tried]) -> Iterable[Block]:
    """Loss by position in the window"""
    charts = []
    for model in models:
        for name, record in model.records.items():
            details = record.get("details", {})
            if bins := details.get("bins"):
                # each bin is as wide as all before it: a logarithmic axis
                xs = [math.log2(one["to"]) for one in bins]
                lines = [Line("as it is", xs, [one["loss"] for one in bins])]
                if "without_yarn" in bins[0]:
                    lines.append(Line("without YaRN", xs, [one["without_yarn"] for one in bins], "math"))
                caption = (
                    f"Nats per token up to each position, over {details['windows']} held-out windows of "
                    f"{details['length']:,} tokens; trained on {details['trained_window']:,} before YaRN."
                )
                options = {"width": figures.HALF, "height": 220, "x_format": lambda x: words.count(2**x)}
                charts.append(figures.lines(lines, "position", caption, f"{model.label}: {name}", **options))
    if charts:
        yield Charts(charts)


def over_time(models: Sequence[Tried]) -> Iterable[Block]:
    """How the scores went from measurement to measurement"""
    charts = []
    for name in suites(models):
        of: dict[str, list[Mapping[str, float]]] = {}
        for model in sorted(models, key=lambda model: model.finished):
            if score := scored(model, name):
                of.setdefault(model.label, []).append(score)
        lines = [
            Line(
                label,
                range(1, len(found) + 1),
                [one[end] for one in found],
                COLOURS[place % len(COLOURS)],
                end != "value",
            )
            for place, (label, found) in enumerate(of.items())
            if len(found) >= LEAST
            for end in ("low", "high", "value")
        ]
        if lines:
            options = {"y_format": words.percent, "y_range": (0.0, 1.0), "width": figures.HALF, "height": 200}
            options["x_format"] = lambda x: f"{x:g}" if x == round(x) else ""
            charts.append(figures.lines(lines, "measurements of that checkpoint, oldest first", "", name, **options))
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
    return _rate(record["score"])


def _rate(score: Mapping[str, float]) -> str:
    return f"{words.percent(score['value'])} ({100 * score['low']:.0f} to {100 * score['high']:.0f})"


def _each(values: Iterable[int | None]) -> str:
    """A figure that the models share, or each where they differ."""
    found = list(dict.fromkeys(values))
    return ", ".join("not looked for" if value is None else str(value) for value in found) or "–"
