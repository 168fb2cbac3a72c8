"""The plan of a document that is rewritten window by window: its outline, and what its names and notation mean.

A prompt shows one window of a long document. What a symbol stands for, or which organisation an abbreviation is, may
have been said in another; a rewriter that is not told calls the same thing by two names. So every prompt carries the
whole document's outline (headings, or first sentences where it has none) and glossary (definitions of symbols,
abbreviations, terms, names), found by rule and bounded in tokens.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tasks.rephrase.segments import Segment, estimate_tokens, sentences
from tasks.rephrase.structure import structure

LINE = 100
"""Characters of a line of the plan."""
FRAME = 40
"""Tokens of what stands around the lines in the prompt."""
DASH = 2
"""Tokens of a line's own frame."""

SYMBOL = r"(?:\$[^$\n]{1,40}\$|\\\([^\n]{1,40}?\\\)|\b[A-Za-z]\b)"
FORMULA = r"(?:\$[^$\n]{1,40}\$|\\\([^\n]{1,40}?\\\))"
MEANING = r"(?:\$[^$\n]{1,60}\$|[^.;,$\n。；，]){2,80}"
NOTATION = (
    re.compile(rf"\b[Ll]et\s+({SYMBOL}\s+(?:be|denote|stand\s+for)\s+{MEANING})"),
    re.compile(rf"\b(?:where|[Hh]ere|and)\s+({FORMULA}\s+(?:is|are|denotes?|stands?\s+for)\s+{MEANING})"),
    re.compile(rf"({FORMULA}\s+(?:denotes?|stands?\s+for|represents?)\s+{MEANING})"),
    re.compile(rf"\b([Ww]rite\s+{FORMULA}\s+for\s+{MEANING})"),
    re.compile(rf"((?:\w{{1,30}}\s){{1,6}}(?:is|are)\s+denoted\s+(?:by|as)\s+{FORMULA})"),
    re.compile(rf"(?:设|令|记|其中)\s*({FORMULA}\s*(?:为|是|表示|代表){MEANING})"),
)
WORD = r"[^\W\d_][\w'’-]{0,30}"
EXPANDED = re.compile(rf"\b((?:{WORD}[ \n]){{2,8}})\(([A-Z][A-Za-z0-9&-]{{1,9}})\)")
EXPLAINED = re.compile(rf"\b([A-Z][A-Za-z0-9&-]{{1,9}}) \(((?:{WORD}[ \n]){{1,7}}{WORD})\)")
HAN_SHORT = re.compile(r"([㐀-鿿]{2,20}[（(](?:以下)?(?:简称|缩写为?)[:：]?[“\"]?[\w -]{2,20}[”\"]?[）)])")
SMALL = frozenset("a an and by for from in of on or the to with".split())
TERM = re.compile(
    r"\b(?:called|known as|termed|referred to as)\s+(?:an?\s|the\s)?[“\"'*_]{0,2}([^\W\d_][\w-]*(?: [\w-]+){0,3}?)"
    r"[”\"'*_]{0,2}(?=[,.;:)]|$)|\*\*([^*\n]{2,40})\*\*|(?:称为|称作|叫做|所谓)[“\"]?([㐀-鿿\w]{2,12})[”\"]?(?=[，。；、的])"
    r"|(《[^》\n]{1,30}》)",
    re.M,
)
NAME = re.compile(r"(?<![.!?:\n] )(?<!\n)\b[A-Z][\w'’-]{1,30}(?: (?:(?:of|de|van|von|the) )?[A-Z][\w'’-]{1,30}){1,3}")
NAMED = 2
"""How often a name must stand in the document to be one that must not change."""


@dataclass(frozen=True)
class Plan:
    """Lines that a prompt carries; none where one window shows the whole document."""

    outline: tuple[str, ...] = ()
    glossary: tuple[str, ...] = ()
    """Notation first, then abbreviations, terms and names."""


NO_PLAN = Plan()


def plan_of(text: str, segments: Sequence[Segment], tokens: int) -> Plan:
    """The plan of a document, of at most so many estimated tokens as the full prompt shows it."""
    room = tokens - FRAME
    outline = _thinned(list(dict.fromkeys(_outline(text, segments))), room // 2)
    room -= sum(map(_weight, outline))
    found = []
    for line in _glossary(text):
        if _weight(line) > room:
            break
        room -= _weight(line)
        found.append(line)
    return Plan(tuple(outline), tuple(found))


def _outline(text: str, segments: Sequence[Segment]) -> Iterator[str]:
    spans = structure(text).headings
    headings = [_line(text[begin:end].lstrip("# ").split("\n")[0].rstrip("# ")) for begin, end in spans]
    if len(headings) > 1:
        yield from filter(None, headings)
        return
    for part in segments:
        if part.kind == "prose" and (said := sentences(part.text)):
            yield _line(said[0])


def _thinned(lines: list[str], room: int) -> list[str]:
    """All lines where they have room, else every second, every third, and so on: the document from end to end."""
    for step in range(1, len(lines) + 1):
        some = lines[::step]
        if sum(map(_weight, some)) <= room:
            return some
    return []


def _glossary(text: str) -> Iterator[str]:
    """Entries, the most needed kind first and each kind in the order of the document; none twice."""
    known: set[str] = set()
    for entry in (*_notation(text), *_abbreviations(text), *_terms(text), *_names(text)):
        line = _line(entry)
        if line.lower() not in known:
            known.add(line.lower())
            yield line


def _notation(text: str) -> list[str]:
    found = {match.start(1): match.group(1) for rule in NOTATION for match in rule.finditer(text)}
    return [found[place] for place in sorted(found)]


def _abbreviations(text: str) -> Iterator[str]:
    """`WHO: World Health Organization`, from `World Health Organization (WHO)` or the other way round."""
    found: dict[int, str] = {match.start(): match.group(1) for match in HAN_SHORT.finditer(text)}
    for match in EXPANDED.finditer(text):
        if whole := _expansion(match.group(1).split(), match.group(2)):
            found[match.start()] = f"{match.group(2)}: {whole}"
    for match in EXPLAINED.finditer(text):
        words = match.group(2).split()
        if _expansion(words, match.group(1)) == " ".join(words):
            found[match.start()] = f"{match.group(1)}: {' '.join(words)}"
    for place in sorted(found):
        yield found[place]


def _expansion(words: list[str], short: str) -> str:
    """The last of `words` whose initials are the capitals of `short`, small words left out of the count; or nothing."""
    wanted = [sign for sign in short if sign.isupper()]
    place = len(words)
    for sign in reversed(wanted):
        place -= 1
        while place > 0 and words[place].lower() in SMALL and words[place][0].upper() != sign:
            place -= 1
        if place < 0 or words[place][0].upper() != sign:
            return ""
    return " ".join(words[place:]) if len(wanted) > 1 else ""


def _terms(text: str) -> Iterator[str]:
    for match in TERM.finditer(text):
        yield next(term for term in match.groups() if term)


def _names(text: str) -> list[str]:
    counted = Counter(" ".join(match.group().split()) for match in NAME.finditer(text))
    return [name for name, times in counted.items() if times >= NAMED]


def _line(text: str) -> str:
    return " ".join(text.split())[:LINE].strip()


def _weight(line: str) -> int:
    return estimate_tokens(line) + DASH
