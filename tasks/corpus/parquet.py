"""Parquet: one row, one record, read a few rows at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.corpus.archives import Unreadable
from tasks.corpus.compression import guard, read_whole
from tasks.corpus.extract.passage import ExtractionError, Passage
from tasks.corpus.fields import Fields

# Rows that are held at once, each up to the record limit. Ours.
ROWS = 64
# What a row counts at least where a file is held to be a bomb: a dictionary repeats a text in no bytes at all. Ours.
ROW_BYTES = 100


def passages(path: str, stream: io.BufferedIOBase, fields: Fields, limit: int) -> Iterator[Passage | Unreadable]:
    """Rows of `stream`; an Unreadable for each with a text of more than `limit` bytes. A stream that
    cannot seek is read whole, if it is no larger than that.

    Raises ExtractionError where it is not Parquet, has no such columns or one that holds no text, DamagedError where
    it unfolds as only a bomb does.
    """
    file: Any = stream if stream.seekable() else io.BytesIO(read_whole(stream, limit))
    try:
        # Memory follows the pages that are read, not the row groups.
        table = pq.ParquetFile(file, pre_buffer=False, buffer_size=1 << 20)
        names = _columns(table.schema_arrow, fields)
        number = unfolded = 0
        packed = file.seek(0, io.SEEK_END)
        for batch in table.iter_batches(batch_size=ROWS, columns=names, use_threads=False):
            columns = dict(zip(batch.schema.names, batch.columns, strict=True))
            for row in range(batch.num_rows):
                number += 1
                found = _row(path, {name: column[row] for name, column in columns.items()}, number, fields, limit)
                yield found
                unfolded += ROW_BYTES + (len(found.text) if isinstance(found, Passage) else limit)
                guard(unfolded, packed)
    except (pa.ArrowException, OSError) as error:
        raise ExtractionError(f"not readable as Parquet: {error}") from error


def _columns(schema: pa.Schema, fields: Fields) -> list[str]:
    # Without the column of licences every row would be under the source's own.
    for name in (fields.text, fields.licence):
        if name and schema.names.count(name) != 1:
            how = "several columns" if name in schema.names else "no column"
            raise ExtractionError(f"{how} '{name}' among {', '.join(schema.names)[:200] or 'none'}")
    kind = schema.field(fields.text).type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise ExtractionError(f"column '{fields.text}' holds {kind}, no text: name another `text_field`")
    return [fields.text, *(name for name in (fields.licence, fields.url) if name and schema.names.count(name) == 1)]


def _row(path: str, row: dict[str, pa.Scalar], number: int, fields: Fields, limit: int) -> Passage | Unreadable:
    try:
        record = {name: value.as_py() for name, value in row.items()}
    except UnicodeDecodeError as error:
        return Unreadable(f"{path}#{number}", f"row {number} is not UTF-8: {error.reason}")
    text = record[fields.text]
    if isinstance(text, str) and len(text) * 4 > limit and len(text.encode("utf-8", "surrogatepass")) > limit:
        return Unreadable(f"{path}#{number}", f"row {number} is larger than {limit:,} bytes")
    return fields.passage(record, str(number))
