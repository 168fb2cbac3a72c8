"""Best-fit packing: whole documents into rows of equal length, so that no sample begins in the middle of a document.

A document longer than a row is cut into full rows and a rest. The pieces of one shard are laid into rows by best-fit
decreasing: longest first, each into the row with the least room that still holds it, a new row where none does. A row
holds no document twice as long as that costs no padding: it would weigh double in one update. Every token of the shard
is then in exactly one row, once; what no piece fills is padding. The result is a function of the shard's documents
(their ids and ends) and the row length alone, so that whoever computes it finds the same.

Legend: N documents, P pieces, R rows, L lengths, D documents of a length without their copies.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass

import numpy as np

VERSION = 2
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


def pack(end_N: np.ndarray, size: int, least: int = 0, document_N: np.ndarray | None = None) -> Packing:
    """Lay documents that touch, the first from token 0, the last token of each before `end_N`, into rows of `size`;
    those with fewer tokens than `least` are left out. Copies of one document have one number in `document_N`; without
    it there are none."""
    if size < 1:
        raise ValueError(f"rows of {size} tokens hold nothing: give at least 1")
    start_N = np.concatenate([[0], end_N]).astype(np.int64)[:-1]
    if document_N is None:
        document_N = np.arange(len(end_N))
    long_N = end_N - start_N >= least
    start_N, end_N, document_N = start_N[long_N], end_N[long_N], document_N[long_N]
    pieces_N = -(-(end_N - start_N) // size)
    # number of each piece within its document
    within_P = np.arange(pieces_N.sum()) - np.repeat(np.cumsum(pieces_N) - pieces_N, pieces_N)
    start_P = np.repeat(start_N, pieces_N) + within_P * size
    length_P = np.minimum(np.repeat(end_N, pieces_N) - start_P, size)
    row_P = best_fit(length_P, size, np.repeat(document_N, pieces_N))
    order_P = _order(row_P)
    rows = int(row_P.max()) + 1 if len(row_P) else 0
    row_first_R = np.searchsorted(row_P[order_P], np.arange(rows + 1))
    return Packing(row_first_R.astype(np.int64), start_P[order_P], length_P[order_P])


def best_fit(length_P: np.ndarray, size: int, document_P: np.ndarray) -> np.ndarray:
    """The row of each piece (1 to `size` tokens), rows numbered as they are opened.

    Pieces of one length are dealt out together: the row with the least room takes as many of them as it holds, for
    after each it is the fullest row that still has room, and rows with equal room do so alike. Of pieces among which
    are copies it takes fewer, so that it has no document twice, unless that took more rows than all tokens fill.
    """
    order_P, first_L, apart_L = _dealt(length_P, size, document_P)
    length_L = length_P[order_P[first_L]].tolist()
    row_P = np.empty(len(length_P), np.int64)
    last_L = [*first_L.tolist(), len(order_P)][1:]
    rows_by_room: dict[int, list[int]] = {}
    rooms: list[int] = []  # those that some row has, ascending
    opened, needed = 0, -(-int(length_P.sum()) // size)
    for length, first, last, apart in zip(length_L, first_L.tolist(), last_L, apart_L.tolist(), strict=True):
        had: list[tuple[int, list[int]]] = []  # rows that took of these pieces, and the room that they have left
        while first < last or had:
            at = bisect.bisect_left(rooms, length)
            if first == last or (had and at == len(rooms) and opened >= needed):
                for rest, rows in had:
                    if rest not in rows_by_room:
                        rows_by_room[rest] = []
                        bisect.insort(rooms, rest)
                    rows_by_room[rest] += rows
                had, apart = [], last - first
                continue
            room = rooms[at] if at < len(rooms) else size
            each = min(room // length, apart)
            # as many rows as are filled wholly, or one that takes the rest
            wanted = max(1, (last - first) // each)
            if at < len(rooms):
                held = rows_by_room[room]
                taken = held[-wanted:]
                del held[-wanted:]
                if not held:
                    del rows_by_room[room], rooms[at]
            else:
                if each < room // length:
                    wanted = min(wanted, max(1, needed - opened))
                taken = list(range(opened, opened + wanted))
                opened += wanted
            count = min(each * len(taken), last - first)
            row_P[order_P[first : first + count]] = np.repeat(taken, each)[:count]
            first += count
            rest = room - length * (count // len(taken))
            if rest:
                had.append((rest, taken))
    return row_P


def _dealt(length_P: np.ndarray, size: int, document_P: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The pieces, longest first, those of one length such that copies are far apart; where each length begins; and of
    how many successive pieces of it none is a copy of another.

    Copies have one length. Its pieces, those of one document together, are dealt like cards into as many hands as there
    are copies of the most frequent document, and the hands laid one behind the other.
    """
    # what fills a row is alone in it, so that the pieces of a long document are no copies
    number_P = np.where(length_P < size, document_P, np.arange(len(length_P), dtype=document_P.dtype))
    key_P = (size - length_P) << 32 | number_P.astype(np.uint32)
    order_P = _order(key_P)
    key_P = key_P[order_P]
    first_L = np.flatnonzero(np.diff(key_P >> 32, prepend=-1))
    count_L = np.diff(first_L, append=len(order_P))
    first_D = np.flatnonzero(np.diff(key_P, prepend=-1))
    if len(first_D) == len(order_P):
        return order_P, first_L, count_L
    copies_D = np.diff(first_D, append=len(order_P))
    length_D = np.searchsorted(first_L, first_D, side="right") - 1
    hands_L = np.maximum.reduceat(copies_D, np.searchsorted(first_D, first_L))
    # the most frequent ones first: any other document then skips a hand, and its copies lie no closer
    often_D = np.argsort(length_D * (1 + copies_D.max()) - copies_D, kind="stable")
    repeat_D = copies_D[often_D]
    piece_P = np.arange(len(order_P)) + np.repeat(first_D[often_D] - np.cumsum(repeat_D) + repeat_D, repeat_D)
    hands_P, first_P, count_P = (np.repeat(value_L, count_L) for value_L in (hands_L, first_L, count_L))
    round_P, hand_P = np.divmod(np.arange(len(order_P)) - first_P, hands_P)
    place_P = first_P + hand_P * (count_P // hands_P) + np.minimum(hand_P, count_P % hands_P) + round_P
    dealt_P = np.empty_like(order_P)
    dealt_P[place_P] = order_P[piece_P]
    return dealt_P, first_L, count_L // hands_L


def _order(value_P: np.ndarray) -> np.ndarray:
    """`np.argsort(value_P, kind="stable")` of numbers of at least 0, in a third of the time: numpy sorts 16 bits by
    counting."""
    order_P = np.argsort(value_P.astype(np.uint16), kind="stable")
    for shift in range(16, int(value_P.max(initial=0)).bit_length(), 16):
        order_P = order_P[np.argsort((value_P >> shift).astype(np.uint16)[order_P], kind="stable")]
    return order_P
