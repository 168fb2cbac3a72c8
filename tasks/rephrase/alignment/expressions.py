"""Formulas by what they are worth: notations become the same signs, and two expressions with the same value where
nobody chose the point are the same, however they are written.

Every name has a value by a hash of how it is written, and so has a function of a value: nothing is known of `f` or
`sin` but that equal arguments give equal values. What is no expression is compared sign by sign. The text is a
rewriter's: its length and depth are bounded, and what overflows is no expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import yaml

TABLES = Path(__file__).with_name("formulas.yaml")
TOKEN = re.compile(
    r"""
    \\[A-Za-z]+\*? | \\.
  | \d+(?:\.\d+)*(?:\{?,\}?\d{3}(?!\d))*
  | [A-Za-zÀ-ɏͰ-ϿЀ-ӿ]
  | <=> | <= | >= | != | == | <-> | -> | => | \*\* | \.\.\.
  | [㐀-鿿] | [^\s\w] | \S
    """,
    re.X,
)
DEGREES = re.compile(r"\^\s*\{\s*\\circ\s*\}|(?<=\d)\s?°")
LINE = re.compile(r"\\\\(?:\[[^\]]*\])?|&|\\(?:begin|end)\{[a-z]+\*?\}(?:\{\d+\})?")
FRACTION = re.compile(r"\\[dtc]?(frac|binom)\s*([0-9A-Za-z](?![A-Za-z]))\s*([0-9A-Za-z])")
SPACING = re.compile(r"\\[,;:!>\ ]|~|\\(?:hspace\*?|label|tag)\{[^}]*\}")
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢⱼₖ", "0123456789+-()nijk")
SCRIPT = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+)|([₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢⱼₖ]+)")
LONGEST = 4000
"""Characters of a formula that is read; what is longer is compared without its blanks."""
LARGEST = 1e300
"""Of the values that are computed with: beyond it any two numbers would be the same infinity."""
SWAMPED = 1e-5
"""Of two numbers that are added, the share of the larger one below which too little of the smaller one is left in the
digits that are compared: `10^12 + a` would be `10^12 - b`, and `N = 10^12` would be `N = 10^13`."""
DEEPEST = 40
POINTS = 2
"""Points at which an expression is evaluated: at two, `2x = 2` is seen to be `x = 1`."""

RELATIONS = frozenset("= != ≈ ≡ ~ < > <= >= -> => <=> <-> ∈ ∉ ⊂ ⊆ ∝ : |".split())
TURNED = {">": "<", ">=": "<="}
MUTUAL = {"=", "!=", "≈", "≡", "<=>", "~"}
CLOSING = {"(": ")", "[": "]", "⦃": "⦄", "⟨": "⟩", "{": "}"}
ENDS = RELATIONS | frozenset(")]⦄⟩},;+-±")
OPERATORS = frozenset("∑∏∫∪∩∘") | {"\\lim", "\\max", "\\min", "\\sup", "\\inf"}
"""What stands above one of these is a bound, and no power."""
FACTORS = frozenset("abcdkmnrstxyz")
"""Letters that are a factor of the parentheses behind them; of any other these are the arguments."""

Value = tuple[complex, ...]
"""At each of the points."""


@cache
def tables() -> dict[str, Any]:
    found = yaml.safe_load(TABLES.read_text(encoding="utf-8"))
    same = {written: sign for sign, *others in map(str.split, found["signs"].splitlines()) for written in others}
    same |= {f"\\{name}": letter for name, letter in zip(found["greek"].split(), found["letters"], strict=True)}
    dropped = "|".join(map(re.escape, sorted(found["dropped"].split(), key=len, reverse=True)))
    functions = frozenset(found["functions"].split())
    return {"same": same, "functions": functions, "dropped": re.compile(rf"\\(?:{dropped})(?![A-Za-z])")}


@lru_cache(maxsize=4096)
def tokens(formula: str) -> tuple[str, ...]:
    """The signs of a formula, spelled one way, without what only sets it."""
    if len(formula) > LONGEST:
        return ("".join(formula.split()),)
    text = DEGREES.sub(r"^\\circ ", FRACTION.sub(r"\\\1{\2}{\3}", formula))
    text = SCRIPT.sub(_script, LINE.sub(" ", SPACING.sub(" ", tables()["dropped"].sub(" ", text))))
    same = tables()["same"]
    found = [same.get(sign, re.sub(r"[{},]", "", sign) if sign[0].isdigit() else sign) for sign in TOKEN.findall(text)]
    found = _bare(_functions(found))
    while found and found[-1] in ".,;:":
        found.pop()
    return tuple(found)


def _script(match: re.Match[str]) -> str:
    return f"^{{{match[1].translate(RAISED)}}}" if match[1] else f"_{{{match[2].translate(LOWERED)}}}"


def _functions(found: list[str]) -> list[str]:
    """Letters that spell a function become its name."""
    whole: list[str] = []
    place = 0
    while place < len(found):
        runs = ("".join(found[place : place + length]) for length in range(6, 1, -1))
        name = next((run for run in runs if run in tables()["functions"]), "")
        whole.append(f"\\{name}" if name else found[place])
        place += len(name) or 1
    return whole


def _bare(whole: list[str]) -> list[str]:
    """Without braces around one sign, and without those around a modulus: (mod n), \\pmod{n} and \\bmod n are one."""
    bare: list[str] = []
    place = 0
    while place < len(whole):
        close = place + 2 if whole[place] == "{" else 0
        if whole[place] == "(" and whole[place + 1 : place + 2] == ["\\mod"] and ")" in whole[place:]:
            close = whole.index(")", place)
        if close and whole[close : close + 1] in (["}"], [")"]):
            bare += whole[place + 1 : close]
            place = close + 1
        else:
            bare.append(whole[place])
            place += 1
    return bare


@dataclass(frozen=True)
class Reading:
    """The sides of a chain of relations, by their values, and the relations between them."""

    sides: tuple[Value, ...]
    marks: tuple[str, ...]

    def keys(self, scaled: bool = True) -> tuple[str, ...]:
        """What it says: an expression's value, or each relation of a side with the next; `scaled`, `2x = 8` is the same
        as `x = 4`."""
        if not self.marks:
            return (_written(self.sides[0]),)
        following = zip(self.sides, self.marks, self.sides[1:], strict=False)
        return tuple(_related(one, mark, other, scaled) for one, mark, other in following)

    def told(self) -> set[str]:
        """All that it says: with `a = b < c` also `a < c`, and every side by itself."""
        found = {_written(side) for side in self.sides}
        for first in range(len(self.marks)):
            for last in range(first, len(self.marks)):
                marks = set(self.marks[first : last + 1])
                if len(marks - {"="}) <= 1:
                    mark = next(iter(marks - {"="}), "=")
                    sides = self.sides[first], mark, self.sides[last + 1]
                    found |= {_related(*sides, scaled=True), _related(*sides, scaled=False)}
        return found


@lru_cache(maxsize=4096)
def reading(formula: str) -> Reading | None:
    """What a formula says, None where it is no expression."""
    signs = tokens(formula)
    try:
        parsers = [_Parser(signs, point) for point in range(POINTS)]
        chains = [parser.chain(0) for parser in parsers]
        if parsers[0].place < len(signs):
            return None
        # not `>`: what is no number is no larger one either
        if not all(abs(value) < LARGEST for sides, _ in chains for value in sides):
            return None
        return Reading(tuple(zip(*(sides for sides, _ in chains), strict=True)), tuple(chains[0][1]))
    except (_NoExpression, RecursionError, ArithmeticError, ValueError):
        return None


def form(formula: str) -> str:
    """The formula's normal form: what it says, or its signs where it is no expression."""
    read = reading(formula)
    return " ; ".join(read.keys()) if read else " ".join(tokens(formula))


def _related(one: Value, mark: str, other: Value, scaled: bool) -> str:
    if mark in TURNED:
        one, mark, other = other, TURNED[mark], one
    apart = [a - b for a, b in zip(one, other, strict=True)]
    telling = all(abs(each) > 1e-9 for each in apart) and not any(map(_swamped, zip(one, other, strict=True)))
    if scaled and mark in ("=", "!=", "<", "<=") and telling:
        sign = "" if mark in MUTUAL else str(apart[0].real > 0)
        return f"{mark}{sign} {_number(apart[0] / apart[1])}"  # 2x = 2 and x = 1
    sides = [_written(one), _written(other)]
    return f" {mark} ".join(sorted(sides) if mark in MUTUAL else sides)


def _swamped(summands: Iterable[complex]) -> bool:
    """Whether one of them is lost beside another."""
    sizes = [abs(each) for each in summands if each]
    return bool(sizes) and min(sizes) < SWAMPED * max(sizes)


def _written(value: Value) -> str:
    return "|".join(map(_number, value))


def _number(value: complex) -> str:
    return f"{value.real + 0.0:.8e}{value.imag + 0.0:+.6e}"


class _NoExpression(Exception):
    """The signs are no expression that is understood."""


class _Parser:
    """Relations, sums, products, powers, evaluated at one point; everything else is a name."""

    def __init__(self, signs: tuple[str, ...], point: int) -> None:
        self.signs = signs
        self.point = point
        self.place = 0

    def named(self, *parts: object) -> complex:
        """The value of a name, between 1 and 2."""
        told = " ".join(_number(part) if isinstance(part, complex) else str(part) for part in (self.point, *parts))
        return complex(1 + int.from_bytes(blake2b(told.encode(), digest_size=6).digest()) / 2**48)

    def peek(self) -> str:
        return self.signs[self.place] if self.place < len(self.signs) else ""

    def take(self, wanted: str = "") -> str:
        sign = self.peek()
        if not sign or (wanted and sign != wanted):
            raise _NoExpression
        self.place += 1
        return sign

    def chain(self, depth: int) -> tuple[list[complex], list[str]]:
        if depth > DEEPEST:
            raise _NoExpression
        sides, marks = [self.total(depth)], []
        while self.peek() in RELATIONS or self.peek() == ",":
            marks.append(self.take())
            sides.append(self.total(depth))
        return sides, marks

    def inside(self, opening: str, depth: int) -> complex:
        """What stands between brackets, of which the first is taken."""
        close = CLOSING[opening]
        if self.peek() == close:
            self.take()
            return self.named(opening, close)
        sides, marks = self.chain(depth + 1)
        self.take(close)
        if not marks and opening in "({":
            return sides[0]
        return self.named(opening, *marks, *sides)

    def total(self, depth: int) -> complex:
        terms = list[complex]()
        sign = self.take() if self.peek() in ("+", "-", "±") else "+"
        while sign:
            term = self.product(depth)
            terms.append({"+": term, "-": -term}.get(sign) or self.named(sign) * term)
            sign = self.take() if self.peek() in ("+", "-", "±") else ""
        if _swamped(terms):
            raise _NoExpression
        return sum(terms, complex(0))

    def product(self, depth: int, within: bool = False) -> complex:
        """Factors; `within` a function's argument the next function ends it."""
        value = self.power(depth)
        while (sign := self.peek()) and not (within and _function(sign)):
            if sign in ENDS and not (sign == "|" and self.opens()):
                break
            if sign == "/":
                self.take()
                value /= self.power(depth)
            else:
                if sign == "*":
                    self.take()
                value *= self.power(depth)
        return value

    def opens(self) -> bool:
        """Whether the bar that is next begins a modulus: those up to the end of the brackets go in pairs."""
        depth = bars = 0
        for sign in self.signs[self.place :]:
            depth += (sign in CLOSING) - (sign in CLOSING.values())
            bars += sign == "|" and depth == 0
            if depth < 0:
                break
        return bars % 2 == 0

    def power(self, depth: int) -> complex:
        sign = self.peek()
        value = self.atom(depth)
        bound = sign in OPERATORS or _function(sign)
        exponent: complex | None = None
        while self.peek() in ("^", "_", "'", "!", "%"):
            script = self.take()
            argument = self.argument(depth) if script in "^_" else complex(0)
            if script == "^" and not (bound and (sign in OPERATORS or argument == -1)):  # sin^-1 is no power of sin
                if exponent is not None:
                    raise _NoExpression
                exponent = argument
            elif script == "%":
                value /= 100
            else:
                value = self.named(value, script, argument)
        if _function(sign):
            bare = sign in OPERATORS or self.peek() not in ("(", "{")
            value = self.named(value, self.product(depth, True) if bare else self.inside(self.take(), depth))
            if self.peek() == "^" and exponent is None:  # sin(x)^2
                self.take()
                exponent = self.argument(depth)
        elif sign.isalpha() and sign not in FACTORS and self.peek() == "(" and exponent is None:
            value = self.named(value, "of", self.inside(self.take(), depth))
            if self.peek() == "^":
                self.take()
                exponent = self.argument(depth)
        return value if exponent is None else value**exponent

    def argument(self, depth: int) -> complex:
        """What stands in braces, in parentheses, or the next sign."""
        if self.peek() in ("{", "("):
            return self.inside(self.take(), depth)
        if self.peek() == "-":
            self.take()
            return -self.argument(depth)
        return self.atom(depth)

    def atom(self, depth: int) -> complex:
        if depth > DEEPEST:
            raise _NoExpression
        sign = self.take()
        if sign == "\\frac":
            return self.argument(depth) / self.argument(depth)
        if sign == "\\binom":
            return self.named(sign, self.argument(depth), self.argument(depth))
        if sign == "\\sqrt":
            index = complex(2)
            if self.peek() == "[":
                self.take()
                index = self.total(depth + 1)
                self.take("]")
            return complex(self.argument(depth) ** (1 / index))
        if sign == "|":
            inside = self.total(depth + 1)
            self.take("|")
            return complex(abs(inside))
        if sign in CLOSING:
            return self.inside(sign, depth)
        if sign in ENDS or sign in ("^", "_", "*", "/"):
            raise _NoExpression
        if sign[0].isdigit():
            return complex(float(sign)) if sign.count(".") < 2 else self.named(sign)
        if sign in "d∂" and self.peek().isalpha():  # dN/dt is no N/t
            return self.named(sign, self.take())
        return self.named(sign)


def _function(sign: str) -> bool:
    return sign[:1] == "\\" and sign[1:] in tables()["functions"] and sign not in ("\\sqrt", "\\mod")
