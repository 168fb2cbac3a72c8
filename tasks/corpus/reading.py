"""From raw files to passages: one partition, one file, one record at a time.

What is damaged or out of reach is an `Unreadable` that says what it was, and the rest is read. Memory is bounded by one
record, never by a file.
"""

from __future__ import annotations

import io
import json
import logging
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from model.visible import encodable
from tasks.corpus import jsonl, parquet, warc
from tasks.corpus.archives import Unreadable, entries, packed
from tasks.corpus.compression import DamagedError, decompressed, read_whole
from tasks.corpus.encoding import NotTextError, decode
from tasks.corpus.extract.kinds import EXTRACT, RECORDS, kind, vendored
from tasks.corpus.extract.passage import ExtractionError, Passage
from tasks.corpus.fields import Fields
from tasks.corpus.licence import EXPRESSION_CHARS
from tasks.corpus.sources import RECORD_BYTES_MAX, FolderSource, Source, matches
from tasks.corpus.storage import Reference, Store, label, why
from tasks.corpus.unavailable import OutageError
from tasks.corpus.watch import Watch

log = logging.getLogger(__name__)

TITLE_CHARS_MAX, URL_CHARS_MAX = 300, 4_000


def passages(
    partition: Path, source: Source, record_bytes_max: int = RECORD_BYTES_MAX, watch: Watch | None = None
) -> Iterator[tuple[str, Passage | Unreadable]]:
    """(path within the source, what was read there) of one part `raw/<source>/<nnn>`, at least one for every file: a
    Passage without text where a file holds none.

    partition: a zip of raw files, or a JSON list of references to objects that are read where they lie.
    watch: is told of everything that is read and of every document; what it calls lost is left out, with the reason.

    Raises OutageError where a referenced object cannot be read for now: what may be read in a while is not lost.
    """
    watch = watch or Watch()
    if partition.suffix == ".json":
        assert isinstance(source, FolderSource)
        store = Store(source)
        for record in json.loads(partition.read_text(encoding="utf-8")):
            yield from _referenced(store, Reference(**record), source, record_bytes_max, watch)
        return
    with zipfile.ZipFile(partition) as shard:
        for info in shard.infolist():
            with shard.open(info) as raw:
                stream = io.BufferedReader(raw)  # type: ignore[type-var]
                yield from _placed(info.filename, stream, source, record_bytes_max, watch)


def _referenced(
    store: Store, reference: Reference, source: Source, limit: int, watch: Watch
) -> Iterator[tuple[str, Passage | Unreadable]]:
    path = label(reference.path)
    if loss := watch.come():
        yield path, Unreadable(path, loss.reason, loss.kind)
        return
    try:
        if not store.unchanged(reference):
            yield path, Unreadable(path, "changed since it was listed: acquire the sources again")
            return
        with store.open(reference.path) as stream:
            if not packed(path):
                yield from _placed(path, stream, source, limit, watch)
                return
            seekable = stream if stream.seekable() else io.BytesIO(read_whole(stream, limit))
            empty = True
            for entry in entries(path, seekable):
                if isinstance(entry, Unreadable):
                    empty = False
                    yield path, entry
                elif matches(source, entry.path):
                    empty = False
                    yield from _placed(entry.path, entry.stream, source, limit, watch)
            if empty:
                yield path, Passage("")
    except (OSError, DamagedError) as error:
        yield path, Unreadable(path, why(error))


def _placed(
    path: str, stream: io.BufferedIOBase, source: Source, limit: int, watch: Watch
) -> Iterator[tuple[str, Passage | Unreadable]]:
    empty = True
    reading = _read(path, stream, source, limit, watch)
    while True:
        if loss := watch.come():
            yield path, Unreadable(path, f"{loss.reason} to read what comes next: the rest is given up", loss.kind)
            return
        found = next(reading, None)
        if found is None:
            break
        empty = False
        yield path, found
    if empty:
        yield path, Passage("")


def _read(
    path: str, stream: io.BufferedIOBase, source: Source, limit: int, watch: Watch
) -> Iterator[Passage | Unreadable]:
    try:
        name, inner = decompressed(path, stream)
        reading = kind(name, source.reading)
        if reading is None:
            yield _no_reader(path, name)
        elif reading in RECORDS:
            for found in _records(path, reading, inner, source, limit, watch):
                yield _clean(found) if isinstance(found, Passage) else found
        elif reading == "code" and vendored(path):
            yield Unreadable(path, "other people's code, by the folder that it lies in", "vendored")
        else:
            for passage in _extracted(reading, read_whole(inner, limit), watch):
                yield _clean(passage)
    except ExtractionError as error:
        yield Unreadable(path, str(error), error.kind)
    except (DamagedError, NotTextError) as error:
        yield Unreadable(path, str(error))
    except OSError as error:
        yield Unreadable(path, why(error))
    except (MemoryError, OutageError):
        raise
    except Exception as error:
        log.warning("reading %s failed", path, exc_info=error)
        yield Unreadable(path, f"its reader failed: {type(error).__name__}: {str(error)[:120]}")


def _no_reader(path: str, name: str) -> Unreadable:
    if packed(name):
        return Unreadable(path, "an archive within an archive or a compressed file is not opened", "no_reader")
    suffix = name.rpartition(".")[2][:20]
    lines = " (`reading: jsonl` where they hold JSON lines)" if suffix == "json" else ""
    advice = f"set the source's `reading`{lines} or exclude them"
    return Unreadable(path, f"no reader for .{suffix} files: {advice}", "no_reader")


def _records(
    path: str, reading: str, stream: io.BufferedIOBase, source: Source, limit: int, watch: Watch
) -> Iterator[Passage | Unreadable]:
    if reading == "warc":
        return warc.passages(
            path, stream, limit, lambda body, is_html: _extracted("html" if is_html else "plain", body, watch)
        )
    many = jsonl.passages if reading == "jsonl" else parquet.passages
    return many(path, stream, Fields.of(source), limit)


def _extracted(reading: str, data: bytes, watch: Watch) -> list[Passage]:
    """The passages of one document. Raises NotTextError or ExtractionError, whatever hostile bytes did to a parser."""
    if loss := watch.come():
        raise ExtractionError(loss.reason, loss.kind)
    text = decode(data)
    try:
        return EXTRACT[reading](text)
    except (ExtractionError, MemoryError):
        raise
    except Exception as error:
        log.warning("the %s extractor failed", reading, exc_info=error)
        raise ExtractionError(f"the {reading} extractor failed: {type(error).__name__}: {str(error)[:120]}") from error


def _clean(passage: Passage) -> Passage:
    """The passage with what UTF-8 cannot hold replaced and with a title and an address of bounded length."""
    return replace(
        passage,
        text=encodable(passage.text),
        title=encodable(passage.title[:TITLE_CHARS_MAX]),
        licence=encodable(passage.licence[: EXPRESSION_CHARS + 1]),  # one that was cut might allow more
        url=encodable(passage.url[:URL_CHARS_MAX]),
    )
