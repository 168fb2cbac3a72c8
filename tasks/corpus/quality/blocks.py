"""What stands between the words: code in fences and displayed formulas, which are judged by other means."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

FENCES = ("```", "~~~")
_MARK = re.compile(r"```|~~~|\$\$")
INDENT_MAX = 16
"""Blanks before a fence, which stands in an item of a list. Ours."""
_REST = re.compile(r"[ \t]*(?:\n|\Z)")


def outside(text: str, formulas: bool = True) -> str:
    """`text` with every closed fence and, with `formulas`, every displayed formula replaced by an empty line. Time is
    linear in the text, whatever stands in it."""
    pieces, at = [], 0
    for begin, end in blocks(text):
        if not formulas and text[begin] == "$":
            continue
        pieces.append(text[at:begin])
        at = end
    return "\n".join([*pieces, text[at:]])


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of each block, in order. A fence is opened by ``` or ~~~ at the beginning of a line, which may be
    indented, and closed by a line of nothing else; a formula is opened by $$ at the beginning of a line and closed by
    $$ at the end of one. A mark that opens and never closes is none."""
    if not any(mark in text for mark in (*FENCES, "$$")):
        return
    openers: list[tuple[int, str]] = []
    closers: dict[str, list[int]] = {"```": [], "~~~": [], "$$": []}
    line = before = 0
    for found in _MARK.finditer(text):
        begin, mark = found.start(), found.group()
        line, before = max(line, text.rfind("\n", before, begin) + 1), begin
        leads = begin == line or (mark in FENCES and begin - line <= INDENT_MAX and not text[line:begin].strip(" \t"))
        if leads:
            openers.append((line, mark))
        if (leads or mark == "$$") and _REST.match(text, begin + len(mark)):
            closers[mark].append(begin)
    at = 0
    for begin, mark in openers:
        if begin < at:
            continue
        closed = bisect_left(closers[mark], text.index(mark, begin) + len(mark))
        if closed < len(closers[mark]):
            at = closers[mark][closed] + len(mark)
            yield begin, at


def holding(at: int, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The block of `spans`, in order, that a place lies in."""
    place = bisect_right(spans, at, key=lambda span: span[1])
    return spans[place] if place < len(spans) and spans[place][0] <= at else None
