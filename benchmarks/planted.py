"""Planted near duplicates: copies of texts with a known share of edits, for measuring recall and precision.

Pure functions of texts and a seed; every edit has a name, and a share of the units that it changes:
- substitute, delete, insert: that share of the words, at random places (words come from the text itself);
- replace: one run of that share of the words, by other words of the text;
- reorder: that share of the sentences change places with others.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)
"""Shares of edits that a copy may have."""


@dataclass(frozen=True)
class Copy:
    """One planted text."""

    text: str
    original: int
    """Index of the text it was made of."""
    edit: str
    share: float


def planted(texts: Sequence[str], copies: int, seed: int, shares: Sequence[float] = SHARES) -> list[Copy]:
    """`copies` edited copies of texts drawn without repetition (with it, once all have been drawn); edits and shares
    take turns, so that each combination is as frequent as any other."""
    pick = random.Random(f"planted {seed}")
    combinations = [(edit, share) for edit in EDITS for share in shares]
    order: list[int] = []
    while len(order) < copies:
        order += pick.sample(range(len(texts)), len(texts))
    found = []
    for number, original in enumerate(order[:copies]):
        edit, share = combinations[number % len(combinations)]
        text = EDITS[edit](texts[original], share, random.Random(f"{seed} {number}"))
        found.append(Copy(text, original, edit, share))
    return found


def jaccard(one: str, other: str, ngram: int = 5) -> float:
    """Similarity of two texts as sets of word n-grams, straight from the definition."""
    sets = []
    for text in (one, other):
        words = re.findall(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+", text.lower())
        sets.append({tuple(words[at : at + ngram]) for at in range(max(len(words) - ngram + 1, 1))})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def _substitute(text: str, share: float, pick: random.Random) -> str:
    words, places = _units(text)
    for at in _chosen(places, share, pick):
        words[at] = words[pick.choice(places)]
    return "".join(words)


def _delete(text: str, share: float, pick: random.Random) -> str:
    words, places = _units(text)
    for at in _chosen(places, share, pick):
        words[at] = ""
    return "".join(words)


def _insert(text: str, share: float, pick: random.Random) -> str:
    words, places = _units(text)
    new = [words[pick.choice(places)] for _ in places]
    for at in _chosen(places, share, pick):
        words[at] += " " + new.pop()
    return "".join(words)


def _replace(text: str, share: float, pick: random.Random) -> str:
    words, places = _units(text)
    count = round(share * len(places))
    first = pick.randrange(len(places) - count + 1)
    for at in places[first : first + count]:
        words[at] = words[pick.choice(places)]
    return "".join(words)


def _reorder(text: str, share: float, pick: random.Random) -> str:
    sentences = re.split(r"(?<=[.!?])(?=\s)|(?<=[。！？])", text)
    moved = sorted(pick.sample(range(len(sentences)), min(len(sentences), max(2, round(share * len(sentences))))))
    for to, source in zip(moved, [sentences[at] for at in [*moved[1:], moved[0]]], strict=True):
        sentences[to] = source
    return "".join(sentences)


def _units(text: str) -> tuple[list[str], list[int]]:
    """The text in pieces, and which of them are words (single characters of Chinese)."""
    pieces = re.split(r"([\u3400-\u4dbf\u4e00-\u9fff]|[^\s\u3400-\u4dbf\u4e00-\u9fff]+)", text)
    places = list(range(1, len(pieces), 2))
    if not places:
        raise ValueError("a text without a word has nothing to edit: draw from texts with words")
    return pieces, places


def _chosen(places: list[int], share: float, pick: random.Random) -> list[int]:
    return pick.sample(places, max(1, round(share * len(places))))


EDITS: dict[str, Callable[[str, float, random.Random], str]] = {
    "substitute": _substitute,
    "delete": _delete,
    "insert": _insert,
    "replace": _replace,
    "reorder": _reorder,
}
