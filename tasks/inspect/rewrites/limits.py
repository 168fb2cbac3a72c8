"""What a check refuses, in a sentence, and the threshold its score is held to in one artifact."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from tasks.artifact import Artifact

ENGINE = "engine"
"""The reason of an attempt that the engine itself refused: no check has its name."""

SENTENCES = {
    "finished": "Empty answers, and answers that the engine cut at their longest length.",
    "length": "Characters of the rewrite over its source's, outside the band.",
    "refusal": "Refusals, and talk about the task instead of the text.",
    "repetition": "Loops: 4-grams that stood before, over what the source itself repeats; or a sentence said twice.",
    "copied": "Words in runs of six or more from the source: a copy is one more epoch and no rewrite.",
    "seam": "Words that say again what the rewritten segment before it said.",
    "language": "Another script or language than the source's.",
    "numbers": "A number lost, invented, or with another unit; 1 is all kept and none invented.",
    "formulas": "A formula lost, or invented where the style adds none; 1 is all kept.",
    "code": "A code span, URL or identifier lost or invented; 1 is all kept.",
    "negations": "Denials that nothing on the other side explains.",
    "opposites": "A word turned into its opposite.",
    "entities": "Names lost, or found in the rewrite alone; the score is the share kept.",
    "cosine": "The two texts' embeddings lie too far apart.",
    "coverage": "A sentence that nothing on the other side is near to: dropped or added.",
    "entailment": "The source does not entail the rewrite, or the rewrite the source, says a model trained for that.",
    "nli": "The source does not entail the rewrite, or the rewrite the source, says a model trained for that.",
    "judge": "A language model that was asked says that the rewrite is not faithful.",
    ENGINE: "The engine refused the prompt: too long for it, or against its rules.",
}


@dataclass(frozen=True)
class Limit:
    """The band of scores that pass; None on a side without a threshold."""

    least: float | None = None
    most: float | None = None
    by_style: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Bands of styles that have one of their own."""
    where: str = ""
    """The field that sets it."""

    def of(self, style: str) -> tuple[float | None, float | None]:
        """(least, most) as `style` has it."""
        return self.by_style.get(style, (self.least, self.most))


@dataclass(frozen=True)
class Limits:
    """The thresholds of one artifact, by check."""

    checks: Mapping[str, Limit]

    @classmethod
    def of(cls, artifact: Artifact) -> Limits:
        """As the artifact publishes them; for one that does not, as its configuration gives those that have kept
        their names."""
        stated = artifact.statistics.get("thresholds")
        if not stated:
            config = (artifact.manifest.get("config") or {}).get("alignment") or {}
            stated = {name: _stated(name, config[name]) for name in _OLD if name in config}
        found = {}
        for name, record in stated.items():
            bands = {style: (float(a), float(b)) for style, (a, b) in (record.get("by_style") or {}).items()}
            found[str(name)] = Limit(record.get("least"), record.get("most"), bands, str(record.get("field") or ""))
        return cls(found)

    def get(self, check: str) -> Limit:
        """The limit of `check`; one without sides where its score has none."""
        return self.checks.get(check, Limit())

    def distance(self, names: Sequence[str]) -> pl.Expr:
        """How near an attempt was to another verdict, from 0: of a refused one the distance of the refusing check's
        score from its threshold (from 1 where it has none), of an accepted one the smallest over all checks; 1 is the
        way from the threshold to the best score. Null where there is no score."""
        own, margins = pl.lit(None, pl.Float64), []
        for name in names:
            limit, score = self.get(name), pl.col("scores").struct.field(name)
            if limit.least is None and limit.most is None:
                gap = (1 - score).abs()
            else:
                low, high = _side(limit, 0), _side(limit, 1)
                best = pl.lit(1.0 if limit.least is not None else 0.0)
                gaps = [(score - side).abs() / pl.max_horizontal((best - side).abs(), 1e-6) for side in (low, high)]
                gap = pl.min_horizontal(gaps)
                margins.append(gap)
            own = pl.when(pl.col("reason") == name).then(gap).otherwise(own)
        margin = pl.min_horizontal(margins) if margins else pl.lit(None, pl.Float64)
        return pl.when("accepted").then(margin).otherwise(own).fill_nan(None)


def _side(limit: Limit, at: int) -> pl.Expr:
    """The least (0) or the most (1) of every row, by its style; null on a side without a threshold."""
    plain = (limit.least, limit.most)[at]
    own = {style: band[at] for style, band in limit.by_style.items()}
    default = pl.lit(None if plain is None else float(plain), pl.Float64)
    return pl.col("style").replace_strict(own, default=default, return_dtype=pl.Float64) if own else default


_OLD = ("length", "copied", "seam", "entities", "cosine", "coverage")


def _stated(name: str, value: Any) -> dict[str, Any]:
    if isinstance(value, list | tuple):
        return {"least": value[0], "most": value[1]}
    return {"most": value} if name in ("copied", "seam") else {"least": value}


def sentence(check: str) -> str:
    """What `check` refuses; empty for one that is not known."""
    return SENTENCES.get(check, "")
