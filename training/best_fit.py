"""Best-fit packing: whole documents into rows of equal length, so that no sample begins in the middle of a document.

A document longer than a row is cut into full rows and a rest. The pieces of one shard are laid into rows by best-fit
decreasing: longest first, each into the row with the least room that still holds it, a new row where none does. Every
token of the shard is then in exactly one row, once; what no piece fills is padding. The result is a function of the
shard's document ends and the row length alone, so that whoever computes it finds the same.

Legend: N documents, P pieces, R rows.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

VERSION = 1
"""Raised when the same documents are laid out differently."""


@dataclass(frozen=True)
class Packing:
    """The pieces of a shard, row after row and within a row as they lie in the shard; all int64."""

    row_first_R: np.ndarray
    """Number of the first piece of each row, and at the end the number of pieces: R + 1 values."""
    start_P: np.ndarray
    """Token offset in the shard."""
    length_P: np.ndarray

    def row(self, number: int) -> list[tuple[int, int]]:
        """(start, end) in the shard of the pieces of a row."""
        low, high = self.row_first_R[number], self.row_first_R[number + 1]
        start_P = self.start_P[low:high]
        return list(zip(start_P.tolist(), (start_P + self.length_P[low:high]).tolist(), strict=True))

    def rows_of(self, start: int, end: int) -> list[int]:
        """The rows that hold any of the tokens start .. end - 1, ascending."""
        pieces = np.flatnonzero((self.start_P < end) & (self.start_P + self.length_P > start))
        return np.unique(np.searchsorted(self.row_first_R, pieces, side="right") - 1).tolist()

    def to_array(self) -> np.ndarray:
        """All of it in one array, to be stored."""
        sizes = np.asarray([len(self.row_first_R) - 1, len(self.start_P)], np.int64)
        return np.concatenate([sizes, self.row_first_R, self.start_P, self.length_P])

    @classmethod
    def from_array(cls, array: np.ndarray) -> Packing:
        """The inverse of `to_array`, as views."""
        rows, pieces = array[:2].tolist()
        return cls(*np.split(array[2:], [rows + 1, rows + 1 + pieces]))


def pack(end_N: np.ndarray, size: int, least: int = 0) -> Packing:
    """Lay documents that touch, the first from token 0, the last token of each before `end_N`, into rows of `size`;
    those with fewer tokens than `least` are left out."""
    if size < 1:
        raise ValueError(f"rows of {size} tokens hold nothing: give at least 1")
    start_N = np.concatenate([[0], end_N]).astype(np.int64)[:-1]
    long_N = end_N - start_N >= least
    start_N, end_N = start_N[long_N], end_N[long_N]
    pieces_N = -(-(end_N - start_N) // size)
    # number of each piece within its document
    within_P = np.arange(pieces_N.sum()) - np.repeat(np.cumsum(pieces_N) - pieces_N, pieces_N)
    start_P = np.repeat(start_N, pieces_N) + within_P * size
    length_P = np.minimum(np.repeat(end_N, pieces_N) - start_P, size)
    row_P = best_fit(length_P, size)
    order_P = np.lexsort((start_P, row_P))
    rows = int(row_P.max()) + 1 if len(row_P) else 0
    row_first_R = np.searchsorted(row_P[order_P], np.arange(rows + 1))
    return Packing(row_first_R.astype(np.int64), start_P[order_P], length_P[order_P])


def best_fit(length_P: np.ndarray, size: int) -> np.ndarray:
    """The row of each piece (1 to `size` tokens), rows numbered as they are opened.

    Pieces of one length are dealt out together: the row with the least room takes as many of them as it holds, for
    after each it is the fullest row that still has room, and rows with equal room do so alike.
    """
    order_P = np.argsort(-length_P, kind="stable")
    row_P = np.empty(len(length_P), np.int64)
    value_L, first_L = np.unique(-length_P[order_P], return_index=True)
    last_L = [*first_L.tolist(), len(order_P)][1:]
    rows_by_room: dict[int, list[int]] = {}
    rooms: list[int] = []  # those that some row has, ascending
    opened = 0
    for length, first, last in zip((-value_L).tolist(), first_L.tolist(), last_L, strict=True):
        while first < last:
            at = bisect.bisect_left(rooms, length)
            room = rooms[at] if at < len(rooms) else size
            each = room // length
            # as many rows as are filled wholly, or one that takes the rest
            wanted = max(1, (last - first) // each)
            if at < len(rooms):
                held = rows_by_room[room]
                taken = held[-wanted:]
                del held[-wanted:]
                if not held:
                    del rows_by_room[room], rooms[at]
            else:
                taken = list(range(opened, opened + wanted))
                opened += wanted
            count = min(each * len(taken), last - first)
            row_P[order_P[first : first + count]] = np.repeat(taken, each)[:count]
            first += count
            rest = room - length * (count // len(taken))
            if rest:
                if rest not in rows_by_room:
                    rows_by_room[rest] = []
                    bisect.insort(rooms, rest)
                rows_by_room[rest] += taken
    return row_P
