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
    row_P = best_fit(np.asarray(pieces, np.int64), size)
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


def test_little_is_wasted_on_text() -> None:
    lengths = np.maximum(2, np.random.default_rng(0).lognormal(6, 1.2, 20_000)).astype(np.int64)
    packing = pack(np.cumsum(lengths), 4096)
    positions = (len(packing.row_first_R) - 1) * 4096
    assert lengths.sum() / positions > 0.999


def test_rows_of_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="rows of 0 tokens"):
        pack(np.asarray([3]), 0)
