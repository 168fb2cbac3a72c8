"""The shards of one batch while they are filled: one for each split, domain and source.

What is added goes to a scratch file in pieces, so that memory does not hold a shard; a full shard is moved in with its
index. Nothing of them counts before the batch has its record.

Legend: N documents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.artifact import Step
from tasks.tokens.table import Place, put_shard
from training.shards import TOKEN

BUFFER = 8 << 20
"""Bytes of one shard that are held before they are written."""
FACTS = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("licence", pa.string(), nullable=False),
        pa.field("rewrite", pa.bool_(), nullable=False),
        pa.field("source_id", pa.string()),
    ]
)
"""What the index says of a document, besides where it lies."""
SPAN = [pa.field(name, pa.int64(), nullable=False) for name in ("start", "end")]
INDEX = pa.schema([*SPAN, *FACTS])


@dataclass
class _Open:
    """A shard being filled."""

    path: Path
    number: int = 0
    length: int = 0
    held: list[np.ndarray] = field(default_factory=list)
    held_bytes: int = 0
    index: list[pa.Table] = field(default_factory=list)

    def flush(self) -> None:
        append(self.path, self.held)
        self.held, self.held_bytes = [], 0


def append(path: Path, arrays: Sequence[np.ndarray]) -> None:
    """Add the bytes of `arrays` to a file; an OSError says which."""
    try:
        with path.open("ab") as file:
            for array in arrays:
                file.write(array.data)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error


class Writer:
    """Documents in, shards out. `rows` are those of the table that the shards stored so far will have."""

    def __init__(self, step: Step, folder: Path, batch: int, shard_bytes: int) -> None:
        self.step, self.folder, self.batch = step, folder, batch
        self.largest = shard_bytes // TOKEN.itemsize
        self.rows: list[dict[str, Any]] = []
        self._open: dict[Place, _Open] = {}

    def add(self, place: Place, documents: Sequence[np.ndarray], facts: pa.Table) -> None:
        """Append `documents` (their tokens, uint32) to the shards of `place`; `facts` are their rows of the index
        without the spans. A document stays whole: one that is longer than a shard makes a longer one."""
        shard = self._open.setdefault(place, _Open(self.folder / f"{len(self._open)}.bin"))
        length_N = np.asarray([len(tokens) for tokens in documents], np.int64)
        first = 0
        while first < len(documents):
            end_N = shard.length + np.cumsum(length_N[first:])
            fits = int(np.searchsorted(end_N, self.largest, side="right"))
            if not fits and shard.length:
                self._close(place, shard)
                continue
            fits = max(fits, 1)
            self._append(shard, documents[first : first + fits], end_N[:fits], facts.slice(first, fits))
            first += fits

    def finish(self) -> None:
        """Store what is still open."""
        for place, shard in sorted(self._open.items()):
            if shard.length:
                self._close(place, shard)

    def _append(self, shard: _Open, documents: Sequence[np.ndarray], end_N: np.ndarray, facts: pa.Table) -> None:
        start_N = np.concatenate([[shard.length], end_N[:-1]])
        # A copy of its own: views would keep the documents of every other stream in memory, too.
        tokens_T = np.concatenate(documents)
        spans = [pa.array(start_N, pa.int64()), pa.array(end_N, pa.int64())]
        shard.index.append(pa.Table.from_arrays([*spans, *facts.columns], schema=INDEX))
        shard.held.append(tokens_T)
        shard.held_bytes += tokens_T.nbytes
        shard.length = int(end_N[-1])
        if shard.held_bytes >= BUFFER:
            shard.flush()

    def _close(self, place: Place, shard: _Open) -> None:
        shard.flush()
        name = f"{self.batch:06d}-{shard.number:03d}"
        index = pa.concat_tables(shard.index)
        self.rows.append(put_shard(self.step, place, name, shard.path.replace, index))
        shard.number, shard.length, shard.index = shard.number + 1, 0, []
