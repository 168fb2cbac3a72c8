"""No formula became another; equal notations are the same, and so is what follows from a chain of equations."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from tasks.rephrase.alignment.pair import CODE, FORMULA, URL, Pair, Verdict, changes
from tasks.rephrase.alignment.tex import FUNCTIONS, SAME, form, tokens
from tasks.rephrase.config import AlignmentConfig

CHUNK = re.compile(r"[^\s㐀-鿿，。；：、！？“”]+")
OPERATOR = re.compile(r"(?:<=>|<=|>=|==|!=|->|=>|[=<>≤≥≠≈≡→⇒⇌∈±+\-−–*/×·^|~])+")
LETTERS = re.compile(r"[A-Za-z]+")
ALPHABET = "A-Za-zα-ωΑ-ΩÀ-ÖØ-öø-ɏ\u0300-\u036f"
OPERAND = re.compile(rf"[-−+(\[|]*(?:\d[\d.,]*(?:\.\.\.|…)?%?|[{ALPHABET}][\d₀-₉]*'*)[)\]|!]*")
COMPOUND = re.compile(rf"[{ALPHABET}\d_^*/+\-−–=<>≤≥≠≈·×()\[\]{{}}|.,'!…⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ₀₁₂₃₄₅₆₇₈₉ₙᵢ√∞∑∏∫→]+")
MATHS = re.compile(r"[=<>≤≥≠≈≡→⇒⇌∈±^*/×·√]|[+−]|(?<=[\w)\]'])\s*-\s*(?=[\w(])|[⁰¹²³⁴⁵⁶⁷⁸⁹ⁿ]|\b[A-Za-z]\([^()\s]")
RELATION = re.compile(r"[=<>≤≥≠≈≡→⇒⇌∈]")
SEPARATOR = re.compile(
    r",\s*(?:\\ldots|\\dots|\.\.\.)?|\\\\|\\qquad|\\quad|\\text\{\s*(?:and|or|for|if|where|with)\s*\}|\\implies|\\iff|;"
)
BULLET = re.compile(r"^[ \t]*(?:[-*+•>]|\d{1,2}[.)])[ \t]+")
EQUALS = re.compile(r"(?<![<>!=])=(?![=>])|\\approx(?![a-z])|\\equiv(?![a-z])|≈|≡")
RELATED = re.compile(
    r"(?<![<>!=])=(?![=>])|<=|>=|!=|[<>≤≥≠≈≡]|\\(?:leq?|geq?|leqslant|geqslant|neq?|lt|gt|approx|equiv)(?![A-Za-z])"
)
PRODUCT = re.compile(r"[A-Za-z]{2,3}")
"""Behind a relation: P = NP, k^2 = ijk."""
SIZE = re.compile(r"\d+(?:\s?[x×]\s?\d+)+")
NUMBER = re.compile(r"\d{1,20}(?:\.\d{1,20})?")
MEASURED = re.compile(r"[-−+]?\d[\d.,]*\s?[A-Za-zµμ°Ω%]{1,3}(?:[/·*][A-Za-z]{1,3})*[²³]?")
PROSE = re.compile(
    rf"(?<![\\\w^{{]){'(?!(?:' + '|'.join(sorted(FUNCTIONS)) + ')(?![A-Za-z]))'}[A-Za-z]{{2,}}(?![\w^(=+*/}}])"
)
"""Words, which are no products of letters."""
LONGEST_RUN = 24
ALIKE = 0.5
"""Share of signs in common from which a formula may have become another."""


@dataclass(frozen=True)
class Formula:
    """A formula as it stands in a text."""

    text: str
    plain: bool
    """Without TeX's delimiters."""

    @property
    def signs(self) -> tuple[str, ...]:
        return tokens(self.text)


def formulas(pair: Pair, config: AlignmentConfig) -> Verdict:
    """No formula of the source became another one. One that is only left out may have been said in words, and one that
    is like none of those was a name given or a step of the work: what they say is for the check of meaning."""
    before, after = found(pair.source), found(pair.rewrite)
    if not before and not after:
        return Verdict("formulas", 1.0, True)
    old, new = _Text(pair.source, before), _Text(pair.rewrite, after)
    # A learning note may say a formula once more: there one that is said once less was lost, too.
    fewer = Counter(map(_key, before)) - Counter(map(_key, after)) if pair.adds else Counter[str]()
    lost = [formula for formula in before if not new.holds(formula)]
    rarer = [formula for formula in before if _key(formula) in fewer and len(formula.signs) > 1]
    invented = [formula for formula in after if not old.holds(formula) and not old.equates(formula)]
    became = [(one, other) for other in invented for one in lost if _took_place(one, other)]
    became += [(one, other) for other in invented for one in rarer if _slip(one, other)]
    total = max(len({_key(formula) for formula in (*before, *after)}), 1)
    wrong = {_key(formula) for both in became for formula in both}
    why = changes(_texts([one for one, _ in became]), _texts([other for _, other in became]), _likeness, 0)
    return Verdict("formulas", max(0.0, 1 - len(wrong) / total), not wrong, why)


@lru_cache(maxsize=512)
def found(text: str) -> tuple[Formula, ...]:
    """The formulas of `text`: between TeX's delimiters, and plain ones such as `E = mc^2` or `6 CO2 + 6 H2O -> ...`."""
    text = CODE.sub(" \n ", text)
    kept = [Formula(inside, False) for match in FORMULA.finditer(text) if (inside := _inside(match)) and tokens(inside)]
    bare = URL.sub(" \n ", FORMULA.sub(" \n ", text))
    return tuple(kept) + tuple(Formula(run, True) for run in _plain(bare))


def _inside(match: re.Match[str]) -> str:
    groups = match.groups()
    return (groups[5] if groups[4] else next((group for group in groups[:4] if group is not None), "")).strip()


def _key(formula: Formula) -> str:
    return form(formula.text)


class _Text:
    """The formulas of a text, to ask whether one is among them."""

    def __init__(self, text: str, formulas: tuple[Formula, ...]) -> None:
        self.forms = {_key(formula) for formula in formulas}
        self.streams = [_joined(formula.signs) for formula in formulas]
        self.chains = [[form(side) for side in sides] for formula in formulas if len(sides := _sides(formula.text)) > 1]
        self.relations = [parts for formula in formulas if len(parts := _related(formula.text)) > 1]
        self.text = text
        self._whole = ""

    def holds(self, formula: Formula) -> bool:
        if _key(formula) in self.forms:
            return True
        signs = formula.signs
        if self._has(signs):
            return True
        parts = [part for part in SEPARATOR.split(formula.text) if part.strip()]
        if len(parts) > 1:
            return all(form(part) in self.forms or self._has(tokens(part)) for part in parts)
        if self._follows(_related(formula.text)):
            return True
        sides = _sides(formula.text)
        if len(sides) > 2:  # a = b = c of a = b and b = c
            return all(self._links(pair) for pair in pairwise(sides))
        return len(sides) == 2 and self._links((sides[0], sides[1]))

    def equates(self, formula: Formula) -> bool:
        """Whether it sets equal two terms of the text: `256³, or 16,777,216`."""
        sides = [side for side in RELATED.split(formula.text) if side.strip()]
        marks = {mark for _, mark in _related(formula.text) if mark}
        return marks == {"="} and all(_telling(tokens(side)) and self._has(tokens(side)) for side in sides)

    def _follows(self, parts: list[tuple[str, str]]) -> bool:
        """Whether `a < c` follows from a chain such as a = b < c."""
        if len(parts) != 2:
            return False
        (one, _), (other, mark) = parts
        for chain in self.relations:
            sides = [side for side, _ in chain]
            if one in sides and other in sides[sides.index(one) + 1 :]:
                between = {sign for _, sign in chain[sides.index(one) + 1 : len(sides) - sides[::-1].index(other)]}
                if mark in between and between <= {"=", mark}:
                    return True
        return False

    def _links(self, sides: tuple[str, str]) -> bool:
        """Whether an equation, or a chain of them, leads from one side to the other."""
        one, other = form(sides[0]), form(sides[1])
        return any(one in chain and other in chain[chain.index(one) + 1 :] for chain in self.chains)

    def _has(self, signs: tuple[str, ...]) -> bool:
        """Whether the signs stand side by side in a formula or in the text at large."""
        wanted = _joined(signs)
        if any(wanted in stream for stream in self.streams):
            return True
        if not self._whole:
            self._whole = _joined(tokens_of_text(self.text))
        return wanted in self._whole


def _related(formula: str) -> list[tuple[str, str]]:
    """The sides of a chain of relations in their normal form, each with the relation before it; the first has none."""
    marks = ["", *(SAME.get(mark, mark) for mark in RELATED.findall(formula))]
    sides = RELATED.split(formula)
    return [(form(side), mark) for side, mark in zip(sides, marks, strict=True) if side.strip()]


def _telling(signs: tuple[str, ...]) -> bool:
    """Whether a term is so long that it is not there by chance."""
    return len(signs) > 1 or (bool(signs) and len(signs[0]) > 2)


def _sides(formula: str) -> list[str]:
    return [side for side in EQUALS.split(formula) if side.strip()]


def tokens_of_text(text: str) -> tuple[str, ...]:
    """The signs of a whole text, as if it were one formula."""
    lines = re.split(r"\n|(?<=[.!?]) ", PROSE.sub(" \u00a7 ", text))
    return tuple(sign for line in lines for sign in (*tokens(line[:4000]), "\n"))


def _joined(signs: tuple[str, ...]) -> str:
    return "\x1f" + "\x1f".join(signs) + "\x1f"


def _took_place(one: Formula, other: Formula) -> bool:
    """Whether a formula that is lost became another: one sign makes the difference, or most signs are the same. What
    resembles nothing that was lost gives a name to a thing or is a step of the work."""
    return (len(other.signs) >= 2 and _likeness(one.text, other.text) >= ALIKE) or _slip(one, other)


def _slip(one: Formula, other: Formula) -> bool:
    """Whether one sign makes the difference between two formulas."""
    mine, theirs = one.signs, other.signs
    if abs(len(mine) - len(theirs)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))
    return mine[start + (len(mine) >= len(theirs)) :] == theirs[start + (len(theirs) >= len(mine)) :]


def _texts(found: list[Formula]) -> list[str]:
    return list(dict.fromkeys(formula.text for formula in found))


def _likeness(one: str, other: str) -> float:
    mine, theirs = Counter(tokens(one)), Counter(tokens(other))
    return 2 * sum((mine & theirs).values()) / max(sum(mine.values()) + sum(theirs.values()), 1)


def _plain(text: str) -> Iterator[str]:
    """Runs of signs, numbers and single letters that make a formula."""
    run: list[str] = []
    for line in text.split("\n"):
        for match in CHUNK.finditer(BULLET.sub("", line)):
            chunk = match.group().strip('*_"“”').rstrip('.,;:?!*_"”’')
            ended = len(chunk) < len(match.group().rstrip("*_")) and bool(re.search(r"[.,;:?!]", match.group()[-2:]))
            product = bool(run) and RELATION.fullmatch(run[-1]) is not None and PRODUCT.fullmatch(chunk) is not None
            if chunk and len(run) < LONGEST_RUN and (product or _mathy(chunk)):
                run.append(chunk)
                if not ended:
                    continue
            yield from _run(run)
            run = []
        yield from _run(run)
        run = []


def _mathy(chunk: str) -> bool:
    if OPERATOR.fullmatch(chunk) or OPERAND.fullmatch(chunk) or chunk.strip("()") in FUNCTIONS:
        return True
    if len(chunk) > 60 or not COMPOUND.fullmatch(chunk):
        return False
    words = [word for word in LETTERS.findall(chunk) if word not in FUNCTIONS]
    if any(len(word) > 3 for word in words):
        return False
    if any(len(word) > 1 for word in words) and "/" in chunk and not re.search(r"[_^=+*(]", chunk):
        return False
    # `km/h`, `pre-war`, `and/or` and `3-day` are words.
    if any(len(word) > 1 for word in words) and re.fullmatch(r"[(]?[A-Za-z\d.]+(?:[-–/][A-Za-z\d.]+)*[)]?", chunk):
        return False
    return re.search(r"[\d_^*/+\-−–=<>≤≥≠≈·×(⁰¹²³⁴-⁹₀-₉]", chunk) is not None


def _run(chunks: list[str]) -> Iterator[str]:
    while chunks and (OPERATOR.fullmatch(chunks[-1]) or chunks[-1] in FUNCTIONS):
        chunks = chunks[:-1]
    while chunks and (
        (OPERATOR.fullmatch(chunks[0]) and chunks[0] not in ("-", "−"))
        or (chunks[0] in ("a", "A", "I") and not OPERATOR.fullmatch((chunks[1:2] or ["x"])[0]))
    ):
        chunks = chunks[1:]
    # `For n = 1 R returns NA`: a letter that follows without an operator is a word.
    if len(chunks) > 3 and len(chunks[-1]) == 1 and chunks[-1].isalpha() and not OPERATOR.fullmatch(chunks[-2]):
        chunks = chunks[:-1]
    if not chunks:
        return
    text = _balanced(" ".join(chunks))
    if not MATHS.search(text) or not re.search(rf"[{ALPHABET}]|\d", text):
        return
    if SIZE.fullmatch(text) or (not RELATION.search(text) and not re.search(rf"[{ALPHABET}]", text)):
        return  # 10 - 20, 3/4, 8 x 8
    if MEASURED.fullmatch(text):
        return  # 343 m/s
    if re.fullmatch(rf"[{ALPHABET}\d.,]+(?:[/-][{ALPHABET}\d.,]+)+", text) and not re.search(
        r"\b[a-z][-/]\d|\d[-/][a-z]\b", text
    ):
        return  # A/B, 5-6, I/O
    yield text


def _balanced(text: str) -> str:
    """Without the brackets that were opened or closed outside."""
    for opening, closing in ("()", "[]"):
        while text.count(closing) > text.count(opening) and text.endswith(closing):
            text = text[:-1]
        while text.count(opening) > text.count(closing) and text.startswith(opening):
            text = text[1:]
    return text.strip()
