"""The document as a whole, after its segments were joined: each may be faithful, and the whole still stammer.

A finding names the piece that is to blame, so that it can be taken back to its original.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.rephrase.alignment.answer import SCRIPTS
from tasks.rephrase.alignment.pair import CODE, FORMULA, HEADING, URL, words
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentences

FEWEST = 7
"""Words (CJK: characters) of a sentence that is not said twice by chance."""
SAID = 0.85
"""Share of two sentences' words in common, above which they are one."""
SHINGLE = 3
"""Words in a row by which sentences that may be the same are found."""
CROWD = 8
"""Sentences with a shingle beyond which it tells nothing."""
NUMBER = re.compile(r"(?<![\w.,])\d+(?:[.,]\d+)+(?![\w])|(?<![\w.,])\d{2,}(?![\w.,]*\d)")

NAMES = ("echoes", "displaced", "foreign")
"""The checks of a whole document."""


@dataclass(frozen=True)
class Piece:
    """One segment of the joined document."""

    source: str
    text: str
    rewritten: bool


@dataclass(frozen=True)
class Finding:
    """What one check says of the whole."""

    check: str
    score: float
    """0 is best."""
    passed: bool
    why: str = ""
    piece: int = -1
    """The rewritten piece to blame, -1 where there is none."""


def examine(pieces: Sequence[Piece], config: AlignmentConfig, translated: str = "") -> list[Finding]:
    """Every check of the joined document."""
    return [echoes(pieces, config), displaced(pieces, config), foreign(pieces, config, translated)]


def echoes(pieces: Sequence[Piece], config: AlignmentConfig) -> Finding:
    """Share of the document's sentences that say again what it has said, beyond those with which its source does."""
    told = [(number, sentence) for number, piece in enumerate(pieces) for sentence in sentences(piece.text)]
    own = len(list(_repeats([sentence for piece in pieces for sentence in sentences(piece.source)])))
    again = [told[place] for place in _repeats([sentence for _, sentence in told])]
    beyond = max(0, len(again) - own)
    score = beyond / max(len(told), 1)
    if score <= config.echoes:
        return Finding("echoes", score, True)
    guilty = [(number, sentence) for number, sentence in again if pieces[number].rewritten]
    number, sentence = guilty[-1] if guilty else (-1, again[-1][1])
    return Finding("echoes", score, False, f"the document says '{sentence[:80]}' again", number)


def displaced(pieces: Sequence[Piece], config: AlignmentConfig) -> Finding:
    """Share of the numbers and headings, of those that source and document each have once, that stand in another
    segment than in the source."""
    before, after = (_places(texts) for texts in ([p.source for p in pieces], [p.text for p in pieces]))
    both = sorted(before.keys() & after.keys())
    moved = [(after[anchor], anchor) for anchor in both if after[anchor] != before[anchor]]
    score = len(moved) / max(len(both), 1)
    if score <= config.displaced:
        return Finding("displaced", score, True)
    number, anchor = max(((n, a) for n, a in moved if pieces[n].rewritten), default=(-1, moved[-1][1]))
    return Finding("displaced", score, False, f"'{anchor[:60]}' stands in another segment than in the source", number)


def foreign(pieces: Sequence[Piece], config: AlignmentConfig, translated: str) -> Finding:
    """Share of a translated document's letters that are not those of English; code and tables that were kept count."""
    if not translated:
        return Finding("foreign", 0.0, True)
    text = "\n".join(URL.sub(" ", CODE.sub(" ", FORMULA.sub(" ", piece.text))) for piece in pieces)
    counts = {name: len(pattern.findall(text)) for name, pattern in SCRIPTS.items()}
    score = 1 - counts["Latin"] / max(sum(counts.values()), 1)
    why = f"{score:.0%} of the translated document's letters are not those of English"
    return Finding("foreign", score, score <= config.foreign, "" if score <= config.foreign else why)


def _repeats(found: Sequence[str]) -> Iterator[int]:
    """Which sentences say what one before them said; linear, but for what many sentences begin alike."""
    seen: dict[tuple[str, ...], list[int]] = defaultdict(list)
    bags: list[Counter[str]] = []
    for place, sentence in enumerate(found):
        told = [word.lower() for word in words(sentence)]
        bag = Counter(told)
        bags.append(bag)
        if len(told) < FEWEST:
            continue
        shingles = {tuple(told[start : start + SHINGLE]) for start in range(len(told) - SHINGLE + 1)}
        near = {other for shingle in shingles for other in seen[shingle]}
        if any((bag & bags[other]).total() >= SAID * max(bag.total(), bags[other].total()) for other in near):
            yield place
        for shingle in shingles:
            if len(seen[shingle]) < CROWD:
                seen[shingle].append(place)


def _places(texts: Sequence[str]) -> dict[str, int]:
    """The segment of every number and heading that occurs just once."""
    found: dict[str, list[int]] = defaultdict(list)
    for number, text in enumerate(texts):
        for anchor in [*NUMBER.findall(text), *(heading["text"] for heading in HEADING.finditer(text))]:
            found[anchor.strip().lower()].append(number)
    return {anchor: numbers[0] for anchor, numbers in found.items() if len(numbers) == 1}
