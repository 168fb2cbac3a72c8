"""Code spans, URLs, paths, options, versions and identifiers: every one kept, none invented; no quotation altered. Code
and tables within a segment of prose stay line by line."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache, lru_cache

from tasks.rephrase.alignment.dates import NUMERIC
from tasks.rephrase.alignment.expressions import LOWERED, RAISED, tables
from tasks.rephrase.alignment.formulas import found
from tasks.rephrase.alignment.pair import CODE, FORMULA, URL, Pair, Verdict, changes, words
from tasks.rephrase.alignment.quantities import quantities
from tasks.rephrase.alignment.units import unit_at
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_with
from tasks.rephrase.structure import structure

FENCED = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.M | re.S)
IDENTIFIER = re.compile(
    r"(?<![A-Za-z0-9_/$\\\ufffc.-])(?:"
    r"--?[A-Za-z][\w-]*\w|-[A-Za-z0-9](?![\w.,-])"  # options
    r"|(?:~|\.{1,2})?(?:/[\w.@+-]*[\w@+]){2,}/?|~/[\w./+-]*\w|\.{0,2}/[a-z][\w.-]*\w/?"  # paths
    r"|[A-Za-z]:\\[\w\\. -]*\w"
    r"|\$\{?[A-Z_][A-Z0-9_]+\}?"  # environment variables
    r"|[A-Za-z_]\w*\(\)"
    r"|[A-Za-z]\w*(?:_\w+)+|_+[A-Za-z]\w*"
    r"|[a-z]{2,}(?:[A-Z][a-z0-9]+)+(?![A-Z])"
    r"|[A-Za-z_]\w+(?:(?:\.|::|->)[A-Za-z_]\w+)+|\.[a-z]{2,4}(?![\w.])"  # os.path, std::vector, .txt
    r"|v?\d+(?:\.\d+){2,}(?:[-+]?[a-z]+\.?\d*)?(?:/\d{1,3}|:\d+)?|v\d+(?:\.\d+)+"  # versions
    r"|(?=[0-9a-f]*[a-f])(?=[0-9a-f]*\d)[0-9a-f]{7,64}"  # hashes
    r"|[A-Za-z]+\d\w*(?:[-.][A-Z0-9]\w*)*|[A-Z][A-Za-z]*-\d+\w*(?:-\d+)*"  # IPv6, UTF-8, H2O
    r"|\d+(?:\.\d+)?[A-Z][A-Za-z0-9]*"  # 4K, 10M
    r")(?![A-Za-z0-9_])",
    re.A,
)
CHEMICAL = re.compile(r"(?:[A-Z][a-z]?\d{0,2}){1,8}(?:\d?[+-])?$", re.A)
POWER = re.compile(r"[cdkmnµ]?m[23]")
SENTENCE = re.compile(r"[a-z]{2,}\.[A-Z][a-z]+$")
QUOTED = re.compile(r'"([^"\n]{1,600})"|“([^”\n]{1,600})”|‘([^’\n]{1,600})’|「([^」\n]{1,600})」|«([^»\n]{1,600})»')
OMITTED = re.compile(r"\.\.\.|…+|\[[^\]]*\]")
"""In a quotation, where words were left out or put in."""
SCRIPTS = LOWERED | RAISED
FRAME = re.compile(r"(?:`{3,}|~{3,}).*|[-=+|: \t]*")
"""Lines that hold nothing: of a fence, and the rules of a table, which may be drawn otherwise."""
SPOKEN = re.compile(r"\s*[\"'“‘「]?[A-Z㐀-鿿][^={}<>|\\_;$#]*[.!?。！？][\"'”’」)]?\s*")
"""What is indented and reads as a paragraph: no code but an item of a list that goes on, or a quotation."""


def code(pair: Pair, config: AlignmentConfig) -> Verdict:
    """Code spans, URLs and identifiers: every one kept, none invented, and no quotation altered; code and tables line
    by line as they are. A word may lose its backticks, a call its parentheses, a chemical formula may become a name;
    nothing may change a letter. Symbols are for `formulas`: `a_n` and `-x` may be said in words."""
    source, rewrite = pair.source.translate(SCRIPTS), pair.rewrite.translate(SCRIPTS)
    # m³ is no m3, but Ca²⁺ is Ca2+
    before, after = (_literals(side.translate(LOWERED)) for side in (pair.source, pair.rewrite))
    if found(pair.source) or found(pair.rewrite):
        before, after = (tuple(each for each in side if not _symbol().fullmatch(each)) for side in (before, after))
    lost = [literal for literal in before if not (_stands(literal, rewrite) or _said(literal, rewrite))]
    invented = [
        literal
        for literal in after
        if not (_stands(literal, source) or _recased(literal, source) or _negative(literal, source))
    ]
    if not lost:  # `it` may have been given the name that the segment before has
        context = pair.context.translate(SCRIPTS)
        invented = [literal for literal in invented if not _stands(literal, context)]
    if not lost and not invented:
        if line := _altered(pair):
            why = f"code or a table is not kept as it is: '{line:.60}'"
            return Verdict("code", 0.0, False, why, sentence_with(pair.source, line), sentence_with(pair.rewrite, line))
        if pair.translated or not (quotations := _misquoted(pair.source, pair.rewrite)):
            return Verdict("code", 1.0, True)
        one, other = quotations
        why = f"the quotation '{one:.60}' became '{other:.60}'"
        return Verdict("code", 0.0, False, why, sentence_with(pair.source, one), sentence_with(pair.rewrite, other))
    score = 1 - (len(lost) + len(invented)) / len({*before, *after})
    sentences = sentence_with(source, "".join(lost[:1])), sentence_with(rewrite, "".join(invented[:1]))
    return Verdict("code", score, False, changes(lost, invented, _alike, 0.3), *sentences)


def _altered(pair: Pair) -> str:
    """A line of the source's code and tables that the rewrite does not have, or not in its place; nothing where it has
    them all. What a translation translates is not compared."""
    said = _rows(pair.rewrite)
    for begin, end in structure(pair.source).blocks:
        block = pair.source[begin:end]
        rows = _rows(block)
        formula = not re.search(r"\w", FORMULA.sub("", block))  # `formulas` compares these
        if formula or not rows or SPOKEN.fullmatch(block) or (pair.translated and not block.isascii()):
            continue
        if pair.source[:begin].rpartition("\n")[2].strip():  # a formula or table in HTML that begins within a line
            if " ".join(block.split()) not in " ".join(pair.rewrite.split()):
                return rows[0][1]
            continue
        first = not pair.source[:begin].strip()
        if not any(_same(rows, said[place : place + len(rows)], first or not place) for place in range(len(said))):
            known = {line for _, line in said}
            return next((line for _, line in rows if line not in known), rows[0][1])
    return ""


def _rows(text: str) -> list[tuple[int, str]]:
    """How far each line of a text is indented, and its words; without blank lines and frames."""
    lines = [line.expandtabs(4) for line in text.split("\n")]
    return [
        (len(line) - len(line.lstrip()), " ".join(line.split()))
        for line in lines
        if line.strip() and not FRAME.fullmatch(line.strip())
    ]


def _same(rows: list[tuple[int, str]], said: list[tuple[int, str]], first: bool) -> bool:
    """Whether these are the lines of a block, all indented alike farther or less; the `first` line of a text has lost
    its own blanks."""
    if [line for _, line in rows] != [line for _, line in said]:
        return False
    return len({new - old for (old, _), (new, _) in zip(rows[first:], said[first:], strict=True)}) < 2


@cache
def _symbol() -> re.Pattern[str]:
    """Up to three names of mathematics with their indices: a_n, -x, sin120, 2P, m_1m_2."""
    names = "|".join(sorted(tables()["functions"]))
    return re.compile(rf"-?\d*(?:(?:{names}|[A-Za-z])(?:_?\d+(?:\.\d+)?|_[A-Za-z](?![A-Za-z]))?){{1,3}}")


def _said(literal: str, text: str) -> bool:
    """Whether it may stand in prose instead: CO₂ by its name, `String` as strings, Ext4 that no longer begins a
    sentence."""
    if CHEMICAL.match(literal):
        return True
    if literal.isalpha():
        return not literal.isupper() and _whole(f"{literal}s".lower(), text.lower())
    return _recased(literal, text) or _negative(literal, text)


def _misquoted(source: str, rewrite: str) -> tuple[str, str] | None:
    """A quotation of the source and what the rewrite makes of it, where it is another one; left-out words aside."""
    told = _quoted(source)
    known = _spoken(f"{source} | {' '.join(told)}")  # "I came," he said, "I saw" may be one quotation
    for quotation in _quoted(rewrite):
        pieces = [piece for piece in map(_spoken, OMITTED.split(quotation)) if piece]
        if len("".join(pieces).split()) < 3 or all(f" {piece} " in f" {known} " for piece in pieces):
            continue
        new = Counter(_spoken(quotation).split())
        for one in told:
            old = Counter(_spoken(one).split())
            if 2 * (old & new).total() >= (old | new).total():
                return one, quotation
    return None


def _quoted(text: str) -> list[str]:
    return ["".join(match.groups("")) for match in QUOTED.finditer(text)]


def _spoken(text: str) -> str:
    """The words of a text in lower case, one blank apart."""
    return " ".join(words(text.lower().replace("’", "'")))


def _negative(literal: str, text: str) -> bool:
    """Whether it is no option but a number below nought that stands in `text`, too."""
    return bool(re.fullmatch(r"-\d", literal)) and any(one.value == int(literal) for one in quantities(text))


def _recased(literal: str, text: str) -> bool:
    return literal.replace("-", "").isalnum() and len(literal) > 2 and _whole(literal[0].swapcase() + literal[1:], text)


@lru_cache(maxsize=512)
def _literals(text: str) -> tuple[str, ...]:
    """What must stand as it is, each once, in order."""
    kept = [line.strip() for match in FENCED.finditer(text) for line in match.group(2).split("\n") if line.strip()]
    bare = FENCED.sub("\n", text)
    kept += [match.group(2).strip() for match in CODE.finditer(bare)]
    bare = FORMULA.sub("\ufffc", CODE.sub(" \ufffc ", bare))
    kept += [_bare_url(match.group()) for match in URL.finditer(bare)]
    bare = URL.sub(" ", bare)
    for match in IDENTIFIER.finditer(bare):
        literal = match.group().rstrip(".")
        if not (SENTENCE.match(literal) or _measured(bare, match) or NUMERIC.fullmatch(literal)):
            kept.append(literal)
    return tuple(dict.fromkeys(literal for literal in kept if literal))


def _bare_url(url: str) -> str:
    url = url.rstrip(".,;:!?*_'\"`")
    while url.endswith(")") and url.count(")") > url.count("("):
        url = url[:-1].rstrip(".,;:!?*_")
    return url


def _measured(text: str, match: re.Match[str]) -> bool:
    """Whether it is a number with its unit, or a unit with its power: 5K, 10MB, m3."""
    if POWER.fullmatch(match.group()):
        return True
    digits = re.match(r"\d+(?:\.\d+)?", match.group())
    if digits is None or digits.end() == len(match.group()):
        return False
    unit = unit_at(text, match.start() + digits.end())
    return unit is not None and unit[1] == match.end()


def _stands(literal: str, text: str) -> bool:
    """Whether it stands in `text`, not inside a longer word."""
    if literal in text and (_whole(literal, text) or literal in _literals(text)):
        return True
    if literal.endswith("()") and _whole(literal[:-2], text):
        return True
    if literal.isalpha() and not literal.isupper() and _whole(literal.lower(), text.lower()):
        return True
    if literal.endswith("/") and _whole(literal[:-1], text):
        return True
    # `find` with `-print0` of what was `find -print0`
    parts = [part for part in literal.split() if part not in ("|", "&&", ";")]
    return len(parts) > 1 and all(part in _literals(text) for part in parts)


def _whole(literal: str, text: str) -> bool:
    """Whether it stands in `text` and no word goes on at either end; a plural is no other word: URLs."""
    before = r"(?<!\w)" if re.match(r"\w", literal) else ""
    after = (r"(?!(?!s\b)\w)" if literal[-1:].isupper() else r"(?!\w)") if re.search(r"\w\Z", literal) else ""
    return bool(literal) and re.search(f"{before}{re.escape(literal)}{after}", text, re.A) is not None


def _alike(one: str, other: str) -> float:
    pairs = [{text[place : place + 2] for place in range(len(text) - 1)} or {text} for text in (one, other)]
    return len(pairs[0] & pairs[1]) / len(pairs[0] | pairs[1])
