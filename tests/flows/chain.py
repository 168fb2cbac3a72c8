"""The whole chain on the test preset, as a command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from flows.graph import Graph
from flows.request import PresetName, Request
from flows.steps import graph

HOUSE = Path(__file__).resolve().parents[2]


def start(root: Path | str, *more: str, **variables: str) -> subprocess.Popen[str]:
    """`openk2 run --preset test`, with these variables in its environment."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return subprocess.Popen(
        [sys.executable, "-m", "flows.cli", "run", "--preset", "test", "--root", str(root), *more],
        cwd=HOUSE,
        env={**environment, **variables, "PYTHONPATH": str(HOUSE)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(root: Path | str, *more: str, **variables: str) -> str:
    """What a whole run says."""
    process = start(root, *more, **variables)
    told, _ = process.communicate(timeout=900)
    assert process.returncode == 0, told
    return told


def plan(root: Path | str) -> Graph:
    return graph(Request(preset=PresetName.test, root=str(root)))
