"""What every corruption is made of: changes of spans, places that must not be touched, and draws that depend on the
pair alone."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import xxhash
import yaml

from tasks.rephrase.alignment.pair import CODE, FORMULA, URL
from tasks.rephrase.segments import protected
from tasks.rephrase.structure import merge

WORDS = Path(__file__).with_name("words.yaml")

Span = tuple[int, int]


@dataclass(frozen=True)
class Change:
    """A corruption of one text: spans replaced, and in words what was done."""

    edits: tuple[tuple[int, int, str], ...]
    """(start, end, what stands there afterwards), not overlapping, in any order."""
    why: str
    """For a person: `'1666' became '1668'`."""

    def apply(self, text: str) -> str:
        for start, end, new in sorted(self.edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text


@dataclass(frozen=True)
class Pool:
    """What the other documents of a set have to offer, by what it must fit: names by shape, sentences by domain."""

    names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Shape (naming.shape) -> names of all documents, in order."""
    sentences: Mapping[str, Sequence[tuple[str, str]]] = field(default_factory=dict)
    """`domain language` -> (id of the document, sentence)."""
    literals: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Shape (formal.literal_shape) -> code spans, options, paths."""


@dataclass(frozen=True)
class Text:
    """The text that is corrupted, what it was written from, and who asks."""

    id: str
    source: str
    rewrite: str
    domain: str = "knowledge"
    language: str = "en"
    style: str = "plain"
    adds: bool = False
    """Whether the style adds steps of its own, which nothing can be held against."""


def replaced(text: str, span: Span, new: str) -> Change:
    """One span replaced."""
    return Change(((*span, new),), f"'{text[slice(*span)]}' became '{new}'")


def draw(*parts: object) -> int:
    """64 bits that depend on everything named."""
    return xxhash.xxh3_64_intdigest("\x1f".join(map(str, parts)).encode())


def pick(options: Sequence[str], *parts: object) -> str:
    """One of `options`, the same for the same parts, however many other options there are besides."""
    return min(options, key=lambda option: (draw(*parts, option), option))


def shuffled(changes: Iterable[Change], *parts: object) -> list[Change]:
    """In an order that depends on the parts and each change alone."""
    return sorted(changes, key=lambda change: (draw(*parts, change.edits), change.edits))


def literal_spans(text: str) -> list[Span]:
    """Formulas, code and URLs: no change of words may enter them."""
    patterns = (match.span() for pattern in (FORMULA, CODE, URL) for match in pattern.finditer(text))
    return merge([*protected(text), *patterns])


def outside(spans: Sequence[Span], start: int, end: int) -> bool:
    """Whether [start, end) touches none of `spans` (ascending, apart)."""
    place = bisect_right(spans, (start, float("inf"))) - 1
    return (place < 0 or spans[place][1] <= start) and (place + 1 >= len(spans) or spans[place + 1][0] >= end)


def sentence_at(text: str, place: int) -> str:
    """The sentence around `place`, roughly: to the nearest full stop or line break on either side."""
    begin = max((match.end() for match in re.finditer(r"[.!?][*_\"'”’)]*\s+|[。！？\n]", text[:place])), default=0)
    end = re.search(r"[.!?](?=[*_\"'”’)]*(?:\s|$))|[。！？\n]", text[place:])
    return text[begin : place + end.end() if end else len(text)]


def cased(new: str, old: str) -> str:
    """`new` with a capital where `old` has one."""
    return new[0].upper() + new[1:] if old[:1].isupper() else new


@cache
def lists() -> dict[str, Any]:
    """The word lists of words.yaml."""
    return yaml.safe_load(WORDS.read_text(encoding="utf-8"))
