"""Long texts cut into documents of a sensible size, at the borders that their author drew."""

from __future__ import annotations

import re
from itertools import pairwise

from tasks.corpus.quality.blocks import FENCES, INDENT_MAX, blocks, holding

_HEADING = re.compile(r"^#{1,6} ", re.MULTILINE)
_OPENING_CHARS = 40
"""A longer line that opens a fence is not written again."""
_DEFINITION = re.compile(r"^(?=(?:@|def |class |async def |if __name__))", re.MULTILINE)


def split(text: str, limit: int, code: bool = False) -> list[str]:
    """Pieces of at most `limit` characters that together are `text` (white space at the cuts apart).

    Prose is cut before headings, code before top-level definitions; a section that is itself too long is cut at blank
    lines, then at lines, then anywhere, but before a fence or formula rather than in it. A fence that has to be cut is
    closed there and opened again, so that no piece takes its code for prose. Neighbouring sections are kept together
    while they fit.
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
            *whole, held = _cut(section, limit, [] if code else list(blocks(section)))
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
        borders = [found.start() for found in _HEADING.finditer(text) if not holding(found.start(), spans)]
    cuts = [0, *borders, len(text)]
    return [text[start:end] for start, end in pairwise(cuts) if end > start]


def _decorated(text: str, at: int) -> bool:
    """Whether the line before is a decorator, which belongs to the definition at `at`."""
    before = text.rfind("\n", 0, max(at - 1, 0)) + 1
    return at > 0 and text.startswith("@", before)


def _cut(section: str, limit: int, spans: list[tuple[int, int]]) -> list[str]:
    """Pieces of one section: the last border of the best kind in the second half of each window. `spans`: its fences
    and displayed formulas."""
    pieces: list[str] = []
    start, opening = 0, ""
    while len(opening) + len(section) - start > limit:
        room = limit - len(opening)
        end = start + _border(section[start : start + room], limit // 2)
        reopening = ""
        begin, stop = holding(end, spans) or (end, end)
        if begin - start >= limit // 2:
            end = begin
        elif (mark := section[begin : min(stop, begin + INDENT_MAX + 3)].lstrip()[:3]) in FENCES:
            line = section[begin : section.find("\n", begin) + 1]
            end = start + _border(section[start : start + room - len(mark) - 1], limit // 2)
            if stop - start <= room and section[end:stop].strip() == mark:
                end = stop
            elif end > begin + len(line) and len(line) <= _OPENING_CHARS:
                reopening = line
        piece = opening + section[start:end]
        pieces.append(piece.rstrip("\n") + "\n" + mark if reopening else piece)
        start, opening = end, reopening
    return [*pieces, opening + section[start:]]


def _border(window: str, least: int) -> int:
    """Where to cut a window, at or after `least`."""
    for border in ("\n\n", "\n", "。", ". ", " "):
        found = window.rfind(border, least)
        if found > 0:
            return found + len(border)
    return len(window)
