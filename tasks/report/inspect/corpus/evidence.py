"""Where in a text the thing stands that a rule objects to: cheap, for the eye, and decides nothing.

A finder answers with spans of the text shown. It sees only a document's beginning, so that finding nothing there does
not mean that the rule was wrong.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

Span = tuple[int, int]
Finder = Callable[[str], Iterable[Span]]
# A rule's name says what it looks at; where several patterns fit, the first counts.
_HAN = r"\u3400-\u4dbf\u4e00-\u9fff"
_TOKEN = re.compile(rf"[{_HAN}]|[^\s{_HAN}]+")
_LINE = re.compile(r"[^\n]+")
_PARAGRAPH = re.compile(r"[^\n]+(?:\n[^\n]+)*")
_TERMINAL = tuple(".!?\"'”’。！？…；：:;)）」』")
_BULLETS = ("•", "●", "○", "■", "◦", "‣", "- ", "* ", "– ")
SHORT_LINE = 30
"""Characters (FineWeb, arXiv 2406.17557, 3.6)."""
LONG_WORD = 20
"""Characters; twice the mean that Gopher allows (arXiv 2112.11446, A1.1)."""


def evidence(rule: str, text: str, value: str = "") -> list[Span]:
    """Spans of `text`, ascending and apart, that `rule` objects to, and the passage that `value` points to."""
    found: list[Span] = list(_quoted(text, value))
    for pattern, finder in _FINDERS:
        if match := pattern.search(rule):
            found += finder(text) if not match.groups() else _ngrams(text, int(match[1]), top="top" in match[0])
            break
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Spans in order, those that touch or overlap joined."""
    out: list[Span] = []
    for start, end in sorted(span for span in spans if span[1] > span[0]):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def pieces(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, bool]]:
    """The whole of `text` in order, each piece with whether it is marked."""
    at = 0
    for start, end in spans:
        if start > at:
            yield text[at:start], False
        yield text[start:end], True
        at = end
    if at < len(text):
        yield text[at:], False


def _matches(pattern: str, flags: int = 0) -> Finder:
    compiled = re.compile(pattern, flags)
    return lambda text: [match.span() for match in compiled.finditer(text)]


def _lines(objected: Callable[[str], bool]) -> Finder:
    return lambda text: [match.span() for match in _LINE.finditer(text) if objected(match[0].strip())]


def _words(objected: Callable[[str], bool]) -> Finder:
    return lambda text: [match.span() for match in _TOKEN.finditer(text) if objected(match[0])]


def _again(unit: re.Pattern[str]) -> Finder:
    """Lines or paragraphs that stood before."""

    def find(text: str) -> Iterator[Span]:
        seen: set[str] = set()
        for match in unit.finditer(text):
            item = match[0].strip()
            if item and item in seen:
                yield match.span()
            seen.add(item)

    return find


def _longest_line(text: str) -> list[Span]:
    lines = [match.span() for match in _LINE.finditer(text)]
    return [max(lines, key=lambda span: span[1] - span[0])] if lines else []


def _ngrams(text: str, n: int, top: bool) -> Iterator[Span]:
    """Every place of the most frequent n-gram, or every n-gram that stood before; in Chinese one of 2n characters."""
    tokens = [match.span() for match in _TOKEN.finditer(text)]
    items = [text[start:end] for start, end in tokens]
    han = sum(len(item) == 1 and item > "\u3000" for item in items)
    n = 2 * n if han > len(items) / 2 else n
    grams = [tuple(items[at : at + n]) for at in range(len(items) - n + 1)]
    counts = Counter(grams)
    most = max(counts.values(), default=0)
    if most < 2:
        return
    frequent = next(gram for gram in grams if counts[gram] == most)
    seen: set[tuple[str, ...]] = set()
    for at, gram in enumerate(grams):
        if gram == frequent if top else gram in seen:
            yield tokens[at][0], tokens[at + n - 1][1]
        seen.add(gram)


def _quoted(text: str, value: str) -> Iterator[Span]:
    """The passage that an explanation points to: decontamination says at which characters it stands."""
    if found := re.search(r"\bcharacters (\d{1,9}) to (\d{1,9})\b", value):
        start, end = (min(int(place), len(text)) for place in found.groups())
        yield start, end


_FINDERS: list[tuple[re.Pattern[str], Finder]] = [
    (re.compile(pattern), finder)
    for pattern, finder in (
        (r"top_(\d+)", _lines(bool)),
        (r"(\d+)_?gram", _lines(bool)),
        (r"lorem", _matches("lorem ipsum", re.IGNORECASE)),
        (r"hash", _matches("#")),
        (r"ellips[ie]s_lines", _lines(lambda line: line.endswith(("...", "…")))),
        (r"ellips", _matches(r"\.\.\.|…")),
        (r"bullet", _lines(lambda line: line.startswith(_BULLETS))),
        (r"punctuat", _lines(lambda line: bool(line) and not line.endswith(_TERMINAL))),
        (r"short_lines", _lines(lambda line: 0 < len(line) <= SHORT_LINE)),
        (r"paragraph", _again(_PARAGRAPH)),
        (r"duplicate_line|repeated_line|repetition_line", _again(_LINE)),
        (
            r"generated",
            _matches(r"auto-?\s?generated|automatically generated|generated by|do not (?:edit|modify)", re.I),
        ),
        (r"encoded", _matches(r"[A-Za-z0-9+/=]{64,}|(?:(?:0x|\\x)[0-9A-Fa-f]{2}[,\s\"']*){16,}")),
        (r"line_max|(?:code|data)_line_chars|minified", _longest_line),
        (r"comment", _lines(lambda line: line.startswith(("#", "//", "/*", "*", "--", ";")))),
        (r"alphabetic", _words(lambda word: not any(map(str.isalpha, word)))),
        (r"word_length_max", _words(lambda word: len(word) > LONG_WORD)),
        (r"curly|brace", _matches(r"[{}]")),
        (r"halfwidth", _matches(r"[,.!?;:]")),
        (r"formula_share", _matches(r"\$\$[^$]+\$\$|\$[^$\n]+\$")),
        (r"numeric_lines", _lines(lambda line: sum(map(str.isdigit, line)) > len(line) / 2)),
        (r"javascript", _matches(r"javascript", re.IGNORECASE)),
    )
]
