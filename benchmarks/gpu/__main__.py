"""All that is asked of a GPU, one script after another: `make gpu`, or `make gpu ONLY=3`.

    python -m benchmarks.gpu [--only 1,3] [--device cuda] [--out build/gpu]

Each script is a process with a limit of its own, so that all end within half an hour; one that fails or is ended does
not keep the others from running. What each says lies in NAME.txt, what it measured in NAME.json; at the end TABLES.md
is written from these, and what failed is named.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.gpu.common import HOUSE, OUT
from benchmarks.gpu.tables import write
from tasks import process


class Script(NamedTuple):
    """One of them."""

    name: str
    seconds: int
    """After which it is ended."""


SCRIPTS = (
    Script("correct", 240),
    Script("updates", 560),
    Script("newton_schulz", 120),
    Script("generation", 220),
    Script("posttraining", 300),
    Script("launchers", 180),
)
"""In the order in which they are worth having."""


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="numbers from 1, with commas; all by default")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--out", type=Path, default=OUT)
    arguments = parser.parse_args(given)
    numbers = [int(number) for number in arguments.only.split(",") if number] or range(1, len(SCRIPTS) + 1)
    out = arguments.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    failed = []
    for number in numbers:
        script = SCRIPTS[number - 1]
        began = time.monotonic()
        code = run(script, arguments.device, out)
        print(f"{number} {script.name}: {code or 'done'}, {time.monotonic() - began:.0f} s", flush=True)
        if code:
            failed.append(f"{number} {script.name} ({code}; {out / script.name}.txt)")
    write(out)
    print(f"tables: {out / 'TABLES.md'}")
    for line in failed:
        print(f"FAILED: {line}")
    return int(bool(failed))


def run(script: Script, device: str, out: Path) -> str:
    """Why it failed, or nothing."""
    command = [sys.executable, "-m", f"benchmarks.gpu.{script.name}", "--device", device, "--out", str(out)]
    log = out / f"{script.name}.txt"
    log.unlink(missing_ok=True)
    child = process.start(command, log, {"PYTHONUNBUFFERED": "1", "PYTHONPATH": str(HOUSE)})
    try:
        code = child.wait(script.seconds)
    except subprocess.TimeoutExpired:
        return f"ended after {script.seconds} s"
    finally:
        process.stop(child, grace=5)
    return f"exit code {code}" if code else ""


if __name__ == "__main__":
    sys.exit(main())
