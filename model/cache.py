"""Where everything is kept that can be fetched or made again."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache_folder() -> Path:
    """$OPENK2_CACHE, or openk2's folder in the user's cache."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("OPENK2_CACHE") or Path(base) / "openk2")


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Alone among all threads and processes that lock this file, for the block; a killed process lets go. The file
    stays: to remove it would part those that wait from those that come."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
