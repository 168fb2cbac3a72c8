"""What a suite is made of: small tables of metrics, and rules over their columns, each a sentence with its reason.

A `Table` has one row per thing measured (a domain, a source, a shard). Its rules are expectations of Great
Expectations, written as data, so that nothing here needs that library. Text never enters a table: metrics are computed
in polars where the data lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import polars as pl
import pyarrow.parquet as pq

Unit = Literal["", "share", "bytes", "characters", "tokens", "documents", "segments"]


@dataclass(frozen=True)
class Rule:
    """One expectation over one column: a band (`least`, `most`), a column of floors or of ceilings, or a set that
    every value must be of (`among`)."""

    sentence: str
    """What must hold, as one says it: "Every document names its licence"."""
    column: str
    """The metric that is judged."""
    why: str
    """What goes wrong downstream where it does not hold."""
    remedy: str
    """What to do when it fails."""
    least: float | None = None
    most: float | None = None
    floor: str = ""
    """Another column of the table, with the least value row by row."""
    ceiling: str = ""
    """Another column of the table, with the greatest value row by row."""
    among: tuple[str, ...] = ()
    unit: Unit = ""
    examples: pl.LazyFrame | None = None
    """The records behind a failure (few columns, `id` first); a handful is collected, only when the rule fails."""

    def expectation(self) -> tuple[str, dict[str, Any]]:
        """The class in `great_expectations.expectations` and its arguments."""
        if self.floor or self.ceiling:
            high, low = (self.column, self.floor) if self.floor else (self.ceiling, self.column)
            pair = {"column_A": high, "column_B": low, "or_equal": True}
            return "ExpectColumnPairValuesAToBeGreaterThanB", pair
        if self.among:
            return "ExpectColumnValuesToBeInSet", {"column": self.column, "value_set": list(self.among)}
        if self.least is None and self.most is None:
            raise ValueError(f"rule '{self.sentence}' has no threshold: give it a band, a floor, a ceiling or a set")
        return "ExpectColumnValuesToBeBetween", {
            "column": self.column,
            "min_value": self.least,
            "max_value": self.most,
        }

    def expected(self, table: Table) -> str:
        """The threshold in words."""
        bound = self.floor or self.ceiling
        if bound:
            pairs = list(zip(table.frame[table.key], table.frame[bound], strict=True))
            # a floor of nothing and a ceiling of everything hold nobody to anything
            free = 0 if self.floor else 1 if self.unit == "share" else None
            each = ", ".join(f"{name} {say(value, self.unit)}" for name, value in pairs if value != free)
            return f"at {'least' if self.floor else 'most'} {each}" if each else "none is large enough to be held to it"
        if self.among:
            return "one of " + ", ".join(self.among)
        if self.least == self.most:
            return "none" if self.least == 0 else f"exactly {say(self.least, self.unit)}"
        if self.most is None:
            return f"at least {say(self.least, self.unit)}"
        if not self.least:
            return f"at most {say(self.most, self.unit)}"
        return f"{say(self.least, self.unit)} to {say(self.most, self.unit)}"

    def observed(self, table: Table) -> str:
        """What was measured, in words: each row where there are few, the extremes where there are many."""
        names, values = table.frame[table.key].to_list(), table.frame[self.column].to_list()
        if not values:
            return "nothing: there are no rows"
        if isinstance(values[0], str):
            return ", ".join(sorted({str(value) for value in values})[:12])
        bounds = (
            table.frame[self.floor or self.ceiling].to_list() if self.floor or self.ceiling else [None] * len(values)
        )
        said = [self._said(value, bound) for value, bound in zip(values, bounds, strict=True)]
        if len(values) == 1:
            return said[0]
        if len(set(said)) == 1:
            which = f" ({', '.join(str(name) for name in names)})" if len(names) <= 6 else ""
            return f"none in {len(values)}" if said[0] == "none" else f"{said[0]} in each of {len(values)}{which}"
        if len(values) <= 6:
            return ", ".join(f"{name} {text}" for name, text in zip(names, said, strict=True))
        low, high = values.index(min(values)), values.index(max(values))
        return f"from {said[low]} ({names[low]}) to {said[high]} ({names[high]}), {len(values)} in all"

    def _said(self, value: Any, bound: Any) -> str:
        """A value in words, in full where a bound that it is not would be said in the same ones."""
        if not value and self.most == 0:
            return "none"
        text = say(value, self.unit)
        if any(
            one is not None and one != value and say(one, self.unit) == text for one in (self.least, self.most, bound)
        ):
            return f"{100 * value:.15g} %" if self.unit == "share" else f"{value:,}"
        return text


@dataclass(frozen=True)
class Table:
    """One suite: a small frame of metrics and the rules over it."""

    name: str
    """Its name within the gate, such as `domains`."""
    title: str
    """Its heading: "the corpus by domain"."""
    key: str
    """The column that names a row."""
    frame: pl.DataFrame
    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        # An expectation over values skips nulls, so a metric that could not be computed would pass unseen.
        for rule in self.rules:
            column = self.frame[rule.column]
            if column.null_count() or (column.dtype.is_float() and column.is_nan().any()):
                raise ValueError(
                    f"metric '{rule.column}' of table '{self.name}' has empty values: measure it as a number"
                )


def never(
    sentence: str, column: str, why: str, remedy: str, unit: Unit = "", examples: pl.LazyFrame | None = None
) -> Rule:
    """A rule that nothing may break: its metric is 0."""
    return Rule(sentence, column, why, remedy, least=0, most=0, unit=unit, examples=examples)


def few(sentence: str, column: str, why: str, remedy: str, most: float, examples: pl.LazyFrame | None = None) -> Rule:
    """A rule that a share of at most `most` may break."""
    return Rule(sentence, column, why, remedy, least=0, most=most, unit="share", examples=examples)


def say(value: Any, unit: Unit = "") -> str:
    """A metric as a person writes it: `12.5 %`, `3.1 MB`, `1,204`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit == "share":
        return f"{100 * value:.3g} %"
    if unit == "bytes":
        for factor, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
            if abs(value) >= 0.99995 * factor:  # what would be rounded to 1000.0 of the unit below
                return f"{value / factor:.1f} {name}"
        return f"{value:,.0f} bytes"
    number = f"{int(value):,}" if isinstance(value, int) or value.is_integer() else f"{value:,.3g}"
    return f"{number} {unit}" if unit else number


def batches(path: Path, columns: Sequence[str], rows: int = 4096) -> Iterator[pl.DataFrame]:
    """The parquet file at `path` in batches of `rows`, so that memory is bounded by a batch and not by a file."""
    with pq.ParquetFile(path) as file:
        missing = sorted(set(columns) - set(file.schema_arrow.names))
        if missing:
            raise ValueError(f"{path} has no column {', '.join(missing)}: it has {', '.join(file.schema_arrow.names)}")
        for batch in file.iter_batches(batch_size=rows, columns=list(columns)):
            frame = pl.from_arrow(batch)
            assert isinstance(frame, pl.DataFrame)
            yield frame


def height(frame: pl.LazyFrame) -> int:
    """The rows of `frame`, of which none is kept."""
    return frame.select(pl.len()).collect().item()


def shares(frame: pl.DataFrame, key: str, floors: dict[str, float]) -> pl.DataFrame:
    """`frame` (key, documents, bytes) with each row's share of the bytes beside its floor; a key of `floors` that has
    no row gets one of zeros, so that what is missing is seen to be missing."""
    absent = [name for name in floors if name not in set(frame[key])]
    blank = {name: "" if kind == pl.String else 0 for name, kind in frame.schema.items() if name != key}
    empty = {key: absent, **{name: [value] * len(absent) for name, value in blank.items()}}
    whole = pl.concat([frame, pl.DataFrame(empty, schema=frame.schema)])
    total = max(int(whole["bytes"].sum()), 1)
    return whole.with_columns(
        share=pl.col("bytes") / total,
        floor=pl.col(key).replace_strict(floors, default=0.0, return_dtype=pl.Float64),
    ).sort("bytes", key, descending=[True, False])
