"""The rejected rows of a corpus: those nearest to their rule's threshold, whatever the size of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from tasks.artifact import Artifact
from tasks.report.inspect.rows import PLACE, fetch, row_groups

NARROW = ("id", "source", "stage", "reason", "value", "number", "limit")
BINS = 48
# "<survivor's id> <similarity>", as deduplication writes it
_SIMILARITY = r"^[0-9a-f]{32} ([01](?:\.\d+)?)"


@dataclass(frozen=True)
class Selection:
    """Which rows are asked for; empty means any."""

    reason: str = ""
    stage: str = ""
    source: str = ""
    language: str = ""
    languages: Mapping[str, str] = field(default_factory=dict)
    """The declared language of every source: a reject has no language of its own, but for those that were dropped for
    it."""

    def narrowed(self) -> list[str]:
        """What is asked for, in words; empty where that is everything."""
        names = ("reason", "stage", "source", "language")
        return [f"{name} {value}" for name in names if (value := getattr(self, name))]

    def keeps(self) -> pl.Expr:
        """Whether a rejected row is selected."""
        wanted = pl.lit(True)
        for column in ("reason", "stage", "source"):
            if value := getattr(self, column):
                wanted &= pl.col(column) == value
        if self.language:
            declared = pl.col("source").replace_strict(dict(self.languages), default="", return_dtype=pl.String)
            own = pl.when(pl.col("stage") == "language").then(pl.col("value")).otherwise(declared)
            wanted &= own == self.language
        return wanted


@dataclass(frozen=True)
class Sample:
    """One document to look at: a rejected row, or a kept document held against the same rule."""

    id: str
    source: str
    url: str
    stage: str
    reason: str
    value: str
    number: float | None
    limit: float | None
    others: tuple[str, ...]
    head: str
    distance: float | None
    """|number - limit| relative to the limit; None where there is no number or no limit."""

    @property
    def survivor(self) -> str:
        """The id of the document that stands for it, where it is a duplicate."""
        first = self.value.partition(" ")[0]
        return first if self.stage == "dedup" and len(first) == 32 else ""


class Histogram:
    """Counts of numbers in at most BINS bins of equal width, a power of two that the numbers' range decides: the same
    whatever the order in which they come."""

    def __init__(self) -> None:
        self.power = -24
        self.counts: dict[int, int] = {}

    def add(self, numbers: pl.Series) -> None:
        """Count finite numbers; others are no numbers of a rule."""
        finite = numbers.drop_nulls().cast(pl.Float64)
        finite = finite.filter(finite.is_finite() & (finite.abs() < 1e15))
        if finite.is_empty():
            return
        finite = (finite * 0.0).zip_with(finite.abs() < 2.0**-40, finite)  # what halving would lose is nothing
        low, high = (float(value) for value in (finite.min(), finite.max()))  # type: ignore[arg-type]
        # before counting, so that no number needs more bins than an integer can name
        while max(abs(low), abs(high)) / 2.0**self.power > 2.0**52 or (high - low) / 2.0**self.power >= BINS:
            self._widen()
        bins = (finite / 2.0**self.power).floor().cast(pl.Int64).value_counts()
        for number, count in bins.iter_rows():
            self.counts[number] = self.counts.get(number, 0) + count
        while max(self.counts) - min(self.counts) >= BINS:
            self._widen()

    def _widen(self) -> None:
        self.power += 1
        wider: dict[int, int] = {}
        for number, count in self.counts.items():
            wider[number // 2] = wider.get(number // 2, 0) + count
        self.counts = wider

    def bins(self) -> tuple[list[float], list[int]]:
        """(edges, counts), one more edge than counts; empty where nothing was counted."""
        if not self.counts:
            return [], []
        span = range(min(self.counts), max(self.counts) + 1)
        width = 2.0**self.power
        return [number * width for number in (*span, span.stop)], [self.counts.get(number, 0) for number in span]


@dataclass
class Tally:
    """What one pass over the rejected rows found."""

    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """Rows by (stage, reason)."""
    numbers: dict[tuple[str, str], Histogram] = field(default_factory=dict)
    limits: dict[tuple[str, str], set[float]] = field(default_factory=dict)
    """Several where routes have limits of their own."""
    nearest: dict[tuple[str, str], list[Sample]] = field(default_factory=dict)
    """The rows nearest to their threshold, nearest first; those without a number in the order of their ids, which is
    as good as chance."""


def survey(artifact: Artifact, selection: Selection, count: int, limits: Mapping[str, float] | None = None) -> Tally:
    """Count the selected rows and fetch the `count` nearest of every reason. `limits` serve where a row has none: of a
    duplicate the similarity from which it is one. Memory is bounded by a row group and `count` rows a reason."""
    tally = Tally()
    best: pl.DataFrame | None = None
    files = artifact.files("rejected")
    for frame in row_groups(files, NARROW):
        frame = _measured(frame.filter(selection.keeps()), dict(limits or {}))
        if frame.is_empty():
            continue
        for (stage, reason), rows in frame.group_by("stage", "reason", maintain_order=True):
            key = (str(stage), str(reason))
            tally.counts[key] = tally.counts.get(key, 0) + rows.height
            tally.numbers.setdefault(key, Histogram()).add(rows["number"])
            tally.limits.setdefault(key, set()).update(rows["limit"].drop_nulls())
        if count:
            both = frame if best is None else pl.concat([best, frame])
            ordered = both.sort("distance", "id", *PLACE, nulls_last=True)
            best = ordered.group_by("stage", "reason", maintain_order=True).head(count).select(both.columns)
    if best is not None:
        measured = best.select("number", "limit", "distance").iter_rows(named=True)
        for row, known_of in zip(fetch(files, best), measured, strict=True):
            reject = Sample(
                **{name: row[name] for name in ("id", "source", "url", "stage", "reason", "value")},
                others=tuple(name for name in row["others"].split(",") if name),
                head=row["text_head"],
                **known_of,
            )
            tally.nearest.setdefault((reject.stage, reject.reason), []).append(reject)
    tally.counts = dict(sorted(tally.counts.items()))
    return tally


def _measured(frame: pl.DataFrame, limits: dict[str, float]) -> pl.DataFrame:
    """The numbers and limits of duplicates filled in, and the distance between them."""
    similarity = pl.when(pl.col("stage") == "dedup").then(pl.col("value").str.extract(_SIMILARITY))
    filled = frame.with_columns(
        number=pl.coalesce("number", similarity.cast(pl.Float64, strict=False)),
        limit=pl.coalesce("limit", pl.col("reason").replace_strict(limits, default=None, return_dtype=pl.Float64)),
    )
    gap = (pl.col("number") - pl.col("limit")).abs()
    scale = pl.when(pl.col("limit") == 0).then(1.0).otherwise(pl.col("limit").abs())
    return filled.with_columns(distance=(gap / scale).fill_nan(None))


def heads(artifact: Artifact, ids: Sequence[str], characters: int) -> dict[str, tuple[str, str]]:
    """(text's beginning, url) of documents by id, for the survivors of duplicates; ids that are not there are left
    out."""
    files = artifact.files("documents") if ids else []
    if not files:
        return {}
    head = pl.col("text").str.slice(0, characters)
    rows = pl.scan_parquet(files).filter(pl.col("id").is_in(sorted(set(ids)))).select("id", head, "url")
    return {name: (text, url) for name, text, url in rows.collect(engine="streaming").iter_rows()}
