"""Rows of a large table to look at, in bounded memory: a first pass reads narrow columns, one row group at a time, and
keeps the places of the best rows; a second fetches those alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow.parquet as pq

PLACE = ("part", "group", "row")
"""Where a row lies: its file, the row group in that, the row in this."""


def row_groups(files: Sequence[Path], columns: Sequence[str]) -> Iterator[pl.DataFrame]:
    """These columns and the PLACE of every row, one row group in memory at a time."""
    for part, path in enumerate(files):
        with pq.ParquetFile(path) as file:
            for group in range(file.num_row_groups):
                frame = pl.DataFrame(file.read_row_group(group, columns=list(columns)))
                at = pl.lit(part, pl.Int64), pl.lit(group, pl.Int64), pl.int_range(pl.len(), dtype=pl.Int64)
                yield frame.with_columns(**dict(zip(PLACE, at, strict=True)))


def first(files: Sequence[Path], kind: Sequence[str], count: int) -> Iterator[dict[str, Any]]:
    """The first `count` rows of every kind: of the values of these columns."""
    places: pl.DataFrame | None = None
    for frame in row_groups(files, kind):
        both = frame if places is None else pl.concat([places, frame])
        places = both.group_by(kind, maintain_order=True).head(count).select(both.columns)
    if places is not None:
        yield from fetch(files, places)


def fetch(files: Sequence[Path], places: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """The whole rows at the PLACE of every row of `places`, in its order."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (part, group), rows in places.group_by("part", "group", maintain_order=True):
        with pq.ParquetFile(files[int(part)]) as file:  # type: ignore[call-overload]
            table = file.read_row_group(int(group)).take(rows["row"].to_list())  # type: ignore[call-overload]
        found |= zip(rows.select(PLACE).iter_rows(), table.to_pylist(), strict=True)
    yield from (found[place] for place in places.select(PLACE).iter_rows())
