"""No formula became another; equal notations are the same, and so is what follows from a chain of relations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cached_property, lru_cache

from tasks.rephrase.alignment.expressions import form, reading, tables, tokens
from tasks.rephrase.alignment.pair import CODE, FORMULA, URL, Pair, Verdict, changes
from tasks.rephrase.alignment.quantities import number
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.segments import sentence_with

ALPHABET = "A-Za-zα-ωΑ-ΩÀ-ÖØ-öø-ɏ\u0300-\u036f"
CHUNK = re.compile(r"[^\s㐀-鿿，。；：、！？“”]+")
OPERATOR = re.compile(r"(?:<=>|<=|>=|==|!=|->|=>|[=<>≤≥≠≈≡→⇒⇌∈±+\-−–*/×·^|~])+")
OPERAND = re.compile(rf"[-−+(\[|]*(?:\d[\d.,]*(?:\.\.\.|…)?%?|[{ALPHABET}][\d₀-₉]*'*)[)\]|!]*")
COMPOUND = re.compile(rf"[{ALPHABET}\d_^*/+\-−–=<>≤≥≠≈·×()\[\]{{}}|.,'!…⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ₀₁₂₃₄₅₆₇₈₉ₙᵢ√∞∑∏∫→]+")
MATHS = re.compile(r"[=<>≤≥≠≈≡→⇒⇌∈±^*/×·√]|[+−]|(?<=[\w)\]'])\s*-\s*(?=[\w(])|[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]|\b[A-Za-z]\([^()\s]")
RELATION = re.compile(r"[=<>≤≥≠≈≡→⇒⇌∈]")
EQUAL = re.compile(r"(?<![<>!=:])=(?![=>])")
SEPARATOR = re.compile(
    r",\s*(?:\\ldots|\\dots|\.\.\.)?|\\\\|\\qquad|\\quad|\\text\{\s*(?:and|or|for|if|where|with)\s*\}|\\implies|\\iff|;"
)
BULLET = re.compile(r"^[ \t]*(?:[-*+•>]|\d{1,2}[.)])[ \t]+")
WORD = re.compile(r"(?<![\\\w^{])[A-Za-z]{2,}(?![\w^(=+*/}])")
"""A word, which is no product of letters."""
NO_FORMULA = re.compile(
    rf"""
    \d+(?:\s?[x×]\s?\d+)+                                                        # 8 x 8
  | [-−+]?\d[\d.,]*\s?[A-Za-zµμ°Ω%]{{1,3}}(?:[/·*][A-Za-z]{{1,3}})*[²³]?         # 343 m/s
  | (?!.*(?:\b[a-z][-/]\d|\d[-/][a-z]\b))[{ALPHABET}\d.,]+(?:[/-][{ALPHABET}\d.,]+)+  # A/B, 5-6
    """,
    re.X,
)
GOES_ON = "(?![\\^_'!]\x1f)"
"""Signs behind which it is another formula: m v is not in m v^2."""
LONGEST_RUN = 24
ALIKE = 0.5
"""Share of signs in common from which a formula may have become another."""


def formulas(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No formula of the source became another one. One that is only left out may have been said in words, and one that
    is like none of those was a name given or a step of the work: what they say is for the check of meaning."""
    # 6.6 × 10^{-34} and 5 kg are for `numbers`.
    before, after = (
        [each for each in found(text) if not re.search("×|[A-Za-z]", number(each))]
        for text in (pair.source, pair.rewrite)
    )
    if not before or not after:
        return Verdict("formulas", 1.0, True)
    old, new = TextFormulas(pair.source), TextFormulas(pair.rewrite)
    # A learning note may say a formula once more: there one that is said once less was lost, too.
    fewer = Counter(map(form, before)) - Counter(map(form, after)) if pair.adds else Counter[str]()
    # `2x = 8` is lost where only `x = 4` is left, and `9x = 36` is not invented where that stood.
    lost = [formula for formula in before if not new.holds(formula, scaled=False)]
    rarer = [formula for formula in before if form(formula) in fewer and len(tokens(formula)) > 1]
    invented = [formula for formula in after if not old.holds(formula) and not old.equates(formula)]
    became = [(one, other) for other in invented for one in lost if _took_place(one, other)]
    values = [end for formula in lost for end in _ends(formula) if not new.holds(end, scaled=False)]
    became += [(one, other) for other in invented for one in values if _slip(one, other)]
    became += [(one, other) for other in invented for one in rarer if _slip(one, other)]
    if not became:
        return Verdict("formulas", 1.0, True)
    total = len({form(formula) for formula in (*before, *after)})
    wrong = {form(formula) for both in became for formula in both}
    ones, others = (list(dict.fromkeys(side)) for side in zip(*became, strict=True))
    why = changes(ones, others, _likeness, 0)
    one, other = became[0]
    score = max(0.0, 1 - len(wrong) / total)
    return Verdict("formulas", score, False, why, sentence_with(pair.source, one), sentence_with(pair.rewrite, other))


@lru_cache(maxsize=512)
def found(text: str) -> tuple[str, ...]:
    """The formulas of `text`: between TeX's delimiters, and plain ones such as `E = mc^2` or `6 CO2 + 6 H2O -> ...`."""
    text = CODE.sub(" \n ", text)
    kept = [formula for formula in map(inside, FORMULA.finditer(text)) if tokens(formula)]
    return (*kept, *_plain(URL.sub(" \n ", FORMULA.sub(" \n ", text))))


def inside(match: re.Match[str]) -> str:
    """What stands between the delimiters of a match of FORMULA."""
    groups = match.groups()
    return (groups[5] if groups[4] else next((group for group in groups[:4] if group is not None), "")).strip()


class TextFormulas:
    """The formulas of a text, to ask whether one is among them."""

    def __init__(self, text: str) -> None:
        formulas = found(text)
        self.text = text
        self.forms = {form(formula) for formula in formulas}
        self.told = {key for formula in formulas if (read := reading(formula)) for key in read.told()}
        self.streams = [_joined(signs) for formula in formulas for signs in (tokens(formula), _interval(formula))]

    @cached_property
    def whole(self) -> str:
        """All signs of the text, as if it were one formula."""
        lines = re.split(r"\n|(?<=[.!?]) ", WORD.sub(_no_function, self.text))
        return _joined(tuple(sign for line in lines for sign in (*tokens(line[:4000]), "\n")))

    def holds(self, formula: str, scaled: bool = True) -> bool:
        """Whether the text says it, in some notation; `scaled`, also where a multiple of it stands: of `x` the `-x`."""
        read = reading(formula)
        if self.told.issuperset(read.keys(scaled)) if read else form(formula) in self.forms:
            return True
        if self._has(tokens(formula), signed=not scaled) or self._has(_interval(formula)):
            return True
        parts = [part for part in SEPARATOR.split(formula) if part.strip()]
        return len(parts) > 1 and all(form(part) in self.forms or self._has(tokens(part)) for part in parts)

    def equates(self, formula: str) -> bool:
        """Whether it sets equal two terms of the text: `256³, or 16,777,216`."""
        sides = [tuple(side.split("\x1f")) for side in "\x1f".join(tokens(formula)).split("\x1f=\x1f")]
        telling = all(len(signs) > 1 or len(signs[0]) > 2 for signs in sides)  # not there by chance
        return len(sides) > 1 and telling and all(self._has(signs, signed=True) for signs in sides)

    def _has(self, signs: tuple[str, ...], signed: bool = False) -> bool:
        """Whether the signs stand side by side in a formula or in the text at large; `signed`, not behind a minus."""
        wanted = re.compile(("(?<!-)" if signed else "") + re.escape(_joined(signs)) + GOES_ON)
        return bool(signs) and any(map(wanted.search, (*self.streams, self.whole)))


def _interval(formula: str) -> tuple[str, ...]:
    """The interval that a condition on a name says: of `-1 <= x <= 4`, and of `x ∈ [-1, 4]`, `[-1, 4]`."""
    signs = tokens(formula)
    if len(signs) > 2 and signs[1] == "∈" and signs[2] in "[(":
        return signs[2:]
    marks = [place for place, sign in enumerate(signs) if sign in ("<", "<=")]
    if len(marks) != 2 or marks[1] != marks[0] + 2:
        return ()
    left, right = ("[" if signs[marks[0]] == "<=" else "("), ("]" if signs[marks[1]] == "<=" else ")")
    return (left, *signs[: marks[0]], ",", *signs[marks[1] + 1 :], right)


def _no_function(match: re.Match[str]) -> str:
    return match.group() if match.group() in tables()["functions"] else " \u00a7 "


def _joined(signs: tuple[str, ...]) -> str:
    return "\x1f" + "\x1f".join(signs) + "\x1f"


def _took_place(one: str, other: str) -> bool:
    """Whether a formula that is lost became another: one sign makes the difference, or most signs are the same. What
    resembles nothing that was lost gives a name to a thing or is a step of the work."""
    return (len(tokens(other)) >= 2 and _likeness(one, other) >= ALIKE) or _slip(one, other)


def _ends(formula: str) -> Iterator[str]:
    """What a chain such as `A = 2 pi r = 6 pi` comes to: its last side, and that with each side before the last but
    one. A side of one sign is like any other."""
    *sides, end = EQUAL.split(formula)
    if sides and len(tokens(end)) > 1:
        yield end
    yield from (f"{side} = {end}" for side in sides[:-1])


def _slip(one: str, other: str) -> bool:
    """Whether one sign makes the difference between two formulas."""
    mine, theirs = tokens(one), tokens(other)
    if abs(len(mine) - len(theirs)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    return mine[start + (len(mine) >= len(theirs)) :] == theirs[start + (len(theirs) >= len(mine)) :]


def _likeness(one: str, other: str) -> float:
    mine, theirs = Counter(tokens(one)), Counter(tokens(other))
    return 2 * (mine & theirs).total() / max(mine.total() + theirs.total(), 1)


def _plain(text: str) -> Iterator[str]:
    """Runs of signs, numbers and single letters that make a formula."""
    for line in text.split("\n"):
        line, run, end = BULLET.sub("", line), list[str](), 0
        for match in CHUNK.finditer(line):
            if line[end : match.start()].strip():  # Chinese stands between
                yield from _run(run)
                run = []
            end = match.end()
            chunk = match.group().strip('*_"“”').rstrip('.,;:?!*_"”’')
            ended = len(chunk) < len(match.group().rstrip("*_")) and bool(re.search(r"[.,;:?!]", match.group()[-2:]))
            # behind a relation two or three letters are a product: P = NP, k^2 = ijk
            product = bool(run) and RELATION.fullmatch(run[-1]) and re.fullmatch(r"[A-Za-z]{2,3}", chunk)
            if chunk and len(run) < LONGEST_RUN and (product or _mathy(chunk)):
                run.append(chunk)
                if not ended:
                    continue
            yield from _run(run)
            run = []
        yield from _run(run)


def _mathy(chunk: str) -> bool:
    if OPERATOR.fullmatch(chunk) or OPERAND.fullmatch(chunk) or chunk.strip("()") in tables()["functions"]:
        return True
    if len(chunk) > 60 or not COMPOUND.fullmatch(chunk):
        return False
    words = [word for word in re.findall(r"[A-Za-z]{2,}", chunk) if word not in tables()["functions"]]
    if any(len(word) > 3 for word in words):
        return False
    if words and "/" in chunk and not re.search(r"[_^=+*(]", chunk):
        return False
    # `km/h`, `pre-war`, `and/or` and `3-day` are words.
    if words and re.fullmatch(r"[(]?[A-Za-z\d.]+(?:[-–/][A-Za-z\d.]+)*[)]?", chunk):
        return False
    return re.search(r"[\d_^*/+\-−–=<>≤≥≠≈·×(⁰¹²³⁴-⁹₀-₉]", chunk) is not None


def _run(chunks: list[str]) -> Iterator[str]:
    """The formula of a run, without the words at its ends, if it is one."""
    while chunks and (OPERATOR.fullmatch(chunks[-1]) or chunks[-1] in tables()["functions"]):
        chunks = chunks[:-1]
    while chunks and (
        (OPERATOR.fullmatch(chunks[0]) and chunks[0] not in ("-", "−"))
        or (chunks[0] in ("a", "A", "I") and not OPERATOR.fullmatch((chunks[1:2] or ["x"])[0]))
    ):
        chunks = chunks[1:]
    text = " ".join(chunks)
    letter = re.search(rf"[{ALPHABET}]", text)
    says = letter or (RELATION.search(text) and re.search(r"\d", text))
    if MATHS.search(text) and says and not NO_FORMULA.fullmatch(text):
        yield text
