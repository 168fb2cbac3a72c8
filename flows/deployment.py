"""Every flow deployed on the server that PREFECT_API_URL names, and the pool of a worker: `python -m flows.deployment`.

All of it in one process, which `make ui` waits for: to load Prefect takes each of its commands four CPU-seconds.
"""

from __future__ import annotations

import sys

from prefect.cli import app

from flows.ui import FIXED, NIGHTLY, POOL, REFRESH
from flows.watch import ask


def succeeds(*words: str) -> bool:
    """Whether a command of Prefect's does; what it says, it says to our output."""
    sys.argv = ["prefect", "--no-prompt", *words]
    try:
        app()
    except SystemExit as end:
        return not end.code
    return True


def must(*words: str) -> None:
    if not succeeds(*words):
        raise SystemExit(f"`prefect {' '.join(words)}` failed")


def main() -> None:
    must("work-pool", "create", "--type", "process", *FIXED, "--overwrite", POOL)
    first = not succeeds("deployment", "inspect", REFRESH)
    must("deploy", "--all")
    if first:  # later starts leave schedules as their owner has them
        must("deployment", "schedule", "create", REFRESH, *NIGHTLY)
    ask(ours=True)


if __name__ == "__main__":
    main()
