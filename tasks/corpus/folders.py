"""A folder source as raw files: small loose ones and the members of small archives in memory, all else by reference."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator

from tasks.corpus.archives import File, Unreadable, members, packed
from tasks.corpus.compression import suffix_of
from tasks.corpus.extract.kinds import RECORDS, kind
from tasks.corpus.sources import FolderSource, matches
from tasks.corpus.storage import Reference, Store, label, wanted, why

Skip = Callable[[str, str], bool]
# Objects that are fetched together, and how many bytes of them: all lie in memory at once.
BATCH, BATCH_BYTES = 64, 64_000_000


def files(
    source: FolderSource, objects: list[Reference | Unreadable], pack_max: int, limit: int, skip: Skip
) -> Iterator[tuple[int, Iterable[File | Reference | Unreadable]]]:
    """For every object, in order: its size, and what it holds for the corpus, to be taken before the next one.

    Record files (JSON lines, Parquet, WARC, WET) and whatever is larger than `pack_max` come as a reference with a
    checksum, smaller files as their bytes, those of archives under `archive.tar/inner` and at most `limit` bytes each.
    skip(path, checksum): whether an object is wanted by nobody, and comes as the reference that it is; what the
    source's patterns refuse is left out, and not even fetched. Raises OutageError.
    """
    store = Store(source)
    for some in _batches(objects, pack_max):
        taken = [one for one in some if isinstance(one, Reference) and wanted(source, one.path)]
        small = [one for one in taken if _packed(one, source, pack_max)]
        contents = store.contents([one for one in small if not (one.checksum and skip(label(one.path), one.checksum))])
        for one in some:
            if isinstance(one, Unreadable):
                yield 0, [one] if matches(source, one.path) else []
            elif not wanted(source, one.path):
                yield one.bytes, []
            elif not _packed(one, source, pack_max):
                yield one.bytes, _referenced(store, one)
            elif one.checksum and skip(label(one.path), one.checksum):
                yield one.bytes, [one]  # it has its place in what `bytes_max` draws
            else:
                reference, data = next(contents)
                yield one.bytes, _unpacked(reference, data, limit)


def _batches(objects: list[Reference | Unreadable], pack_max: int) -> Iterator[list[Reference | Unreadable]]:
    some: list[Reference | Unreadable] = []
    size = 0
    for one in objects:
        # Larger ones are not fetched.
        fetched = one.bytes if isinstance(one, Reference) and one.bytes <= pack_max else 0
        if some and (len(some) == BATCH or size + fetched > BATCH_BYTES):
            yield some
            some, size = [], 0
        some.append(one)
        size += fetched
    if some:
        yield some


def _packed(one: Reference, source: FolderSource, pack_max: int) -> bool:
    name = label(one.path)
    name = name[: len(name) - len(suffix_of(name))] if not packed(name) else name
    return one.bytes <= pack_max and kind(name, source.reading) not in RECORDS


def _referenced(store: Store, one: Reference) -> list[File | Reference | Unreadable]:
    try:
        return [one if one.checksum else store.checksum(one.path)]
    except OSError as error:
        return [Unreadable(label(one.path), why(error))]


def _unpacked(one: Reference, data: bytes | OSError, limit: int) -> Iterator[File | Reference | Unreadable]:
    """Not a list: the members of an archive may be a thousand times as large as it is, all together."""
    path = label(one.path)
    if isinstance(data, OSError):
        yield Unreadable(path, why(data))
    elif len(data) != one.bytes:
        yield Unreadable(path, "changed while it was being read")
    elif packed(path):
        yield from members(path, io.BytesIO(data), limit)
    elif len(data) > limit:
        yield Unreadable(path, f"larger than {limit:,} bytes")
    else:
        yield File(path, data, one.checksum)
