"""What the gate measures of every attempt at a segment: a row of facts, the two texts left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from expectations.rules import batches

if TYPE_CHECKING:
    from tasks.artifact import Artifact

COLUMNS = (
    *(
        "source_id",
        "style",
        "detail",
        "domain",
        "index",
        "attempt",
        "candidate",
        "prompt_hash",
        "engine",
        "model",
        "seed",
    ),
    *("source_text", "rewrite_text", "accepted", "reason", "scores"),
)
TRACED = ("prompt_hash", "engine", "model")
SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])|\n")
SAID = 30
"""Characters from which a sentence that stands twice is no chance; of Chinese a third of that."""
TRANSLATION = "translation"
"""The style whose texts are another language's: a network that reads English alone is not asked about them."""
NOT_ALWAYS = frozenset(("cosine", "judge"))
"""Checks that give some accepted segments no score: `cosine` where words agree, `judge` outside of the grey zone."""
ROUNDED = 1e-4
"""Scores are kept to four decimals."""
FACTS = {
    "copy": pl.Boolean,
    "ratio": pl.Float64,
    "empty": pl.Boolean,
    "again": pl.Boolean,
}


def facts(rewrites: Artifact) -> pl.DataFrame:
    """One row an attempt: whose it is, its verdict, and what was found of its texts and scores. `untraced`: something
    of its origin is missing; `failing`: a score lies outside of the threshold that the artifact records;
    `misnumbered`: it was accepted with other numbers; `unscored`: which checks gave it no score, of those that always
    give one."""
    seam = _Seam()
    limits = rewrites.statistics.get("thresholds") or {}
    found = [
        _facts(frame, limits, seam)
        for path in rewrites.files("segments")
        for frame in batches(path, COLUMNS, rows=1024)
    ]
    return pl.concat(found) if found else _facts(pl.DataFrame(schema=_SCHEMA), limits, seam)


_SCHEMA: dict[str, Any] = {
    **dict.fromkeys(("source_id", "style", "detail", "domain", "prompt_hash", "engine", "model"), pl.String),
    **dict.fromkeys(("index", "attempt", "candidate", "seed"), pl.Int64),
    **dict.fromkeys(("source_text", "rewrite_text", "reason"), pl.String),
    "accepted": pl.Boolean,
    "scores": pl.Struct({"length": pl.Float64}),
}


class _Seam:
    """Remembers the last accepted segment, to see what the next one of its document says again."""

    def __init__(self) -> None:
        self.place: tuple[str, str] = ("", "")
        self.source: set[str] = set()
        self.rewrite: set[str] = set()

    def again(self, place: tuple[str, str], source: str, rewrite: str) -> bool:
        """Whether this accepted segment shares more sentences with the one before than their sources do."""
        own, said = set(_sentences(source)), set(_sentences(rewrite))
        twice = place == self.place and len(said & self.rewrite) > len(own & self.source)
        self.place, self.source, self.rewrite = place, own, said
        return twice


def _sentences(text: str) -> Iterator[str]:
    for sentence in SENTENCE.split(text):
        line = " ".join(sentence.lower().split())
        if len(line) >= (SAID if line.isascii() else SAID // 3):
            yield line


def _facts(frame: pl.DataFrame, limits: Mapping[str, Any], seam: _Seam) -> pl.DataFrame:
    """Copies and seams are judged on accepted ones only. Where a style or a level of detail has a band of its own, the
    alignment check's length is the one there is (`failing`): of notes without the page's navigation, of a translation
    by its language."""
    rows = []
    own = {column: (limits.get("length") or {}).get(f"by_{column}") or {} for column in ("style", "detail")}
    columns = ("source_id", "style", "detail", "source_text", "rewrite_text", "accepted")
    for name, style, detail, source, rewrite, accepted in frame.select(columns).iter_rows():
        source, rewrite = source or "", rewrite or ""
        banded = style in own["style"] or detail in own["detail"]
        rows.append(
            {
                "copy": bool(accepted) and " ".join(source.split()) == " ".join(rewrite.split()),
                "ratio": 1.0 if banded else len(rewrite.strip()) / max(len(source.strip()), 1),
                "empty": bool(accepted) and not rewrite.strip(),
                "again": bool(accepted) and seam.again((name or "", style or ""), source, rewrite),
            }
        )
    blank = [pl.col(name).fill_null("").str.strip_chars() == "" for name in TRACED]
    kept = frame.select(
        "source_id",
        pl.col("style", "domain").fill_null(""),
        pl.col("index", "attempt", "candidate").cast(pl.Int64),
        "accepted",
        "reason",
        untraced=pl.any_horizontal(*blank, pl.col("seed").is_null(), pl.col("attempt").is_null()),
        failing=_failing(frame, limits),
        misnumbered=_misnumbered(frame),
        # a network that reads English alone is not asked about a translation
        unscored=pl.when(pl.col("style") != TRANSLATION).then(
            pl.concat_list(
                pl.when(pl.col("scores").struct.field(name).is_null()).then(pl.lit(name))
                for name in frame["scores"].struct.fields
                if name not in NOT_ALWAYS
            ).list.drop_nulls()
        ),
    )
    return pl.concat([kept, pl.DataFrame(rows, schema=FACTS)], how="horizontal").with_columns(
        pl.col("accepted").fill_null(False), reason=pl.col("reason").fill_null("").str.strip_chars()
    )


def _misnumbered(frame: pl.DataFrame) -> pl.Expr:
    """Whether it was accepted though the check of numbers, whose only rule is the alignment's, refused it."""
    if "numbers" not in frame["scores"].struct.fields:
        return pl.lit(False)
    return (pl.col("accepted") & (pl.col("scores").struct.field("numbers") < 1 - ROUNDED)).fill_null(False)


def _failing(frame: pl.DataFrame, limits: Mapping[str, Any]) -> pl.Expr:
    """Names of the checks whose score lies outside of its recorded threshold, comma-separated."""
    names = set(frame["scores"].struct.fields)
    found = []
    for check, limit in limits.items():
        if check not in names:
            continue
        score = pl.col("scores").struct.field(check)
        outside = pl.lit(False)
        for at, side in enumerate(("least", "most")):
            own = [
                pl.col(column).replace_strict(
                    {name: band[at] for name, band in limit[f"by_{column}"].items()},
                    default=None,
                    return_dtype=pl.Float64,
                )
                for column in ("style", "detail")
                if limit.get(f"by_{column}")
            ]
            bound = pl.lit(limit.get(side), pl.Float64)
            if own:  # where both have a band the outer ends hold
                bound = (pl.min_horizontal(own) if at == 0 else pl.max_horizontal(own)).fill_null(bound)
            outside |= (score < bound - ROUNDED if at == 0 else score > bound + ROUNDED).fill_null(False)
        found.append(pl.when(outside).then(pl.lit(check)))
    return pl.concat_str(found, separator=",", ignore_nulls=True) if found else pl.lit("")


def unlike(rewrites: Artifact) -> list[str]:
    """Recorded thresholds that are not the configured ones, in words. A configured check without a record, where
    others have one, is not known here: its field may belong to a check that has no score."""
    config = (rewrites.manifest.get("config") or {}).get("alignment")
    if not config:
        return []
    found = []
    stated = rewrites.statistics.get("thresholds") or {}
    if not stated:
        return ["the manifest records no thresholds"]
    for check, limit in stated.items():
        name = str(limit.get("field", "")).rpartition(".")[2]
        value = config.get(name)
        sides = [limit.get("least"), limit.get("most")]
        wanted = list(value) if isinstance(value, list | tuple) else [value]
        if [side for side in sides if side is not None] != wanted:
            found.append(f"{check}: recorded {_band(sides)}, configured {value}")
    return found


def _band(sides: list[Any]) -> str:
    return " to ".join("-" if side is None else f"{side:g}" for side in sides)
