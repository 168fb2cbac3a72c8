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

from model.compiled import compiled, parts

HOUSE = Path(__file__).parents[2]
STEP, TABLE = 1, (1, 2)


@numba.njit
def doubled(x):
    return 2 * x


def value(x):
    return doubled(x) + STEP + TABLE[1]


ALL = """
import importlib, sys
from model.compiled import parts
for name in sys.argv[1:]:
    for one in vars(importlib.import_module(name)).values():
        if hasattr(one, "py_func") and one.py_func.__module__ == name:
            print(name, one.py_func.__name__, parts(one).hex())
"""


def test_machine_code_is_kept_until_a_constant_or_a_function_that_is_part_of_it_has_changed(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    here = sys.modules[__name__]

    def ran() -> tuple[int, int]:
        made = compiled(nogil=True)(value)
        return made(10), sum(made.stats.cache_hits.values())

    assert [ran(), ran()] == [(23, 0), (23, 1)]
    monkeypatch.setattr(here, "STEP", 7)
    assert [ran(), ran()] == [(29, 0), (29, 1)]
    monkeypatch.setattr(here, "TABLE", (1, 5))
    monkeypatch.setattr(here, "doubled", numba.njit(lambda x: 3 * x))
    assert [ran(), ran()] == [(42, 0), (42, 1)]


def test_what_a_kernel_is_made_of_is_the_same_in_every_process():
    """Otherwise every process would compile it, and nobody would notice."""
    names = [
        ".".join(path.relative_to(HOUSE).with_suffix("").parts)
        for folder in ("model", "tasks")
        for path in sorted((HOUSE / folder).rglob("*.py"))
        if re.search(r"^@(compiled|kernel|_inlined)\b", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    environment = {**os.environ, "PYTHONPATH": str(HOUSE), "PYTHONHASHSEED": "1"}
    told = subprocess.check_output([sys.executable, "-c", ALL, *names], env=environment, text=True)
    there = [line.split() for line in told.splitlines()]
    assert {name for name, _, _ in there} == {*names}
    for name, kernel, digest in there:
        assert parts(getattr(import_module(name), kernel)).hex() == digest


def test_options_and_arrays_are_parts():
    def first(x: int) -> int:
        return TABLE[0] + x

    def made(table: np.ndarray, **options: object) -> bytes:
        return parts(numba.njit(**options)(FunctionType(first.__code__, {"TABLE": table})))

    one, other = np.arange(4), np.arange(4)
    assert made(one) == made(other)
    assert made(one) != made(other + 1)
    assert made(one) != made(one.astype(np.int32))
    assert made(one, fastmath={"nnan", "ninf"}) == made(one, fastmath={"ninf", "nnan"}) != made(one)


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])  # as where no folder can be written
    assert compiled(lambda x: x + 1)(1) == 2
    assert compiled(nogil=True)(lambda x: x + 1)(2) == 3
