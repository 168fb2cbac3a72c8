"""Files of sorted arrays: what the map side leaves for the reduce side, read by ranges.

A file is a sequence of runs, each with its own arrays, and a JSON footer that says where they lie. Because a run's keys
are sorted, a job fetches a range of keys from every file with two binary searches and one read: the shuffle needs no
files of its own. Plain `pread`s, so that memory is what was asked for.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

_MAGIC = b"openk2 arrays 1\n"
_BLOCK = 1 << 15


class StoreError(ValueError):
    """A file that is no store, or not a whole one."""


class StoreWriter:
    """Collects runs in a scratch file, so that memory holds one run at a time."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  (closed by write, or with the writer)
        self._runs: list[dict[str, list[Any]]] = []

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Add one run."""
        run = {}
        for name, array in arrays.items():
            self._file.write(bytes(-self._file.tell() % 8))
            run[name] = [self._file.tell(), array.dtype.str, list(array.shape)]
            self._file.write(array.tobytes())
        self._runs.append(run)

    def write(self, path: Path, **meta: Any) -> None:
        """Finish the file at `path`; the writer is spent."""
        footer = json.dumps({"runs": self._runs, "meta": meta}, sort_keys=True).encode()
        self._file.write(footer + len(footer).to_bytes(8, "little") + _MAGIC)
        self._file.seek(0)
        with self._file, path.open("wb") as target:
            shutil.copyfileobj(self._file, target, 1 << 20)


class Run:
    """The arrays of one run, read on demand."""

    def __init__(self, file: IO[bytes], places: dict[str, list[Any]]) -> None:
        self._file = file
        self._places = places

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def count(self, name: str) -> int:
        return self._places[name][2][0] if name in self._places else 0

    def read(self, name: str, first: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows first:stop of an array."""
        offset, dtype, (rows, *rest) = self._places[name]
        stop = rows if stop is None else min(stop, rows)
        out = np.empty((max(stop - first, 0), *rest), np.dtype(dtype))
        if out.size:
            self._file.seek(offset + first * (out.nbytes // len(out)))
            left = out.reshape(-1).view(np.uint8).data
            while left:  # one call gives 2 GiB at most, and on a network disk sometimes less than is there
                count = self._file.readinto(left)  # type: ignore[attr-defined]
                if not count:
                    raise StoreError(f"'{name}' ends {len(left):,} bytes early: the file was cut; run its step again")
                left = left[count:]
        return out

    def take(self, name: str, rows: np.ndarray) -> np.ndarray:
        """Some rows of an array, given in ascending order."""
        _, dtype, (_, *rest) = self._places[name]
        out = np.empty((len(rows), *rest), np.dtype(dtype))
        at = 0
        while at < len(rows):
            first = int(rows[at])
            end = int(np.searchsorted(rows, first + _BLOCK))
            out[at:end] = self.read(name, first, int(rows[end - 1]) + 1)[rows[at:end] - first]
            at = end
        return out

    def ragged(self, values: str, starts: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(values, int64 starts) of some rows, ascending, of an array whose row borders stand in another."""
        firsts = self.take(starts, rows)
        stops = self.take(starts, rows + 1)
        borders = np.concatenate([[0], np.cumsum(stops - firsts)])
        out = np.empty(int(borders[-1]), np.dtype(self._places[values][1]))
        for at, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True)):
            out[borders[at] : borders[at + 1]] = self.read(values, first, stop)
        return out, borders

    def search(self, name: str, value: int) -> int:
        """The first row of a sorted uint64 array that is not below `value`."""
        low, high = 0, self.count(name)
        if value >= 1 << 64:
            return high
        while high - low > _BLOCK:
            middle = (low + high) // 2
            if int(self.read(name, middle, middle + 1)[0]) < value:
                low = middle + 1
            else:
                high = middle
        return low + int(np.searchsorted(self.read(name, low, high), np.uint64(value)))

    def range(self, keys: str, low: int, high: int) -> slice:
        """Rows of a sorted uint64 array with low <= key < high."""
        return slice(self.search(keys, low), self.search(keys, high))


class Store:
    """A written file. Use as a context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb", buffering=0)

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @cached_property
    def _footer(self) -> dict[str, Any]:
        size = self.path.stat().st_size
        tail = len(_MAGIC) + 8
        self._file.seek(max(size - tail, 0))
        end = self._file.read(tail)
        if len(end) < tail or end[8:] != _MAGIC:
            raise StoreError(f"{self.path} is not a file of arrays, or a cut one: delete it and run its step again")
        length = int.from_bytes(end[:8], "little")
        self._file.seek(size - tail - length)
        return cast("dict[str, Any]", json.loads(self._file.read(length)))

    @property
    def meta(self) -> dict[str, Any]:
        return cast("dict[str, Any]", self._footer["meta"])

    @property
    def runs(self) -> Iterator[Run]:
        for places in self._footer["runs"]:
            yield Run(cast("IO[bytes]", self._file), places)


def write(path: Path, arrays: Mapping[str, np.ndarray], **meta: Any) -> None:
    """A file of one run."""
    writer = StoreWriter()
    writer.append(arrays)
    writer.write(path, **meta)
