"""What stands between the words: code in fences and displayed formulas, which are judged by other means."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence

_MARK = re.compile(r"```|\$\$")
_REST = re.compile(r"[ \t]*(?:\n|\Z)")


def outside(text: str, formulas: bool = True) -> str:
    """`text` with every closed fence and, with `formulas`, every displayed formula replaced by an empty line. Time is
    linear in the text, whatever stands in it."""
    if "```" not in text and not (formulas and "$$" in text):
        return text
    pieces, at = [], 0
    for begin, end in blocks(text):
        if not formulas and text[begin] == "$":
            continue
        pieces.append(text[at:begin])
        at = end
    return "\n".join([*pieces, text[at:]])


def blocks(text: str) -> Iterator[tuple[int, int]]:
    """(begin, end) of each block, in order. A fence is opened by ``` at the beginning of a line and closed by a line of
    nothing else; a formula is opened by $$ at the beginning of a line and closed by $$ at the end of one. A mark that
    opens and never closes is none."""
    openers: list[tuple[int, str]] = []
    closers: dict[str, list[int]] = {"```": [], "$$": []}
    for found in _MARK.finditer(text):
        begin, mark = found.start(), found.group()
        leads = begin == 0 or text[begin - 1] == "\n"
        if leads:
            openers.append((begin, mark))
        if (leads or mark == "$$") and _REST.match(text, begin + len(mark)):
            closers[mark].append(begin)
    at = 0
    for begin, mark in openers:
        if begin < at:
            continue
        closed = bisect_left(closers[mark], begin + len(mark))
        if closed < len(closers[mark]):
            at = closers[mark][closed] + len(mark)
            yield begin, at


def holding(at: int, spans: Sequence[tuple[int, int]]) -> tuple[int, int] | None:
    """The block of `spans`, in order, that a place lies in."""
    place = bisect_right(spans, at, key=lambda span: span[1])
    return spans[place] if place < len(spans) and spans[place][0] <= at else None
