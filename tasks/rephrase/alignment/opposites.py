"""No word turned into its opposite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from tasks.rephrase.alignment.pair import CODE, FORMULA, HAN, LETTERS, Pair, Verdict
from tasks.rephrase.config import AlignmentConfig

LISTS = Path(__file__).with_name("opposites.yaml")


@dataclass(frozen=True)
class Axis:
    """Two poles, and which words may be turned into which."""

    poles: tuple[frozenset[str], frozenset[str]]
    turns: frozenset[tuple[str, str]]
    """(lost, found), both ways."""


def opposites(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No word was turned into its opposite (`increases` lost, `decreases` found, and nothing else that explains it)."""
    before, after = _words(pair.source), _words(pair.rewrite)
    lost, found = before - after, after - before
    for axis in _axes():
        for poles in (axis.poles, axis.poles[::-1]):
            for old, new in _turned(lost, found, *poles):
                if (old, new) in axis.turns:
                    return Verdict("opposites", 0.0, False, f"'{old}' became '{new}'")
    return Verdict("opposites", 1.0, True)


def _turned(
    lost: Counter[str], found: Counter[str], left: frozenset[str], entered: frozenset[str]
) -> Iterator[tuple[str, str]]:
    """(word lost from the pole `left`, word found of the pole `entered`), unless words of the same poles explain it."""
    old, new = sorted(lost.keys() & left), sorted(found.keys() & entered)
    if lost.keys() & entered or found.keys() & left:
        return
    yield from ((one, other) for one in old for other in new)


def _words(text: str) -> Counter[str]:
    text = CODE.sub(" ", FORMULA.sub(" ", text)).lower().replace("’", "'")
    words = Counter(LETTERS.findall(text))
    if HAN.search(text):
        words.update({word: text.count(word) for word in _chinese() if word in text})
    return words


@cache
def _axes() -> tuple[Axis, ...]:
    read = yaml.safe_load(LISTS.read_text(encoding="utf-8"))
    broad = [_axis(one, other, zip(one, other, strict=False)) for one, other in read["axes"]]
    narrow = [_axis(axis["poles"][0], axis["poles"][1], axis["turns"]) for axis in read["narrow"]]
    return (*broad, *narrow)


def _axis(one: Iterable[str], other: Iterable[str], turns: Iterable[Sequence[str]]) -> Axis:
    both = [(old, new) for old, new in turns]
    return Axis((frozenset(one), frozenset(other)), frozenset([*both, *((new, old) for old, new in both)]))


@cache
def _chinese() -> tuple[str, ...]:
    return tuple(sorted(word for axis in _axes() for pole in axis.poles for word in pole if HAN.search(word)))
