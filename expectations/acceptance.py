"""How often rewriting succeeded: as a whole, by style, by domain, and which check refused."""

from __future__ import annotations

import polars as pl

from expectations.config import RewritesGate
from expectations.rules import Rule, Table, never


def rates(segments: pl.DataFrame, by: str = "") -> pl.DataFrame:
    """Attempts, different segments and rates, of everything or of each group."""
    once = pl.col("candidate") == 0
    counts = {
        "segments": pl.len().cast(pl.Int64),
        "accepted": pl.col("accepted").sum().cast(pl.Int64),
        "asked": (once & (pl.col("attempt") == 0)).sum().cast(pl.Int64),
        "retried": (once & (pl.col("attempt") == 1)).sum().cast(pl.Int64),
    }
    frame = segments.group_by(by).agg(**counts) if by else segments.select(**counts)
    asked = pl.max_horizontal("asked", 1)
    return frame.with_columns(
        acceptance_rate=pl.col("accepted") / pl.max_horizontal("segments", 1),
        retry_rate=pl.col("retried") / asked,
        fallback_rate=(pl.col("asked") - pl.col("accepted")).clip(0) / asked,
    )


def groups(gate: RewritesGate, segments: pl.DataFrame, by: str) -> Table:
    """By style or domain; a group of few attempts is shown, and held to nothing: a floor over it would be chance."""
    large = pl.col("segments") >= gate.group
    frame = (
        rates(segments, by)
        .with_columns(
            floor=pl.when(large).then(gate.group_acceptance_rate).otherwise(0.0),
            retry_ceiling=pl.when(large).then(gate.group_retry_rate).otherwise(1.0),
            fallback_ceiling=pl.when(large).then(gate.group_fallback_rate).otherwise(1.0),
            unnamed=(pl.col(by) == "").cast(pl.Int64),
        )
        .sort(by)
    )
    rules = (
        never(f"Every segment names its {by}", "unnamed", f"rates by {by} are how a bad prompt is found",
              f"let the rewriter record the {by} of each prompt"),
        Rule(f"In every {by} of {gate.group:,} attempts or more enough were accepted", "acceptance_rate",
             f"a good whole can hide a {by} in which nothing works",
             f"drop the {by}, mend its prompt, or lower `gates.rewrites.group_acceptance_rate`", floor="floor",
             unit="share"),
        Rule(f"In every {by} of {gate.group:,} attempts or more few segments were asked for again", "retry_rate",
             "each attempt costs what the first did",
             f"drop the {by}, mend its prompt, or raise `gates.rewrites.group_retry_rate`", ceiling="retry_ceiling",
             unit="share"),
        Rule(f"In every {by} of {gate.group:,} attempts or more few segments were given up", "fallback_rate",
             "originals are trained on in the place of rewrites",
             f"drop the {by}, mend its prompt, or raise `gates.rewrites.group_fallback_rate`",
             ceiling="fallback_ceiling", unit="share"),
    )  # fmt: skip
    return Table(f"{by}s", f"the attempts by {by}", by, frame, rules)


def refused(gate: RewritesGate, segments: pl.DataFrame) -> Table:
    """By the check that refused; those without a ceiling are shown."""
    total = max(segments.height, 1)
    counted = segments.filter(~pl.col("accepted")).group_by("reason").agg(refused=pl.len().cast(pl.Int64))
    absent = [name for name in gate.refused if name not in set(counted["reason"])]
    empty = pl.DataFrame({"reason": absent, "refused": [0] * len(absent)}, schema=counted.schema)
    frame = (
        pl.concat([counted, empty])
        .with_columns(
            share=pl.col("refused") / total,
            ceiling=pl.col("reason").replace_strict(gate.refused, default=1.0, return_dtype=pl.Float64),
        )
        .sort("refused", "reason", descending=[True, False])
    )
    rule = Rule(
        "No check refused more of the attempts than it may",
        "share",
        "a rewriter that repeats itself, answers in another language or refuses prompts is wrongly chosen or set up",
        "`openk2 inspect rewrites CHECK` shows what it refused; or raise `gates.rewrites.refused`",
        ceiling="ceiling",
        unit="share",
    )
    return Table("refused", "the refused attempts by check", "reason", frame, (rule,))
