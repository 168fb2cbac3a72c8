"""What a sample is: a window that slides over a shard, or a row of whole documents. Both say how many a shard has, what
each reads, and which read a given token.

Legend: B samples, S sequence length, T = S + 1 tokens read, N shards.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from training.best_fit import VERSION, Packing, pack
from training.cache import Cache
from training.metrics import naming
from training.shards import MAPS, Shard, Stream, count_windows

IGNORED = -100
"""Target that counts in no loss."""
PADDING = -1
"""Document number of padding."""
Kind = Literal["windows", "best_fit"]
_LOST = (OSError, EOFError, ValueError)
"""What numpy raises of a stored layout that is not there, or that lost its bytes with the power: it is made again."""


class Rows(NamedTuple):
    """Some samples as they were read, all int64 but the document numbers."""

    tokens_BS: np.ndarray
    targets_BS: np.ndarray
    documents_BS: np.ndarray | None = None
    """int32; None where they are told by the tokens that end documents."""


@dataclass(frozen=True)
class Windows:
    """A window reads S + 1 tokens and the next one starts S further, across documents but never across shards."""

    length: int
    """Inputs of a sample."""
    kind: Kind = "windows"

    def counts(self, stream: Stream) -> np.ndarray:
        """Samples of each shard of a stream, int64, shape N."""
        return count_windows(stream.tokens_N, self.length)

    def tokens(self, stream: Stream) -> int:
        """Tokens of a stream that are inputs in an epoch."""
        return int(self.counts(stream).sum()) * self.length

    def read(self, places: Sequence[tuple[Shard, int]]) -> Rows:
        """The samples that have these numbers within their shards."""
        # One buffer of which inputs and targets are views: fresh pages cost more than the copy.
        read_BT = np.empty((len(places), self.length + 1), np.int64)
        for row, (shard, number) in enumerate(places):
            start = number * self.length
            read_BT[row] = shard.read(start, start + self.length + 1)
        return Rows(read_BT[:, :-1], read_BT[:, 1:])

    def spans(self, shard: Shard, number: int) -> list[tuple[int, int]]:
        """(start, end) of the tokens that are read of its shard for a sample, targets included."""
        return [(number * self.length, (number + 1) * self.length + 1)]

    def pieces(self, shard: Shard, number: int) -> list[tuple[int, int, int]]:
        """(start, end, position): what the inputs of a sample read of its shard, and where it stands in the sample."""
        return [(number * self.length, (number + 1) * self.length, 0)]

    def reading(self, shard: Shard, start: int, end: int) -> list[int]:
        """The numbers of the samples whose inputs read any of the tokens start .. end - 1, ascending."""
        last = min((end - 1) // self.length, int(count_windows(np.asarray(shard.tokens), self.length)) - 1)
        return list(range(start // self.length, last + 1))


@dataclass(frozen=True)
class BestFit:
    """A row holds whole documents, or a cut of one longer than a row, and then padding. The target of a document's last
    token, and of padding, is IGNORED; that of a cut is the token that follows in the document. The methods are those of
    `Windows`.

    The layout of a shard is computed from its document index once and stored in the cache, and so is the number of rows
    of all shards of a stream; both are the same whoever computes them.
    """

    length: int
    end_of_document: int
    """Also what stands at padding."""
    cache: Cache
    document_tokens_min: int = 0
    """Shorter documents are left out."""
    kind: Kind = "best_fit"

    def counts(self, stream: Stream) -> np.ndarray:
        listed = hashlib.sha256("".join(stream.index_sha256()).encode()).hexdigest()
        path = self._path(f"counts-{listed}")
        with contextlib.suppress(*_LOST):
            return np.load(path)
        # reading and inflating the indices lets other threads work
        with ThreadPoolExecutor() as pool:
            counts = list(pool.map(lambda shard: len(self.packing(shard).row_first_R) - 1, stream))
        _store(path, np.asarray(counts, np.int64))
        return np.load(path)

    def packing(self, shard: Shard) -> Packing:
        """The rows of a shard, memory-mapped."""
        path = self._path(shard.index.sha256)
        try:
            return _mapped(path)
        except _LOST:
            end_N, document_N = shard.documents()
            _store(path, pack(end_N, self.length, self.document_tokens_min, document_N).to_array())
            return _mapped(path)

    def tokens(self, stream: Stream) -> int:
        if not self.document_tokens_min:
            return int(stream.tokens_N.sum())
        return sum(int(self.packing(shard).length_P.sum()) for shard in stream)

    def read(self, places: Sequence[tuple[Shard, int]]) -> Rows:
        shape = len(places), self.length
        tokens_BS = np.full(shape, self.end_of_document, np.int64)
        targets_BS = np.full(shape, IGNORED, np.int64)
        documents_BS = np.full(shape, PADDING, np.int32)
        for row, (shard, number) in enumerate(places):
            first = 0
            for document, (start, end) in enumerate(self.packing(shard).row(number)):
                last = first + end - start
                read = shard.read(*_with_target(shard, start, end))
                tokens_BS[row, first:last] = read[: end - start]
                cut = read[end - start - 1] != self.end_of_document
                targets = read[1:] if cut else read[1 : end - start]
                targets_BS[row, first : first + len(targets)] = targets
                documents_BS[row, first:last] = document
                first = last
        return Rows(tokens_BS, targets_BS, documents_BS)

    def spans(self, shard: Shard, number: int) -> list[tuple[int, int]]:
        return [_with_target(shard, start, end) for start, end in self.packing(shard).row(number)]

    def pieces(self, shard: Shard, number: int) -> list[tuple[int, int, int]]:
        found, first = [], 0
        for start, end in self.packing(shard).row(number):
            found.append((start, end, first))
            first += end - start
        return found

    def reading(self, shard: Shard, start: int, end: int) -> list[int]:
        return self.packing(shard).rows_of(start, end)

    def _path(self, name: str) -> Path:
        least = f"-{self.document_tokens_min}" if self.document_tokens_min else ""
        return self.cache.folder / "packed" / f"{name}-{self.length}{least}-{VERSION}.npy"


def _with_target(shard: Shard, start: int, end: int) -> tuple[int, int]:
    """A piece and one token more: of a cut it is the last target."""
    return start, min(end + 1, shard.tokens)


@lru_cache(MAPS)
def _mapped(path: Path) -> Packing:
    return Packing.from_array(np.load(path, mmap_mode="r").view(np.ndarray))


def _store(path: Path, array: np.ndarray) -> None:
    """Write so that a reader finds all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}-{threading.get_ident()}.partial")
    with naming(partial), partial.open("wb") as file:
        np.save(file, array)
    partial.replace(path)
