"""Pairs of a text and a faithful rewrite of it: the shipped ones and a user's own, read and checked.

A file is JSON Lines, one object a line: `id`, `domain`, `language`, `style`, `source`, `rewrite`. Two sets are shipped:
`asked`, rewrites that answer the prompt the stage sends; `free`, faithful rewrites that follow no rule and
say numbers and denials in other words as they please.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import xxhash
from pydantic import Field, ValidationError

from model import storage
from model.config import Config
from tasks.rephrase.prompts import styles

SHIPPED = Path(__file__).with_name("pairs")
SETS = ("asked", "free")
"""Folders of SHIPPED, each the name of a set."""

Half = Literal["tune", "test"]


class PairsError(ValueError):
    """A file of pairs that cannot be used; the message says where and why."""


class TruePair(Config):
    """A text and a rewrite that a careful reader calls faithful and complete."""

    id: str = Field(min_length=1)
    """Unlike every other's, such as `asked/pages-007`; says which half the pair belongs to."""
    domain: str = Field(min_length=1)
    """What the text is about, such as `knowledge` or `math`; added sentences come from the same one."""
    language: str = Field(min_length=2)
    """Language of both texts, such as `en`."""
    style: str = Field(min_length=1)
    """The style of the rewrite: its length band and whether it may add formulas hold here too."""
    source: str = Field(min_length=1)
    """The text."""
    rewrite: str = Field(min_length=1)
    """Its rewrite."""

    @property
    def half(self) -> Half:
        """Thresholds are chosen on one half and reported on the other; a document is never in both."""
        return half(self.id)


SEEN = "tune-"
"""What the ids of pairs begin with that were read while checks were written: they cannot test them."""


def half(identity: str) -> Half:
    """Which half a pair belongs to, by a hash of its document: what stands behind the last slash of its id, so that all
    rewrites of one source are in the same half."""
    document = identity.rpartition("/")[2]
    if document.startswith(SEEN):
        return "tune"
    return "tune" if xxhash.xxh3_64_intdigest(document.encode()) % 2 == 0 else "test"


def load(locations: Sequence[str] = ()) -> list[TruePair]:
    """The pairs of every set or file named (SETS, paths, globs or fsspec URLs), or all shipped ones; in order of their
    ids.

    Raises PairsError, naming file and line, where one cannot be read, is no pair or has another's id.
    """
    found: dict[str, tuple[TruePair, str]] = {}
    for path in _files(locations):
        for number, line in enumerate(_lines(path), 1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            pair = _parse(line, place)
            if pair.id in found:
                raise PairsError(f"{place}: the id '{pair.id}' stands in {found[pair.id][1]} too; give it its own")
            found[pair.id] = (pair, place)
    if not found:
        raise PairsError(f"no pairs in {', '.join(locations) or SHIPPED}: name a JSONL file that has some")
    return [found[identity][0] for identity in sorted(found)]


def _files(locations: Sequence[str]) -> Iterable[str]:
    files: list[str] = []
    for location in locations or SETS:
        if location in SETS:
            files += map(str, sorted((SHIPPED / location).glob("*.jsonl")))
        elif "*" not in location:
            files.append(location)
        else:
            files += storage.matching(location)
    return files


def _lines(path: str) -> list[str]:
    try:
        return storage.read(path).decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise PairsError(f"{path} is no UTF-8 text (byte {error.start}): save it as UTF-8") from None
    except (OSError, ValueError) as error:
        raise PairsError(f"{path} cannot be read: {error}") from None


def _parse(line: str, place: str) -> TruePair:
    try:
        row: Any = json.loads(line)
    except json.JSONDecodeError as error:
        raise PairsError(f"{place}: no JSON ({error.msg} at column {error.colno})") from None
    if not isinstance(row, dict):
        raise PairsError(f"{place}: a pair is an object with id, domain, language, style, source and rewrite")
    try:
        pair = TruePair(**row)
    except (ValidationError, TypeError) as error:
        problems = error.errors() if isinstance(error, ValidationError) else []
        told = "; ".join(f"`{'.'.join(map(str, p['loc']))}`: {p['msg'].lower()}" for p in problems) or str(error)
        raise PairsError(f"{place}: {told}") from None
    if pair.style not in styles():
        raise PairsError(f"{place}: there is no style '{pair.style}'; there are {', '.join(styles())}")
    if not pair.source.strip() or not pair.rewrite.strip():
        raise PairsError(f"{place}: source and rewrite must hold text")
    return pair
