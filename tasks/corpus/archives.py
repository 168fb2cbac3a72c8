"""Packed files (ar as in .deb, tar, zip), read as streams with every defect named.

A truncated or damaged archive yields the members before the damage and then one `Unreadable`; nothing is lost silently
and nothing is unpacked to disk, so that a member's name, absolute or with `..`, is a label and no place.
"""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import IO, Any

from tasks.corpus.compression import BLOCK, DAMAGE, DamagedError, blocks, guard, read_whole, reader, suffix_of

PACKED = (".deb", ".zip", ".whl", ".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst")
# The directory of a zip is held in memory, some 500 bytes for every 50 in the file; a header of a tar likewise. Ours.
ZIP_DIRECTORY_MAX, TAR_HEADER_MAX = 32_000_000, 1_000_000
NAME_CHARS_MAX = 1_000
# What the standard library's readers raise over bytes that are no such archive.
_WRONG = (
    *DAMAGE, tarfile.TarError, zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, OverflowError,
    RecursionError,
)  # fmt: skip


@dataclass(frozen=True)
class File:
    """One raw file: where it lay within its source, and its bytes."""

    path: str
    data: bytes
    checksum: str = ""
    """What its filesystem says of it, where that is known without its bytes; see `Reference`."""


@dataclass(frozen=True)
class Unreadable:
    """One thing that gave no text, and why."""

    path: str
    reason: str
    kind: str = "unreadable"
    """`unreadable` for what is damaged or out of reach. Anything else names a thing that is no document (`http_status`,
    `media_type`, `no_reader`, `vendored`, `link`, `special_file`) or too much of one (`markup`, `over_time`,
    `over_memory`, `crashed`): such things are counted as rejected under this reason."""


@dataclass
class Member:
    """One file within an archive; its stream may be read until the next one is asked for."""

    path: str
    stream: io.BufferedIOBase
    """Raises DamagedError where the member is cut or fails its checksum."""


def packed(path: str) -> bool:
    """Whether a file's name (without its compression suffix) is that of an archive."""
    return path.lower().endswith(PACKED)


def members(path: str, file: io.BufferedIOBase, limit: int) -> Iterator[File | Unreadable]:
    """The regular files of a packed file as `entries` gives them, each in memory; larger ones are named."""
    for entry in entries(path, file):
        if isinstance(entry, Unreadable):
            yield entry
            continue
        try:
            yield File(entry.path, read_whole(entry.stream, limit))
        except DamagedError as error:
            yield Unreadable(entry.path, str(error))


def entries(path: str, file: io.BufferedIOBase) -> Iterator[Member | Unreadable]:
    """The regular files of a packed file, in stored order, under `path/`. Links (their targets are members of their
    own) and devices are passed over, and counted in one Unreadable at the end. A zip needs a seekable file."""
    lower = path.lower()
    try:
        if lower.endswith((".zip", ".whl")):
            yield from _zip(path, file)
        elif lower.endswith(".deb"):
            name, stream = _deb_data(file)
            yield from _tar(path, reader(blocks(suffix_of(name), stream)))
        else:
            suffix = ".gz" if lower.endswith(".tgz") else suffix_of(lower)
            yield from _tar(path, reader(blocks(suffix, file)))
    except (DamagedError, *_WRONG) as error:
        yield Unreadable(path, f"damaged archive: {str(error) or type(error).__name__}")


def _zip(path: str, file: io.BufferedIOBase) -> Iterator[Member | Unreadable]:
    size = file.seek(0, io.SEEK_END)
    directory = _directory_bytes(file, size)
    if directory > ZIP_DIRECTORY_MAX:
        raise DamagedError(f"its directory takes {directory:,} bytes, over {ZIP_DIRECTORY_MAX:,}: too many members")
    unfolded = links = stored = 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.filename.endswith("/"):  # is_dir() of Python 3.11 fails where a damaged name is empty
                continue
            if stat.S_ISLNK(info.external_attr >> 16):
                links += 1
                continue
            name = _label(path, info.filename)
            stored += info.compress_size
            if stored > size:  # the same bytes would be unfolded again and again
                raise DamagedError("its members overlap")
            try:
                member = _ZipMember(_opened(archive, info))
            except (*_WRONG, RuntimeError) as error:
                yield Unreadable(name, f"damaged member: {str(error) or type(error).__name__}")
                continue
            with member:
                yield Member(name, io.BufferedReader(member))
            unfolded += member.count
            guard(unfolded, size)
    yield from _passed_over(path, links)


def _opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """One member's stream. What bzip2 and LZMA hold is decoded here, in blocks: zipfile decodes all that it has read at
    once, and 800 bytes of bzip2 may hold a gigabyte."""
    if info.compress_type not in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        return archive.open(info)
    as_it_lies = copy(info)
    as_it_lies.compress_type, as_it_lies.file_size = zipfile.ZIP_STORED, info.compress_size
    del as_it_lies.CRC  # that of what is decoded
    return reader(_decoded(archive.open(as_it_lies), info))


def _decoded(packed: IO[bytes], info: zipfile.ZipInfo) -> Iterator[bytes]:
    left, checksum = info.file_size, 0
    with packed:
        source, suffix = iter(partial(packed.read, BLOCK), b""), ".bz2"
        if info.compress_type == zipfile.ZIP_LZMA:
            # The properties follow their version and size; with a size that is not known they head an .lzma file.
            properties = packed.read(int.from_bytes(packed.read(4)[2:], "little"))
            source, suffix = chain([properties + b"\xff" * 8], source), ".lzma"
        for block in blocks(suffix, reader(source)) if left else ():
            block = block[:left]
            checksum, left = zlib.crc32(block, checksum), left - len(block)
            yield block
            if not left:
                break
    if left or checksum != info.CRC:
        raise DamagedError("it ends early" if left else "Bad CRC-32")


def _directory_bytes(file: io.BufferedIOBase, size: int) -> int:
    """The size of a zip's central directory as its end record states it; 0 where there is no such record."""
    file.seek(max(0, size - 65_557))
    tail = file.read(65_557)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + 22:
        return 0
    stated = int.from_bytes(tail[at + 12 : at + 16], "little")
    wide = tail.rfind(b"PK\6\6")
    return int.from_bytes(tail[wide + 40 : wide + 48], "little") if stated == 0xFFFFFFFF and wide >= 0 else stated


class _ZipMember(io.RawIOBase):
    """One member's bytes; what zipfile raises comes out as DamagedError."""

    def __init__(self, stream: Any) -> None:
        self._stream, self.count = stream, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except (*DAMAGE, zipfile.BadZipFile, ValueError) as error:
            raise DamagedError(f"damaged member: {str(error) or type(error).__name__}") from error
        buffer[: len(data)] = data
        self.count += len(data)
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


_TAR_HEADERS = {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"X"}
"""Headers that say more of the next one; `X` is what Solaris writes for `x`."""
_NAME, _SIZE, _SPARSE = "path", "size", "GNU.sparse."


def _tar(path: str, stream: io.BufferedIOBase) -> Iterator[Member | Unreadable]:
    # Blocks are tarfile's to parse, their order is read here: tarfile takes a damaged header for the archive's end,
    # reads sparse maps of any length, copies what holds for all members to each, searches attributes in quadratic time
    # and seeks behind the end of a member of 2**60 bytes block by block. As a stream, so that a cut archive still gives
    # what lies before the cut.
    common: dict[str, str] = {}
    own: dict[str, str] = {}
    links, begun = 0, False
    while (header := stream.read(tarfile.BLOCKSIZE)) and header != bytes(tarfile.BLOCKSIZE):
        begun = True
        info = tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if info.type in _TAR_HEADERS:
            told = _told(info.type, _header(stream, info.size))
            if info.type == tarfile.XGLTYPE:
                common |= told
            else:
                own = told | own
            continue
        attributes, own = common | own, {}
        name = _label(path, attributes.get(_SPARSE) or attributes.get(_NAME, info.name))
        sparse = info.type == tarfile.GNUTYPE_SPARSE or _SPARSE in attributes
        more = header[482] if info.type == tarfile.GNUTYPE_SPARSE else 0
        while more:  # blocks of its map
            more = _whole(stream, tarfile.BLOCKSIZE)[504]
        has_data = info.isreg() or info.type not in tarfile.SUPPORTED_TYPES
        content = _Exactly(stream, int(attributes.get(_SIZE, info.size)) if has_data else 0)
        padding = -content.left % tarfile.BLOCKSIZE
        if sparse:
            yield Unreadable(name, "a sparse file: its holes may be of any size", "special_file")
        elif info.isfile():
            yield Member(name, reader(content))
        else:
            links += not info.isdir()
        for _ in content:  # what nobody read
            pass
        _whole(stream, padding)
    yield from _passed_over(path, links)
    if own or not (begun or header):
        raise DamagedError("it ends with a header of what does not follow" if own else "empty file")
    if not header:
        yield Unreadable(path, "it ends without the mark of an archive's end: it may have been cut", "truncated")
    # To the end, where a compressed stream has its checksum.
    while block := stream.read1(1 << 18):
        if block.strip(b"\0"):
            raise DamagedError("what follows the mark of its end is passed over")


def _header(stream: io.BufferedIOBase, size: int) -> bytes:
    """What a header of names or attributes holds; bounded, for it is read whole."""
    if size > TAR_HEADER_MAX:
        raise DamagedError(f"a header of {size:,} bytes, over {TAR_HEADER_MAX:,}")
    data = b"".join(_Exactly(stream, size))
    _whole(stream, -size % tarfile.BLOCKSIZE)
    return data


def _told(kind: bytes, data: bytes) -> dict[str, str]:
    """What a header says of the next one, as far as it matters here. Raises ValueError where it is damaged."""
    if kind == tarfile.GNUTYPE_LONGLINK:
        return {}
    if kind == tarfile.GNUTYPE_LONGNAME:
        return {_NAME: data.partition(b"\0")[0].decode("utf-8", "surrogateescape")}
    told: dict[str, str] = {}
    at = 0
    while data[at : at + 1].strip(b"\0"):
        length = data[at : at + 20].partition(b" ")[0]
        record = data[at + len(length) + 1 : at + int(length)]
        key, equals, value = record.decode("utf-8", "surrogateescape").partition("=")
        if not equals or not value.endswith("\n") or at + int(length) > len(data):
            raise DamagedError("a damaged header of attributes")
        if key.startswith(_SPARSE):
            told[_SPARSE] = value[:-1] if key == f"{_SPARSE}name" else told.get(_SPARSE, "")
        if key in (_NAME, _SIZE):
            told[key] = value[:-1]
        at += int(length)
    return told


def _passed_over(path: str, count: int) -> Iterator[Unreadable]:
    if count:
        yield Unreadable(path, f"{count:,} links or devices in it were passed over", "link")


class _Exactly(Iterator[bytes]):
    """`left` bytes of `file`; DamagedError where it ends before, and whenever it is asked again."""

    def __init__(self, file: io.BufferedIOBase, size: int) -> None:
        if size < 0:
            raise DamagedError("a size below zero")
        self._file, self.left = file, size

    def __next__(self) -> bytes:
        if not self.left:
            raise StopIteration
        # What is there, and no more: where the stream breaks, what came before must not be lost in a buffer.
        block = self._file.read1(min(self.left, BLOCK))
        if not block:
            raise DamagedError(f"ends {self.left:,} bytes early")
        self.left -= len(block)
        return block


def _whole(file: io.BufferedIOBase, size: int) -> bytes:
    return b"".join(_Exactly(file, size))


def _label(path: str, name: str) -> str:
    return f"{path}/{name.removeprefix('./').encode('utf-8', 'replace').decode()[:NAME_CHARS_MAX]}"


def _deb_data(file: io.BufferedIOBase) -> tuple[str, io.BufferedIOBase]:
    """The member `data.tar*` of a Debian package: an `ar` file with 60-byte headers (deb(5))."""
    if file.read(8) != b"!<arch>\n":
        raise DamagedError("not a Debian package (no ar signature)")
    while header := file.read(60):
        if len(header) < 60 or header[58:] != b"`\n":
            raise DamagedError("an ar header is cut or wrong")
        name, size = header[:16].decode("ascii", "replace").strip().rstrip("/"), int(header[48:58])
        if name.startswith("data.tar"):
            return name, reader(_Exactly(file, size))
        for _ in _Exactly(file, size + size % 2):
            pass
    raise DamagedError("has no data.tar member")
