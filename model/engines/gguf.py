"""GGUF, the file of llama.cpp: its settings, its vocabulary and its tensors, for a network that torch runs.

Nothing of it is executed: numbers, texts and blocks of quantised weights. The blocks are read by `gguf` (the extra
`judge`), the format's own library; its index is not, which takes 8 s over a vocabulary of 150,000 words.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from model.engines.engine import EngineError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Kinds of value -> the form that `struct` has of them."""
TEXT, ARRAY = 8, 9
MOST = 1 << 24
"""Entries of an array, and bytes of a text, beyond which the file is damaged."""
MOST_NUMBERS = 1 << 40
"""The same of a tensor."""
DIMENSIONS, ALIGNMENTS = (1, 4), tuple(1 << power for power in range(3, 17))
"""Fewest and most dimensions of a tensor; what `general.alignment` may be."""


@dataclass(frozen=True)
class _Place:
    shape: tuple[int, ...]
    """Rows first."""
    kind: int
    begin: int
    """First byte, counted from where the tensors begin."""


class Gguf:
    """An open file. Raises EngineError for one that is damaged or of another kind."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._bytes = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise EngineError(f"{path} cannot be read: {error}") from None
        self._at = 0
        self.settings: dict[str, Any] = {}
        """Everything that the file says of the model, by its names (`qwen2.block_count`)."""
        self._tensors: dict[str, _Place] = {}
        try:
            self._index()
        except ValueError as error:
            raise EngineError(f"{path} is no GGUF that can be read: {error}") from None

    def _index(self) -> None:
        if self._bytes[:4] != MAGIC:
            raise ValueError("it does not begin as one")
        self._at = 4
        version, tensors, settings = self._take("<IQQ")
        if version not in VERSIONS:
            raise ValueError(f"version {version}")
        for _ in range(settings):
            name = self._text()
            self.settings[name] = self._value(self._take("<I")[0])
        for _ in range(tensors):
            name = self._text()
            (dimensions,) = self._take("<I")
            if not DIMENSIONS[0] <= dimensions <= DIMENSIONS[1]:
                raise ValueError(f"{name} has {dimensions} dimensions")
            shape = self._take(f"<{dimensions}Q")
            kind, begin = self._take("<IQ")
            if not 0 < prod(shape) <= MOST_NUMBERS or begin > len(self._bytes):
                raise ValueError(f"{name} has {' x '.join(map(str, shape))} numbers from byte {begin} on")
            self._tensors[name] = _Place(tuple(reversed(shape)), kind, begin)
        step = self.settings.get("general.alignment", 32)
        if step not in ALIGNMENTS:
            raise ValueError(f"its tensors are aligned to {step!r} bytes")
        self._begin = -(-self._at // step) * step

    def _take(self, form: str) -> tuple[Any, ...]:
        return struct.unpack(form, self._some(struct.calcsize(form)))

    def _some(self, count: int) -> bytes:
        """The next bytes."""
        if self._at + count > len(self._bytes):
            raise ValueError(f"it ends after {len(self._bytes)} bytes, within what it says of itself")
        self._at += count
        return self._bytes[self._at - count : self._at]

    def _text(self) -> str:
        (length,) = self._take("<Q")
        if length > MOST:
            raise ValueError(f"a text of {length} bytes")
        return self._some(length).decode("utf-8", "replace")

    def _value(self, kind: int) -> Any:
        if kind == TEXT:
            return self._text()
        if kind != ARRAY:
            return self._take(f"<{_form(kind)}")[0]
        inner, count = self._take("<IQ")
        if count > MOST:
            raise ValueError(f"an array of {count} entries")
        if inner == TEXT:
            return [self._text() for _ in range(count)]
        return list(self._take(f"<{count}{_form(inner)}"))

    def tensor(self, name: str) -> Tensor:
        """float32: the tensor `name`. Raises EngineError where the file has none that can be read."""
        place = self._tensors.get(name)
        if place is None:
            raise EngineError(f"{self.path} has no tensor {name}")
        try:
            dequantize, block, size = _format(place.kind)
            if place.shape[-1] % block:
                raise ValueError(f"its rows of {place.shape[-1]} numbers are no whole blocks of {block}")
            width = place.shape[-1] // block * size
            begin, count = self._begin + place.begin, prod(place.shape[:-1]) * width
            if begin + count > len(self._bytes):
                raise ValueError("the file ends within it")
            flat = np.frombuffer(self._bytes, np.uint8, count, begin).reshape(-1, width)
            found = dequantize(flat).astype(np.float32, copy=False)
        except (ValueError, NotImplementedError) as error:
            raise EngineError(f"{self.path}: {name} cannot be read: {error}") from None
        return torch.from_numpy(found).reshape(place.shape)


def _form(kind: int) -> str:
    if kind not in NUMBERS:
        raise ValueError(f"it has a value of kind {kind}, which there is not")
    return NUMBERS[kind]


def _format(kind: int) -> tuple[Callable[[np.ndarray], np.ndarray], int, int]:
    """(blocks of bytes -> numbers, numbers of a block, bytes of a block)."""
    try:
        # Imported here: an extra.
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
    except ImportError:
        raise EngineError("reading a GGUF needs the package `gguf`: run `pip install 'openk2[judge]'`") from None
    found = GGMLQuantizationType(kind)
    block, size = GGML_QUANT_SIZES[found]
    if found == GGMLQuantizationType.F32:
        return (lambda flat: flat.copy().view(np.float32)), block, size
    return (lambda flat: quants.dequantize(flat, found)), block, size
