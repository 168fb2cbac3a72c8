"""What no cut may enter: code, formulas, tables and URLs of a text, in time linear in its length.

Blocks of whole lines (fences, indented code, doctests, tables) are found in one pass over the lines; what has an
opening and a closing mark (formulas, environments, inline code, HTML elements) in one pass over the marks outside of
them. Every mark finds its partner in tables made beforehand, so that a text of a million openers costs what any other
does. A mark that opens and never closes is none, save that of a fence, which ends with the text.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Span = tuple[int, int]

LONGEST = 10_000
"""Characters of the longest formula or environment: what is longer was opened by a stray mark."""
LONGEST_INLINE = 1_000
"""Characters of the longest inline formula."""

FENCE = re.compile(r"(?:[ \t]*>)*[ \t]*(?:[-*+][ \t]+|\d{1,3}[.)][ \t]+)?(`{3,}|~{3,})(.*)", re.S)
ITEM = re.compile(
    r"(?P<indent>[ \t]*)(?:[-*+•·][ \t]+|\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,4})[.)][ \t]+|（[一二三四五六七八九十\d]{1,3}）"
    r"|[一二三四五六七八九十]{1,3}、|\d{1,3}[、．])(?=\S)"
)
RULE = re.compile(r"[ \t|]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
GRID = re.compile(r"[ \t]*\+[-=+:]{3,}\+?[ \t]*")
SIMPLE = re.compile(r"[ \t]*=+(?:[ ]+=+)+[ \t]*")
COLUMNS = re.compile(r"\S(?: {3,}|\u3000{2,})\S")
HTML = "table|pre|script|style|svg|math|code"
MARK = re.compile(
    r"\\(?P<side>begin|end)\{(?P<name>[A-Za-z]{1,40}\*?)\}|\\[\[\]()]|\\.|\$\$?|`+"
    rf"|<(?P<close>/?)(?P<tag>{HTML})(?=[\s/>])",
    re.S | re.I,
)
# CJK characters and punctuation end a URL: no blank stands between them and it. A mark at its end is its sentence's.
URL = re.compile(r"(?:https?|ftp)://[^\s<>\"'`　-〿㐀-鿿豈-﫿＀-￯“”‘’]+(?<![.,;:!?])")
PROSE = frozenset(
    "document abstract theorem lemma proof proposition corollary definition remark remarks example examples exercise "
    "exercises solution problem question answer claim conjecture notation note itemize enumerate description list "
    "quote quotation verse center flushleft flushright minipage multicols frame block columns column appendix figure "
    "thebibliography titlepage small large normalsize".split()
)
"""Environments of LaTeX that hold prose: their insides may be cut."""


@dataclass
class Structure:
    """Spans of one text, each ascending and apart."""

    blocks: list[Span] = field(default_factory=list)
    """Code, tables and displayed formulas."""
    inline: list[Span] = field(default_factory=list)
    """Inline formulas, inline code and URLs outside the blocks."""
    items: list[Span] = field(default_factory=list)
    """Items of lists, as far as the first blank line."""
    headings: list[Span] = field(default_factory=list)
    """Lines of headings, underlines included."""

    @property
    def protected(self) -> list[Span]:
        """Blocks and inline, ascending, overlaps merged."""
        return merge(self.blocks + self.inline)


def structure(text: str) -> Structure:
    """Everything in `text` that a cut must respect."""
    found = Structure()
    lines, blanks = _lines(text, found)
    marks = _Marks(text, lines, blanks)
    found.blocks = merge(lines + marks.blocks)
    free = outside(found.blocks)
    urls = [match.span() for match in URL.finditer(text)]
    found.inline = merge(marks.inline + [span for span in urls if free(span[0]) and free(span[0] + 1)])
    free = outside(found.blocks)
    found.headings = [span for span in found.headings if free(span[0] + 1)]
    found.items = [span for span in found.items if free(span[0] + 1)]
    return found


def merge(spans: Iterable[Span]) -> list[Span]:
    """The spans in order, overlapping ones made one, empty ones left out."""
    merged: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def outside(spans: list[Span]) -> Callable[[int], bool]:
    """Whether a place lies inside none of `spans` (their edges are outside)."""
    begins = [begin for begin, _ in spans]

    def free(place: int) -> bool:
        number = bisect_left(begins, place) - 1
        return number < 0 or place >= spans[number][1]

    return free


@dataclass(slots=True)
class _Line:
    begin: int
    end: int
    """Its line break included."""
    text: str
    bare: str
    """The text without the signs of a quotation (`>`) and the blanks around it."""
    indent: int
    blank: bool


def _lines(text: str, found: Structure) -> tuple[list[Span], list[int]]:
    """(blocks of whole lines, where the blank lines begin); headings and items go into `found`."""
    lines: list[_Line] = []
    at = 0
    for content in text.split("\n"):
        end = min(at + len(content) + 1, len(text))
        width = len(content) - len(content.lstrip(" \t"))
        bare = content.lstrip(" \t>").rstrip(" \t\r")
        lines.append(_Line(at, end, content, bare, len(content[:width].expandtabs(4)), not content.strip()))
        at = end
    spans: list[Span] = []
    number = 0
    column = 0  # where the text of the list's last item begins, 0 outside of lists
    after_blank = True
    while number < len(lines):
        line = lines[number]
        if line.blank:
            after_blank = True
            number += 1
            continue
        stop = _fence(lines, number) or _table(lines, number) or _doctest(lines, number)
        if stop is None and after_blank and line.indent >= column + 4 and not ITEM.match(line.text):
            stop = _indented(lines, number, column + 4)
        if stop is not None:
            spans.append((line.begin, lines[stop - 1].end))
            after_blank = lines[stop - 1].blank
            number = stop
            continue
        if item := ITEM.match(line.text):
            column = len(item.group()[:200].expandtabs(4))
            found.items.append((line.begin, _item_end(lines, number)))
        elif after_blank and line.indent < column:
            column = 0
        if heading := _heading(lines, number):
            found.headings.append((line.begin, lines[heading - 1].end))
        after_blank = False
        number += 1
    return spans, [line.begin for line in lines if line.blank]


def _fence(lines: list[_Line], first: int) -> int | None:
    opened = FENCE.match(lines[first].text)
    if opened is None or ("`" in opened.group(1) and "`" in opened.group(2)):
        return None
    mark = opened.group(1)
    for number in range(first + 1, len(lines)):
        bare = lines[number].bare
        if len(bare) >= len(mark) and bare[0] == mark[0] and not bare.strip(mark[0]):
            return number + 1
    return len(lines)


def _table(lines: list[_Line], first: int) -> int | None:
    """The line after the table that begins here: Markdown, grid, reStructuredText, or columns of tabs or blanks."""
    one = lines[first]
    bare = one.bare
    following = lines[first + 1].bare if first + 1 < len(lines) else ""
    if not bare:
        return None
    if (bare[0] == "|" and bare.count("|") > 1) or GRID.fullmatch(bare):
        stop = _run(lines, first, lambda line: line.bare[:1] in ("|", "+"))
        return stop if stop - first > 1 else None
    if "|" in bare and "|" in following and RULE.fullmatch(following):
        return _run(lines, first, lambda line: "|" in line.bare)
    if SIMPLE.fullmatch(bare):
        stop = _run(lines, first, lambda line: True)
        borders = [number for number in range(first, stop) if SIMPLE.fullmatch(lines[number].bare)]
        return borders[-1] + 1 if len(borders) > 1 else None
    if tabs := bare.count("\t"):
        stop = _run(lines, first, lambda line: line.bare.count("\t") == tabs)
        return stop if stop - first > 1 else None
    if COLUMNS.search(bare) and not ITEM.match(bare):
        stop = _run(lines, first, lambda line: COLUMNS.search(line.bare) is not None)
        return stop if stop - first > 2 else None
    return None


def _run(lines: list[_Line], first: int, goes: Callable[[_Line], bool]) -> int:
    number = first + 1
    while number < len(lines) and not lines[number].blank and goes(lines[number]):
        number += 1
    return number


def _doctest(lines: list[_Line], first: int) -> int | None:
    return _run(lines, first, lambda line: True) if lines[first].text.lstrip().startswith(">>> ") else None


def _indented(lines: list[_Line], first: int, least: int) -> int:
    stop = number = first + 1
    while number < len(lines) and (lines[number].blank or lines[number].indent >= least):
        number += 1
        if not lines[number - 1].blank:
            stop = number
    return stop


def _item_end(lines: list[_Line], first: int) -> int:
    number = first + 1
    while number < len(lines) and not lines[number].blank and not ITEM.match(lines[number].text):
        number += 1
    return lines[number - 1].end


def _heading(lines: list[_Line], number: int) -> int | None:
    """The line after the heading that stands here, its underline included."""
    text = lines[number].text.lstrip()
    if re.match(r"#{1,6}[ \t]|\\(?:sub)*section\b|\\(?:chapter|paragraph)\b", text):
        return number + 1
    under = lines[number + 1].text.strip() if number + 1 < len(lines) else ""
    before = number == 0 or lines[number - 1].blank
    if before and len(text) <= 200 and len(under) > 2 and not under.strip(under[0]) and under[0] in "=-~^":
        return number + 2
    return None


class _Marks:
    """The pass over the marks."""

    def __init__(self, text: str, lines: list[Span], blanks: list[int]) -> None:
        self.blocks: list[Span] = []
        self.inline: list[Span] = []
        self._text, self._breaks = text, blanks
        free = outside(lines)
        self._marks = [mark for mark in MARK.finditer(text) if free(mark.start() + 1)]
        self._places: dict[str, list[int]] = defaultdict(list)
        """Where each closing mark stands."""
        for mark in self._marks:
            if mark["side"] is None and mark["tag"] is None:
                self._places[mark.group()].append(mark.start())
        self._dollars = sorted(self._places["$"] + self._places["$$"])
        self._ends = self._pairs("side", "name") | self._pairs("close", "tag")
        at = 0
        for mark in self._marks:
            if mark.start() >= at:
                at = self._open(mark)

    def _pairs(self, side: str, name: str) -> dict[int, int]:
        """Where the element that begins at a place ends; nested ones of one name are told apart."""
        opened: dict[str, list[int]] = defaultdict(list)
        ends: dict[int, int] = {}
        for mark in self._marks:
            if mark[name] is None:
                continue
            called = mark[name].lower()
            if mark[side].lower() in ("begin", ""):
                opened[called].append(mark.start())
            elif opened[called]:
                end = mark.end() if name == "name" else self._text.find(">", mark.end(), mark.end() + 40) + 1
                ends[opened[called].pop()] = end or mark.end()
        return ends

    def _open(self, mark: re.Match[str]) -> int:
        """Note the span that `mark` opens; where the next mark may stand."""
        begin, sign = mark.start(), mark.group()
        end = None
        block = True
        if mark["name"] or mark["tag"]:
            end = self._ends.get(begin)
            known = mark["tag"] or mark["name"].rstrip("*") not in PROSE
            if end is None or not known or (mark["name"] and end - begin > LONGEST):
                return mark.end()
            block = (mark["tag"] or "").lower() != "code"
        elif sign in ("$$", "\\["):
            end = self._close(begin, "$$" if sign == "$$" else "\\]", LONGEST, 2)
        elif sign == "\\(":
            end, block = self._close(begin, "\\)", LONGEST_INLINE, 0), False
        elif sign == "$":
            end, block = self._dollar(begin), False
        elif sign[0] == "`":
            end, block = self._close(begin, sign, LONGEST, 0), False
        if end is None:
            return mark.end()
        (self.blocks if block else self.inline).append((begin, end))
        return end

    def _close(self, begin: int, sign: str, longest: int, blank_lines: int) -> int | None:
        """The end of what is closed by the next `sign`, None where that is too far or nothing stands between."""
        places = self._places[sign]
        number = bisect_right(places, begin)
        if number == len(places) or places[number] - begin > longest:
            return None
        close = places[number]
        if not self._text[begin + len(sign) : close].strip():
            return None
        return close + len(sign) if self._blank_lines(begin, close) <= blank_lines else None

    def _dollar(self, begin: int) -> int | None:
        """Pandoc's rule, which tells formulas from prices: no blank within the signs, no digit after the second."""
        number = bisect_right(self._dollars, begin)
        if number == len(self._dollars):
            return None
        close, text = self._dollars[number], self._text
        if close - begin > LONGEST_INLINE or text[close : close + 2] == "$$" or close == begin + 1:
            return None
        if text[begin + 1].isspace() or text[close - 1].isspace() or text[close + 1 : close + 2].isdigit():
            return None
        return close + 1 if not self._blank_lines(begin, close) else None

    def _blank_lines(self, begin: int, end: int) -> int:
        return bisect_left(self._breaks, end) - bisect_left(self._breaks, begin)
