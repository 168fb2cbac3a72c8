"""The attempts at segments of a rewrites artifact, streamed: rates, scores, and the attempts nearest to a threshold.

Two passes, as over rejects: the first reads the narrow columns, one row group at a time, counts, and keeps the best
rows by place; the second fetches the texts of those alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

from tasks.artifact import Artifact
from tasks.report.inspect.rewrites.limits import ENGINE, Limits

NARROW = ("source_id", "style", "detail", "domain", "index", "attempt", "candidate", "accepted", "reason", "scores")
PLACE = ["part", "group", "row"]
ORDER = ["distance", "source_id", "style", "index", "attempt", "candidate", *PLACE]


@dataclass(frozen=True)
class Selection:
    """Which attempts are asked for; empty means any."""

    check: str = ""
    """Refused by this check."""
    style: str = ""
    domain: str = ""

    def keeps(self) -> pl.Expr:
        """Whether a row is of the styles and domains asked for."""
        wanted = pl.lit(True)
        for column in ("style", "domain"):
            if value := getattr(self, column):
                wanted &= pl.col(column) == value
        return wanted


@dataclass(frozen=True)
class Attempt:
    """One attempt at one segment, whole."""

    source_id: str
    style: str
    perspective: str
    detail: str
    domain: str
    index: int
    attempt: int
    candidate: int
    prompt_hash: str
    engine: str
    model: str
    seed: int
    source: str
    rewrite: str
    accepted: bool
    reason: str
    """The check that refused it; empty where none did."""
    why: str
    source_sentence: str
    """What is not kept, and what the rewrite says instead; empty where the check cannot tell."""
    rewrite_sentence: str
    finish: str
    prompt_tokens: int
    generated_tokens: int
    scores: Mapping[str, float | None]
    """None for a check that was not reached."""


@dataclass
class Cell:
    """Counts of attempts, in the words of the stage's own statistics."""

    segments: int = 0
    """Attempts."""
    accepted: int = 0
    asked: int = 0
    """Different segments."""
    accepted_first: int = 0
    retried: int = 0
    """Segments that were asked for more than once."""
    fallbacks: int = 0
    """Segments whose original text stands in an accepted document."""
    documents: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    """By check."""

    @property
    def failed(self) -> int:
        """Segments that no attempt rewrote."""
        return self.asked - self.accepted

    @property
    def acceptance_rate(self) -> float:
        return self.accepted / max(self.segments, 1)

    @property
    def first_rate(self) -> float:
        return self.accepted_first / max(self.asked, 1)

    @property
    def final_rate(self) -> float:
        return self.accepted / max(self.asked, 1)

    @property
    def retry_rate(self) -> float:
        return self.retried / max(self.asked, 1)

    @property
    def fallback_rate(self) -> float:
        return self.failed / max(self.asked, 1)

    def __add__(self, other: Cell) -> Cell:
        numbers = ("segments", "accepted", "asked", "accepted_first", "retried", "fallbacks", "documents")
        total = Cell(**{name: getattr(self, name) + getattr(other, name) for name in numbers})
        for counts in (self.refused, other.refused):
            for name, count in counts.items():
                total.refused[name] = total.refused.get(name, 0) + count
        return total


class Scores:
    """Every score of one check, counted: exact, and small, since scores are kept to four decimals."""

    def __init__(self) -> None:
        self._counts: pl.DataFrame | None = None

    def add(self, scores: pl.Series, refused: pl.Series) -> None:
        """Count scores that are there; `refused` says of each whether this check refused it."""
        frame = pl.DataFrame({"score": scores.cast(pl.Float64), "refused": refused})
        frame = frame.filter(pl.col("score").is_not_null() & pl.col("score").is_finite())
        counted = frame.group_by("score", "refused").agg(times=pl.len())
        both = counted if self._counts is None else pl.concat([self._counts, counted])
        self._counts = both.group_by("score", "refused").agg(pl.col("times").sum())

    def total(self, refused: bool | None = None) -> int:
        """How many there are, of the refused or the passed ones where asked."""
        return int(self._of(refused)["times"].sum())

    def median(self, refused: bool | None = None) -> float | None:
        """The typical score; None where there is none."""
        frame = self._of(refused).sort("score")
        total = int(frame["times"].sum())
        if not total:
            return None
        return float(frame.filter(pl.col("times").cum_sum() * 2 >= total)["score"][0])

    def bins(self, most: int = 40) -> tuple[list[float], list[int]]:
        """(edges, counts): bins of equal width between the lowest and the highest; empty where there is no score."""
        frame = self._of(None)
        if frame.is_empty():
            return [], []
        low, high = (float(value) for value in (frame["score"].min(), frame["score"].max()))  # type: ignore[arg-type]
        high = high if high > low else low + 1.0
        width = (high - low) / most
        counts = [0] * most
        for score, times in frame.select("score", "times").iter_rows():
            counts[min(int((score - low) / width), most - 1)] += times
        return [low + width * at for at in range(most)] + [high], counts

    def _of(self, refused: bool | None) -> pl.DataFrame:
        if self._counts is None:
            return pl.DataFrame(schema={"score": pl.Float64, "refused": pl.Boolean, "times": pl.UInt32})
        return self._counts if refused is None else self._counts.filter(pl.col("refused") == refused)


@dataclass
class Survey:
    """What one pass over the attempts found."""

    cells: dict[tuple[str, str], Cell] = field(default_factory=dict)
    """By (style, domain)."""
    scores: dict[str, Scores] = field(default_factory=dict)
    """By check, in the order in which they run."""
    nearest: dict[str, list[Attempt]] = field(default_factory=dict)
    """By the check that refused them, nearest to its threshold first; under '' the accepted ones, lowest margin
    first."""
    recorded: bool = True
    """Whether attempts record their domain."""

    def by(self, place: int) -> dict[str, Cell]:
        """Cells by style (0) or by domain (1)."""
        found: dict[str, Cell] = {}
        for key, cell in sorted(self.cells.items()):
            found[key[place]] = found.get(key[place], Cell()) + cell
        return found

    def whole(self) -> Cell:
        """All of it."""
        return sum(self.cells.values(), Cell())


def survey(
    artifact: Artifact, selection: Selection, refused: int = 0, accepted: int = 0, styles: bool = False
) -> Survey:
    """Count the selected attempts and fetch, for every check, the `refused` nearest to its threshold, and the
    `accepted` of lowest margin (of each style where `styles`). Memory: a row group and what is kept."""
    limits = Limits.of(artifact)
    found = Survey()
    files = artifact.files("segments")
    best: pl.DataFrame | None = None
    for part, group, frame, recorded in _groups(files):
        found.recorded &= recorded
        names = list(frame["scores"].struct.fields)
        frame = frame.filter(selection.keeps())
        for name in names:
            score, own = frame["scores"].struct.field(name), frame["reason"] == name
            found.scores.setdefault(name, Scores()).add(score, own)
        _count(found, frame)
        if not (refused or accepted):
            continue
        measured = frame.with_columns(distance=limits.distance(names)).drop("scores")
        if selection.check:
            measured = measured.filter(pl.col("reason") == selection.check)
        placed = measured.with_columns(part=pl.lit(part, pl.Int64), group=pl.lit(group, pl.Int64))
        both = placed if best is None else pl.concat([best, placed])
        best = _best(both, refused, accepted, styles)
    _documents(found, artifact, selection)
    for attempt in _fetch(files, best) if best is not None else []:
        found.nearest.setdefault(attempt.reason, []).append(attempt)
    return found


def _best(frame: pl.DataFrame, refused: int, accepted: int, styles: bool) -> pl.DataFrame:
    """The rows that are kept so far."""
    ordered = frame.sort(ORDER, nulls_last=True)
    kind = pl.when("accepted").then(pl.col("style") if styles else pl.lit("")).otherwise("reason")
    place = pl.int_range(pl.len()).over("accepted", kind)
    return ordered.filter(place < pl.when("accepted").then(accepted).otherwise(refused))


def _count(found: Survey, frame: pl.DataFrame) -> None:
    """Add a frame's attempts to the cells."""
    first, once = pl.col("attempt") == 0, pl.col("candidate") == 0
    counted = frame.group_by("style", "domain").agg(
        segments=pl.len(),
        accepted=pl.col("accepted").sum(),
        asked=(first & once).sum(),
        accepted_first=(pl.col("accepted") & first).sum(),
        retried=((pl.col("attempt") == 1) & once).sum(),
    )
    for row in counted.iter_rows(named=True):
        key = (row.pop("style"), row.pop("domain"))
        found.cells[key] = found.cells.get(key, Cell()) + Cell(**row)
    refused = frame.filter(~pl.col("accepted")).group_by("style", "domain", "reason").agg(times=pl.len())
    for style, domain, reason, times in refused.sort("style", "domain", "reason").iter_rows():
        counts = found.cells[style, domain].refused
        counts[reason] = counts.get(reason, 0) + times


def _documents(found: Survey, artifact: Artifact, selection: Selection) -> None:
    """Documents that were accepted, and the segments in them that kept their original text."""
    for path in artifact.files("rewrites"):
        frame = pl.scan_parquet(path)
        if not found.recorded:
            frame = frame.with_columns(domain=pl.lit(""))
        kept = pl.col("segments").list.eval(pl.element().struct.field("action") == "original").list.sum()
        counted = (
            frame.filter(selection.keeps())
            .group_by("style", "domain")
            .agg(documents=pl.len(), fallbacks=kept.sum())
            .collect()
        )
        for style, domain, documents, fallbacks in counted.iter_rows():
            cell = Cell(documents=documents, fallbacks=fallbacks or 0)
            found.cells[style, domain] = found.cells.get((style, domain), Cell()) + cell


def _groups(files: Sequence[Path]) -> Iterator[tuple[int, int, pl.DataFrame, bool]]:
    """(file, row group, its narrow columns with `row`, whether it records domains), one row group in memory."""
    for part, path in enumerate(files):
        with pq.ParquetFile(path) as file:
            columns = [name for name in NARROW if name in file.schema_arrow.names]
            for group in range(file.num_row_groups):
                frame = pl.DataFrame(file.read_row_group(group, columns=columns))
                recorded = "domain" in columns
                absent = [name for name in ("domain", "detail") if name not in columns]
                frame = frame.with_columns(pl.lit("").alias(name) for name in absent)
                if "candidate" not in columns:  # written when an attempt had one
                    frame = frame.with_columns(candidate=pl.lit(0, pl.Int32))
                yield (
                    part,
                    group,
                    frame.with_columns(
                        pl.col("style", "detail", "domain", "reason").fill_null(""),
                        pl.col("accepted").fill_null(False),
                        row=pl.int_range(pl.len(), dtype=pl.Int64),
                    ).select(*NARROW, "row"),
                    recorded,
                )


def _fetch(files: Sequence[Path], best: pl.DataFrame) -> Iterator[Attempt]:
    """The rows at the places of `best`, in its order."""
    rows: dict[tuple[int, int, int], dict[str, Any]] = {}
    for (part, group), places in best.group_by("part", "group", maintain_order=True):
        wanted = places["row"].to_list()
        with pq.ParquetFile(files[int(part)]) as file:  # type: ignore[call-overload]
            table = file.read_row_group(int(group)).take(wanted)  # type: ignore[call-overload]
        for row, record in zip(wanted, table.to_pylist(), strict=True):
            rows[part, group, row] = record  # type: ignore[index]
    for place in best.iter_rows(named=True):
        yield attempt(rows[place["part"], place["group"], place["row"]])


def attempt(row: Mapping[str, Any]) -> Attempt:
    """A row of `segments/`."""
    texts = (
        "source_id",
        "style",
        "perspective",
        "detail",
        "domain",
        "prompt_hash",
        "engine",
        "model",
        "reason",
        "why",
        "source_sentence",
        "rewrite_sentence",
        "finish",
    )
    numbers = ("index", "attempt", "candidate", "seed", "prompt_tokens", "generated_tokens")
    values: dict[str, Any] = {name: str(row.get(name) or "") for name in texts}
    values |= {name: int(row.get(name) or 0) for name in numbers}
    return Attempt(
        **values,
        source=str(row.get("source_text") or ""),
        rewrite=str(row.get("rewrite_text") or ""),
        accepted=bool(row.get("accepted")),
        scores=row.get("scores") or {},
    )


def known(found: Survey) -> list[str]:
    """Every check that scored or refused something, in the order in which they run."""
    refused = found.whole().refused
    return [*found.scores, *sorted(name for name in refused if name not in found.scores and name != ENGINE)] + (
        [ENGINE] if ENGINE in refused else []
    )
