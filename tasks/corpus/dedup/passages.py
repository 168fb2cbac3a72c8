"""Paragraphs and lines of a text as hashes of their words, and how they are cut out.

What may be removed is prose: blocks of lines between blank lines, and single lines, but neither headings nor rows of
tables nor anything in a fence of code or a displayed formula.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import Tokens
from tasks.corpus.dedup.config import PassagesConfig
from tasks.corpus.quality.blocks import blocks as covered
from tasks.corpus.quality.blocks import holding

PARAGRAPH, LINE = 0, 1
"""Kinds, kept in the lowest bit of a key."""
_WORD_CHARS = 1.7
_BLANK = " \t\n"
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xFF51AFD7ED558CCD)


@dataclass(frozen=True)
class Fingerprints:
    """F places in a batch of texts whose words are hashed."""

    keys: np.ndarray
    """uint64 [F]."""
    documents: np.ndarray
    """int64 [F]: index in the batch."""
    begins: np.ndarray
    """int32 [F], in characters."""
    ends: np.ndarray
    """int32 [F]."""


def blocks(text: str) -> list[list[tuple[int, int]]]:
    """The paragraphs of prose in a text, each as the (begin, end) of its lines."""
    found: list[list[tuple[int, int]]] = []
    block: list[tuple[int, int]] = []
    fences = [span for span in covered(text) if text[span[0]] != "$"]
    formula, at = "", 0
    for line in text.split("\n"):
        begin, at = at, at + len(line) + 1
        head = line.lstrip()
        prose = False
        if fences and holding(begin, fences):  # most texts have none
            pass
        elif not head:
            formula = ""  # no formula goes on over a blank line: the mark was none, such as the `$$` of a shell
        elif formula:
            if formula in line:
                formula = ""
        elif line.count("$$") % 2:
            formula = "$$"
        elif "\\[" in line and "\\]" not in line[line.rindex("\\[") :]:
            formula = "\\]"
        else:
            prose = head[0] != "#"
        if prose:
            block.append((begin, begin + len(line)))
        elif block:
            found.append(block)
            block = []
    if block:
        found.append(block)
    return found


def fingerprints(texts: Sequence[str], tokens: Tokens, config: PassagesConfig) -> Fingerprints:
    """Every paragraph and line that is long enough to be removed; a text given as "" has none."""
    units: list[tuple[int, int, int, int]] = []
    for document, text in enumerate(texts):
        for block in blocks(text):
            units.append((document, block[0][0], block[-1][1], PARAGRAPH))
            units += [(document, begin, end, LINE) for begin, end in block if "|" not in text[begin:end]]
    table = np.array(units, np.int64).reshape(-1, 4)
    keys, words = np.empty(len(table), np.uint64), np.empty(len(table), np.int64)
    _hash(table, tokens.hashes, tokens.starts, tokens.begins, keys, words)
    # A word has several characters, a Han character is one.
    words = np.minimum(words, ((table[:, 2] - table[:, 1]) / _WORD_CHARS).astype(np.int64))
    # A long line is a paragraph in all but its blank lines; where it is a block of its own it has been counted so.
    kinds = np.where(words >= config.paragraph_words_min, PARAGRAPH, LINE)
    alone = np.ones(len(table), bool)
    alone[1:] = (table[1:, :3] != table[:-1, :3]).any(1) | (table[1:, 3] != LINE)
    kept = np.where(kinds == PARAGRAPH, alone, (table[:, 3] == LINE) & (words >= config.line_words_min))
    keys = (keys & ~np.uint64(1)) | kinds.astype(np.uint64)
    return Fingerprints(keys[kept], table[kept, 0], table[kept, 1].astype(np.int32), table[kept, 2].astype(np.int32))


def cut(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text without some spans (begin, end), which may overlap: blank lines that meet are one, ends are trimmed."""
    ordered = sorted(spans)
    if not ordered:
        return text
    pieces, at = [], 0
    for begin, end in ordered:
        if begin > at:
            pieces.append(text[at:begin])
        at = max(at, end)
    pieces.append(text[at:])
    left: list[str] = []
    gap = ""
    for piece in pieces:
        body = piece.strip(_BLANK)
        if not body:
            gap += piece
            continue
        begin = piece.index(body)
        gap += piece[:begin]
        before, newline, indent = gap.rpartition("\n")
        if newline:
            left += ["\n" * min(before.count("\n") + 1, 2) if left else "", indent]
        else:
            left.append(gap[:1] if left else "")
        left.append(body)
        gap = piece[begin + len(body) :]
    return "".join(left)


def sentences(text: str, begin: int, end: int) -> list[tuple[int, int]]:
    """(begin, end) of the sentences of prose that lie wholly within a span, line by line; punctuation at their ends
    need not."""
    found = []
    for block in blocks(text):
        for first, stop in block:
            if stop <= begin or first >= end:
                continue
            at = first
            for match in _SENTENCE_END.finditer(text, first, stop):
                found.append((at, match.end()))
                at = match.end()
            if at < stop:
                found.append((at, stop))
    return [span for span in found if _covered(text, *span, begin, end)]


_SENTENCE_END = re.compile(r"[.!?]['\")\]]{0,3}\s+|[。！？]['”’」』）]{0,3}\s*")


def _covered(text: str, first: int, stop: int, begin: int, end: int) -> bool:
    while first < stop and not text[first].isalnum():
        first += 1
    while stop > first and not text[stop - 1].isalnum():
        stop -= 1
    return first < stop and begin <= first and stop <= end


@compiled
def _hash(units, hashes, starts, places, keys, words):  # type: ignore[no-untyped-def]
    """Hashes of the tokens of units (document, begin, end, kind), which are in order of their documents."""
    for at in range(len(units)):
        low, stop = starts[units[at, 0]], starts[units[at, 0] + 1]
        high = stop
        while low < high:
            middle = (low + high) // 2
            if places[middle] < units[at, 1]:
                low = middle + 1
            else:
                high = middle
        value, count = _ODD, 0
        while low < stop and places[low] < units[at, 2]:
            value = (value ^ hashes[low]) * _MIX
            value ^= value >> np.uint64(31)
            low += 1
            count += 1
        keys[at] = value * _ODD
        words[at] = count
