"""Child processes that never outlive what started them: own process group, a signal when the parent dies, an end in
two steps (SIGTERM, patience, SIGKILL)."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_PR_SET_PDEATHSIG = 1


def start(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, keep: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, output appended to `log`; on Linux it gets SIGTERM when the
    thread that called this ends, even by SIGKILL. The file descriptors in `keep` stay open in the child."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
            pass_fds=tuple(keep),
            preexec_fn=die_with_parent if sys.platform == "linux" else None,
        )


def die_with_parent() -> None:
    """Ask the kernel to send this process SIGTERM when its parent dies (Linux; elsewhere nothing happens)."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def die_with_pool() -> None:
    """For worker processes of a pool: `die_with_parent`, also where the parent died while this one was starting."""
    die_with_parent()
    parent = multiprocessing.parent_process()
    if parent is not None and os.getppid() != parent.pid:
        os.kill(os.getpid(), signal.SIGTERM)


def stop(process: subprocess.Popen[bytes], grace: float = 60.0) -> int:
    """End the whole group: SIGTERM, up to `grace` seconds of patience, then SIGKILL. Returns the exit code."""
    if process.poll() is None:
        _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + grace
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
    _signal(process, signal.SIGKILL)  # also whatever of the group outlived its leader
    return process.wait()


def marked(variable: str, mark: str) -> list[psutil.Process]:
    """The processes that run and have this mark in this environment variable, also those that left their group."""
    import psutil  # here: every command that can start a process loads this file

    found = []
    for one in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if one.status() != psutil.STATUS_ZOMBIE and one.environ().get(variable) == mark:
                found.append(one)
    return found


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return  # the group has ended by itself, which is what was wanted
