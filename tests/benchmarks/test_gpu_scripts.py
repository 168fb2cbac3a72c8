"""The scripts for a GPU run to their end on a CPU, leave what they measured, and a failing part fails alone."""

from __future__ import annotations

import json
import sys
from importlib import import_module

import pytest

from benchmarks.gpu.__main__ import SCRIPTS
from benchmarks.gpu.common import Bench
from benchmarks.gpu.tables import NAMES, write


def test_every_script_is_run_and_written_down():
    assert tuple(script.name for script in SCRIPTS) == NAMES
    assert all(import_module(f"benchmarks.gpu.{name}").main for name in NAMES)
    assert sum(script.seconds for script in SCRIPTS) <= 1800


@pytest.mark.parametrize("name", ["newton_schulz", "generation"])
def test_a_script_leaves_what_it_measured(tmp_path, monkeypatch, name):
    monkeypatch.setattr(sys, "argv", [name, "--device", "cpu", "--out", str(tmp_path)])
    assert import_module(f"benchmarks.gpu.{name}").main() == 0
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found["machine"]["device"] == "cpu"
    assert not [part for part, values in found.items() if "failed" in values]
    write(tmp_path)
    assert f"### {name}" in (tmp_path / "TABLES.md").read_text()


def test_a_part_that_fails_is_told_and_the_others_follow(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["made", "--device", "cpu", "--out", str(tmp_path)])
    bench = Bench.begin("made", None)
    bench.part("wrong", lambda: 1 // 0)
    bench.part("right", lambda: {"seconds": 1.0})
    assert bench.end() == 1
    found = json.loads((tmp_path / "made.json").read_text())
    assert "ZeroDivisionError" in found["wrong"]["failed"]
    assert found["right"] == {"seconds": 1.0}
