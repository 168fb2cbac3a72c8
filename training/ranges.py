"""Parts of remote files, each checked: for data larger than the cache, where one window would cost a whole shard.

The writer lists the sha256 of every block of 64 KiB of a shard in a file of its own, whose sha256 is in the table of
shards. A read fetches the blocks that it touches with one request and compares each. What is read ahead stays in memory
until it is read: in a global shuffle nothing is read twice in an epoch, so that a disk would keep it for nobody.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from model import storage
from training.cache import REPAIR, Cache, File, ShardError

BLOCK = 1 << 16
DIGEST = 32
"""Bytes of one block's sha256."""
AHEAD_BYTES = 256 << 20
"""Most memory for what is read ahead."""
FETCHERS = 16
"""Requests that are under way at once."""


class Range(NamedTuple):
    """The bytes start .. end - 1 of a file."""

    file: File
    blocks: File
    """The list of its blocks' sha256."""
    start: int
    end: int


def block_digests(path: Path) -> bytes:
    """The sha256 of every block of a local file, one after another."""
    digests = bytearray()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digests += hashlib.sha256(block).digest()
    return bytes(digests)


class Ranges:
    """Reads ranges of remote files, some of them ahead of their use."""

    def __init__(self, cache: Cache) -> None:
        """The lists of blocks are kept in `cache`."""
        self.cache = cache
        self.fetched_bytes = 0
        """What this process fetched of the files; for measurements."""
        self._pool: ThreadPoolExecutor | None = None
        self._ahead: dict[Range, Future[bytes]] = {}
        self._lock = threading.Lock()

    def read(self, wanted: Range) -> bytes:
        """The bytes of a range.

        Raises:
            ShardError: the file is missing, or a block is not the one that was listed.
        """
        with self._lock:
            future = self._ahead.pop(wanted, None)
        return self._fetch(wanted) if future is None else future.result()

    def prefetch(self, ranges: Iterable[Range]) -> None:
        """Begin to fetch, in this order and without waiting, all that is wanted from now on, as far as there is memory
        for it. What was read ahead before and is wanted no more gives way; what is needed sooner does not."""
        asked = dict.fromkeys(ranges)
        with self._lock:
            room = AHEAD_BYTES - sum(held.end - held.start for held in self._ahead)
            unwanted = [held for held in self._ahead if held not in asked]
            for wanted in asked:
                if wanted in self._ahead:
                    continue
                room -= wanted.end - wanted.start
                while room < 0 and unwanted:
                    held = unwanted.pop()
                    self._ahead.pop(held).cancel()
                    room += held.end - held.start
                if room < 0:
                    return
                if self._pool is None:
                    self._pool = ThreadPoolExecutor(FETCHERS, thread_name_prefix="ranges")
                self._ahead[wanted] = self._pool.submit(self._fetch, wanted)

    def close(self) -> None:
        """Stop reading ahead; what is under way ends first. Ranges can still be read, as those of `Cache` can."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
            self._ahead.clear()  # some were never begun

    def _fetch(self, wanted: Range) -> bytes:
        file, blocks, start, end = wanted
        first, last = start // BLOCK, -(-end // BLOCK)
        with self.cache.open(blocks) as listed:
            listed.seek(first * DIGEST)
            digests = listed.read((last - first) * DIGEST)
        try:
            read = storage.read_range(file.name, first * BLOCK, min(last * BLOCK, file.bytes))
        except FileNotFoundError:
            raise ShardError(f"{file.name} is missing though the manifest lists it: run the stage again") from None
        with self._lock:
            self.fetched_bytes += len(read)
        for number in range(last - first):
            block = read[number * BLOCK : (number + 1) * BLOCK]
            if hashlib.sha256(block).digest() != digests[number * DIGEST : (number + 1) * DIGEST]:
                raise ShardError(
                    f"{file.name} was altered or cut: block {first + number} of {BLOCK} bytes is not the listed one; "
                    f"{REPAIR}"
                )
        return read[start - first * BLOCK : end - first * BLOCK]
