"""Two texts word by word: what the rewrite lost, what is new in it, what it copied, and which of that matters most.

For the eye: it decides nothing. Words are compared as a set, not in order, since a rewriting moves its words about; a
word that the other side has in another form counts as kept. Common words are not marked, or everything would be.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tasks.rephrase.alignment.answer import RUN, in_runs
from tasks.rephrase.alignment.pair import CODE, FORMULA, HAN, URL, WORD, lists
from tasks.rephrase.alignment.units import lists as numerals

Kind = Literal["same", "copied", "lost", "new"]
What = Literal["", "number", "name", "negation", "formula", "code", "named"]

LONGEST = 60_000
"""Characters of a text beyond which it is shown unmarked."""
DENIALS = frozenset(
    "not no never none nothing nobody nowhere neither nor cannot without unless 不 没 無 无 未 非 否 勿 莫 别".split()
)
"""Words, and Chinese characters, that deny by themselves."""
NAMED = 12
"""Things of a reason that are looked for, and places of each."""
QUOTED = 40
"""Characters to which a reason cuts what it lists: longer ones may end inside a word."""
_LISTED = re.compile(r"\b(lost|dropped|invented|added|found|names) (.+?)(?:;|, which |$)")
_TURNED = re.compile(r"'([^']+)' became '([^']+)'")
_SAID = re.compile(r"says '(.+)' \d+ times")
_WHOLE: tuple[tuple[What, re.Pattern[str]], ...] = (("formula", FORMULA), ("code", CODE), ("code", URL))
_MARKER = re.compile(r"\s*\d{1,2}[.)]\s")
_SENTENCE_START = re.compile(r"(?:^|[.!?:…。！？：]['\"”’)]*\s+|\n)\s*(?:[-*#>]+\s*|\d+[.)]\s*)?['\"“‘(]*$")


@dataclass(frozen=True)
class Piece:
    """A stretch of one of the two texts."""

    text: str
    kind: Kind = "same"
    """`lost`: not in the rewrite; `new`: not in the source; `copied`: in a run of six or more words of the source."""
    what: What = ""
    """What it is, where that is of weight and it differs; `named`: the check that refused the rewrite names it."""


@dataclass(frozen=True)
class Difference:
    """Both texts in pieces; put together they are the texts."""

    source: tuple[Piece, ...]
    rewrite: tuple[Piece, ...]


@dataclass(frozen=True)
class _Token:
    start: int
    end: int
    form: str
    """What is compared: case, inflection, digits or words apart. Empty for a list's marker, which is never marked."""
    word: str
    """Lower case."""
    what: What


def difference(source: str, rewrite: str, why: str = "") -> Difference:
    """The two texts, marked; what the check's reason `why` quotes or lists is marked whatever it is."""
    if max(len(source), len(rewrite)) > LONGEST or not source or not rewrite:
        return Difference((Piece(source),) if source else (), (Piece(rewrite),) if rewrite else ())
    old, new = _tokens(source), _tokens(rewrite)
    negated = _negations(old) != _negations(new)
    sides = []
    pairs: tuple[tuple[str, list[_Token], list[_Token], Kind], ...] = (
        (source, old, new, "lost"),
        (rewrite, new, old, "new"),
    )
    for text, tokens, other, kind in pairs:
        forms = {token.form for token in other}
        runs = in_runs([token.word for token in other], [token.word for token in tokens], RUN)
        # A word among copied ones is copied; whether it stands on the other side is asked first.
        marks = [_mark(token, forms, copied, kind, negated) for token, copied in zip(tokens, runs, strict=True)]
        named = _named(text, why, kind)
        for number, token in enumerate(tokens):
            if any(start < token.end and token.start < end for start, end in named):
                marks[number] = (kind, "named")
        sides.append(tuple(_pieces(text, tokens, marks)))
    return Difference(sides[0], sides[1])


def _named(text: str, why: str, kind: Kind) -> list[tuple[int, int]]:
    """Where in `text` the things stand that `why` says were lost (or are new)."""
    found = []
    for verb, listed in _LISTED.findall(why):
        if (verb in ("lost", "dropped")) == (kind == "lost"):
            found += [item.strip(" '") for item in listed.split(", ")]
    for quoted, turned in _TURNED.findall(why):
        found.append(quoted if kind == "lost" else turned)
    if kind == "new" and (said := _SAID.search(why)):
        found.append(said.group(1))
    spans = []
    for item in found[:NAMED]:
        if item:
            spans += [match.span() for match in re.finditer(_bounded(item), text, re.I)][:NAMED]
    return spans


def _bounded(item: str) -> str:
    """A pattern of `item` where it stands alone: `3` is not found in `13`."""
    before = r"(?<!\w)" if item[0].isascii() and item[0].isalnum() else ""
    after = r"(?!\w)" if item[-1].isascii() and item[-1].isalnum() and len(item) < QUOTED else ""
    return f"{before}{re.escape(item)}{after}"


def _tokens(text: str) -> list[_Token]:
    """Formulas, code spans and URLs whole, then words and numbers, in order."""
    spans: list[tuple[int, int, What]] = []
    for what, pattern in _WHOLE:
        spans += [(*match.span(), what) for match in pattern.finditer(text)]
    taken: list[tuple[int, int, What]] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not taken or span[0] >= taken[-1][1]:
            taken.append(span)
    found = [_Token(a, b, re.sub(r"\s+", "", text[a:b]).rstrip(".,;"), text[a:b], what) for a, b, what in taken]
    at = 0
    for start, end in [*((a, b) for a, b, _ in taken), (len(text), len(text))]:
        found += [_word(text, match) for match in WORD.finditer(text, at, start)]
        at = end
    return sorted(found, key=lambda token: token.start)


def _word(text: str, match: re.Match[str]) -> _Token:
    word = match.group()
    lower = word.lower().replace("’", "'")
    if word.isdigit() and _MARKER.fullmatch(text, text.rfind("\n", 0, match.start()) + 1, match.end() + 2):
        form, what = "", ""
    elif word[0].isdigit():
        form, what = re.sub(r",(?=\d{3}(?!\d))", "", word), "number"
    elif (value := _cardinals().get(lower)) is not None:
        form, what = str(value), "number"
    elif lower in DENIALS or lower.endswith("n't"):
        form, what = lower, "negation"
    else:
        form, what = _stem(lower), "name" if _is_name(text, match) else ""
    return _Token(*match.span(), form, lower, what)  # type: ignore[arg-type]


@cache
def _cardinals() -> dict[str, int]:
    """English numbers in words but `one`, which is a pronoun more often."""
    known = numerals()["cardinals"] | numerals()["scales"]
    return {word: value for word, value in known.items() if word.isascii() and word != "one"}


def _is_name(text: str, match: re.Match[str]) -> bool:
    """A word in a capital that does not only open its sentence."""
    word = match.group()
    if len(word) < 2 or not word[0].isupper() or word.lower() in lists()["capitals"]:
        return False
    return not _SENTENCE_START.search(text[max(0, match.start() - 40) : match.start()])


def _stem(word: str) -> str:
    word = re.sub(r"ie[sd]$", "y", re.sub(r"'s$", "", word))
    return word[: max(5, len(word) - 3)] if len(word) > 5 else word.rstrip("s") or word


def _negations(tokens: Sequence[_Token]) -> int:
    return sum(token.what == "negation" for token in tokens)


def _mark(token: _Token, other: set[str], copied: bool, missing: Kind, negated: bool) -> tuple[Kind, What]:
    if token.what == "negation":
        return (missing, "negation") if negated else ("copied" if copied else "same", "")
    if token.form and token.form not in other:
        if token.what:
            return missing, token.what
        return ("same", "") if _common(token.word) else (missing, "")
    return ("copied", "") if copied else ("same", "")


def _common(word: str) -> bool:
    """A word that says little by itself."""
    return not HAN.match(word) and (len(word) < 2 or word in lists()["capitals"])


def _pieces(text: str, tokens: Sequence[_Token], marks: Sequence[tuple[Kind, What]]) -> list[Piece]:
    """The whole text, neighbours of one mark together; what stands between two words with one mark has it too."""
    found: list[Piece] = []

    def put(piece: Piece) -> None:
        last = found[-1] if found else None
        if last and (last.kind, last.what) == (piece.kind, piece.what):
            found[-1] = Piece(last.text + piece.text, last.kind, last.what)
        elif piece.text:
            found.append(piece)

    at = 0
    before: tuple[Kind, What] = ("same", "")
    for token, mark in zip(tokens, marks, strict=True):
        between = mark if mark == before and mark[1] in ("", "named") else ("same", "")
        put(Piece(text[at : token.start], *between))
        put(Piece(text[token.start : token.end], *mark))
        at, before = token.end, mark
    put(Piece(text[at:]))
    return found
