"""What the benchmarks share: CPU time, sides that take turns, the ratios of their rounds, processes of their own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from tasks.launch import CPU_ENVIRONMENT

T = TypeVar("T")
HOUSE = Path(__file__).resolve().parents[1]
PEERS = HOUSE / "benchmarks" / "peers"
ONE_THREAD = {**CPU_ENVIRONMENT, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HOUSE)}
"""Environment of a process that is measured on one core: it has to stand before the process starts."""


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a script of this folder in a process of its own."""
    return [sys.executable, "-m", f"benchmarks.{name}", *arguments]


def cpu() -> float:
    """CPU-seconds of this process and of those that it began and that have ended."""
    return sum(
        used.ru_utime + used.ru_stime
        for used in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    )


def in_turns(sides: Mapping[str, Callable[[], T]], rounds: int, warm: int = 0) -> dict[str, list[T]]:
    """What every side gives in every round: sides take turns, so that a busy machine hits all alike. The first `warm`
    rounds do not count."""
    found: dict[str, list[T]] = {name: [] for name in sides}
    for number in range(warm + rounds):
        for name, side in sides.items():
            result = side()
            if number >= warm:
                found[name].append(result)
    return found


def ratio(one: Sequence[float], other: Sequence[float]) -> float:
    """The median of the rounds' ratios."""
    return median(a / b for a, b in zip(one, other, strict=True))


def told(command: Sequence[str], environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What a process says in its last line, which is JSON. Raises SystemExit with its own words where it fails."""
    around = {**os.environ, **(environment or {})}
    done = subprocess.run(list(command), capture_output=True, text=True, cwd=HOUSE, env=around, timeout=3600)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])
