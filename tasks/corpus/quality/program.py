"""One pass over a program or data file: its lines, its letters, its comments and the binary data spelled out in it."""

from __future__ import annotations

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import DIGIT, LETTER, SPACE

COUNTS = (
    "characters", "lines", "filled_lines", "longest", "letters", "alphanumerics", "blanks", "encoded",
    "encoded_longest", "comment_lines",
)  # fmt: skip
"""What `scan` counts, in the order of its array."""
(
    CHARACTERS, LINES, FILLED_LINES, LONGEST, LETTERS, ALPHANUMERICS, BLANKS, ENCODED,
    ENCODED_LONGEST, COMMENT_LINES,
) = range(len(COUNTS))  # fmt: skip

# StarCoder2 (arXiv 2402.19173, 2.1): runs of so many base64 characters, or so many spelled-out bytes or characters.
_BASE64_RUN, _UNIT_RUN = 64, 8
_NEWLINE, _BACKSLASH, _HASH, _SLASH, _STAR, _DASH, _SEMICOLON = 10, 92, 35, 47, 42, 45, 59
_X, _U, _ZERO, _COMMA, _PLUS, _EQUALS, _QUOTE, _APOSTROPHE = 120, 117, 48, 44, 43, 61, 34, 39


@compiled
def scan(points, classes):  # type: ignore[no-untyped-def]
    """counts int64 [COUNTS] of a text, uint32 [characters]."""
    size = len(points)
    counts = np.zeros(len(COUNTS), np.int64)
    counts[CHARACTERS] = size
    begin, first = 0, -1
    base64, base64_begin = 0, 0
    unit_end, units_end = 0, 0
    for at in range(size + 1):
        point = points[at] if at < size else np.uint32(_NEWLINE)
        kind = classes[point]
        if at < size:
            counts[LETTERS] += kind & LETTER != 0
            counts[ALPHANUMERICS] += kind & (LETTER | DIGIT) != 0
            counts[BLANKS] += kind & SPACE != 0
        # base64, which may go on over line ends
        if at < size and _is_base64(point):
            if base64 == 0:
                base64_begin = at
            base64 += 1
        else:
            if base64 >= _BASE64_RUN:
                covered = at - max(base64_begin, units_end)
                counts[ENCODED] += max(covered, 0)
                counts[ENCODED_LONGEST] = max(counts[ENCODED_LONGEST], base64)
                units_end = max(units_end, at)
            base64 = 0
        # bytes such as 0x1f, \x1f, 1f, and characters such as \u4e2d
        if at >= unit_end and (at == 0 or not classes[points[at - 1]] & (LETTER | DIGIT)):
            units, end = _units(points, at)
            unit_end = end
            if units >= _UNIT_RUN:
                counts[ENCODED] += max(end - max(at, units_end), 0)
                counts[ENCODED_LONGEST] = max(counts[ENCODED_LONGEST], end - at)
                units_end = max(units_end, end)
        if point == _NEWLINE:
            if at < size or begin < size:
                counts[LINES] += 1
                counts[LONGEST] = max(counts[LONGEST], at - begin)
            if first >= 0:
                counts[FILLED_LINES] += 1
                counts[COMMENT_LINES] += _is_comment(points, first, at)
            begin, first = at + 1, -1
        elif first < 0 and not kind & SPACE:
            first = at
    return counts


@compiled
def _is_base64(point):  # type: ignore[no-untyped-def]
    return (
        97 <= point <= 122 or 65 <= point <= 90 or 48 <= point <= 57 or point in (_PLUS, _SLASH, _EQUALS, _NEWLINE)
    )  # fmt: skip


@compiled
def _is_hex(point):  # type: ignore[no-untyped-def]
    return 48 <= point <= 57 or 97 <= point <= 102 or 65 <= point <= 70


@compiled
def _units(points, at):  # type: ignore[no-untyped-def]
    """(how many spelled-out bytes or characters stand in a row from `at`, where the last one ends)."""
    size, units, end = len(points), 0, at
    while at < size:
        start, digits, prefix = at, 2, False
        if at + 1 < size and points[at] == _BACKSLASH and (points[at + 1] == _X or points[at + 1] == _U):
            digits = 4 if points[at + 1] == _U else 2
            at, prefix = at + 2, True
        elif at + 1 < size and points[at] == _ZERO and points[at + 1] == _X:
            at, prefix = at + 2, True
        stop = at + digits
        if stop > size:
            break
        for place in range(at, stop):
            if not _is_hex(points[place]):
                return units, max(end, start)
        if stop < size and _is_hex(points[stop]):
            return units, max(end, start)
        units += 1
        at = end = stop
        gap = at
        while gap < size and gap - at < 8 and _is_gap(points[gap]):
            gap += 1
        if gap == at and not (gap < size and points[gap] == _BACKSLASH):
            break
        if gap == at and not prefix:
            break
        at = gap
    return units, end


@compiled
def _is_gap(point):  # type: ignore[no-untyped-def]
    return point in (_COMMA, _NEWLINE, _QUOTE, _APOSTROPHE) or point == 32 or point == 9


@compiled
def _is_comment(points, first, end):  # type: ignore[no-untyped-def]
    """Whether a line that begins at `first` is a comment: after #, //, /*, *, -- or ;. (#include is none.)"""
    mark = points[first]
    second = points[first + 1] if first + 1 < end else np.uint32(32)
    if mark == _HASH:
        return not (97 <= second <= 122)
    if mark == _SLASH:
        return second in (_SLASH, _STAR)
    if mark == _DASH:
        return second == _DASH
    return mark == _SEMICOLON or (mark == _STAR and (second == 32 or second in (_SLASH, _STAR)))
