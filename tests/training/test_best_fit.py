"""Best-fit packing: every token in one row once, no row overfull, and the layout that best-fit decreasing gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.best_fit import Packing, best_fit, pack

lengths = st.lists(st.integers(1, 60), max_size=60)
sizes = st.integers(1, 40)


def room_left(pieces: list[int], size: int) -> list[int]:
    """The definition: longest first, each into the row with the least room that holds it."""
    room: list[int] = []
    for length in sorted(pieces, reverse=True):
        fits = [(left, row) for row, left in enumerate(room) if left >= length]
        if fits:
            room[min(fits)[1]] -= length
        else:
            room.append(size - length)
    return sorted(room)


@given(lengths, sizes)
def test_rows_are_those_of_best_fit_decreasing(lengths: list[int], size: int) -> None:
    pieces = [min(length, size) for length in lengths]
    row_P = best_fit(np.asarray(pieces, np.int64), size, np.arange(len(pieces)))
    filled = np.bincount(row_P, weights=pieces).astype(int)
    assert sorted((size - filled).tolist()) == room_left(pieces, size)


@given(lengths, sizes)
def test_every_token_is_in_one_row_once_and_documents_are_cut_only_when_longer(lengths: list[int], size: int) -> None:
    ends = np.cumsum(lengths, dtype=np.int64)
    packing = pack(ends, size)
    seen: list[int] = []
    starts = {0, *ends.tolist()}
    for number in range(len(packing.row_first_R) - 1):
        row = packing.row(number)
        assert 0 < sum(end - start for start, end in row) <= size
        assert row == sorted(row)
        for start, end in row:
            seen.extend(range(start, end))
            assert packing.rows_of(start, end) == [number]
            document = int(np.searchsorted(ends, start, side="right"))
            assert end <= ends[document]  # within one document
            if lengths[document] <= size:
                assert start in starts
                assert end in starts
            else:
                assert end - start == size or end == ends[document]
    assert sorted(seen) == list(range(sum(lengths)))
    stored = Packing.from_array(packing.to_array())
    for name in ("row_first_R", "start_P", "length_P"):
        assert np.array_equal(getattr(stored, name), getattr(packing, name))
        assert getattr(stored, name).dtype == np.int64


@given(lengths, sizes, st.integers(0, 50))
def test_short_documents_are_left_out_and_the_others_lie_as_if_they_were_alone(
    lengths: list[int], size: int, least: int
) -> None:
    ends = np.cumsum(lengths, dtype=np.int64)
    packing = pack(ends, size, least)
    kept = [length for length in lengths if length >= least]
    assert packing.length_P.sum() == sum(kept)
    alone = pack(np.cumsum(kept, dtype=np.int64), size)
    for name in ("row_first_R", "length_P"):
        assert np.array_equal(getattr(packing, name), getattr(alone, name))
    document_P = np.searchsorted(ends, packing.start_P, side="right")
    assert all(lengths[document] >= least for document in document_P)


def twice(packing: Packing, ends: np.ndarray, document_N: np.ndarray, size: int) -> int:
    """How often a row holds a document that it holds already."""
    row_P = np.repeat(np.arange(len(packing.row_first_R) - 1), np.diff(packing.row_first_R))
    document_P = document_N[np.searchsorted(ends, packing.start_P, side="right")]
    pairs = np.stack([row_P, document_P], 1)[packing.length_P < size]
    return len(pairs) - len(np.unique(pairs, axis=0))


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), min_size=1, max_size=30), sizes)
def test_copies_too_are_in_one_row_once_each(documents: list[tuple[int, int]], size: int) -> None:
    document_N = np.asarray([n for copy in range(4) for n, (_, copies) in enumerate(documents) if copy < copies])
    ends = np.cumsum(np.asarray([length for length, _ in documents])[document_N], dtype=np.int64)
    packing = pack(ends, size, 0, document_N)
    rows = [packing.row(number) for number in range(len(packing.row_first_R) - 1)]
    assert all(0 < sum(end - start for start, end in row) <= size for row in rows)
    pieces = sorted(piece for row in rows for piece in row)
    assert [end for _, end in pieces[:-1]] == [start for start, _ in pieces[1:]]
    assert len(pieces) == len(pack(ends, size).start_P)


@pytest.mark.parametrize(("size", "copies"), [(4096, 2), (32768, 4)])
def test_copies_of_a_document_lie_in_rows_of_their_own(size: int, copies: int) -> None:
    """But for a few of the last ones, for which there would have to be more rows."""
    lengths = np.maximum(2, np.random.default_rng(0).lognormal(6.5, 1.0, 5000)).astype(np.int64)
    document_N = np.tile(np.arange(5000), copies)
    ends = np.cumsum(lengths[document_N])
    plain, packing = pack(ends, size), pack(ends, size, 0, document_N)
    assert twice(plain, ends, document_N, size) > 1000
    assert twice(packing, ends, document_N, size) < twice(plain, ends, document_N, size) / 20
    assert len(packing.row_first_R) == len(plain.row_first_R)


def test_a_document_among_others_of_its_length_is_in_no_row_twice() -> None:
    document_N = np.asarray([0, 1, 2, 3, 3, 3, 3, 0])
    packing = pack(np.arange(1, 9) * 40, 100, 0, document_N)
    assert sorted(sorted(document_N[[start // 40 for start, _ in packing.row(row)]].tolist()) for row in range(4)) == [
        [0, 3],
        [0, 3],
        [1, 3],
        [2, 3],
    ]


def test_little_is_wasted_on_text() -> None:
    lengths = np.maximum(2, np.random.default_rng(0).lognormal(6, 1.2, 20_000)).astype(np.int64)
    packing = pack(np.cumsum(lengths), 4096)
    positions = (len(packing.row_first_R) - 1) * 4096
    assert lengths.sum() / positions > 0.999


def test_rows_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 0 tokens"):
        pack(np.asarray([3]), 0)
