"""Files where artifacts and sources lie, a folder of this machine or any fsspec URL, as they are at this moment.

fsspec's filesystems remember listings, and a listing that is remembered lacks what other processes wrote since: none is
remembered here. No call waits for ever, and a passing failure of the network is tried again. Whatever a library raises
comes out as an OSError: FileNotFoundError where nothing lies at an address (a bucket that does not exist is more than
that), StorageError, in one sentence that names the address, for everything else that a store says.
"""

from __future__ import annotations

import errno
import glob
import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import fsspec
from fsspec.dircache import DirCache

log = logging.getLogger(__name__)
T = TypeVar("T")

CONNECT_SECONDS, READ_SECONDS = 20, 60
WAITS = (0.5, 2.0, 8.0)
"""Seconds before each further try after a passing failure."""
LASTING = {
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES),
    *(errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EINVAL),
}
"""Failures that waiting does not mend."""
AT_ONCE = 256
"""Small files asked for together."""
PACKAGES = {"s3": "openk2[s3]", "s3a": "openk2[s3]", "gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "az": "adlfs"}
"""What has to be installed for an address to be read."""


_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*")


class StorageError(OSError):
    """What a store or its library said, in one sentence."""

    def __str__(self) -> str:
        return str(self.args[-1])


class NoAnswerError(StorageError):
    """A store that did not answer as it should, however often it was asked: it may in a while."""


def is_local(url: str) -> bool:
    """Whether a folder or URL is one of this machine's file system."""
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> Path:
    """The path of a local address. `~` is the home, as fsspec has it: no shell reads a form, a preset or `--root=~`."""
    return Path(os.path.expanduser(url.removeprefix("file://")))  # noqa: PTH111 (Path's own refuses a folder `~name`)


def sha256_file(path: Path) -> str:
    """The sha256 of a local file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def filesystem(url: str) -> tuple[Any, str]:
    """The filesystem of `url`, without a memory of listings and its calls bounded in time, and the path on it.

    Raises StorageError for a protocol that is not known or not installed, or an address that it cannot read.
    """
    protocol = url.partition("://")[0] if "://" in url else "file"
    options: dict[str, Any] = {}
    if protocol in ("http", "https"):
        import aiohttp

        # The whole of a large object may take hours; a silent server may not.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=READ_SECONDS)
        options = {"client_kwargs": {"timeout": timeout}}
    elif protocol in ("s3", "s3a"):
        options = {"config_kwargs": {"connect_timeout": CONNECT_SECONDS, "read_timeout": READ_SECONDS}}
    try:
        fs, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        needed = PACKAGES.get(protocol, "the library for it")
        raise StorageError(errno.EINVAL, f"{url} cannot be opened ({error}): install {needed}") from error
    except ValueError as error:
        raise StorageError(errno.EINVAL, f"{url} cannot be opened: {error}") from error
    # Set here and not asked for as an option: not every filesystem takes options that it does not know.
    fs.dircache = DirCache(use_listings_cache=False)
    return fs, path


def read(url: str) -> bytes:
    """The bytes at `url`; FileNotFoundError where there is nothing."""
    if is_local(url):
        return local_path(url).read_bytes()
    fs, path = filesystem(url)
    return patient(lambda: fs.cat_file(path), url)


def read_range(url: str, start: int, end: int) -> bytes:
    """Bytes `start` to `end` (exclusive) of what lies at `url`."""
    fs, path = filesystem(url)
    return patient(lambda: fs.cat_file(path, start=start, end=end), url)


def read_all(urls: Sequence[str]) -> Iterator[bytes]:
    """The bytes of many small files in this order, of a remote store many at once."""
    if not urls or is_local(urls[0]):
        yield from (local_path(url).read_bytes() for url in urls)
        return
    fs, _ = filesystem(urls[0])
    for first in range(0, len(urls), AT_ONCE):
        some = urls[first : first + AT_ONCE]
        paths = [fs._strip_protocol(url) for url in some]
        yield from patient(lambda paths=paths: _together(fs, paths), some[0])  # type: ignore[misc]


def _together(fs: Any, paths: list[str]) -> list[bytes]:
    """The bytes of some files. Not by `cat`, which takes a name for a pattern."""
    found = fs.cat_ranges(paths, None, None)
    for one in found:
        if isinstance(one, Exception):  # not every fsspec raises it when asked to
            raise one
    return list(found)


def write(url: str, data: bytes) -> None:
    """Write a small file, its folders where they are missing."""
    if is_local(url):
        local_path(url).parent.mkdir(parents=True, exist_ok=True)
        local_path(url).write_bytes(data)
        return
    fs, path = filesystem(url)
    patient(lambda: fs.pipe_file(path, data), url)


def move_in(local: Path, url: str) -> None:
    """Put a finished file at `url`, from then on whole or not there: a rename on this machine's disk (where `local` has
    to lie), one object elsewhere, which a store shows when it has all of it."""
    with local.open("rb") as file:
        os.fsync(file.fileno())
    if is_local(url):
        target = local_path(url)
        target.parent.mkdir(parents=True, exist_ok=True)
        local.replace(target)
        return
    fs, path = filesystem(url)
    patient(lambda: fs.put_file(str(local), path), url)


def fetch(url: str, target: Path) -> None:
    """Copy what lies at `url` to a local file, which stays whole also if the power is lost once this has returned;
    FileNotFoundError where there is nothing."""
    fs, path = filesystem(url)
    try:
        patient(lambda: fs.get_file(path, str(target)), url)
        with target.open("rb") as file:
            os.fsync(file.fileno())
    except OSError as error:
        if error.errno == errno.ENOSPC and error.filename is None:
            error.filename = str(target)
        raise


def exists(url: str) -> bool:
    """Whether a file or a folder lies at `url`."""
    if is_local(url):
        return local_path(url).exists()
    fs, path = filesystem(url)
    try:
        # Not `exists`: it takes a failure for a no.
        patient(lambda: fs.info(path), url)
    except FileNotFoundError:
        return False
    return True


def sizes(url: str) -> dict[str, int]:
    """Bytes of every file under a folder by its path below it (`a/b`, also where a store has `a//b`), in the order of
    paths; empty where there is none."""
    if is_local(url):
        root = local_path(url)
        found = {path.relative_to(root).as_posix(): path.stat().st_size for path in root.rglob("*") if path.is_file()}
        return dict(sorted(found.items()))
    fs, path = filesystem(url)
    try:
        listed = patient(lambda: fs.find(path, detail=True), url)
    except FileNotFoundError:
        return {}
    found = {place.removeprefix(path).lstrip("/"): int(listed[place]["size"]) for place in sorted(listed)}
    return {PurePosixPath(place).as_posix(): size for place, size in found.items()}


def matching(pattern: str, under: str = "") -> list[str]:
    """The addresses that match a pattern with `*`, sorted; the folder `under`, below which it is looked for, may have
    any name."""
    pattern = f"{glob.escape(under.rstrip('/'))}/{pattern}" if under else pattern
    fs, path = filesystem(pattern)
    found = sorted(str(place) for place in patient(lambda: fs.glob(path), pattern))
    return found if is_local(pattern) else [fs.unstrip_protocol(place) for place in found]


def remove(url: str) -> None:
    """Remove a file, or a folder with all that is in it, where there is one."""
    fs, path = filesystem(url)
    try:
        if is_local(url) or not glob.has_magic(path):
            patient(lambda: fs.rm(path, recursive=True), url)
            return
        places = patient(lambda: fs.find(path), url)
    except FileNotFoundError:
        return
    for place in places:  # one by one: `rm` takes a name for a pattern, and would remove whatever else matches
        with suppress(FileNotFoundError):
            patient(lambda place=place: fs.rm_file(place), url)  # type: ignore[misc]


def patient(call: Callable[[], T], url: str = "") -> T:
    """The result of `call`, tried again after passing failures. Raises OSError, whatever the library raises; `url` is
    what the call was about."""
    for wait in (*WAITS, None):
        try:
            return call()
        except Exception as raised:
            error = _meant(raised)
            if wait is None or not _passing(error):
                told = _told(error, url)
                if told is raised:
                    raise
                raise told from raised
            log.warning("%s; trying again in %.1f s", said(error), wait)
            time.sleep(wait)
    raise AssertionError


def said(error: BaseException) -> str:
    """An error in one line, without the queries of addresses: of the one that a server redirected to it is a signature,
    which opens the object, and another one each time."""
    return _QUERY.sub(r"\1", " ".join(f"{type(error).__name__}: {error}"[:3000].split()))[:300]


def _told(error: Exception, url: str) -> OSError:
    """The error as people read it; a failure of this machine's own disk, and that nothing is there, stay what they
    are."""
    where = f"{url}: " if url else ""
    code = _code(error)
    if code == "NoSuchBucket":
        bucket = url.partition("://")[2].partition("/")[0]
        return StorageError(errno.ENOENT, f"{where}there is no bucket '{bucket}': create it, or correct the address")
    if isinstance(error, FileNotFoundError | FileExistsError) or (isinstance(error, OSError) and error.filename):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return error
    if isinstance(error, PermissionError) or code in ("401", "403") or "Credentials" in type(error).__name__:
        return StorageError(
            errno.EACCES,
            f"{where}the store refuses access ({said(error)}): check the credentials and what they are allowed to do",
        )
    if _passing(error):
        return NoAnswerError(
            f"{where}the store does not answer as it should ({said(error)}): check the address and the network, then "
            "run the same command again; what was finished is kept"
        )
    return StorageError(error.errno if isinstance(error, OSError) else errno.EIO, f"{where}{said(error)}")


def _code(error: BaseException) -> str:
    """What a store called the failure, where it did."""
    for link in (error, error.__cause__):
        answer = getattr(link, "response", None)
        if isinstance(answer, dict):
            return str(answer.get("Error", {}).get("Code", ""))
        if isinstance(status := getattr(link, "status", None), int):
            return str(status)
    return ""


def _meant(error: Exception) -> Exception:
    """fsspec says of every answer but 200, and of none at all, that there is no such file: what happened instead."""
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return error
    if isinstance(status := getattr(cause, "status", None), int):
        return error if status in (404, 410) else cause
    return cause if isinstance(error, FileNotFoundError) and _passing(cause) else error


def _passing(error: Exception) -> bool:
    """Whether the same call may work in a moment: a lost connection, a timeout, a server error."""
    if isinstance(
        error, FileNotFoundError | FileExistsError | PermissionError | IsADirectoryError | NotADirectoryError
    ):
        return False
    if isinstance(error, OSError) and error.errno in LASTING:
        return False
    status = getattr(error, "status", None)
    if isinstance(status, int):
        return status >= 500 or status == 429
    name = type(error).__name__
    return isinstance(error, OSError) or any(
        word in name for word in ("Timeout", "Connection", "Disconnect", "Payload")
    )
