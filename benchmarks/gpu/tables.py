"""The tables of docs/gpu.md from what the scripts measured: `python -m benchmarks.gpu.tables [FOLDER]`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

NAMES = ("correct", "updates", "newton_schulz", "generation", "posttraining", "launchers")
UNITS = {"bytes": (1e9, " GB"), "seconds": (1e-3, " ms"), "flops_per_second": (1e12, " TFLOP/s")}


def write(out: Path) -> None:
    """TABLES.md in `out`: a table for each script that left something."""
    (out / "TABLES.md").write_text("\n".join(table(out, name) for name in NAMES if (out / f"{name}.json").exists()))


def table(out: Path, name: str) -> str:
    """One script's parts, a row each."""
    found = json.loads((out / f"{name}.json").read_text())
    where = ", ".join(f"{key} {value}" for key, value in found.pop("machine").items())
    rows = [f"| {part} | {cells(values)} |" for part, values in found.items()]
    return "\n".join([f"### {name}", "", where, "", "| part | measured |", "|---|---|", *rows, ""])


def cells(values: Any) -> str:
    """A part's values as a person reads them."""
    if not isinstance(values, Mapping):
        return str(values)
    return "; ".join(f"{key.replace('_', ' ')} {shown(key, value)}" for key, value in values.items())


def shown(key: str, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value).replace("|", "/")
    for ending, (scale, unit) in UNITS.items():
        if key.endswith(ending):
            return f"{value / scale:,.3g}{unit}"
    return f"{value:.1%}" if key.startswith(("utilisation", "share")) else f"{value:,.4g}"


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "build/gpu"))
