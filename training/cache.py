"""The files of an artifact, checked before they are read: local ones where they lie, remote ones in a bounded cache.

A remote file is fetched whole, compared with the listed size and sha256 while it has a name that nobody reads, and then
renamed to its sha256: what has such a name was checked, is never written again, and is the same file for every
artifact, process and rank of the machine. When the next file has no room the least recently used ones leave. A local
file is checked once as well: a note in the cache says that this very file (inode, size, time of change) was good.

    {folder}/files/{sha256}                     fetched files
    {folder}/files/{sha256}.{bytes}.{...}.partial   being fetched
    {folder}/checked/{sha256}-{...}             notes on local files
    {folder}/locks/                             one process fetches a file, the others wait for it
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

from model import storage
from model.cache import cache_folder, locked
from model.storage import sha256_file

LIMIT_BYTES = 64 << 30
STALE_SECONDS = 3600
"""A fetch that has written nothing for so long was killed: what it left is removed."""
STRIPES = 64
MANIFEST = "manifest.json"
REPAIR = "delete the artifact's folder and run the stage again"


class ShardError(RuntimeError):
    """Files of an artifact that are missing, altered, cut or not what was asked for; the message names the file."""


@dataclass(frozen=True)
class File:
    """One file of an artifact as its manifest or table lists it."""

    uri: str
    """Of the artifact: a folder or any fsspec URL."""
    path: str
    """Relative to `uri`."""
    sha256: str
    bytes: int

    @property
    def name(self) -> str:
        return f"{self.uri}/{self.path}"

    @property
    def is_local(self) -> bool:
        return storage.is_local(self.uri)

    @cached_property
    def local(self) -> Path:
        """A local path with exactly the listed bytes; ShardError otherwise. Who reads remote files by the thousand asks
        `Cache.open`, which fetches again what left the cache."""
        return Cache.from_environment().path(self)


class Cache:
    """Checked files in `folder`, which any number of processes of one machine share; at most `limit_bytes` of them."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT_BYTES, fetchers: int = 4) -> None:
        """`fetchers` is how many files are fetched at once ahead of their use."""
        if limit_bytes < 1 or fetchers < 1:
            raise ValueError(f"a cache of {limit_bytes} bytes with {fetchers} fetchers holds nothing: give at least 1")
        self.folder, self.limit_bytes = folder, limit_bytes
        self.fetched_files = self.fetched_bytes = 0
        """What this process fetched; for measurements."""
        self.checked: Callable[[], None] = lambda: None
        """Called when a file was checked, which takes as long as its disk takes; by any thread."""
        self._fetchers = fetchers
        self._pool: ThreadPoolExecutor | None = None
        self._good: set[str] = set()
        self._ahead: dict[str, Future[Path]] = {}
        self._counting = threading.Lock()

    @classmethod
    def from_environment(cls) -> Cache:
        """OPENK2_CACHE is the folder (the user's cache folder otherwise), OPENK2_CACHE_BYTES the limit (64 GiB)."""
        limit = os.environ.get("OPENK2_CACHE_BYTES") or str(LIMIT_BYTES)
        if not limit.isdecimal():
            raise ValueError(f"OPENK2_CACHE_BYTES is {limit!r}: give the bytes as a number, such as {LIMIT_BYTES}")
        return cls(cache_folder(), int(limit))

    def path(self, file: File) -> Path:
        """Where the checked file lies now. A remote one may leave the cache at any moment: use `open` to read it.

        Raises:
            ShardError: it is missing, cut or altered, or larger than the whole cache.
        """
        return self._check_local(file) if file.is_local else self._fetch(file)

    def open(self, file: File) -> BinaryIO:
        """The checked file, open for reading: it can be read to its end whatever leaves the cache meanwhile."""
        while True:
            try:
                return self.path(file).open("rb")
            except FileNotFoundError:
                if file.is_local:
                    raise ShardError(f"{file.name} was removed while it was read: run the stage again") from None

    def prefetch(self, files: Iterable[File]) -> None:
        """Begin to check `files`, and to fetch the remote ones, in this order and without waiting: at most half the
        cache, so that what is read now does not leave for what is read later. A bad file is told by who reads it."""
        room = self.limit_bytes // 2
        for file in files:
            room -= 0 if file.is_local else file.bytes
            if room < 0 or file.name in self._good or file.sha256 in self._ahead:
                continue
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._fetchers, thread_name_prefix="prefetch")
            future = self._pool.submit(self.path, file)
            self._ahead[file.sha256] = future
            future.add_done_callback(partial(self._landed, file.sha256))

    def _landed(self, sha256: str, _: Future[Path]) -> None:
        self._ahead.pop(sha256, None)

    def close(self) -> None:
        """Stop prefetching; what is under way ends first."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    # ------------------------------------------------------------------------------------------------------- local

    def _check_local(self, file: File) -> Path:
        path = storage.local_path(file.uri) / file.path
        if file.name in self._good:
            return path
        if not path.is_file():
            raise ShardError(
                f"{file.name} is missing though the manifest lists it: delete the artifact, and its stage makes it anew"
            )
        status = path.stat()
        note = self.folder / "checked" / f"{file.sha256}-{status.st_dev}-{status.st_ino}-{status.st_mtime_ns}"
        if status.st_size != file.bytes or not note.exists():
            _check(path, file, str(path))
            self.checked()
            # a note that cannot be kept costs a second check, nothing else
            with contextlib.suppress(OSError):
                note.parent.mkdir(parents=True, exist_ok=True)
                note.touch()
        self._good.add(file.name)
        return path

    # ------------------------------------------------------------------------------------------------------ remote

    def _fetch(self, file: File) -> Path:
        target = self.folder / "files" / file.sha256
        if _touch(target, file.bytes):
            return target
        if file.bytes > self.limit_bytes:
            raise ShardError(
                f"{file.name} has {file.bytes} bytes and the cache {self.folder} may hold {self.limit_bytes}: raise "
                f"OPENK2_CACHE_BYTES"
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with self._locked(str(int(file.sha256[:8], 16) % STRIPES)):
            if _touch(target, file.bytes):  # another process or thread was first
                return target
            unread = target.with_name(f"{file.sha256}.{file.bytes}.{os.getpid()}-{threading.get_ident()}.partial")
            try:
                with self._locked("room"):
                    self._make_room(file.bytes)
                    unread.touch()
                storage.fetch(file.name, unread)
                _check(unread, file, file.name)
                self.checked()
                unread.replace(target)
            except FileNotFoundError:
                raise ShardError(f"{file.name} is missing though the manifest lists it: run the stage again") from None
            finally:
                unread.unlink(missing_ok=True)
        with self._counting:
            self.fetched_files += 1
            self.fetched_bytes += file.bytes
        return target

    def _make_room(self, needed: int) -> None:
        """Remove the least recently used files until `needed` bytes fit beside the rest and what is being fetched."""
        held, files = needed, []
        for entry in os.scandir(self.folder / "files"):
            with contextlib.suppress(FileNotFoundError):  # a fetch that ends renames its file
                status = entry.stat()
                if not entry.name.endswith(".partial"):
                    files.append((status.st_mtime_ns, status.st_size, entry.path))
                    held += status.st_size
                elif time.time() - status.st_mtime > STALE_SECONDS:
                    Path(entry.path).unlink()
                else:
                    held += int(entry.name.split(".")[1])  # all that it will have
        for _, size, path in sorted(files):
            if held <= self.limit_bytes:
                return
            Path(path).unlink()
            held -= size

    def _locked(self, name: str) -> contextlib.AbstractContextManager[None]:
        return locked(self.folder / "locks" / name)


def read_manifest(uri: str) -> dict[str, Any]:
    """The manifest of the artifact at `uri`; read anew each time, since no sha256 says that a copy is what lies there.

    Raises:
        ShardError: there is none, or it is no JSON, or JSON of something else.
    """
    try:
        manifest = json.loads(storage.read(f"{uri}/{MANIFEST}"))
        if not isinstance(manifest, dict) or not {"fingerprint", "parts", "statistics"} <= manifest.keys():
            raise ValueError("it is no manifest of an artifact")
        return manifest
    except FileNotFoundError:
        message = f"{uri}/{MANIFEST} does not exist: nothing complete lies there; run the stage that makes it"
        raise ShardError(message) from None
    except ValueError as error:
        raise ShardError(f"{uri}/{MANIFEST} cannot be read ({error}): it was altered; {REPAIR}") from error


def _touch(path: Path, size: int) -> bool:
    """Mark a file as used now; whether it is there, and as long as it was: a machine that lost its power may have kept
    the name alone."""
    try:
        os.utime(path)
        return path.stat().st_size == size
    except FileNotFoundError:
        return False


def _check(path: Path, file: File, name: str) -> None:
    """ShardError unless `path` has the listed bytes; `name` is what people know it by."""
    size = path.stat().st_size
    if size != file.bytes:
        raise ShardError(f"{name} has {size} bytes where its manifest lists {file.bytes}: it was cut; {REPAIR}")
    if (found := sha256_file(path)) != file.sha256:
        raise ShardError(
            f"{name} was altered: its sha256 is {found[:12]}..., its manifest's {file.sha256[:12]}...; {REPAIR}"
        )
