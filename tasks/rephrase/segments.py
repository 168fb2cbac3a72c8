"""Cutting a document into segments of about 256 tokens at the boundaries a reader would choose.

`segment` returns spans that follow one another without a gap: their texts put together are the document. A cut falls,
by preference, before a heading, between paragraphs, between items of a list, between sentences; never inside a formula,
a table, a code block, inline code or a URL (structure.py). What has no boundary (a line of 50,000 characters) is cut
between clauses, then words, then anywhere. Time and memory are linear in the text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

from tasks.rephrase.structure import Span, Structure, outside, structure

# Tokens: a word of up to six letters is about one, a CJK character one, digits three to one, any other sign one; of
# blanks only long runs count. Runs are bounded, so that a piece of an endless word is a piece of work: 48 is a multiple
# of both 6 and 3 and changes no sum.
PIECE = re.compile(r"[A-Za-zÀ-ɏͰ-ӿ]{1,48}|\d{1,48}|[㐀-鿿豈-﫿぀-ヿ가-힣]|[^\s\w]|\w{1,48}|\s{16}")

BLANK = re.compile(r"\n[ \t\r]*\n(?:[ \t\r]*\n)*")
# A line break counts where the line has ended or an item follows: hard-wrapped prose is no structure.
LINE = re.compile(r"(?<=[.!?:;。！？：；>|])[ \t\r]*\n|\n(?=[ \t]*\|)")
END = re.compile(r"[.!?…。！？；]+[\"'”’」』）】》)\]]*")
OPENS = re.compile(r"[\"'“‘「『（(\[]*(?:[A-Z0-9À-ÞΑ-ЯА-Я#*-]|[㐀-鿿豈-﫿぀-ヿ가-힣])")
# A quotation that its speaker follows goes on with him: “……！”他说。
SPOKEN = re.compile(r"[㐀-鿿]{0,4}[说道问喊叫答笑想写](?![：:])")
CLAUSE = re.compile(r"[,;:，、：]\s{0,16}|\n\s{0,256}")
SPACE = re.compile(r"\s{1,16}")
QUOTE = re.compile(r"[“”「」『』（）]|\n[ \t\r]*\n")
PARTNERS = {"”": "“", "」": "「", "』": "『", "）": "（"}
ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|cf|vs|ca|approx|resp|viz|Dr|Mr|Mrs|Ms|Prof|St|Mt|Gen|Col|Lt|Capt|Rev|Hon|Sen|Gov|Figs?|figs?"
    r"|Eqs?|eqs?|Sec|sec|Ch|ch|No|Nos|Vol|vol|al|pp?|eds?|Inc|Ltd|Corp|Co|Jr|Sr|Jan|Feb|Mar|Apr|Aug|Sept?|Oct|Nov|Dec"
    r"|(?<!°)[A-Z])|(?:^|\n)[ \t>]*\(?(?:\d{1,3}|[A-Za-z]|[ivx]{1,4}))\.$"
)
CLOSING = frozenset("。！？；")
HAN = re.compile(r"[㐀-鿿豈-﫿぀-ヿ]")
STRENGTH = {"heading": 5, "paragraph": 4, "line": 3, "sentence": 2, "clause": 1, "space": 0, "any": -1}
LONGEST_QUOTATION = 600
"""Characters of a quotation that is not cut between its sentences if that can be helped."""
FEWEST_WORDS = 4
"""Words (CJK: characters) that a segment must have outside its blocks to be worth a rewriting."""
WORD = re.compile(r"[㐀-鿿豈-﫿぀-ヿ]|[^\W\d_㐀-鿿豈-﫿぀-ヿ]{1,48}")


@dataclass(frozen=True)
class Segment:
    """A span of its document: `text == document[start:end]`."""

    index: int
    start: int
    end: int
    text: str
    kind: Literal["prose", "block"]
    """`block`: mostly code, table or formula, or nothing to rewrite: kept as it is and never sent to a rewriter."""


@dataclass(frozen=True)
class _Atom:
    """A piece that stays whole."""

    begin: int
    end: int
    strength: int
    """Of the cut at its end."""
    tokens: int


def estimate_tokens(text: str) -> int:
    """About how many tokens a byte-level BPE of some 50,000 entries makes of `text`; the same everywhere."""
    return sum(map(_weight, PIECE.findall(text)))


def _weight(piece: str) -> int:
    head = piece[0]
    return (len(piece) + 2) // 3 if head.isdigit() else (len(piece) + 5) // 6 if head.isalpha() else 1


def segment(text: str, tokens: int = 256) -> list[Segment]:
    """Cut `text`; no segment has more than 9/8 of `tokens` unless a protected span in it has. Deterministic."""
    if not text:
        return []
    found = structure(text)
    atoms = list(_atoms(text, found, tokens))
    spans: list[Span] = []
    start, first = 0, 0
    while first < len(atoms):
        last, total = first, atoms[first].tokens
        while last + 1 < len(atoms) and total + atoms[last + 1].tokens <= tokens:
            last += 1
            total += atoms[last].tokens
        last = _better(atoms, first, last, total, tokens)
        end = atoms[last].end
        spans.append((start, end))
        start, first = end, last + 1
    if len(spans) > 1 and estimate_tokens(text[slice(*spans[-1])]) < tokens / 8:  # a crumb goes to the one before it
        spans[-2:] = [(spans[-2][0], spans[-1][1])]
    kinds = _kinds(text, spans, found, tokens)
    return [
        Segment(index, begin, end, text[begin:end], kind)
        for index, ((begin, end), kind) in enumerate(zip(spans, kinds, strict=True))
    ]


def sentences(text: str) -> list[str]:
    """The sentences of `text`, stripped; a protected span is never divided."""
    return [text[begin:end] for begin, end in sentence_spans(text)]


@lru_cache(maxsize=256)  # several checks ask for those of one text
def sentence_spans(text: str) -> tuple[Span, ...]:
    """Begin and end of every sentence of `text`, blanks around it left out."""
    cuts = _cuts(text, structure(text))
    places = sorted(place for place, strength in cuts.items() if strength >= 2 and strength != STRENGTH["line"])
    found = []
    for begin, end in pairwise([0, *places, len(text)]):
        piece = text[begin:end]
        if piece.strip():
            found.append((begin + len(piece) - len(piece.lstrip()), begin + len(piece.rstrip())))
    return tuple(found)


def sentence_at(text: str, place: int) -> str:
    """The sentence of `text` that the character at `place` stands in."""
    return next((text[begin:end] for begin, end in reversed(sentence_spans(text)) if begin <= place), "")


def sentence_with(text: str, words: str) -> str:
    """The first sentence of `text` that has these words; nothing where none has."""
    place = text.find(words)
    return sentence_at(text, place) if words and place >= 0 else ""


def _cuts(text: str, found: Structure) -> dict[int, int]:
    """Where the text may be cut between sentences and above, each place with the strength of the cut."""
    free = outside(found.protected)
    cuts: dict[int, int] = {}

    def add(place: int, kind: str) -> None:
        if 0 < place < len(text) and STRENGTH[kind] > cuts.get(place, -1) and free(place):
            cuts[place] = STRENGTH[kind]

    for match in BLANK.finditer(text):
        add(match.end(), "paragraph")
    for match in LINE.finditer(text):
        add(match.end(), "line")
    for begin, _ in found.items:
        add(begin, "line")
    for begin, _ in found.headings:
        add(begin, "heading")
    for place in (edge for span in found.blocks for edge in span):
        # a block of whole lines is a paragraph of its own; a formula within a line goes with its sentence
        if text[place - 1 : place] == "\n":
            add(place, "line")
    for match in END.finditer(text):
        next_one = _sentence_end(text, match)
        if next_one is not None:
            add(next_one, "sentence")
    return cuts


def _sentence_end(text: str, match: re.Match[str]) -> int | None:
    """Where the next sentence begins, if one ends with this match."""
    marks, end = match.group(), match.end()
    if any(mark in CLOSING for mark in marks) or ("…" in marks and HAN.match(text, end)):
        spoken = marks[-1] not in CLOSING and SPOKEN.match(text, end)
        return None if spoken or text[end : end + 1] in tuple("，、：") else end
    if ABBREVIATION.search(text[max(0, match.start() - 12) : match.start() + 1]):
        return None
    begin = end
    while begin < len(text) and text[begin].isspace():
        begin += 1
    return begin if begin > end and OPENS.match(text, begin) else None


def _atoms(text: str, found: Structure, tokens: int) -> Iterator[_Atom]:
    """The pieces between sentences, the overlong ones cut further."""
    spans = found.protected
    cuts = _cuts(text, found)
    weak = _weaken(text, cuts, found, tokens)
    for begin, end in pairwise([0, *sorted(cuts), len(text)]):
        strength = cuts.get(end, STRENGTH["heading"])
        weight = estimate_tokens(text[begin:end])
        if weight <= tokens:
            yield _Atom(begin, end, strength, weight)
        else:
            yield from _finer(text, begin, end, strength, spans, weak, tokens)


def _weaken(text: str, cuts: dict[int, int], found: Structure, tokens: int) -> list[int]:
    """Take out of `cuts` those that a reader would not make: after a heading, and inside an item of a list or a
    quotation that fits into a segment. They are returned, ascending: better than none where a piece is too long."""
    places = sorted(cuts)
    weak: set[int] = set()
    fitting = [span for span in found.items if estimate_tokens(text[slice(*span)]) <= tokens]
    for begin, end in [*fitting, *_quotations(text)]:
        inside = places[bisect_right(places, begin) : bisect_left(places, end)]
        weak.update(place for place in inside if cuts[place] <= STRENGTH["line"])
    for begin, end in found.headings:
        blank = BLANK.match(text, end - 1)
        weak.update(places[bisect_right(places, begin) : bisect_right(places, blank.end() if blank else end)])
    for place in weak:
        del cuts[place]
    return sorted(weak)


def _quotations(text: str) -> list[Span]:
    """What stands between curly or CJK quotation marks or full-width brackets within a paragraph."""
    found: list[Span] = []
    opened: list[tuple[str, int]] = []
    for match in QUOTE.finditer(text):
        sign = match.group()
        if sign[0] == "\n":
            opened.clear()
        elif sign not in PARTNERS:
            opened.append((sign, match.start()))
        elif opened and opened[-1][0] == PARTNERS[sign]:
            begin = opened.pop()[1]
            if match.end() - begin <= LONGEST_QUOTATION:
                found.append((begin, match.end()))
    return found


def _finer(
    text: str, begin: int, end: int, strength: int, spans: list[Span], weak: list[int], tokens: int
) -> Iterator[_Atom]:
    """A sentence longer than a segment: clauses, words, and where these are too long anything outside the protected
    spans."""
    inside = spans[max(0, bisect_right(spans, (begin, begin)) - 1) : bisect_left(spans, (end, end))]
    free = outside(inside)
    soft = dict.fromkeys((edge for span in inside for edge in span), STRENGTH["space"])
    soft.update((match.end(), STRENGTH["space"]) for match in SPACE.finditer(text, begin, end))
    soft.update((match.end(), STRENGTH["clause"]) for match in CLAUSE.finditer(text, begin, end))
    soft.update((place, STRENGTH["clause"]) for place in weak[bisect_right(weak, begin) : bisect_left(weak, end)])
    soft[end] = strength
    start = begin
    for place in sorted(place for place in soft if begin < place <= end and free(place)):
        weight = estimate_tokens(text[start:place])
        if weight > tokens and free(start + 1):
            yield from _anywhere(text, start, place, soft[place], tokens)
        else:
            yield _Atom(start, place, soft[place], weight)
        start = place


def _anywhere(text: str, begin: int, end: int, strength: int, tokens: int) -> Iterator[_Atom]:
    """An endless word in pieces of an eighth of a segment; a letter keeps its accents while they are few."""
    start, weight = begin, 0
    for piece in PIECE.finditer(text, begin, end):
        more = _weight(piece.group())
        joined = unicodedata.combining(piece.group()[0]) or "\u200d" in text[piece.start() - 1 : piece.start() + 1]
        if piece.start() > start and weight + more > tokens / (4 if joined else 8):
            yield _Atom(start, piece.start(), STRENGTH["any"], weight)
            start, weight = piece.start(), 0
        weight += more
    yield _Atom(start, end, strength, weight)


def _better(atoms: list[_Atom], first: int, last: int, total: int, tokens: int) -> int:
    """The last atom of a segment that may reach `last`: an earlier, stronger boundary wins if the segment stays at
    least 60 % full."""
    if last == len(atoms) - 1:
        return last
    best = last
    for place in range(last, first - 1, -1):
        if total < 0.6 * tokens:
            break
        if atoms[place].strength > atoms[best].strength:
            best = place
        total -= atoms[place].tokens
    return best


def _kinds(text: str, spans: list[Span], found: Structure, tokens: int) -> Iterator[Literal["prose", "block"]]:
    """What each of the consecutive `spans` is."""
    for begin, end in spans:
        first = max(0, bisect_right(found.blocks, (begin, begin)) - 1)
        inside = [
            (max(begin, start), min(end, stop))
            for start, stop in found.blocks[first : bisect_left(found.blocks, (end, end))]
            if stop > begin
        ]
        edges = [begin, *(edge for span in inside for edge in span), end]
        bare = "\n".join(text[start:stop] for start, stop in zip(edges[::2], edges[1::2], strict=True))
        length = len(text[begin:end].strip())
        words = sum(1 for _, match in zip(range(FEWEST_WORDS), WORD.finditer(bare), strict=False))
        overlong = estimate_tokens(text[begin:end]) > 2 * tokens  # a URL of 50,000 characters, say
        covered = sum(stop - start for start, stop in inside) > 0.5 * length
        yield "block" if covered or overlong or words < FEWEST_WORDS else "prose"
