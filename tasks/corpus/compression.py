"""Compressed streams (gzip, xz, bzip2, zstd) decoded block by block, with every cut and every bomb named.

Memory holds a block or two, whatever a stream unfolds to.
"""

from __future__ import annotations

import bz2
import io
import lzma
import re
import zlib
from collections.abc import Callable, Generator, Iterator
from functools import partial
from itertools import chain
from typing import Any

import pyarrow as pa

COMPRESSED = (".gz", ".dz", ".xz", ".bz2", ".zst")
BLOCK = 1 << 18
# Deflate cannot do better than 1 : 1,032 and text is rarely better than 1 : 20. What unfolds further than this beyond
# the first gigabyte is a bomb. Ours.
EXPANSION_MAX, EXPANSION_FREE = 1_100, 1_000_000_000

DAMAGE = (zlib.error, lzma.LZMAError, EOFError, OSError)
"""What the standard library's decompressors raise over bytes that are wrong or end early."""


class DamagedError(ValueError):
    """Bytes that end early, fail their checksum, are no such format, or expand past a limit."""


def suffix_of(path: str) -> str:
    """The compression suffix of `path`, or ''."""
    lower = path.lower()
    return next((suffix for suffix in COMPRESSED if lower.endswith(suffix)), "")


def decompressed(path: str, stream: io.BufferedIOBase) -> tuple[str, io.BufferedIOBase]:
    """`path` without its compression suffix and a stream of the bytes inside; both as they are where it has none.

    Reading the stream raises DamagedError where the data end early, are wrong or are a bomb.
    """
    suffix = suffix_of(path)
    if not suffix:
        return path, stream
    inner = path[: -len(suffix)]
    mend = suffix == ".gz" and inner.lower().endswith((".warc", ".wet"))
    return inner, reader(blocks("mended" if mend else suffix, stream))


def read_whole(stream: io.BufferedIOBase, limit: int) -> bytes:
    """All of `stream`. Raises DamagedError where it holds more than `limit` bytes."""
    data = bytearray()
    while block := stream.read(min(BLOCK, limit + 1 - len(data))):
        data += block
        if len(data) > limit:
            raise DamagedError(f"larger than {limit:,} bytes")
    return bytes(data)


def reader(blocks: Iterator[bytes]) -> io.BufferedReader:
    """A buffered file over blocks of bytes."""
    return io.BufferedReader(_Blocks(blocks), BLOCK)


def blocks(suffix: str, stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Decoded blocks of `stream`, compressed as `suffix` says; DamagedError as in `decompressed`."""
    source, total = _Counted(stream), 0
    for block in _CODECS[suffix](source):
        total += len(block)
        guard(total, source.count)
        yield block


def guard(unfolded: int, packed: int) -> None:
    """Raise DamagedError where `packed` bytes have unfolded as only a bomb does."""
    if unfolded > EXPANSION_FREE and unfolded > EXPANSION_MAX * packed:
        raise DamagedError(f"a bomb: {packed:,} bytes unfold to over {unfolded:,}")


class _Counted:
    """What a decoder reads from, counted; one byte can be looked at first."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self._stream, self._ahead, self.count = stream, b"", 0

    def read(self, size: int) -> bytes:
        if self._ahead:
            ahead, self._ahead = self._ahead, b""
            return ahead
        # What is there, and no more: where a stream breaks, what came before the break must not be lost in a buffer.
        data = self._stream.read1(size)
        self.count += len(data)
        return data

    def empty(self) -> bool:
        self._ahead = self._ahead or self.read(1)
        return not self._ahead


def _plain(stream: _Counted) -> Iterator[bytes]:
    while block := stream.read(BLOCK):
        yield block


def _gzip(stream: _Counted, mend: bool = False) -> Iterator[bytes]:
    """Members of gzip. After one whose checksum alone is wrong the next is read, and the error comes at the end. With
    `mend`, for one member per record (as WARC files are), reading goes on after any damage: a line that is no record
    stands in its place, so that the reader names it. A cut end raises DamagedError."""
    decoder, data, within = zlib.decompressobj(31), b"", False
    seen, damage = False, ""
    while data := data or stream.read(BLOCK):
        if (seen or mend) and not within and not data.strip(b"\0"):
            data = b""  # zero padding after the last stream
            continue
        within = seen = True
        before = decoder.copy()
        try:
            block = decoder.decompress(data, BLOCK)
            data = decoder.unconsumed_tail
        except zlib.error as error:
            at = yield from _ahead_of_damage(before, data)
            if mend:
                block = b"\r\n\r\ndamaged gzip data\r\n\r\n"
            elif _CHECK.search(str(error)):
                block, damage = b"", damage or f"damaged gzip data: {error}"
            else:
                raise DamagedError(f"damaged gzip data: {error}") from error
            data = data[at:]
            while (start := data.find(_MEMBER)) < 0 and (more := stream.read(BLOCK)):
                data = data[-2:] + more  # the magic number may be parted by the end of the block
            decoder, data, within = zlib.decompressobj(31), data[start:] if start >= 0 else b"", False
        if block:
            yield block
        if decoder.eof:
            decoder, data, within = zlib.decompressobj(31), decoder.unused_data, False
    if within or not seen:
        raise DamagedError("the gzip data end early")
    if damage:
        raise DamagedError(damage)


_CHECK = re.compile("incorrect (data|length) check")
_MEMBER = b"\x1f\x8b\x08"


def _ahead_of_damage(decoder: Any, data: bytes) -> Generator[bytes, None, int]:
    """What `decoder`, which `data` would break, still decodes of them; returns how many bytes that took."""
    for at in range(len(data)):
        try:
            if block := decoder.decompress(data[at : at + 1]):
                yield block
        except zlib.error:
            return at
    return len(data)


def _streams(stream: _Counted, new: Callable[[], Any], label: str) -> Iterator[bytes]:
    """Concatenated streams, decoded a block at a time so that a bomb never unfolds at once."""
    decoder, data, within = new(), stream.read(BLOCK), False
    if not data:
        raise DamagedError(f"the {label} data end early")
    held, given = _Held(), 0
    while data or within:
        if not within and not data.strip(b"\0"):
            data = stream.read(BLOCK)  # zero padding after the last stream
            continue
        within = True
        if data:
            held.add(data)
        try:
            block = decoder.decompress(data, BLOCK)
        except (lzma.LZMAError, OSError, MemoryError) as error:
            yield from _ahead_of_error(new().decompress, held, given)
            raise DamagedError(f"damaged {label} data: {error}") from error
        given += len(block)
        if block:
            yield block
        if decoder.eof:
            data, within = decoder.unused_data or stream.read(BLOCK), False
            decoder, held, given = new(), _Held(), 0
        elif decoder.needs_input:
            data = stream.read(BLOCK)
            if not data:
                raise DamagedError(f"the {label} data end early")
        else:
            data = b""


HELD_MAX = 32_000_000
"""What was read of a stream is kept up to so many bytes, to decode it again to the very byte before a damage: a codec
keeps what it decoded in the call that fails. Of a longer stream up to one BLOCK ahead of the damage is lost. Ours."""


class _Held:
    """The compressed bytes of a stream so far; nothing once there are too many."""

    def __init__(self) -> None:
        self.data: bytearray | None = bytearray()
        self.last = 0
        """Where the bytes that were added last begin."""

    def add(self, data: bytes) -> None:
        if self.data is not None:
            self.last = len(self.data)
            self.data += data
            if len(self.data) > HELD_MAX:
                self.data = None


def _ahead_of_error(decompress: Callable[[bytes, int], bytes], held: _Held, given: int) -> Iterator[bytes]:
    """What a new decoder makes of the held bytes after the first `given` bytes that it gives, up to its error: what was
    read last goes in and comes out byte by byte. (bzip2 keeps the very last one: it looks at the checksum with it.)"""
    if held.data is None:
        return
    last, out = bytes(held.data[held.last :]), bytearray()
    pieces = chain([(bytes(held.data[: held.last]), BLOCK)], ((last[at : at + 1], 1) for at in range(len(last))))
    try:
        for piece, size in pieces:
            # What was given already may be a thousand times what is held: that is passed over in large steps.
            while block := decompress(piece, min(given, BLOCK) or size):
                out += block[given:]
                given = max(0, given - len(block))
                piece = b""
    except (lzma.LZMAError, OSError, EOFError, MemoryError):
        pass  # the damage, which whoever calls has met already
    if out:
        yield bytes(out)


def _zstd(stream: _Counted) -> Iterator[bytes]:
    if stream.empty():
        raise DamagedError("the zstd data end early")
    source, given = _Recorded(stream), 0
    with pa.CompressedInputStream(pa.PythonFile(source, mode="r"), "zstd") as decoded:
        while True:
            try:
                block = decoded.read(BLOCK)
            except (OSError, pa.ArrowException) as error:
                if source.held.data is not None:
                    yield from _zstd_ahead_of_error(source.held, given)
                raise DamagedError(f"the zstd data are damaged or end early: {error}") from error
            if not block:
                return
            given += len(block)
            yield block


def _zstd_ahead_of_error(held: _Held, given: int) -> Iterator[bytes]:
    out = bytearray()
    with pa.CompressedInputStream(pa.PythonFile(_Slow(held), mode="r"), "zstd") as decoded:
        try:
            while given:
                given -= len(decoded.read(min(given, BLOCK)))
            while block := decoded.read(1):
                out += block
        except (OSError, pa.ArrowException):
            pass  # as above
    if out:
        yield bytes(out)


class _Recorded:
    """What pyarrow reads from, held."""

    closed = False

    def __init__(self, stream: _Counted) -> None:
        self._stream, self.held = stream, _Held()

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.held.add(data)
        return data

    def close(self) -> None:
        """pyarrow closes what it read from; whoever opened the stream does that."""


class _Slow(io.BytesIO):
    """Held bytes, those of the read that met the damage one at a time."""

    def __init__(self, held: _Held) -> None:
        super().__init__(bytes(held.data or b""))
        self._last = held.last

    def read(self, size: int | None = -1) -> bytes:
        slow = self.tell() >= self._last
        return super().read(1 if slow else min(size or 0, self._last - self.tell()))


_CODECS: dict[str, Callable[[_Counted], Iterator[bytes]]] = {
    "": _plain,
    ".gz": _gzip,
    ".dz": _gzip,
    "mended": partial(_gzip, mend=True),
    ".xz": partial(_streams, new=partial(lzma.LZMADecompressor, memlimit=1 << 28), label="xz"),
    # As zip archives have it; no suffix that files are told by.
    ".lzma": partial(_streams, new=partial(lzma.LZMADecompressor, lzma.FORMAT_ALONE, memlimit=1 << 28), label="LZMA"),
    ".bz2": partial(_streams, new=bz2.BZ2Decompressor, label="bzip2"),
    ".zst": _zstd,
}


class _Blocks(io.RawIOBase):
    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._left = memoryview(block)
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count
