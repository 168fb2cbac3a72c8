"""Functions that numba compiles and keeps."""

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher

from model.compiled import compiled, parts

TABLE = np.zeros(0)
HOUSE = Path(__file__).parents[2]

SHARED = """
import numba
STEP, TABLE = 1, (1, 2)

@numba.njit(fastmath={"contract"})
def doubled(x):
    return 2 * x
"""
KEPT = """
from model.compiled import compiled
from shared import STEP, TABLE, doubled

@compiled(nogil=True)
def value(x):
    return doubled(x) + STEP + TABLE[1]

print(value(10), sum(value.stats.cache_hits.values()))
"""
ALL = """
import importlib, sys
from model.compiled import parts
for name in sys.argv[1:]:
    for one in vars(importlib.import_module(name)).values():
        if hasattr(one, "py_func") and one.py_func.__module__ == name:
            print(name, one.py_func.__name__, parts(one).hex())
"""


def run(folder: Path, *words: str, **environment: str) -> str:
    environment = {**os.environ, "PYTHONPATH": f"{HOUSE}:{folder}", "PYTHONDONTWRITEBYTECODE": "1", **environment}
    ran = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=True)
    return ran.stdout


def test_machine_code_is_kept_until_a_constant_or_a_function_of_another_file_has_changed(tmp_path: Path) -> None:
    kept, shared = tmp_path / "kept.py", tmp_path / "shared.py"
    kept.write_text(KEPT)
    shared.write_text(SHARED)
    said = [run(tmp_path, str(kept)) for _ in range(2)]
    for old, new in (("1, (1, 2)", "7, (1, 5)"), ("2 * x", "3 * x")):
        shared.write_text(shared.read_text().replace(old, new))
        said.append(run(tmp_path, str(kept)))
    shared.write_text(shared.read_text() + "\nOTHER = 3\n")
    said.append(run(tmp_path, str(kept)))
    assert said == ["23 0\n", "23 1\n", "32 0\n", "42 0\n", "42 1\n"]


def test_what_a_kernel_is_made_of_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Otherwise every process would compile it, and nobody would notice."""
    names = [
        ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        for folder in ("model", "tasks")
        for path in sorted((HOUSE / folder).rglob("*.py"))
        if re.search(r"^@(compiled|kernel|_inlined)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    there = [line.split() for line in run(tmp_path, "-c", ALL, *names, PYTHONHASHSEED="1").splitlines()]
    assert {name for name, _, _ in there} == {*names}
    for name, kernel, digest in there:
        assert parts(getattr(import_module(name), kernel)).hex() == digest


def test_options_and_arrays_are_parts() -> None:
    def first(x: int) -> int:
        return TABLE[0] + x

    def made(table: np.ndarray, **options: object) -> bytes:
        return parts(numba.njit(**options)(FunctionType(first.__code__, {"TABLE": table})))

    one, other = np.arange(4), np.arange(4)
    assert made(one) == made(other)
    assert made(one) != made(other + 1)
    assert made(one) != made(one.astype(np.int32))
    assert made(one, fastmath={"nnan", "ninf"}) == made(one, fastmath={"ninf", "nnan"}) != made(one)


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Dispatcher) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(Dispatcher, "enable_caching", refuse)
    assert compiled(lambda x: x + 1)(1) == 2
    assert compiled(nogil=True)(lambda x: x + 1)(2) == 3
