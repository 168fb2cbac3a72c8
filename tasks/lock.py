"""One run at a time under one root, whoever started it: a command, a page of the UI, a schedule. Who comes second waits
and says for whom; what the first finished is then there.

On a disk the lock is the kernel's, on `{root}/.lock`: it ends with the process, however that ends. A store has no such
lock. There the runs are numbered objects under `{root}/.lock/`: whoever creates the next number holds the root, renews
it, and marks it when done. Creating is exclusive (a conditional write), so of two that come at once one wins; a number
that nobody renews any more is passed over by the next, and whoever finds that its own was passed over ends.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import signal
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeVar

from model.storage import filesystem, is_local, local_path, patient

log = logging.getLogger(__name__)
T = TypeVar("T")

POLL = 0.5  # seconds between two tries on a disk
RENEWED = 20.0  # seconds between two renewals on a store, and between two looks at another's
ABANDONED = 100.0  # seconds without a renewal after which a store's lock counts for nothing
REMINDED = 600.0  # seconds between two sentences of one that waits

_HELD: ContextVar[frozenset[str]] = ContextVar("roots that this run holds", default=frozenset())


class LockLost(RuntimeError):
    """Another run holds the root that this one held: it had not renewed its lock in time."""


@contextmanager
def alone(root: str, work: str) -> Iterator[None]:
    """Hold `root` for the block, as `work`; waits while another run holds it. Within a block that holds it, a block of
    the same run enters at once.

    Raises LockLost where another run took a store's lock; the main thread is interrupted by SIGTERM then, so that a
    stage writes its checkpoint.
    """
    place = os.path.realpath(local_path(root)) if is_local(root) else root.rstrip("/")
    if place in _HELD.get():
        yield
        return
    holder = f"{work} (process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')})"
    with _locked(place, holder) if is_local(root) else _leased(place, holder):
        token = _HELD.set(_HELD.get() | {place})
        try:
            yield
        finally:
            _HELD.reset(token)


class _Wait:
    """Says whom a run waits for, at first and every few minutes."""

    def __init__(self, root: str) -> None:
        self.root, self.told, self.holder = root, 0.0, ""

    def tell(self, holder: str) -> None:
        now = time.monotonic()
        if holder != self.holder or now - self.told >= REMINDED:
            self.holder, self.told = holder, now
            log.warning("'%s' is in use by %s: waiting until that ends", self.root, holder or "another run")


@contextmanager
def _locked(folder: str, holder: str) -> Iterator[None]:
    Path(folder).mkdir(parents=True, exist_ok=True)
    wait = _Wait(folder)
    place = Path(folder) / ".lock"
    if place.is_dir():  # the root was copied from a store
        place /= "disk"
    with place.open("a+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                wait.tell(file.read().strip())
                time.sleep(POLL)
        file.truncate(0)
        file.write(holder)
        file.flush()
        yield


@contextmanager
def _leased(url: str, holder: str) -> Iterator[None]:
    fs, folder = filesystem(f"{url}/.lock")
    record: dict[str, Any] = {"holder": holder, "run": uuid.uuid4().hex, "renewals": 0, "over": False}
    number = _take(fs, folder, record, url)
    over, lost = threading.Event(), threading.Event()
    renewing = threading.Thread(target=_renew, args=(fs, folder, number, record, over, lost), daemon=True)
    renewing.start()
    try:
        yield
    except BaseException as error:
        if lost.is_set():
            raise LockLost(
                f"another run took '{url}', because this one had not renewed its lock for {ABANDONED:g} s (did this "
                "machine sleep, or was the store away?); what was finished is kept: run the same command again"
            ) from error
        raise
    finally:
        over.set()
        renewing.join()
        if not lost.is_set():
            with suppress(OSError):  # the next one waits a little longer
                _write(fs, folder, number, record | {"over": True})


def _take(fs: Any, folder: str, record: dict[str, Any], url: str) -> int:
    """Create the next number as soon as the newest is over or abandoned; returns it."""
    wait = _Wait(url)
    seen: Any = None
    changed = 0.0
    while True:
        now = time.monotonic()  # before it is read: how long that takes must not count against the holder
        numbers = _numbers(fs, folder)
        newest = _read(fs, folder, numbers[-1]) if numbers else None
        if newest != seen:  # by this machine's clock alone: two machines' clocks differ
            seen, changed = newest, time.monotonic()
        if not newest or newest["over"] or now - changed > ABANDONED:
            number = (numbers[-1] if numbers else 0) + 1
            try:
                _write(fs, folder, number, record, mode="create")
            except FileExistsError:
                if _read(fs, folder, number) != record:
                    continue  # another was faster
                # else it was written, and the answer was lost on its way
            # A write that came late finds its number free again where others have come and gone since: the newest of
            # theirs is there still.
            if max(_numbers(fs, folder), default=0) > number:
                _remove(fs, folder, [number])
                continue
            _remove(fs, folder, numbers)
            return number
        wait.tell(newest["holder"])
        time.sleep(min(RENEWED, ABANDONED) / 4)


def _renew(
    fs: Any, folder: str, number: int, record: dict[str, Any], over: threading.Event, lost: threading.Event
) -> None:
    while not over.wait(RENEWED):
        try:
            if max(_numbers(fs, folder), default=0) > number and not over.is_set():
                # No bytes are lost meanwhile: parts are named by theirs, a manifest comes last.
                lost.set()
                # As `flows.server` does it: also out of a system call.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                return
            record["renewals"] += 1
            _write(fs, folder, number, record)
        except OSError as error:
            log.warning("the lock of %s could not be renewed: %s", folder, error)


def _numbers(fs: Any, folder: str) -> list[int]:
    try:
        names = [Path(str(name)).name for name in _tried(fs, folder, lambda path: fs.ls(path, detail=False))]
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in names if name.isdigit())


def _path(folder: str, number: int) -> str:
    return f"{folder}/{number:08}"


def _read(fs: Any, folder: str, number: int) -> dict[str, Any] | None:
    """The record of a number; None where it went since it was listed."""
    try:
        return json.loads(_tried(fs, _path(folder, number), fs.cat_file))
    except FileNotFoundError:
        return None


def _write(fs: Any, folder: str, number: int, record: dict[str, Any], mode: str = "overwrite") -> None:
    data = json.dumps(record).encode()
    _tried(fs, _path(folder, number), lambda path: fs.pipe_file(path, data, mode=mode))


def _remove(fs: Any, folder: str, numbers: list[int]) -> None:
    for number in numbers:
        with suppress(FileNotFoundError):
            _tried(fs, _path(folder, number), fs.rm_file)


def _tried(fs: Any, path: str, call: Callable[[str], T]) -> T:
    """What `call` makes of a path. A connection that is lost for a moment must not cost a run its lock; what lasts is
    said in a sentence, whichever library raised it."""
    return patient(lambda: call(path), str(fs.unstrip_protocol(path)))
