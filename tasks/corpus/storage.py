"""Files of a folder source where they lie, local or on any fsspec filesystem: listed, opened, told apart by checksum.

How files are reached is `model.storage`'s; here a stream goes on where a passing failure of the network stopped it.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xxhash

from model import storage
from model.storage import NoAnswerError, StorageError, patient, said
from tasks.address import keyless, redacted
from tasks.corpus.archives import Unreadable, packed
from tasks.corpus.compression import BLOCK, DamagedError, decompressed
from tasks.corpus.sources import FolderSource, matches
from tasks.corpus.unavailable import OutageError, UnavailableError

REQUESTS = 16
"""Requests at once where every object must be asked about, or fetched, by itself."""
# Under which names fsspec's filesystems tell the content and the time of change of an object.
TAGS = ("ETag", "etag", "md5Hash", "content_md5", "Content-MD5", "Digest")
CHANGED = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "created")
# Folders of version control: they hold no documents.
HIDDEN = {".git", ".hg", ".svn"}
FAILING = {
    *(errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.EHOSTDOWN, errno.EHOSTUNREACH),
    *(errno.ENETDOWN, errno.ENETUNREACH, errno.EMFILE, errno.ENFILE),
}
"""What a disk, a network's file system or this process says where it is what fails, and not the file."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One object of a source, read where it lies."""

    path: str
    """Below the source's path; a local name that is no UTF-8 has its bytes as lone surrogates (os.fsdecode)."""
    bytes: int
    checksum: str = ""
    """`xxh3:` and the hash of its bytes for a local file, `etag:` or `info:` and what the filesystem says for a remote
    one; '' for a local file that nobody has read yet."""


def label(path: str) -> str:
    """`path` as records show it: what is no UTF-8 is replaced."""
    return os.fsencode(path).decode("utf-8", "replace")


def why(error: BaseException) -> str:
    """What is wrong with an object, without its place on this machine and without secrets: what stands in a listing is
    identity, and everybody reads it."""
    text = str(error) if isinstance(error, StorageError) else getattr(error, "strerror", None)
    return redacted(text or said(error))


def passes(error: BaseException | None) -> bool:
    """Whether what failed may work in a while: a store that does not answer, a disk or a network that is away."""
    if isinstance(error, StorageError):
        return isinstance(error, NoAnswerError)
    return isinstance(error, OSError) and error.errno in FAILING


def wanted(source: FolderSource, path: str) -> bool:
    """Whether the source's patterns take an object, or may take members of it, which nobody knows of an archive yet."""
    return packed(path) or matches(source, label(path))


class Store:
    """The place where a folder source lies."""

    def __init__(self, source: FolderSource) -> None:
        self.source = source
        self.remote = not storage.is_local(source.path)
        if self.remote:
            self.fs, root = _filesystem(source.path)
            self.root = root.rstrip("/")
            self._is_file: bool | None = None
        else:
            self.local = storage.local_path(source.path)

    def objects(self) -> Iterator[Reference | Unreadable]:
        """Every file in the order of paths, the local ones without a checksum; what cannot be opened is named.

        Raises UnavailableError where nothing lies at the source's path, OutageError where an object may be there.
        """
        if self.source.listing is not None:
            yield from self._asked(self._listed())
        elif self.remote:
            yield from self._found()
        elif self.local.is_file():
            yield Reference(self.local.name, self.local.stat().st_size)
        elif self.local.exists():
            yield from _walk(self.local)
        else:
            raise UnavailableError(f"there is no file or folder {self.local}")

    def open(self, path: str) -> io.BufferedReader:
        """The object at `path` as a stream; opening and reading it raise OSError or OutageError. Close it."""
        where = self._where(path)
        with _outages(where):
            if not self.remote:
                return io.BufferedReader(_Told(_opened(self._local(path)), where), BLOCK)
            place = self._remote(path)
            return io.BufferedReader(_Told(_Patient(lambda: self.fs.open(place, "rb")), where), BLOCK)

    def checksum(self, path: str) -> Reference:
        """The object at `path` as it is now. Raises OSError or OutageError."""
        with _outages(self._where(path)):
            if self.remote:
                return _reference(path, patient(lambda: self.fs.info(self._remote(path))))
            hasher, size = xxhash.xxh3_128(), 0
            with _opened(self._local(path)) as file:
                while block := file.read(BLOCK):
                    hasher.update(block)
                    size += len(block)
            return Reference(path, size, f"xxh3:{hasher.hexdigest()}")

    def unchanged(self, reference: Reference) -> bool:
        """Whether the object is still what was listed; reads all of a local one. Raises OSError or OutageError."""
        with _outages(self._where(reference.path)):
            if not self.remote and self._local(reference.path).stat().st_size != reference.bytes:
                return False
        return self.checksum(reference.path) == reference

    def contents(self, references: list[Reference]) -> Iterator[tuple[Reference, bytes | OSError]]:
        """The bytes of some small objects, or why they could not be read, several at once. Raises OutageError."""

        def fetch(reference: Reference) -> bytes | OSError:
            try:
                with self.open(reference.path) as file:
                    return file.read(reference.bytes + 1)
            except OSError as error:
                return error

        if not self.remote:
            yield from ((reference, fetch(reference)) for reference in references)
            return
        with ThreadPoolExecutor(REQUESTS) as pool:
            yield from zip(references, pool.map(fetch, references), strict=True)

    def _where(self, path: str) -> str:
        return f"source '{self.source.name}': {label(path)}"

    def _local(self, path: str) -> Path:
        return self.local / path if self.source.listing or not self.local.is_file() else self.local

    def _remote(self, path: str) -> str:
        # A path that names one object has no paths below it.
        return self.root if self._single() else f"{self.root}/{path}"

    def _single(self) -> bool:
        if self.source.listing is not None or self.source.path.endswith("/"):
            return False
        if self._is_file is None:
            try:
                # Not `isfile`: it takes a failure for a no.
                self._is_file = patient(lambda: self.fs.info(self.root))["type"] == "file"
            except FileNotFoundError:
                self._is_file = False
        return self._is_file

    def _found(self) -> Iterator[Reference | Unreadable]:
        try:
            if self._single():
                yield _reference(self.root.rsplit("/", 1)[-1], patient(lambda: self.fs.info(self.root)))
                return
            found = patient(lambda: self.fs.find(self.root, detail=True))
        except (OSError, ValueError) as error:
            raise UnavailableError(f"{self.source.path} could not be listed: {said(error)}") from error
        if not found:
            raise UnavailableError(f"nothing lies at {self.source.path}")
        whole, asked = [], []
        for place in sorted(found):
            path = place.removeprefix(self.root).lstrip("/")
            if not HIDDEN.isdisjoint(path.split("/")[:-1]):
                continue
            if found[place].get("size") is None:
                asked.append(path)
            else:
                whole.append(_reference(path, found[place]))
        yield from whole
        yield from self._asked(asked)

    def _listed(self) -> list[str]:
        """The paths that `listing` names, each once; whole addresses below `path` may stand there too."""
        assert self.source.listing is not None
        try:
            fs, place = _filesystem(self.source.listing)
            raw = _Told(_Patient(lambda: fs.open(place, "rb")), f"the listing {self.source.listing}")
            with io.BufferedReader(raw) as file:
                _, lines = decompressed(self.source.listing, file)
                names = (line.decode("utf-8", "surrogateescape").strip(" \t\r\n\ufeff") for line in lines)
                below = f"{self.source.path.rstrip('/')}/"  # `crawl-2` does not lie below `crawl`
                paths = {name.removeprefix(below).lstrip("/") for name in names}
        except (OSError, DamagedError) as error:
            raise UnavailableError(f"the listing {self.source.listing} could not be read: {said(error)}") from error
        if not paths - {""}:
            raise UnavailableError(f"the listing {self.source.listing} names no path")
        return sorted(paths - {""})

    def _asked(self, paths: list[str]) -> Iterator[Reference | Unreadable]:
        """References to objects of which nothing is known but the path, which is refused where it is signed or holds
        another secret, as the source's own address is. Raises UnavailableError, OutageError."""

        def ask(path: str) -> Reference | Unreadable:
            if "://" in path or ".." in path.split("/"):
                return Unreadable(label(path), "the listing names it, but it does not lie below the source's path")
            try:
                if self.remote:
                    return self.checksum(path)
                place = self._local(path)
                if not _within(os.path.realpath(place), os.path.realpath(self.local)):
                    return Unreadable(label(path), LEADS_OUT, "link")
                with _outages(self._where(path)), _opened(place) as file:
                    return Reference(path, os.fstat(file.fileno()).st_size)
            except (OSError, ValueError) as error:
                return Unreadable(label(path), why(error))

        # What `exclude` leaves out need not be there.
        paths = [path for path in paths if wanted(self.source, path)]
        for path in paths:
            try:
                keyless(path)
            except ValueError as error:
                raise UnavailableError(f"{redacted(label(path))}: {error}") from error
        with ThreadPoolExecutor(REQUESTS) as pool:
            # Some at a time: a pool takes on all of its work at once.
            for start in range(0, len(paths), 1000):
                yield from pool.map(ask, paths[start : start + 1000])


LEADS_OUT = "a symbolic link that leads out of the source: name what it leads to as a source of its own"
SPECIAL = "not a regular file (a pipe, socket or device)"


def _walk(top: Path) -> Iterator[Reference | Unreadable]:
    """The files below `top`, each real folder once, at its own place: links to folders are passed over and named, and
    links to files that do not lie below `top` likewise."""
    root, seen = os.path.realpath(top), set[tuple[int, int]]()
    left = [_folder(top, "", root, seen)]  # of each folder, one within another: no recursion, for they may lie deep
    while left:
        found = next(left[-1], None)
        if found is None:
            left.pop()
        elif isinstance(found, str):
            left.append(_folder(top, found, root, seen))
        else:
            yield found


def _folder(top: Path, prefix: str, root: str, seen: set[tuple[int, int]]) -> Iterator[Reference | Unreadable | str]:
    """What lies in one folder; of each folder in it that is to be read there, its prefix."""
    folder = top / prefix
    try:
        here = folder.stat()
        if (here.st_dev, here.st_ino) in seen:
            yield Unreadable(label(prefix.rstrip("/")), "a folder that was read at another place (a mount)", "link")
            return
        seen.add((here.st_dev, here.st_ino))
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        yield Unreadable(label(prefix.rstrip("/")) or ".", f"folder could not be listed: {error.strerror}")
        return
    for entry in found:
        path = prefix + entry.name
        try:
            status = entry.stat()
        except OSError as error:
            yield Unreadable(label(path), "symbolic link to nowhere or to itself" if entry.is_symlink() else why(error))
            continue
        if entry.is_symlink() and not _within(os.path.realpath(entry.path), root):
            yield Unreadable(label(path), LEADS_OUT, "link")
        elif stat.S_ISDIR(status.st_mode):
            if entry.is_symlink():
                yield Unreadable(label(path), "a symbolic link to a folder that is read at its own place", "link")
            elif entry.name not in HIDDEN:
                yield f"{path}/"
        elif stat.S_ISREG(status.st_mode):
            yield Reference(path, status.st_size)
        else:
            yield Unreadable(label(path), SPECIAL, "special_file")


def _within(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _opened(path: Path) -> io.FileIO:
    """A regular file, open. A pipe, which a file may have become since it was listed, would wait for its writer."""
    file = io.FileIO(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise StorageError(SPECIAL)
    return file


def _filesystem(url: str) -> tuple[Any, str]:
    """The filesystem of a source and the path on it. Raises UnavailableError."""
    try:
        return storage.filesystem(url)
    except StorageError as error:
        raise UnavailableError(str(error)) from error


def _reference(path: str, info: dict[str, Any]) -> Reference:
    """What a remote filesystem says about an object."""
    tag = next((str(info[key]) for key in TAGS if info.get(key)), "")
    changed = next((str(info[key]) for key in CHANGED if info.get(key)), "")
    size = info.get("size")
    if size is None:
        raise StorageError(f"the server does not say how large {path} is")
    # A snapshot knows a file by its checksum alone: where nothing else tells that it changed, its size must.
    return Reference(path, int(size), f"etag:{tag.strip(chr(34))}" if tag else f"info:{changed or size}")


@contextmanager
def _outages(where: str) -> Iterator[None]:
    """Raise OutageError in place of an OSError that passes."""
    try:
        yield
    except OSError as error:
        if not passes(error):
            raise
        raise OutageError(
            f"{where} cannot be read now: {why(error)}; where that lasts, leave it out with the source's `exclude`"
        ) from error


class _Told(io.RawIOBase):
    """A file that raises OutageError in place of an OSError that passes."""

    def __init__(self, raw: io.RawIOBase, where: str) -> None:
        self._raw, self._where = raw, where

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._raw.seekable()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        with _outages(self._where):
            return self._raw.seek(offset, whence)

    def tell(self) -> int:
        return self._raw.tell()

    def readinto(self, buffer: Any) -> int | None:
        with _outages(self._where):
            return self._raw.readinto(buffer)  # type: ignore[attr-defined, no-any-return]

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Patient(io.RawIOBase):
    """A remote file that is opened again where it stopped."""

    def __init__(self, opener: Callable[[], Any]) -> None:
        self._opener, self._at = opener, 0
        self._file = patient(opener)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._file.seekable())

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = patient(lambda: self._file.seek(offset, whence))
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        def read() -> bytes:
            if self._file is None:
                self._file = self._opener()
                if self._at:
                    self._file.seek(self._at)
            try:
                return self._file.read(len(buffer))
            except Exception:
                self._file = None
                raise

        data = patient(read)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()
