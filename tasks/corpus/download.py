"""One file from a package manager into a cache folder: whole, or not at all and why."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from model.cache import locked
from tasks.corpus.unavailable import UnavailableError

PATIENCE = 600  # seconds


def download(
    command: Sequence[str],
    what: str,
    name: str,
    folder: Path,
    suffix: str,
    marker: str,
    cached: Callable[[], Path | None],
) -> Path:
    """What `cached` finds, else run `command` in a scratch folder of `folder` and take over the file with `suffix` that
    it leaves there.

    One at a time for a `name`: a run under another root shares the cache, and what it has fetched is `cached` then.
    Raises UnavailableError, with the last of its lines that begins with `marker` (else its last line) where it failed;
    `what` is the command as a person would type it.
    """
    with locked(folder / "locks" / name):
        if found := cached():
            return found
        scratch = folder / f"fetching-{name}"
        shutil.rmtree(scratch, ignore_errors=True)  # of a run that was killed
        scratch.mkdir()
        try:
            done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, timeout=PATIENCE)
            left = sorted(scratch.glob(f"*{suffix}"))
            if done.returncode or not left:
                lines = done.stderr.strip().splitlines() or [f"no {suffix} arrived"]
                said = [line for line in lines if line.startswith(marker)] or lines
                raise UnavailableError(f"`{what}` failed: {said[-1]}")
            return left[0].replace(folder / left[0].name)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"`{what}` took over {PATIENCE // 60} minutes") from None
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
