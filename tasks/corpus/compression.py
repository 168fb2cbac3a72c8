"""Compressed streams (gzip, xz, bzip2, zstd) decoded block by block, with every cut and every bomb named.

Memory holds a block or two, whatever a stream unfolds to.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

COMPRESSED = (".gz", ".dz", ".xz", ".bz2", ".zst")
BLOCK = 1 << 18
# Deflate cannot do better than 1 : 1,032 and text is rarely better than 1 : 20. What unfolds further than this beyond
# the first gigabyte is a bomb. Ours.
EXPANSION_MAX, EXPANSION_FREE = 1_100, 1_000_000_000


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
    return inner, reader(_mended(stream) if mend else blocks(suffix, stream))


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

    closed = False

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

    def close(self) -> None:
        """pyarrow closes what it read from; whoever opened the stream does that."""

    def empty(self) -> bool:
        self._ahead = self._ahead or self.read(1)
        return not self._ahead


def _plain(stream: _Counted) -> Iterator[bytes]:
    while block := stream.read(BLOCK):
        yield block


def _gzip(stream: _Counted) -> Iterator[bytes]:
    decoder, data, within = zlib.decompressobj(31), b"", False
    seen = False
    while data := data or stream.read(BLOCK):
        if seen and not within and not data.strip(b"\0"):
            data = b""  # zero padding after the last stream
            continue
        within = seen = True
        try:
            block = decoder.decompress(data, BLOCK)
        except zlib.error as error:
            raise DamagedError(f"damaged gzip data: {error}") from error
        if block:
            yield block
        data = decoder.unconsumed_tail
        if decoder.eof:
            decoder, data, within = zlib.decompressobj(31), decoder.unused_data, False
    if within or not seen:
        raise DamagedError("the gzip data end early")


_MEMBER = b"\x1f\x8b\x08"


def _mended(stream: io.BufferedIOBase) -> Iterator[bytes]:
    """Gzip of one member per record (as WARC files are): after a damaged member goes on at the next one. A line that
    is no record stands at the damage, so that the reader names it. A cut end raises DamagedError."""
    source = _Counted(stream)
    decoder, data, within, total = zlib.decompressobj(31), b"", False, 0
    while data := data or source.read(BLOCK):
        if not within and not data.strip(b"\0"):
            data = b""
            continue
        within = True
        try:
            block = decoder.decompress(data, BLOCK)
            data = decoder.unconsumed_tail
        except zlib.error:
            block = b"\r\n\r\ndamaged gzip data\r\n\r\n"
            # The magic number may be parted by the end of the block.
            while (at := data.find(_MEMBER, 1)) < 0 and (more := source.read(BLOCK)):
                data = data[-2:] + more
            data, decoder, within = data[at:] if at >= 0 else b"", zlib.decompressobj(31), False
        total += len(block)
        guard(total, source.count)
        if block:
            yield block
        if decoder.eof:
            decoder, data, within = zlib.decompressobj(31), decoder.unused_data, False
    if within or not source.count:
        raise DamagedError("the gzip data end early")


def _lzma(stream: _Counted) -> Iterator[bytes]:
    return _streams(stream, lambda: lzma.LZMADecompressor(memlimit=1 << 28), "xz")


def _bzip(stream: _Counted) -> Iterator[bytes]:
    return _streams(stream, bz2.BZ2Decompressor, "bzip2")


def _streams(stream: _Counted, new: Callable[[], Any], label: str) -> Iterator[bytes]:
    """Concatenated streams, decoded a block at a time so that a bomb never unfolds at once."""
    decoder, data, within = new(), stream.read(BLOCK), False
    if not data:
        raise DamagedError(f"the {label} data end early")
    while data or within:
        if not within and not data.strip(b"\0"):
            data = stream.read(BLOCK)  # zero padding after the last stream
            continue
        within = True
        try:
            block = decoder.decompress(data, BLOCK)
        except (lzma.LZMAError, OSError, MemoryError) as error:
            raise DamagedError(f"damaged {label} data: {error}") from error
        if block:
            yield block
        if decoder.eof:
            data, within = decoder.unused_data or stream.read(BLOCK), False
            decoder = new()
        elif decoder.needs_input:
            data = stream.read(BLOCK)
            if not data:
                raise DamagedError(f"the {label} data end early")
        else:
            data = b""


def _zstd(stream: _Counted) -> Iterator[bytes]:
    if stream.empty():
        raise DamagedError("the zstd data end early")
    with pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd") as decoded:
        while True:
            try:
                block = decoded.read(BLOCK)
            except (OSError, pa.ArrowException) as error:
                raise DamagedError(f"the zstd data are damaged or end early: {error}") from error
            if not block:
                return
            yield block


_CODECS: dict[str, Callable[[_Counted], Iterator[bytes]]] = {
    "": _plain, ".gz": _gzip, ".dz": _gzip, ".xz": _lzma, ".bz2": _bzip, ".zst": _zstd,
}  # fmt: skip


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
