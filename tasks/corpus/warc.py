"""WARC (ISO 28500) and WET: web pages as a crawler kept them, one record at a time.

Records are framed here, because what follows a damaged one must still be read: a library that stops at a wrong length,
or ends quietly where the file was cut, would lose the rest. fastwarc parses each record's HTTP and undoes its transfer
and content encodings. `response` and `resource` records hold pages, `conversion` records (WET) hold plain text; all
other kinds (`warcinfo`, `request`, `metadata`, `revisit`) speak about documents and hold none.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from fastwarc.warc import WarcRecord

from tasks.corpus.archives import Unreadable
from tasks.corpus.compression import BLOCK, DamagedError, blocks, read_whole, reader
from tasks.corpus.extract.passage import ExtractionError, Passage

DOCUMENTS = {b"response", b"resource", b"conversion"}
PAGES = {"text/html", "application/xhtml+xml"}
TEXTS = {"text/plain", "text/markdown"}
HEADER_MAX = 1 << 16
# After a wrong length its record's bytes are looked at again, each so many times on average: else a hostile file of
# nothing but wrong lengths would take quadratic time. Ours.
AGAIN_MAX = 4
_CHUNK = re.compile(rb"[0-9A-Fa-f]{1,8}[ \t]*(?:;[^\r\n]{0,200})?\r\n")
_FIELD = re.compile(rb"^(warc-type|warc-target-uri|warc-truncated|warc-segment-number|content-length):[ \t]*([^\r\n]*)",
                    re.IGNORECASE | re.MULTILINE)  # fmt: skip

Page = Callable[[bytes, bool], list[Passage]]


def passages(path: str, stream: io.BufferedIOBase, limit: int, page: Page) -> Iterator[Passage | Unreadable]:
    """Every document of a WARC or WET file, its web address with it.

    page(body, is HTML): the passages of one document; a ValueError of it is its record's defect. Records that are cut
    or larger than `limit`, were not answered with 200 or hold neither HTML nor text are named, each by its kind.
    """
    for number, record in enumerate(_records(stream, limit), start=1):
        place = f"{path}#{number}"
        if isinstance(record, str):
            yield Unreadable(place, record)
            continue
        if record.kind not in DOCUMENTS | {b"continuation"}:
            continue
        try:
            body, is_html = record.document(limit)
            found = page(body, is_html)
        except ExtractionError as error:
            yield Unreadable(place, str(error), error.kind)
            continue
        except ValueError as error:
            yield Unreadable(place, str(error))
            continue
        # A page without text is one document all the same.
        for one in found or [Passage("")]:
            anchor = f"{number}.{one.anchor}" if one.anchor else str(number)
            yield Passage(one.text, one.title, anchor, url=record.url)


@dataclass
class _Record:
    head: bytes
    """The lines from `WARC/1.` up to the empty one."""
    fields: dict[bytes, bytes]
    body: bytes

    @property
    def kind(self) -> bytes:
        return self.fields.get(b"warc-type", b"").strip().lower()

    @property
    def url(self) -> str:
        return self.fields.get(b"warc-target-uri", b"").strip().strip(b"<>").decode("utf-8", "replace")

    def document(self, limit: int) -> tuple[bytes, bool]:
        """The document within, and whether it is HTML. Raises ExtractionError or DamagedError."""
        if self.kind == b"continuation" or self.fields.get(b"warc-segment-number", b"").strip() not in (b"", b"0"):
            raise DamagedError("one segment of a record that was cut in several")
        if reason := self.fields.get(b"warc-truncated", b"").strip():
            why = reason[:40].decode("utf-8", "replace")
            raise ExtractionError(f"the crawler kept only its beginning (WARC-Truncated: {why})", "truncated")
        if self.kind == b"conversion":
            return self.body, False
        record = self._parsed("none")
        if record.is_http:
            status = record.http_headers.status_code if record.http_headers else None
            if status != 200:
                raise ExtractionError(f"the server answered {status or 'nothing that is HTTP'}", "http_status")
            media = record.http_content_type or "text/html"
        else:
            media = record.headers.get("Content-Type") or "text/html"
        media = media.partition(";")[0].strip().lower()
        if media not in PAGES | TEXTS:
            raise ExtractionError(f"its media type is {media[:80]}", "media_type")
        return self._body(record, limit), media in PAGES

    def _parsed(self, decode: Literal["none", "transfer", "all"]) -> WarcRecord:
        try:
            record = WarcRecord.from_bytes(self.head + b"\r\n" + self.body + b"\r\n\r\n")
            record.parse_http(auto_decode=decode, max_header_len=HEADER_MAX, quirks_mode=True)
        except OSError as error:
            raise DamagedError(f"its headers or its body are damaged: {str(error)[:120]}") from error
        return record

    def _body(self, record: WarcRecord, limit: int) -> bytes:
        """What the server sent, its encodings undone. Many crawlers undo them and keep the header: a body that does not
        begin as the header says is taken as it is."""
        raw = record.reader.read(len(self.body))
        if not record.is_http:
            return raw
        headers = {name.lower(): value.lower() for name, value in record.http_headers.items()}
        if "chunked" in headers.get("transfer-encoding", "") and _CHUNK.match(raw):
            raw = self._read("transfer", limit)
        encoding = headers.get("content-encoding", "").strip()
        if encoding in ("gzip", "x-gzip") and raw.startswith(b"\x1f\x8b"):
            return read_whole(reader(blocks(".gz", io.BytesIO(raw))), limit)
        if encoding in ("br", "deflate"):
            try:
                return self._read("all", limit)
            except DamagedError:
                if _looks_like_text(raw):
                    return raw
                raise
        return raw

    def _read(self, decode: Literal["transfer", "all"], limit: int) -> bytes:
        try:
            data = self._parsed(decode).reader.read(limit + 1)
        except OSError as error:
            raise DamagedError(f"its body is damaged or cut: {str(error)[:120]}") from error
        if len(data) > limit:
            raise DamagedError(f"larger than {limit:,} bytes once unpacked")
        return data


def _looks_like_text(data: bytes) -> bool:
    return data[:1000].lstrip()[:1] == b"<" and b"\0" not in data[:1000]


def _records(stream: io.BufferedIOBase, limit: int) -> Iterator[_Record | str]:
    """Every record in turn, or what is wrong at its place; after a defect goes on at the next `WARC/1.` line."""
    source = _Source(stream, limit)
    while line := source.readline(HEADER_MAX):
        if not line.strip():
            continue
        if not line.startswith(b"WARC/1."):
            yield "not a WARC record: what stands here up to the next one is passed over"
            source.seek_record()
            continue
        head = [line]
        size = len(line)
        while (line := source.readline(HEADER_MAX)).strip() and size <= HEADER_MAX:
            head.append(line)
            size += len(line)
        fields = {name.lower(): value for name, value in _FIELD.findall(b"".join(head))}
        length = fields.get(b"content-length", b"").strip()
        if not line or size > HEADER_MAX or not (length.isdigit() and len(length) < 19):
            yield "its header is cut, too large or has no Content-Length"
            source.seek_record()
            continue
        want = int(length)
        if want > limit:
            missing = source.skip(want)
            yield f"larger than {limit:,} bytes" + (f", and cut {missing:,} bytes early" if missing else "")
            continue
        body = source.read(want)
        if len(body) < want:
            yield f"cut: {want - len(body):,} of its {want:,} bytes are missing"
            source.seek_record(body)
        elif not source.ends_record():
            yield f"its Content-Length of {want:,} is wrong: the next record does not follow it"
            source.seek_record(body)
        else:
            yield _Record(b"".join(head), fields, body)


class _Source:
    """A stream that takes back the bytes that were read last."""

    def __init__(self, stream: io.BufferedIOBase, limit: int) -> None:
        self._stream, self._ahead, self._allowed = stream, io.BytesIO(), limit

    def read(self, size: int) -> bytes:
        parts = [self._ahead.read(size)]
        size -= len(parts[0])
        if size:
            self._ahead = io.BytesIO()
        while size and (block := self._stream.read1(min(size, BLOCK))):
            parts.append(block)
            size -= len(block)
            self._allowed += AGAIN_MAX * len(block)
        return b"".join(parts)

    def readline(self, size: int) -> bytes:
        line = self._ahead.readline(size)
        if line.endswith(b"\n") or len(line) == size:
            return line
        self._ahead = io.BytesIO()
        more = self._stream.readline(size - len(line))
        self._allowed += AGAIN_MAX * len(more)
        return line + more

    def back(self, data: bytes) -> None:
        self._allowed -= len(data)
        if self._allowed < 0:
            raise DamagedError("so many wrong lengths that the rest is given up")
        start = self._ahead.tell() - len(data)
        if start >= 0:  # it was read from there: to copy what follows each time would take quadratic time
            self._ahead.seek(start)
        else:
            self._ahead = io.BytesIO(data + self._ahead.read())

    def skip(self, size: int) -> int:
        """Pass over `size` bytes; returns how many were missing."""
        while size and (block := self.read(min(size, BLOCK))):
            size -= len(block)
        return size

    def ends_record(self) -> bool:
        """Whether a record may end here: before an empty line, another record or the end."""
        line = self.readline(HEADER_MAX)
        self.back(line)
        return not line.strip() or line.startswith(b"WARC/1.")

    def seek_record(self, seen: bytes = b"") -> None:
        """Go on at the next line that begins a record, in the bytes `seen` or after them."""
        self.back(seen)
        begins = True
        while line := self.readline(HEADER_MAX):
            if begins and line.startswith(b"WARC/1."):
                self.back(line)
                return
            begins = line.endswith(b"\n")
