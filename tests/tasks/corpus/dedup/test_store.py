"""Files of sorted arrays: ranges and rows as written, and a cut file is named."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.corpus.dedup import store
from tasks.corpus.dedup.store import Store, StoreError, StoreWriter

KEYS = st.lists(st.integers(0, (1 << 64) - 1), max_size=60)


@given(st.lists(KEYS, max_size=3), st.integers(0, 1 << 64), st.integers(0, 1 << 64))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_ranges_are_those_of_the_keys(tmp_path, monkeypatch, runs, one, other):
    monkeypatch.setattr(store, "_BLOCK", 4)
    low, high = sorted((one, other))
    writer = StoreWriter()
    for keys in runs:
        writer.append({"keys": np.array(sorted(keys), np.uint64), "wide": np.zeros((len(keys), 2), np.int8)})
    writer.write(tmp_path / "file", rows=3)
    with Store(tmp_path / "file") as held:
        assert held.meta == {"rows": 3}
        for keys, run in zip(runs, held.runs, strict=True):
            found = run.range("keys", low, high)
            expected = [key for key in sorted(keys) if low <= key < high]
            assert run.read("keys", found.start, found.stop).tolist() == expected
            assert run.read("wide").shape == (len(keys), 2)
            rows = np.arange(0, len(keys), 3)
            assert run.take("keys", rows).tolist() == sorted(keys)[::3]


def test_a_cut_file_is_named(tmp_path):
    store.write(tmp_path / "file", {"keys": np.arange(9)})
    (tmp_path / "file").write_bytes((tmp_path / "file").read_bytes()[:-1])
    with Store(tmp_path / "file") as held, pytest.raises(StoreError, match="file is not"):
        list(held.runs)


def test_an_array_is_read_whole_in_however_many_calls(tmp_path):
    """Linux reads 2,147,479,552 bytes in one call at most."""
    values = np.arange(1000, dtype=np.uint64)
    store.write(tmp_path / "file", {"values": values})

    class Halting(io.FileIO):
        def readinto(self, buffer):
            return super().readinto(memoryview(buffer)[:100])

    with Store(tmp_path / "file") as held, Halting(tmp_path / "file") as file:
        (run,) = held.runs
        run._file = file
        assert run.read("values").tolist() == values.tolist()
        assert run.read("values", 900).tolist() == values[900:].tolist()
        run._places["values"][2][0] = 10**6
        with pytest.raises(StoreError, match="'values' ends"):
            run.read("values")
