"""The tables of the corpus: schemas, and Parquet files whose bytes depend on their rows alone."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from model.visible import encodable
from tasks.address import redacted
from tasks.corpus.config import HEAD_CHARS

DOCUMENT = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),  # xxh3-128 of the text, hexadecimal
        pa.field("text", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string(), nullable=False),  # source:path#place
        pa.field("domain", pa.string(), nullable=False),  # web, code, math or knowledge
        pa.field("language", pa.string(), nullable=False),  # ISO 639-1
        pa.field("licence", pa.string(), nullable=False),  # SPDX
        pa.field("meta", pa.string(), nullable=False),  # JSON object
    ]
)
REJECTED = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("url", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),  # read, extract, licence, safety, language, quality, ...
        pa.field("reason", pa.string(), nullable=False),
        pa.field("value", pa.string(), nullable=False),  # what failed: a number, a licence, the survivor's id, an error
        pa.field("number", pa.float64()),  # the value, where it is a number
        pa.field("limit", pa.float64()),  # the threshold that it was held to
        pa.field("others", pa.string(), nullable=False),  # further reasons that would have dropped it, by commas
        pa.field("text_head", pa.string(), nullable=False),  # the first HEAD_CHARS characters
    ]
)
PARQUET: dict[str, Any] = {"compression": "zstd", "compression_level": 3, "store_schema": False}
BATCH_ROWS = 512
BATCH_CHARS = 2_000_000
"""A batch of rows is written when it holds this many rows or characters: what one partition needs of memory."""
READ = "read"
"""The stage of what could not be read: such rows are counted as unreadable, all others as rejected."""


def document_id(text: str) -> str:
    """xxh3-128 of the text in UTF-8, 32 hexadecimal digits."""
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def rejected(
    source: str,
    url: str,
    stage: str,
    reason: str,
    value: object,
    text: str = "",
    limit: float | None = None,
    others: Sequence[str] = (),
) -> dict[str, Any]:
    """One row of the rejected table; what has no text is known by its url."""
    return {
        "id": document_id(text or url),
        "source": source,
        "url": url,
        "stage": stage,
        "reason": reason,
        "value": encodable(str(value)),
        "number": float(value) if isinstance(value, int | float) else None,
        "limit": limit,
        "others": ",".join(others),
        "text_head": text[:HEAD_CHARS],
    }


def unread(source: str, path: str, kind: str, reason: str) -> dict[str, Any]:
    """One row of the rejected table for what gave no text (`archives.Unreadable`)."""
    return rejected(source, f"{source}:{path}", READ if kind == "unreadable" else "extract", kind, redacted(reason))


def meta(**values: Any) -> str:
    """The JSON of a document's `meta`: what is empty is left out."""
    return json.dumps({key: value for key, value in values.items() if value}, ensure_ascii=False, sort_keys=True)


def is_code(meta: str) -> bool:
    """Whether the reader of a document took it for a program, from its `meta`; its source's domain may be any."""
    return bool(json.loads(meta).get("code"))


def write(path: Path, table: pa.Table) -> None:
    """A whole table as Parquet."""
    pq.write_table(table, path, row_group_size=4096, **PARQUET)


def table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as an Arrow table of `schema`."""
    return pa.Table.from_pylist(rows, schema=schema)


class Writer:
    """Rows into one Parquet file, batch by batch; a batch is a row group, and the bytes depend on the rows alone.

    with Writer(path, DOCUMENT) as file:
        file.add(row)
    """

    def __init__(self, path: Path, schema: pa.Schema, full: Callable[[list[dict[str, Any]]], object] | None = None):
        """`full`, where given, is handed every batch as it is written, in order."""
        self.schema = schema
        self.rows = 0
        self._full = full
        self._file = pq.ParquetWriter(path, schema, **PARQUET)
        self._batch: list[dict[str, Any]] = []
        self._chars = 0

    def add(self, row: dict[str, Any]) -> None:
        """A row, written with its batch."""
        self._batch.append(row)
        self._chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(self._batch) >= BATCH_ROWS or self._chars >= BATCH_CHARS:
            self._flush()

    def extend(self, rows: Iterable[dict[str, Any]]) -> None:
        """Rows, likewise."""
        for row in rows:
            self.add(row)

    def add_table(self, rows: pa.Table) -> None:
        """A batch of its own."""
        self._flush()
        if rows.num_rows:
            self.rows += rows.num_rows
            self._file.write_table(rows)

    def _flush(self) -> None:
        if self._batch:
            if self._full is not None:
                self._full(self._batch)
            self.rows += len(self._batch)
            self._file.write_table(table(self._batch, self.schema))
            self._batch, self._chars = [], 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self._flush()
        self._file.close()


class Rejects:
    """Counts rejected rows, for the statistics of the part that holds them."""

    def __init__(self) -> None:
        self.rows = self.unreadable = 0
        self._by_reason: Counter[str] = Counter()
        self._by_source: Counter[str] = Counter()

    def add(self, rows: Iterable[dict[str, Any]]) -> None:
        """Count rows of `rejected`."""
        for row in rows:
            self.rows += 1
            self._by_source[row["source"]] += 1
            if row["stage"] == READ:
                self.unreadable += 1
            else:
                self._by_reason[row["reason"]] += 1

    def record(self) -> dict[str, Any]:
        """`unreadable`; `by_reason` of the others; `by_source` of all."""
        return {
            "unreadable": self.unreadable,
            "by_reason": dict(sorted(self._by_reason.items())),
            "by_source": dict(sorted(self._by_source.items())),
        }


def batches(path: Path) -> Iterator[pa.Table]:
    """The rows of a Parquet file, one row group at a time."""
    with pq.ParquetFile(path, memory_map=True) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, use_threads=False)
