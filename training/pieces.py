"""Tensors cut along their first dimension: which rank writes which piece, and whether pieces make up whole tensors.

In a file a piece has its tensor's name where it is all of it, else `NAME/FIRST`: FIRST is where it begins in the whole.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

T = TypeVar("T", bound=Hashable)
Cuts = Mapping[str, tuple[int, int]]
"""Name -> (first, total) of the tensors of which a rank holds the slices from `first` on, of `total`."""
SHOWN = 8  # names that an error spells out for each kind of fault


class Piece(NamedTuple):
    """Consecutive slices of a tensor's first dimension."""

    name: str
    shape: tuple[int, ...]
    """That of the whole tensor."""
    dtype: str
    """As torch calls it."""
    first: int
    length: int

    @property
    def key(self) -> str:
        """Its name in a file."""
        return self.name if self.is_whole else f"{self.name}/{self.first}"

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor."""
        return self.length == _rows(self.shape)

    @property
    def bytes(self) -> int:
        """Its size."""
        return self.length * math.prod(self.shape[1:]) * getattr(torch, self.dtype).itemsize


Index = dict[str, list[tuple[Piece, str]]]
"""Name -> its pieces in order, each with the name of the file that holds it."""


def pieces_of(tensors: Mapping[str, Tensor], cuts: Cuts | None = None) -> list[Piece]:
    """What `tensors` are, those in `cuts` being parts of longer ones."""
    pieces = []
    for name, tensor in tensors.items():
        length = _rows(tensor.shape)
        first, total = (cuts or {}).get(name, (0, length))
        shape = (total, *tensor.shape[1:]) if tensor.ndim else ()
        pieces.append(Piece(name, shape, str(tensor.dtype).removeprefix("torch."), first, length))
    return pieces


def share_out(held: Sequence[Sequence[Piece]]) -> list[list[Piece]]:
    """What each rank writes where rank r holds `held[r]`: every distinct piece once, the bytes as even as can be."""
    holders: dict[Piece, list[int]] = {}
    for rank, pieces in enumerate(held):
        for piece in pieces:
            holders.setdefault(piece, []).append(rank)
    return spread({piece: piece.bytes for piece in holders}, holders, len(held))


def spread(sizes: Mapping[T, int], holders: Mapping[T, Sequence[int]] | None, ranks: int) -> list[list[T]]:
    """Things given to ranks, the largest first, each to the one with the least so far of its `holders` (or of all)."""
    shares: list[list[T]] = [[] for _ in range(ranks)]
    load = [0] * ranks
    for thing in sorted(sizes, key=lambda thing: (-sizes[thing], thing)):  # type: ignore[type-var]
        rank = min(range(ranks) if holders is None else holders[thing], key=lambda rank: (load[rank], rank))
        shares[rank].append(thing)
        load[rank] += sizes[thing]
    return shares


def file_names(stem: str, shares: Sequence[Sequence[Piece]]) -> list[str | None]:
    """Each rank's file, or None: `STEM-0-of-4.safetensors`, or `STEM.safetensors` where one rank writes all."""
    count, names = sum(map(bool, shares)), iter(range(len(shares)))
    return [
        None if not share else f"{stem}.safetensors" if count == 1 else f"{stem}-{next(names)}-of-{count}.safetensors"
        for share in shares
    ]


def index_of(files: Mapping[str, Iterable[Piece]]) -> Index:
    """The index of files by what they hold."""
    rows = sorted((piece, file) for file, pieces in files.items() for piece in pieces)
    return {name: list(group) for name, group in groupby(rows, key=lambda row: row[0].name)}


def index_record(index: Index) -> dict[str, Any]:
    """An index as JSON has it."""
    return {
        name: {
            "shape": list(rows[0][0].shape),
            "dtype": rows[0][0].dtype,
            "pieces": [[piece.first, piece.length, file] for piece, file in rows],
        }
        for name, rows in index.items()
    }


def read_index(record: Mapping[str, Any]) -> Index:
    """The index that `index_record` wrote. Raises `KeyError`, `TypeError` or `ValueError` for what is none."""
    return {
        name: [
            (Piece(name, tuple(entry["shape"]), entry["dtype"], first, length), file)
            for first, length, file in entry["pieces"]
        ]
        for name, entry in record.items()
    }


def faults(index: Index, wanted: Mapping[str, Sequence[int]] | None = None) -> str:
    """What is wrong with `index`: pieces that overlap, leave gaps or belong to different shapes; and, beside the
    tensors of `wanted` (name -> shape), names that are missing or unknown and other shapes. Empty where all is well."""
    found: dict[str, list[str]] = {"missing": [name for name in wanted or {} if name not in index]}
    for name, rows in index.items():
        pieces = [piece for piece, _ in rows]
        shapes = {piece.shape for piece in pieces}
        if wanted is not None and name not in wanted:
            found.setdefault("unknown", []).append(name)
        elif len(shapes) > 1 or len({piece.dtype for piece in pieces}) > 1:
            kinds = sorted({f"{piece.dtype} {piece.shape}" for piece in pieces})
            found.setdefault("given differently by different ranks", []).append(f"{name} ({', '.join(kinds)})")
        elif wanted is not None and pieces[0].shape != tuple(wanted[name]):
            shape = f"{name} {pieces[0].shape} for {tuple(wanted[name])}"
            found.setdefault("of another shape", []).append(shape)
        else:
            ends = [0, *(piece.first + piece.length for piece in pieces)]
            starts = [*(piece.first for piece in pieces), _rows(pieces[0].shape)]
            if any(start < end for start, end in zip(starts, ends, strict=True)):
                found.setdefault("with overlapping pieces", []).append(name)
            elif starts != ends:
                found.setdefault("with missing pieces", []).append(name)
    return "; ".join(
        f"{len(names)} {fault}: {', '.join(names[:SHOWN])}{', ...' if len(names) > SHOWN else ''}"
        for fault, names in found.items()
        if names
    )


def _rows(shape: Sequence[int]) -> int:
    return shape[0] if shape else 1
