"""Functions that numba compiles at their first call and keeps on disk: anew where a part of them has changed."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np


def compiled(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """`numba.njit` with these options, as a decorator. The machine code is kept beside the source or in the user's
    cache (`NUMBA_CACHE_DIR` names another folder); where neither can be written, every process compiles its own."""
    if function is None:
        return lambda function: compiled(function, **options)
    try:
        made: Any = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no place to keep it
        return numba.njit(**options)(function)
    # numba compiles anew where the function's own file has changed. It does not look at other files, whose constants
    # and functions are part of the machine code too.
    kept = made._cache._cache_file
    kept._source_stamp = kept._source_stamp, parts(made)
    return made


def parts(function: Any) -> bytes:
    """A digest of a function's code and options, and of the constants and functions that it names, and those name."""
    digest, known = hashlib.sha256(), set[FunctionType]()

    def add(value: Any, space: Mapping[str, Any]) -> None:
        plain = inspect.unwrap(value) if callable(value) else value
        if isinstance(plain, FunctionType):
            if plain not in known:
                known.add(plain)
                add(getattr(value, "targetoptions", {}), {})
                add(plain.__code__, plain.__globals__)
        elif isinstance(plain, CodeType):
            digest.update(plain.co_code + repr(plain.co_names).encode())
            for constant in plain.co_consts:
                add(constant, space)  # a function within this one has its globals
            for name in plain.co_names:
                if name in space:
                    add(space[name], {})
        elif isinstance(plain, np.ndarray):
            digest.update(repr((plain.dtype, plain.shape)).encode() + plain.tobytes())
        elif isinstance(plain, dict):
            for key in sorted(plain):
                add((key, sorted(plain[key]) if isinstance(plain[key], set) else plain[key]), {})
        elif isinstance(plain, type | ModuleType):
            digest.update(plain.__name__.encode())
        else:
            digest.update(repr(plain).encode())

    add(function, {})
    return digest.digest()
