"""Megatron-LM's indexed dataset, version 1: what one pair of files holds, checked, and how one is written.

`PREFIX.bin` is tokens, sequence after sequence, no header. `PREFIX.idx`, all little-endian:

    bytes  what
    9      `MMIDIDX` and two zero bytes
    8      version: 1
    1      code of the token type (DTYPES)
    8      N, sequences
    8      D + 1, borders of documents
    4 N    tokens of each sequence, int32
    8 N    byte at which each sequence starts in the .bin, int64
    8 D+8  borders: the sequences before each document, and at last N, int64

A multimodal one has N more bytes. A pair is read and written in pieces: neither file is ever held whole.

Legend: N sequences, D documents.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np

MAGIC = b"MMIDIDX\x00\x00"
VERSION = 1
HEAD = struct.Struct("<9sQBQQ")
DTYPES = {1: "<u1", 2: "<i1", 3: "<i2", 4: "<i4", 5: "<i8", 6: "<f8", 7: "<f4", 8: "<u2"}
"""Code -> numpy type, as Megatron numbers them."""
NARROW = 1 << 16
"""Vocabularies of at most so many entries are written as uint16, larger ones as int32."""
PIECE = 1 << 20
"""Entries of an index, or tokens, that are held at once."""
LONGEST = 1 << 28
"""Most tokens of one document: what is longer is no document, and would have to be held whole."""


class MegatronError(ValueError):
    """A pair that is not what it says; the message names the file, and the document where there is one."""


@dataclass(frozen=True)
class Pair:
    """An indexed dataset whose files fit together; `check` says whether its index does."""

    prefix: Path
    dtype: np.dtype
    sequences: int
    documents: int

    @classmethod
    def open(cls, prefix: Path) -> Pair:
        """The pair `PREFIX.bin`, `PREFIX.idx`; its header and sizes are checked, MegatronError where they are wrong."""
        index, data = beside(prefix, ".idx"), beside(prefix, ".bin")
        for path in (index, data):
            if not path.is_file():
                raise MegatronError(f"{path} does not exist: an indexed dataset is a pair of .bin and .idx")
        with index.open("rb") as file:
            head = file.read(HEAD.size)
        if len(head) < HEAD.size or not head.startswith(MAGIC):
            raise MegatronError(f"{index} does not begin as an index of Megatron's (MMIDIDX): give another prefix")
        _, version, code, sequences, borders = HEAD.unpack(head)
        if version != VERSION:
            raise MegatronError(f"{index} has version {version}, only {VERSION} is known: write it again")
        if code not in DTYPES:
            raise MegatronError(f"{index} has the token type {code}, which is none of Megatron's: it was altered")
        dtype = np.dtype(DTYPES[code])
        if dtype.kind == "f":
            raise MegatronError(f"{index} holds {dtype.name}: tokens are whole numbers")
        if borders < 1:
            raise MegatronError(f"{index} has no borders of documents: it was altered")
        size = HEAD.size + 12 * sequences + 8 * borders
        found = index.stat().st_size
        if found == size + sequences and sequences:
            raise MegatronError(f"{index} is multimodal (a mode for each sequence): only text can be imported")
        if found != size:
            raise MegatronError(f"{index} has {found} bytes where its header asks for {size}: it was cut or altered")
        return cls(prefix, dtype, sequences, borders - 1)

    @property
    def index(self) -> Path:
        return beside(self.prefix, ".idx")

    @property
    def data(self) -> Path:
        return beside(self.prefix, ".bin")

    @cached_property
    def tokens(self) -> int:
        """Tokens of the whole pair, by the size of the .bin."""
        return self.data.stat().st_size // self.dtype.itemsize

    def check(self) -> None:
        """MegatronError unless the sequences lie in the .bin one after the other to its end, and the documents are
        consecutive sequences from the first to the last."""
        expected = 0
        for first in range(0, self.sequences, PIECE):
            length_N = self._lengths(first, min(first + PIECE, self.sequences)).astype(np.int64)
            pointer_N = self._pointers(first, min(first + PIECE, self.sequences))
            if (length_N < 0).any():
                wrong = int(np.argmax(length_N < 0))
                raise MegatronError(
                    f"{self.index}: sequence {first + wrong} has a length of {length_N[wrong]}: it was altered"
                )
            end_N = expected + np.cumsum(length_N) * self.dtype.itemsize
            start_N = np.concatenate([[expected], end_N[:-1]])
            if (pointer_N != start_N).any():
                wrong = int(np.argmax(pointer_N != start_N))
                raise MegatronError(
                    f"{self.index}: sequence {first + wrong} points at byte {pointer_N[wrong]} of the .bin, where "
                    f"{start_N[wrong]} follows from the lengths: it was altered"
                )
            expected = int(end_N[-1])
        size = self.data.stat().st_size
        if size != expected:
            raise MegatronError(
                f"{self.data} has {size} bytes where its .idx lists {expected}: it was cut or is another's"
            )
        before = 0
        for first in range(0, self.documents + 1, PIECE):
            border_D = self._borders(first, min(first + PIECE, self.documents + 1))
            if (np.diff(border_D, prepend=before) < 0).any() or (first == 0 and border_D[0] != 0):
                raise MegatronError(f"{self.index}: the borders of its documents do not ascend from 0: it was altered")
            before = int(border_D[-1])
        if before != self.sequences:
            raise MegatronError(
                f"{self.index}: its documents end after sequence {before} of {self.sequences}: finish the last document"
            )

    def batches(self, tokens: int) -> list[tuple[int, int]]:
        """All documents cut into (first, last + 1): as many as have `tokens` tokens, one for each document counted
        on top, and at least one."""
        cuts, before, begun = [0], 0, 0
        for first in range(0, self.documents, PIECE):
            last = min(first + PIECE, self.documents)
            border_D = np.concatenate([[before], self._ends(first, last) + np.arange(first + 1, last + 1)])
            before = int(border_D[-1])
            while before - begun > tokens:
                place = int(np.searchsorted(border_D, begun + tokens, side="right")) - 1
                cuts.append(max(first + place, cuts[-1] + 1))
                begun = int(border_D[cuts[-1] - first])
        return [(low, high) for low, high in zip(cuts, [*cuts[1:], self.documents], strict=True) if high > low]

    def read(self, first: int, last: int) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        """Documents `first` to `last` - 1, about PIECE tokens at a time: the number of the first of them, their tokens
        [T] and where each ends in those [D]. MegatronError for a document longer than LONGEST."""
        with self.data.open("rb") as data:
            while first < last:
                end_D = self._ends(first, min(first + PIECE, last))
                start = int(self._ends(first - 1, first)[0]) if first else 0
                count = max(1, int(np.searchsorted(end_D, start + PIECE, side="right")))
                length = int(end_D[count - 1]) - start
                if length > LONGEST:
                    raise MegatronError(
                        f"{self.index}: document {first} has {length} tokens, more than the {LONGEST} that one may have"
                    )
                data.seek(start * self.dtype.itemsize)
                yield first, np.fromfile(data, self.dtype, length), end_D[:count] - start
                first += count

    def _ends(self, first: int, last: int) -> np.ndarray:
        """Token offsets at which documents `first` to `last` - 1 end."""
        border_D = self._borders(first + 1, last + 1)
        if not self.sequences:
            return np.zeros(len(border_D), np.int64)
        pointers_N = np.memmap(self.index, "<i8", "r", HEAD.size + 4 * self.sequences, (self.sequences,))
        inside_D = pointers_N[np.minimum(border_D, self.sequences - 1)] // self.dtype.itemsize
        return np.where(border_D < self.sequences, inside_D, self.tokens).astype(np.int64)

    def _lengths(self, first: int, last: int) -> np.ndarray:
        return self._entries(HEAD.size, "<i4", first, last)

    def _pointers(self, first: int, last: int) -> np.ndarray:
        return self._entries(HEAD.size + 4 * self.sequences, "<i8", first, last)

    def _borders(self, first: int, last: int) -> np.ndarray:
        return self._entries(HEAD.size + 12 * self.sequences, "<i8", first, last)

    def _entries(self, base: int, kind: str, first: int, last: int) -> np.ndarray:
        return np.fromfile(self.index, kind, last - first, offset=base + first * np.dtype(kind).itemsize)


class Writer:
    """One document a sequence, in order; `PREFIX.idx` is written by `finish`, from what was noted beside it."""

    def __init__(self, prefix: Path, vocabulary: int) -> None:
        self.code = 8 if vocabulary <= NARROW else 4
        self.dtype: np.dtype = np.dtype(DTYPES[self.code])
        self._prefix = prefix
        self._data = beside(prefix, ".bin").open("wb")
        self._notes = beside(prefix, ".lengths").open("w+b")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        self._data.close()
        self._notes.close()

    def add_tokens(self, tokens_T: np.ndarray) -> None:
        """Append tokens of any documents; `add_lengths` says which."""
        self._data.write(tokens_T.astype(self.dtype).data)

    def add_lengths(self, length_N: np.ndarray) -> None:
        """Append documents of so many tokens."""
        self._notes.write(length_N.astype("<i4").data)

    def finish(self) -> None:
        """Write the index."""
        self._data.close()
        count = self._notes.tell() // 4
        with beside(self._prefix, ".idx").open("wb") as file:
            file.write(HEAD.pack(MAGIC, VERSION, self.code, count, count + 1))
            self._copy(file, count, lambda length_N, before: length_N)
            self._copy(file, count, self._starts)
            for first in range(0, count + 1, PIECE):
                file.write(np.arange(first, min(first + PIECE, count + 1), dtype="<i8").data)
        self._notes.close()
        beside(self._prefix, ".lengths").unlink()

    def _starts(self, length_N: np.ndarray, before: int) -> np.ndarray:
        return (before + np.cumsum(length_N, dtype="<i8") - length_N) * self.dtype.itemsize

    def _copy(self, file: BinaryIO, count: int, made: Callable[[np.ndarray, int], np.ndarray]) -> None:
        """Write what `made(lengths, tokens before them)` is of all lengths."""
        self._notes.seek(0)
        before = 0
        for first in range(0, count, PIECE):
            length_N = np.frombuffer(self._notes.read(4 * min(PIECE, count - first)), "<i4")
            file.write(made(length_N, before).data)
            before += int(length_N.sum(dtype=np.int64))


def beside(prefix: Path, suffix: str) -> Path:
    """A file of the pair at `prefix`, whose name may have dots."""
    return prefix.with_name(prefix.name + suffix)
