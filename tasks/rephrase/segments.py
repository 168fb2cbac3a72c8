"""Cutting a document into segments of about 256 tokens at the boundaries a reader would choose.

`segment` returns spans that follow one another without a gap: their texts put together are the document. A cut falls,
by preference, before a heading, between paragraphs, between items of a list, between sentences; never inside a formula,
a table, a code block, inline code or a URL. What has no boundary (a line of 50,000 characters) is cut between words.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

# Tokens: a word of up to six letters is about one, a CJK character one, digits three to one, any other sign one.
PIECE = re.compile(r"[A-Za-zÀ-ɏͰ-ӿ]+|\d+|[㐀-鿿豈-﫿぀-ヿ가-힣]|[^\s\w]|\w+")

FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[^\n]*\n.*?(?:^[ \t]*\2[`~]*[ \t]*$|\Z)", re.M | re.S)
DISPLAY = re.compile(r"\$\$.+?\$\$|\\\[.+?\\\]|\\begin\{(?P<name>[A-Za-z]+\*?)\}.*?\\end\{(?P=name)\}", re.S)
INDENTED = re.compile(r"(?:(?<=\n\n)|\A)(?:(?: {4,}|\t)[^\n]*\S[^\n]*(?:\n|\Z)(?:[ \t]*\n(?= {4,}|\t))*)+")
DOCTEST = re.compile(r"^[ \t]*>>> [^\n]*(?:\n(?![ \t]*$)[^\n]*)*", re.M)
TABLE = re.compile(r"(?:^[ \t]*(?:\|[^\n]*\||\+[-=+:]{3,}\+)[ \t]*(?:\n|\Z)){2,}", re.M)
INLINE = re.compile(
    r"(?<![\\$])\$(?!\s)(?:\\.|[^$\n\\])+?(?<!\s)\$(?!\d)|\\\(.+?\\\)|(`+)(?!`)[^\n]+?(?<!`)\1(?!`)"
    r"|(?:https?|ftp)://[^\s<>\"']+"
)

BLANK = re.compile(r"\n[ \t]*\n\s*")
# A line break counts where the line has ended or an item follows: hard-wrapped prose is no structure.
LINE = re.compile(r"(?<=[.!?:;。！？：；>|])[ \t]*\n|\n(?=[ \t]*(?:[-*+•|]|\(?[0-9a-zA-Z]{1,2}[.)])[ \t])")
HEADING = re.compile(r"\n(?=[ \t]*(?:#{1,6}[ \t]|\\(?:sub)*section\b))")
SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]]*)(\s+)(?=[\"'“‘(\[]*[A-Z0-9À-ÞΑ-ЯА-Я#*-])|[。！？；]+[”’」』）]*()")
CLAUSE = re.compile(r"[,;:，、：]\s*()|\n()")
SPACE = re.compile(r"\s()")
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|Dr|Mr|Mrs|Ms|Prof|St|Fig|Eq|Sec|No|Vol|al|pp|ed|eds|Inc|Ltd|Corp|Jr|Sr|[A-Z]))\.$"
)
STRENGTH = {"heading": 5, "paragraph": 4, "line": 3, "sentence": 2, "clause": 1, "space": 0, "any": 0}


@dataclass(frozen=True)
class Segment:
    """A span of its document: `text == document[start:end]`."""

    index: int
    start: int
    end: int
    text: str
    kind: Literal["prose", "block"]
    """`block`: mostly code, table or formula, which is kept as it is and never sent to a rewriter."""


def estimate_tokens(text: str) -> int:
    """About how many tokens a byte-level BPE of some 50,000 entries makes of `text`; the same everywhere."""
    count = 0
    for piece in PIECE.findall(text):
        head = piece[0]
        count += (len(piece) + 2) // 3 if head.isdigit() else (len(piece) + 5) // 6 if head.isalpha() else 1
    return count


def protected(text: str) -> list[tuple[int, int]]:
    """Spans that no cut may enter (blocks and inline), ascending, overlaps merged."""
    return _merge(_blocks(text) + [match.span() for match in INLINE.finditer(text)])


def segment(text: str, tokens: int = 256) -> list[Segment]:
    """Cut `text`; no segment is much longer than `tokens` unless a protected span is. Deterministic."""
    if not text:
        return []
    blocks = _merge(_blocks(text))
    atoms = _atoms(text, protected(text), tokens)
    spans: list[tuple[int, int]] = []
    start, first = 0, 0
    weights = [estimate_tokens(text[begin:end]) for begin, end, _ in atoms]
    while first < len(atoms):
        last, total = first, weights[first]
        while last + 1 < len(atoms) and total + weights[last + 1] <= tokens:
            last += 1
            total += weights[last]
        last = _better(atoms, weights, first, last, tokens)
        end = atoms[last][1]
        spans.append((start, end))
        start, first = end, last + 1
    return [
        Segment(index, begin, end, text[begin:end], _kind(text, begin, end, blocks))
        for index, (begin, end) in enumerate(_join_crumbs(text, spans, tokens))
    ]


def sentences(text: str) -> list[str]:
    """The sentences of `text`, stripped; a protected span is never divided."""
    return [text[begin:end] for begin, end in sentence_spans(text)]


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Begin and end of every sentence of `text`, blanks around it left out."""
    spans = _merge(_blocks(text) + [match.span() for match in INLINE.finditer(text)])
    cuts = [0, *sorted(cut for cut, kind in _cuts(text, spans).items() if STRENGTH[kind] >= 2 and kind != "line")]
    found = []
    for begin, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
        piece = text[begin:end]
        if piece.strip():
            found.append((begin + len(piece) - len(piece.lstrip()), begin + len(piece.rstrip())))
    return found


def _blocks(text: str) -> list[tuple[int, int]]:
    return [match.span() for pattern in (FENCE, DISPLAY, INDENTED, DOCTEST, TABLE) for match in pattern.finditer(text)]


def _merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return merged


def _outside(spans: list[tuple[int, int]]) -> Callable[[int], bool]:
    """Whether a place lies inside none of `spans` (their edges are outside)."""
    begins = [begin for begin, _ in spans]

    def free(place: int) -> bool:
        number = bisect_left(begins, place) - 1
        return number < 0 or place >= spans[number][1]

    return free


def _cuts(text: str, spans: list[tuple[int, int]]) -> dict[int, str]:
    """Where the text may be cut, each place with its strongest kind."""
    free = _outside(spans)
    found: dict[int, str] = {}

    def add(place: int, kind: str) -> None:
        if 0 < place < len(text) and free(place) and STRENGTH[kind] > STRENGTH.get(found.get(place, "any"), -1):
            found[place] = kind

    for match in BLANK.finditer(text):
        add(match.end(), "paragraph")
    for match in LINE.finditer(text):
        add(match.end(), "line")
    for match in HEADING.finditer(text):
        add(match.end(), "heading")
    for match in SENTENCE.finditer(text):
        if not ABBREVIATION.search(text[max(0, match.start() - 12) : match.start() + 1]):
            add(match.end(), "sentence")
    for begin, end in spans:
        add(begin, "clause")
        add(end, "clause")
    return found


def _atoms(text: str, spans: list[tuple[int, int]], tokens: int) -> list[tuple[int, int, int]]:
    """(begin, end, strength of the cut at its end): the pieces between sentences, the overlong ones cut further."""
    kinds = {place: kind for place, kind in _cuts(text, spans).items() if STRENGTH[kind] >= 2}
    places = [0, *sorted(kinds), len(text)]
    atoms: list[tuple[int, int, int]] = []
    for begin, end in pairwise(places):
        strength = STRENGTH[kinds.get(end, "heading")]
        if estimate_tokens(text[begin:end]) <= tokens:
            atoms.append((begin, end, strength))
        else:
            atoms += _cut_long(text, begin, end, strength, spans, tokens)
    return atoms


def _cut_long(
    text: str, begin: int, end: int, strength: int, spans: list[tuple[int, int]], tokens: int
) -> list[tuple[int, int, int]]:
    """A sentence longer than a segment: cut at clauses, then words, then anywhere outside the protected spans."""
    inside = [span for span in spans if span[0] < end and span[1] > begin]
    free = _outside(inside)
    soft = {match.end(): 1 for match in CLAUSE.finditer(text, begin, end)}
    for match in SPACE.finditer(text, begin, end):
        soft.setdefault(match.end(), 0)
    for edge in (edge for span in inside for edge in span):
        soft[edge] = 1
    places = sorted(place for place in soft if begin < place < end and free(place))
    atoms, start = [], begin
    while start < end:
        # The farthest soft place within the length; without one, the farthest free character.
        reach, weight = start, 0
        for piece in PIECE.finditer(text, start, end):
            weight += estimate_tokens(piece.group())
            if weight > tokens:
                break
            reach = piece.end()
        else:
            reach = end
        cut = reach
        if reach < end:
            last = bisect_right(places, reach) - 1
            if last >= 0 and places[last] > start:
                cut = places[last]
            else:
                cut = reach if reach > start else min(start + 3 * tokens, end)
                while cut < end and not free(cut):
                    cut += 1
        atoms.append((start, cut, 0 if cut < end else strength))
        start = cut
    return atoms


def _better(atoms: list[tuple[int, int, int]], weights: list[int], first: int, last: int, tokens: int) -> int:
    """The last atom of a segment that may reach `last`: an earlier, stronger boundary wins if the segment stays at
    least 60 % full."""
    if last == len(atoms) - 1:
        return last
    total = sum(weights[first : last + 1])
    best, strength = last, atoms[last][2]
    for place in range(last, first - 1, -1):
        if total < 0.6 * tokens:
            break
        if atoms[place][2] > strength:
            best, strength = place, atoms[place][2]
        total -= weights[place]
    return best


def _join_crumbs(text: str, spans: list[tuple[int, int]], tokens: int) -> list[tuple[int, int]]:
    """A last piece of under an eighth of a segment goes to the one before it."""
    if len(spans) > 1 and estimate_tokens(text[slice(*spans[-1])]) < tokens / 8:
        return [*spans[:-2], (spans[-2][0], spans[-1][1])]
    return spans


def _kind(text: str, begin: int, end: int, blocks: list[tuple[int, int]]) -> Literal["prose", "block"]:
    inside = sum(max(0, min(end, stop) - max(begin, start)) for start, stop in blocks)
    return "block" if inside > 0.5 * len(text[begin:end].strip()) else "prose"
