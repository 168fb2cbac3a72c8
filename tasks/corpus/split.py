"""Long texts cut into documents of a sensible size, at the borders that their author drew."""

from __future__ import annotations

import re
from itertools import pairwise

from tasks.corpus.quality.blocks import blocks

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_DEFINITION = re.compile(r"^(?=(?:@|def |class |async def |if __name__))", re.MULTILINE)


def split(text: str, limit: int, code: bool = False) -> list[str]:
    """Pieces of at most `limit` characters that together are `text` (white space at the cuts apart).

    Prose is cut before headings, code before top-level definitions; a section that is itself too long is cut at blank
    lines, then at lines, then anywhere. Neighbouring sections are kept together while they fit.
    """
    if len(text) <= limit:
        return [text] if text.strip() else []
    pieces: list[str] = []
    held = ""
    for section in _sections(text, code):
        if held and len(held) + len(section) > limit:
            pieces.append(held)
            held = ""
        if len(section) > limit:
            *whole, held = _cut(section, limit)
            pieces += whole
        else:
            held += section
    pieces.append(held)
    return [piece.strip("\n") for piece in pieces if piece.strip()]


def _sections(text: str, code: bool) -> list[str]:
    if code:
        borders = [found.start() for found in _DEFINITION.finditer(text)]
        borders = [at for at in borders if not _decorated(text, at)]
    else:
        # `# ` within a fence is a comment of a program, not a heading.
        spans = list(blocks(text))
        borders = [found.start() for found in _HEADING.finditer(text) if not _within(found.start(), spans)]
    cuts = [0, *borders, len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if end > start]


def _decorated(text: str, at: int) -> bool:
    """Whether the line before is a decorator, which belongs to the definition at `at`."""
    before = text.rfind("\n", 0, max(at - 1, 0)) + 1
    return at > 0 and text.startswith("@", before)


def _within(at: int, spans: list[tuple[int, int]]) -> bool:
    low, high = 0, len(spans)
    while low < high:
        middle = (low + high) // 2
        if spans[middle][1] <= at:
            low = middle + 1
        else:
            high = middle
    return low < len(spans) and spans[low][0] <= at


def _cut(section: str, limit: int) -> list[str]:
    """Pieces of one section: the last border of the best kind in the second half of each window."""
    pieces: list[str] = []
    start = 0
    while len(section) - start > limit:
        window = section[start : start + limit]
        end = limit
        for border in ("\n\n", "\n", "。", ". ", " "):
            found = window.rfind(border, limit // 2)
            if found > 0:
                end = found + len(border)
                break
        pieces.append(section[start : start + end])
        start += end
    return [*pieces, section[start:]]
