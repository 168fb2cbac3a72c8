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
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

from tasks.corpus.compression import DAMAGE, DamagedError, blocks, guard, read_whole, reader, suffix_of

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
    unfolded = links = 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.filename.endswith("/"):  # is_dir() of Python 3.11 fails where a damaged name is empty
                continue
            if stat.S_ISLNK(info.external_attr >> 16):
                links += 1
                continue
            name = _label(path, info.filename)
            try:
                member = _ZipMember(archive.open(info))
            except (zipfile.BadZipFile, EOFError, OSError, NotImplementedError, RuntimeError) as error:
                yield Unreadable(name, f"damaged member: {str(error) or type(error).__name__}")
                continue
            with member:
                yield Member(name, io.BufferedReader(member))
            unfolded += member.count
            # Members that overlap unfold the same bytes again and again.
            guard(unfolded, size)
    yield from _passed_over(path, links)


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


_TAR_HEADERS = {tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE}


class _Available:
    """A stream that gives what is there: tarfile would lose what a buffer holds when the stream breaks."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        self.read = stream.read1


class _Header(tarfile.TarInfo):
    """A tar header whose long names and attributes are bounded, for tarfile reads those whole; and whose damage is
    told, for tarfile takes it for the archive's end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise DamagedError(str(error)) from error

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.size > TAR_HEADER_MAX and self.type in _TAR_HEADERS:
            raise DamagedError(f"a header of {self.size:,} bytes, over {TAR_HEADER_MAX:,}")
        return super()._proc_member(archive)  # type: ignore[misc]


def _tar(path: str, stream: io.BufferedIOBase) -> Iterator[Member | Unreadable]:
    # Read as a stream, so that a cut archive still gives what lies before the cut.
    available: Any = _Available(stream)
    with tarfile.open(fileobj=available, mode="r|", errors="surrogateescape", tarinfo=_Header) as archive:
        links = 0
        while (info := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]  # else it would remember every member
            links += not (info.isfile() or info.isdir())
            file = archive.extractfile(info) if info.isfile() else None
            if file is not None:
                yield Member(_label(path, info.name), reader(_exactly(file, info.size)))
        yield from _passed_over(path, links)
        rest: Any = archive.fileobj
        if rest.tell() == archive.offset:
            yield Unreadable(path, "it ends without the mark of an archive's end: it may have been cut", "truncated")
        # To the end, where a compressed stream has its checksum.
        while block := rest.read(1 << 18):
            if block.strip(b"\0"):
                raise DamagedError("what follows the mark of its end is passed over")


def _passed_over(path: str, count: int) -> Iterator[Unreadable]:
    if count:
        yield Unreadable(path, f"{count:,} links or devices in it were passed over", "link")


def _exactly(file: Any, size: int) -> Iterator[bytes]:
    """`size` bytes of `file`, DamagedError where it ends before."""
    while size:
        try:
            block = file.read(min(size, 1 << 18))
        except tarfile.ReadError:  # which tarfile raises where an archive without compression is cut
            block = b""
        if not block:
            raise DamagedError(f"ends {size:,} bytes early")
        size -= len(block)
        yield block


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
        if size < 0:
            raise DamagedError("an ar header is wrong")
        if name.startswith("data.tar"):
            return name, reader(_exactly(file, size))
        for _ in _exactly(file, size + size % 2):
            pass
    raise DamagedError("has no data.tar member")
