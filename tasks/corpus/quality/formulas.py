"""One pass over a mathematical text: its formulas, whether they are whole, and what recognition left between them."""

from __future__ import annotations

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import DIGIT, LETTER, PUNCTUATION, SPACE

COUNTS = ("visible", "in_formulas", "formulas", "broken", "words", "garbled_words")
"""What `scan` counts, in the order of its array."""
VISIBLE, IN_FORMULAS, FORMULAS, BROKEN, WORDS, GARBLED_WORDS = range(len(COUNTS))

_NEWLINE, _DOLLAR, _BACKSLASH, _OPEN, _CLOSE, _BACKTICK = 10, 36, 92, 123, 125, 96
_DELIMITERS = (40, 91)  # ( and [ after a backslash; ) and ] close
# A word that goes to and fro between letters and other signs so often is what recognition makes of a formula. Ours.
_TURNS = 4


@compiled
def scan(points, classes):  # type: ignore[no-untyped-def]
    """counts int64 [COUNTS] of a text, uint32 [characters]: visible characters, those within formulas, formulas, those
    that are broken (an opening mark without its closing one in the paragraph, unbalanced braces), words outside
    formulas and the garbled ones among them."""
    size = len(points)
    counts = np.zeros(len(COUNTS), np.int64)
    length, turns, before = 0, 0, 0
    # up to where it is known that no closing mark of a kind comes: $, $$, \\(, \\[
    none = np.zeros(4, np.int64)
    at = 0
    while at < size:
        point = points[at]
        end, whole = at, True
        if point == _BACKSLASH and at + 1 < size:
            follower = points[at + 1]
            if follower == _DELIMITERS[0]:
                end, whole = _formula(points, at, 2, none)
            elif follower == _DELIMITERS[1]:
                end, whole = _formula(points, at, 3, none)
            elif follower in (_DOLLAR, _BACKSLASH):
                counts[VISIBLE] += 2
                at += 2
                continue
        elif point == _BACKTICK:
            # code within a line: its signs are no formula's
            close = at + 1
            while close < size and points[close] != _BACKTICK and points[close] != _NEWLINE:
                close += 1
            if close < size and points[close] == _BACKTICK:
                for place in range(at, close + 1):
                    counts[VISIBLE] += classes[points[place]] & SPACE == 0
                at = close + 1
                continue
        elif point == _DOLLAR:
            double = at + 1 < size and points[at + 1] == _DOLLAR
            opens = at + 1 < size and not classes[points[at + 1]] & SPACE
            price = not double and at + 1 < size and classes[points[at + 1]] & DIGIT != 0
            if double or opens:
                end, whole = _formula(points, at, 1 if double else 0, none)
                if price and end == at:
                    whole = True
        if end > at or not whole:
            counts[FORMULAS] += 1
            counts[BROKEN] += not whole
        if end > at:
            for place in range(at, end):
                inside = not classes[points[place]] & SPACE
                counts[VISIBLE] += inside
                counts[IN_FORMULAS] += inside
            at = end
            length, turns = 0, 0
            continue
        if point == _DOLLAR and not whole and points[at + 1] == _DOLLAR:
            counts[VISIBLE] += 2
            at += 2
            continue
        kind = classes[point]
        if kind & SPACE:
            counts[WORDS] += length > 0
            counts[GARBLED_WORDS] += turns >= _TURNS
            length, turns = 0, 0
        else:
            counts[VISIBLE] += 1
            now = 1 if kind & LETTER else 2 if kind & DIGIT else 3 if kind & PUNCTUATION else 4
            # a path, a name with points or underscores, a word with hyphens goes to and fro, too
            joined = point == 45 or point == 46 or point == 47 or point == 95 or point == 58 or point == 39
            if length and now != before and not joined:
                turns += 1
            if not joined:
                before = now
            length += 1
        at += 1
    counts[WORDS] += length > 0
    counts[GARBLED_WORDS] += turns >= _TURNS
    return counts


@compiled
def _formula(points, opened, mark, none):  # type: ignore[no-untyped-def]
    """(where the formula ends whose opening mark stands at `opened`, whether it is whole); (opened, False) where no
    closing mark comes in its paragraph. `none` remembers failures, so that time is linear."""
    if opened < none[mark]:
        return opened, False
    size, depth, lowest = len(points), 0, 0
    at = opened + (1 if mark == 0 else 2)
    while at < size:
        point = points[at]
        following = points[at + 1] if at + 1 < size else np.uint32(0)
        if point == _BACKSLASH:
            if mark >= 2 and following == (41 if mark == 2 else 93):
                return at + 2, depth == 0 and lowest == 0
            at += 2
            continue
        if point == _NEWLINE and following == _NEWLINE:
            break
        if point == _DOLLAR and (mark == 0 or (mark == 1 and following == _DOLLAR)):
            return at + mark + 1, depth == 0 and lowest == 0
        if point == _OPEN:
            depth += 1
        elif point == _CLOSE:
            depth -= 1
            lowest = min(lowest, depth)
        at += 1
    none[mark] = at
    return opened, False
