"""The attempts at segments of a rewrites artifact: rates, scores, and the attempts nearest to a threshold."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import polars as pl

from tasks.artifact import Artifact
from tasks.report.inspect.rewrites.limits import ENGINE, Limits
from tasks.report.inspect.rows import PLACE, fetch, row_groups

NARROW = ("source_id", "style", "detail", "domain", "index", "attempt", "candidate", "accepted", "reason", "scores")
ORDER = ("distance", "source_id", "style", "index", "attempt", "candidate", *PLACE)


@dataclass(frozen=True)
class Selection:
    """Which attempts are asked for; empty means any."""

    check: str = ""
    """Refused by this check."""
    style: str = ""
    domain: str = ""

    def wanted(self) -> dict[str, str]:
        """What the columns of a row that is asked for hold."""
        return {name: value for name in ("style", "domain") if (value := getattr(self, name))}


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
    source_text: str
    rewrite_text: str
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
    refused: Counter[str] = field(default_factory=Counter)
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
        return Cell(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(Cell)})


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

    cells: defaultdict[tuple[str, str], Cell] = field(default_factory=lambda: defaultdict(Cell))
    """By (style, domain)."""
    scores: dict[str, Scores] = field(default_factory=dict)
    """By check, in the order in which they run."""
    nearest: dict[str, list[Attempt]] = field(default_factory=dict)
    """By the check that refused them, nearest to its threshold first; under '' the accepted ones, lowest margin
    first."""

    def by(self, place: int) -> dict[str, Cell]:
        """Cells by style (0) or by domain (1)."""
        found: defaultdict[str, Cell] = defaultdict(Cell)
        for key, cell in sorted(self.cells.items()):
            found[key[place]] += cell
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
    for frame in row_groups(files, NARROW):
        names = list(frame["scores"].struct.fields)
        frame = frame.filter(**selection.wanted())
        for name in names:
            score, own = frame["scores"].struct.field(name), frame["reason"] == name
            found.scores.setdefault(name, Scores()).add(score, own)
        _count(found, frame)
        if not (refused or accepted):
            continue
        measured = frame.with_columns(distance=limits.distance(names)).drop("scores")
        if selection.check:
            measured = measured.filter(pl.col("reason") == selection.check)
        both = measured if best is None else pl.concat([best, measured])
        best = _best(both, refused, accepted, styles)
    _documents(found, artifact, selection)
    for one in map(attempt, fetch(files, best) if best is not None else ()):
        found.nearest.setdefault(one.reason, []).append(one)
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
        found.cells[row.pop("style"), row.pop("domain")] += Cell(**row)
    refused = frame.filter(~pl.col("accepted")).group_by("style", "domain", "reason").agg(times=pl.len())
    for style, domain, reason, times in refused.sort("style", "domain", "reason").iter_rows():
        found.cells[style, domain].refused[reason] += times


def _documents(found: Survey, artifact: Artifact, selection: Selection) -> None:
    """Documents that were accepted, and the segments in them that kept their original text."""
    for path in artifact.files("rewrites"):
        kept = pl.col("segments").list.eval(pl.element().struct.field("action") == "original").list.sum()
        counted = (
            pl.scan_parquet(path)
            .filter(**selection.wanted())
            .group_by("style", "domain")
            .agg(documents=pl.len(), fallbacks=kept.sum())
            .collect()
        )
        for style, domain, documents, fallbacks in counted.iter_rows():
            found.cells[style, domain] += Cell(documents=documents, fallbacks=fallbacks or 0)


def attempt(row: Mapping[str, Any]) -> Attempt:
    """A row of `segments/`."""
    return Attempt(**{each.name: row[each.name] for each in fields(Attempt)})


def known(found: Survey) -> list[str]:
    """Every check that scored or refused something, in the order in which they run."""
    others = sorted(found.whole().refused.keys() - found.scores, key=lambda name: (name == ENGINE, name))
    return [*found.scores, *others]
