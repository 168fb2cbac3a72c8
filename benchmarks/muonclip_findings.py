"""What the tables of `muonclip_study.py` say: statistics, Markdown tables and drawings, from the CSV files alone."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tasks.report import charts
from tasks.report.charts import Band, Line
from tasks.report.html import drawing

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]
NAMES = {"muonclip": "MuonClip", "adamw": "AdamW", "muon": "Muon"}
COLOURS = {"muonclip": "accent", "adamw": "warm", "muon": "warm"}
# Student's t, two-sided 95 %, by degrees of freedom (any table of it)
STUDENT = (math.inf, 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
PARTS = {"forced": "", "tail": ", gone on with at the last rate"}
THIRDS = 3


def load(folder: Path) -> dict[str, list[Row]]:
    """The tables, numbers as numbers."""
    return {name: read_table(folder / f"{name}.csv") for name in ("runs", "heldout", "logits")}


def read_table(path: Path) -> list[Row]:
    """A CSV file's rows, numbers as numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return [{key: _value(text) for key, text in row.items()} for row in csv.DictReader(file)]


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def publish(folder: Path) -> str:
    """Draw what the tables in `folder` hold, beside them; the tables of the page as Markdown."""
    tables = load(folder)
    for name, svg in drawings(tables).items():
        (folder / f"{name}.svg").write_text(drawing(svg), encoding="utf-8")
    return markdown(tables)


# --------------------------------------------------------------------------------------------------------- statistics


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half the width of its 95 % interval by Student's t; infinite for a single value."""
    freedom = min(len(values) - 1, len(STUDENT) - 1)
    if not freedom:
        return values[0], math.inf
    return statistics.fmean(values), STUDENT[freedom] * statistics.stdev(values) / math.sqrt(len(values))


@dataclass(frozen=True)
class Reach:
    """Tokens at which a loss is reached."""

    tokens: float
    bound: str = ""
    """`at most` where the first point already lies below the loss, `more than` where none does."""


def reach(points: Iterable[tuple[float, float]], loss: float) -> Reach:
    """Where points (tokens, loss) first come down to `loss`, on straight lines over the logarithm of tokens."""
    ordered = sorted(points)
    before = None
    for tokens, value in ordered:
        if value <= loss:
            if before is None:
                return Reach(tokens, "at most")
            share = (before[1] - loss) / (before[1] - value)
            return Reach(math.exp(math.log(before[0]) + share * math.log(tokens / before[0])))
        before = tokens, value
    return Reach(ordered[-1][0], "more than")


@dataclass(frozen=True)
class Pair:
    """Both sides on one seed, and the shares of AdamW's tokens at which MuonClip has AdamW's last loss."""

    seed: str
    adamw: float
    muonclip: float
    by_plan: Reach | None
    """Among whole plans of several lengths; tokens as a share of AdamW's."""
    by_curve: Reach
    """Within the plan of full length, whose rate has not come down by then."""


def pairs(tables: Tables) -> list[Pair]:
    """The comparison, seed by seed, as far as both sides have run."""
    found = []
    for base, plans in _baselines(tables):
        whole = [row for row in plans if row["updates"] == base["updates"]]
        if not whole:
            continue
        curve = [row for row in tables["heldout"] if _same(row, whole[0])]
        by_plan = _reach(plans, base) if len(plans) > 1 else None
        seed = f"{base['seed']:.0f}" + (", the sweep's" if base["part"] == "sweep" else "")
        found.append(Pair(seed, base["heldout"], whole[0]["heldout"], by_plan, _reach(curve, base)))
    return found


def longer(tables: Tables) -> list[tuple[Row, Reach]]:
    """AdamW's plans that are longer than any of MuonClip's, and the share of their tokens that MuonClip takes."""
    return [
        (base, _reach(plans, base))
        for base, plans in _baselines(tables)
        if plans and base["updates"] > max(row["updates"] for row in plans)
    ]


def _baselines(tables: Tables) -> Iterable[tuple[Row, list[Row]]]:
    """AdamW's runs of the comparison, each with MuonClip's on its seed; before them the best of either sweep."""
    sweep, runs = ([row for row in tables["runs"] if row["part"] == part] for part in ("sweep", "equal"))
    if len(_sides(sweep)) == 2:
        best = {side: min(_of(sweep, side), key=lambda row: row["heldout"]) for side in _sides(sweep)}
        yield best["adamw"], [best["muonclip"]]
    for base in _of(runs, "adamw"):
        yield base, [row for row in _of(runs, "muonclip") if row["seed"] == base["seed"]]


def _reach(rows: Sequence[Row], base: Row) -> Reach:
    return reach([(row["tokens"] / base["tokens"], row["heldout"]) for row in rows], base["heldout"])


def _same(row: Row, run: Row) -> bool:
    return all(row[key] == run[key] for key in ("part", "side", "rate", "seed", "updates"))


def clipped_share(logits: Sequence[Row], heads: int) -> list[float]:
    """Share of a run's heads that were clipped, by thirds of its updates."""
    rows = sorted(logits, key=lambda row: row["update"])
    parts = [rows[len(rows) * n // THIRDS : len(rows) * (n + 1) // THIRDS] for n in range(THIRDS)]
    return [statistics.fmean(row["clipped_heads"] for row in part) / heads for part in parts]


# ------------------------------------------------------------------------------------------------------------ Markdown


def markdown(tables: Tables) -> str:
    """All tables of the page."""
    parts = [_sweep(tables["runs"]), _equal(pairs(tables)), _longer(tables), _forced(tables)]
    return "\n\n".join(part for part in parts if part)


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _sweep(runs: Sequence[Row]) -> str:
    rows = sorted((row for row in runs if row["part"] == "sweep"), key=lambda row: (row["side"], row["rate"]))
    best = {side: min((r for r in rows if r["side"] == side), key=lambda r: r["heldout"]) for side in _sides(rows)}
    return table(
        ["sweep", "peak rate", "held-out loss", "largest logit"],
        [
            [
                NAMES[row["side"]],
                f"{row['rate']:g}",
                f"**{row['heldout']:.3f}**" if row is best[row["side"]] else f"{row['heldout']:.3f}",
                f"{row['largest_logit']:.1f}",
            ]
            for row in rows
        ],
    )


def _sides(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["side"] for row in rows))


def _equal(found: Sequence[Pair]) -> str:
    if not found:
        return ""
    rows = [
        [
            pair.seed,
            f"{pair.adamw:.3f}",
            f"{pair.muonclip:.3f}",
            f"{pair.adamw - pair.muonclip:.3f}",
            _share(pair.by_plan),
            _share(pair.by_curve),
        ]
        for pair in found
    ]
    columns: list[list[float]] = [
        [pair.adamw for pair in found],
        [pair.muonclip for pair in found],
        [pair.adamw - pair.muonclip for pair in found],
    ]
    means = [_mean(values, "{:.3f}") for values in columns]
    for reaches in ([pair.by_plan for pair in found], [pair.by_curve for pair in found]):
        known = [100 * each.tokens for each in reaches if each and not each.bound]
        means.append(_mean(known, "{:.0f}") + " %" if known else "-")
    head = ["seed", "AdamW", "MuonClip", "AdamW - MuonClip", "tokens to reach it, whole plans", "on the way"]
    return table(head, [*rows, ["mean, 95 % interval", *means]])


def _longer(tables: Tables) -> str:
    rows = [
        [f"{base['seed']:.0f}", f"{base['tokens']:,.0f}", f"{base['heldout']:.3f}", _share(each)]
        for base, each in longer(tables)
    ]
    head = ["seed", "tokens of AdamW's longer plan", "AdamW", "tokens to reach it, whole plans"]
    return table(head, rows) if rows else ""


def _share(each: Reach | None) -> str:
    return "not run" if each is None else f"{each.bound} {100 * each.tokens:.0f} %".strip()


def _mean(values: Sequence[float], form: str) -> str:
    mean, half = interval(values)
    return form.format(mean) + (f" ± {form.format(half)}" if math.isfinite(half) else "")


def _forced(tables: Tables) -> str:
    rows = []
    for run in (row for row in tables["runs"] if row["part"] in PARTS):
        logits = [row for row in tables["logits"] if _same(row, run)]
        shares = clipped_share(logits, int(run["heads"]))
        rows.append(
            [
                NAMES[run["side"]] + PARTS[run["part"]],
                f"{run['seed']:.0f}",
                f"{run['heldout']:.3f}",
                f"{run['largest_logit']:.1f}",
                f"{run['final_logit']:.1f}",
                ", ".join(f"{100 * share:.0f} %" for share in shares),
                f"{run['last_clipped']:.0f} of {run['updates']:.0f}" if run["last_clipped"] else "none",
            ]
        )
    head = ["forced", "seed", "held-out loss", "largest logit", "in the last update"]
    return table([*head, "heads clipped, by thirds of the run", "last update that clipped"], rows) if rows else ""


# ------------------------------------------------------------------------------------------------------------ drawings


def drawings(tables: Tables) -> dict[str, str]:
    """The charts of what there is, by name."""
    runs, heldout = tables["runs"], tables["heldout"]
    made: dict[str, str] = {}
    sweep = [row for row in runs if row["part"] == "sweep"]
    if sweep:
        lowest = min(row["rate"] for row in sweep)
        made["sweep"] = charts.lines(
            [
                _line(side, [(math.log2(row["rate"] / lowest), row["heldout"]) for row in _of(sweep, side)])
                for side in _sides(sweep)
            ],
            "peak learning rate (last held-out loss, nats a token)",
            x_format=lambda x: f"{lowest * 2**x:.2g}" if float(x).is_integer() else "",
            width=580,
        )
    found = pairs(tables)
    if found:
        whole = min(row["updates"] for row in runs if row["part"] == "equal" and row["side"] == "adamw")
        equal = [row for row in heldout if row["part"] == "equal" and row["updates"] == whole]
        after = sorted({row["tokens"] for row in equal})[2:]  # the first two are the warm-up and just after
        equal = [row for row in equal if row["tokens"] in after]
        made["heldout"] = charts.lines(_by_seed(equal, "tokens", "heldout"), "tokens (held-out loss, nats a token)")
        plans = [row for row in runs if row["part"] == "equal" and row["side"] == "muonclip"]
        marks = [("AdamW with the tokens of the longest plan", statistics.fmean(pair.adamw for pair in found))]
        marks += [("AdamW with twice the tokens", base["heldout"]) for base, _ in longer(tables)]
        made["plans"] = charts.lines(
            _by_seed(plans, "tokens", "heldout"), "tokens of a whole plan (MuonClip's last held-out loss)", marks=marks
        )
    logits = [row for row in tables["logits"] if row["part"] == "forced"]
    tau = [row["tau"] for row in runs if row["part"] == "forced" and row["side"] == "muonclip"]
    if logits:
        made["logits"] = charts.lines(
            _by_seed(logits, "update", "max_logit"),
            "update (largest attention logit before the step)",
            marks=[("tau", value) for value in tau[:1]],
            log=True,
        )
        made["forced"] = charts.lines(
            _by_seed(logits, "update", "loss"), "update (training loss, nats a token)", height=220
        )
        tail = [row for row in tables["logits"] if row["part"] == "tail"]
        clipped = tail or _of(logits, "muonclip")
        plan, end = (max((row["update"] for row in rows), default=0) for rows in (logits, tail))
        bands = [Band("the plan", 0, plan), Band("its last rate", plan, end)] if tail else []
        if clipped:
            made["clips"] = charts.lines(
                _by_seed(clipped, "update", "clipped_heads"),
                "update (heads clipped in it, MuonClip)",
                height=200,
                bands=bands,
            )
    return made


def _of(rows: Sequence[Row], side: str) -> list[Row]:
    return [row for row in rows if row["side"] == side]


def _line(side: str, points: Iterable[tuple[float, float]], faint: bool = False) -> Line:
    xs, ys = zip(*sorted(points), strict=True)
    return Line(NAMES[side], xs, ys, COLOURS[side], faint)


def _by_seed(rows: Sequence[Row], x: str, y: str) -> list[Line]:
    """Of every side each seed's line, faint, and the mean over the seeds that have the place."""
    made = []
    for side in _sides(rows):
        own = _of(rows, side)
        for seed in sorted({row["seed"] for row in own}):
            made.append(_line(side, [(row[x], row[y]) for row in own if row["seed"] == seed], faint=True))
        places: dict[float, list[float]] = {}
        for row in own:
            places.setdefault(row[x], []).append(row[y])
        made.append(_line(side, [(place, statistics.fmean(values)) for place, values in places.items()]))
    return made
