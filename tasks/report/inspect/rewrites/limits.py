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
    "finished": "Empty answers, answers that the engine cut at their longest length, and those that break off.",
    "talk": "Refusals, talk about the task, markup of a chat, JSON or a fence, words of the instructions.",
    "question": "A question that its part does not answer: in words that it lacks, or after what it does not define.",
    "answerable": "A question after more than a term, too far from its part.",
    "length": "Characters of the rewrite over its source's, outside the band.",
    "repetition": "Loops: 4-grams that stood before, over what the source itself repeats; or a sentence said twice.",
    "copied": "Words in runs of six or more from the source: a copy is one more epoch and no rewrite.",
    "seam": "Words that say again what the segment before said.",
    "language": "Another script or language than the source's; of a translation, what is not English.",
    "fluency": "Heaps of words: they do not follow one another as words of its source do.",
    "numbers": "A number lost, invented, moved, or with another unit; 1 is all kept and none invented.",
    "formulas": "A formula lost, or invented where the style adds none; 1 is all kept.",
    "code": "A code span, URL or identifier lost or invented; 1 is all kept.",
    "answer": "The final answer of a worked solution is not the source's.",
    "sentencewise": "A sentence of a translation that is far from the usual length of one: left out, or added.",
    "cosine": "Texts that share few words and whose embeddings lie too far apart; no score where words agree.",
    "fidelity": "Something lost, added or changed; the score is the chance of none, by the network that reads both.",
    "echoes": "Taken back: the whole document says a thing again that it has said.",
    "best_of": "Passed every check, but another candidate of its attempt passed by a better margin.",
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
    by_detail: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Those of levels of detail; where both have one, the outer ends hold."""
    field: str = ""
    """What sets it."""

    def of(self, style: str, detail: str = "") -> tuple[float | None, float | None]:
        """(least, most) as `style` at this level of detail has it."""
        own = [bands[name] for bands, name in ((self.by_style, style), (self.by_detail, detail)) if name in bands]
        if not own:
            return self.least, self.most
        return min(least for least, _ in own), max(most for _, most in own)

    def words(self, style: str = "", detail: str = "") -> str:
        """The band: `≥ 0.75`, `≤ 0.5`, `0.5 to 1.8`; empty where there is none."""
        least, most = self.of(style, detail)
        if least is not None and most is not None:
            return f"{least:g} to {most:g}"
        return f"≥ {least:g}" if least is not None else f"≤ {most:g}" if most is not None else ""


@dataclass(frozen=True)
class Limits:
    """The thresholds of one artifact, by check."""

    checks: Mapping[str, Limit]

    @classmethod
    def of(cls, artifact: Artifact) -> Limits:
        """As the artifact publishes them."""
        return cls.stated(artifact.statistics["thresholds"])

    @classmethod
    def stated(cls, records: Mapping[str, Mapping[str, Any]]) -> Limits:
        """From `statistics["thresholds"]`."""
        return cls({check: Limit(**record) for check, record in records.items()})

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
    """The least (0) or the most (1) of every row, by its style and detail; null on a side without a threshold."""
    plain = (limit.least, limit.most)[at]
    default = pl.lit(None if plain is None else float(plain), pl.Float64)
    own = [
        pl.col(column).replace_strict(
            {name: band[at] for name, band in bands.items()}, default=None, return_dtype=pl.Float64
        )
        for column, bands in (("style", limit.by_style), ("detail", limit.by_detail))
        if bands
    ]
    if not own:
        return default
    return (pl.min_horizontal(own) if at == 0 else pl.max_horizontal(own)).fill_null(default)
