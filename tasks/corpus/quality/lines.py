"""C4's line rules: what each line of prose measures, and the text without what they refuse."""

from __future__ import annotations

import re

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import SPACE, classes, codepoints
from tasks.corpus.quality.blocks import blocks, holding
from tasks.corpus.quality.measures import LINE

NAMES = tuple(LINE)
"""The columns of `measure`."""
_TERMINAL, _WORDS, _LONGEST, _JAVASCRIPT, _POLICY, CITATIONS = range(len(NAMES))
_PHRASES = (
    ("javascript", _JAVASCRIPT),
    # C4's released code
    ("terms of use", _POLICY),
    ("privacy policy", _POLICY),
    ("cookie policy", _POLICY),
    ("uses cookies", _POLICY),
    ("use of cookies", _POLICY),
    ("use cookies", _POLICY),
)
_CITATION = re.compile(r"\[\d*\]|\[edit\]|\[citation needed\]")
_ENDS = np.array([ord(character) for character in ".!?\"'”’"], np.uint32)
_NEWLINE, _DOT = ord("\n"), ord(".")


def measure(text: str) -> tuple[np.ndarray, np.ndarray]:
    """(numbers float64 [lines, NAMES], prose bool [lines]): all lines, and which are prose: not blank and in no block.
    Citation marks are not counted here."""
    points = codepoints(text)
    table = np.zeros((text.count("\n") + 1, len(NAMES)))
    _shapes(points, classes(), _ENDS, table)
    prose = table[:, _WORDS] > 0
    if covered := list(blocks(text)):
        starts = np.concatenate([[0], np.flatnonzero(points == _NEWLINE) + 1])
        for begin, end in covered:
            first, last = np.searchsorted(starts, [begin, end - 1], side="right") - 1
            prose[first : last + 1] = False
    lower = text.lower()
    for phrase, column in _PHRASES:
        line, before, at = 0, 0, lower.find(phrase)
        while at >= 0:
            line += lower.count("\n", before, at)
            table[line, column] += 1
            before, at = at, lower.find(phrase, at + len(phrase))
    return table, prose


def without_citations(text: str, most: float) -> tuple[str, dict[int, int]]:
    """The text whose lines of prose with more than `most` citation marks have lost them, and how many marks each line
    had that had any."""
    covered = list(blocks(text)) if "[" in text else []
    counts: dict[int, int] = {}
    line, before = 0, 0
    for found in _CITATION.finditer(text) if "[" in text else ():
        if holding(found.start(), covered):
            continue
        line += text.count("\n", before, found.start())
        before = found.start()
        counts[line] = counts.get(line, 0) + 1
    if not any(count > most for count in counts.values()):
        return text, counts
    lines = text.split("\n")
    for number, count in counts.items():
        if count > most:
            lines[number] = _CITATION.sub("", lines[number])
    return "\n".join(lines), counts


@compiled
def _shapes(points, classes, ends, table):  # type: ignore[no-untyped-def]
    """Whether a line ends as a sentence and is not cut off, its words, the characters of its longest word."""
    line, length, last = 0, 0, -1
    for at in range(len(points) + 1):
        over = at == len(points) or points[at] == _NEWLINE
        if over or classes[points[at]] & SPACE:
            if length:
                table[line, _WORDS] += 1
                table[line, _LONGEST] = max(table[line, _LONGEST], length)
            length = 0
        else:
            length += 1
            last = at
        if over:
            if last >= 0:
                cut = points[last] == _DOT and last >= 2 and points[last - 1] == _DOT and points[last - 2] == _DOT
                for end in ends:
                    if points[last] == end and not cut:
                        table[line, _TERMINAL] = 1
            line += 1
            last = -1
