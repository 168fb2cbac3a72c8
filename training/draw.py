"""Draws and names by hash: the same everywhere, whatever the order, the partitions or the workers."""

from __future__ import annotations

import hashlib
from typing import Any

import xxhash


def draw(purpose: str, seed: int, name: str) -> float:
    """A number in [0, 1) that belongs to (purpose, seed, name): the same everywhere, independent between purposes."""
    return xxhash.xxh3_64_intdigest(f"{purpose}\0{seed}\0{name}".encode()) / 2**64


def problem_id(*key: int | str) -> str:
    """16 hex digits that name a problem, whatever its phrasing."""
    return hashlib.sha256("\x1f".join(map(str, key)).encode()).hexdigest()[:16]


def seeded(*parts: Any) -> int:
    """A 63-bit seed from what names a draw: independent streams without shared state."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "little") >> 1
