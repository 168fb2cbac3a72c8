"""Formulas in a normal form: TeX and plain notation become the same signs, and from them a tree in which the order of a
sum, a product or an equation's sides says nothing.

Nothing is evaluated: what is written is compared, not what it is worth. `x^2 - 1` is not `(x-1)(x+1)`. The text is a
rewriter's: depth and length are bounded.
"""

from __future__ import annotations

import re
from functools import lru_cache

TOKEN = re.compile(
    r"\\[A-Za-z]+\*?|\\.|\d+(?:\.\d+)*(?:\{?,\}?\d{3}(?!\d))*|[A-Za-zÀ-ɏͰ-ϿЀ-ӿ]|<=>|<=|>=|!=|==|<->|->|=>|\*\*|\.\.\.|[㐀-鿿]|[^\s\w]|\S"
)
WORD = re.compile(r"[A-Za-z]{2,}")
FUNCTIONS = frozenset(
    "sqrt sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp max min sup inf lim gcd lcm mod "
    "det dim ker deg arg tr rank span var cov Re Im Pr".split()
)
SPELLINGS = r"""
\frac \dfrac \tfrac \cfrac
<= \leq \le \leqslant ≤ ⩽
>= \geq \ge \geqslant ≥ ⩾
!= \neq \ne ≠
< \lt
> \gt
= == ＝
* \cdot \times × · ⋅ ∙ \ast ∗
/ \div ÷ ⁄
- − – ‐
... \ldots \cdots \dots \dotsc \dotsb … ⋯
-> \to \rightarrow → \longrightarrow
=> \implies \Rightarrow ⇒ \Longrightarrow
<=> \iff \Leftrightarrow ⇔
<-> \leftrightarrow \rightleftharpoons ⇌
| \mid \vert \lvert \rvert
‖ \| \Vert \lVert \rVert
⦃ \{ \lbrace
⦄ \} \rbrace
⟨ \langle
⟩ \rangle
≈ \approx
≡ \equiv
∈ \in
∉ \notin
⊂ \subset
⊆ \subseteq
∪ \cup
∩ \cap
± \pm
∞ \infty
∑ \sum
∏ \prod
∫ \int
∂ \partial
∇ \nabla
∀ \forall
∃ \exists
∅ \emptyset \varnothing
~ \sim ∼
∝ \propto
∧ \land \wedge
∨ \lor \vee
¬ \lnot \neg
' \prime ′ ’
∘ \circ °
\mod \bmod \pmod
∖ \setminus
% \%
# \#
$ \$
_ \_
^ **
\sqrt √
ε \varepsilon \epsilon ϵ
φ \varphi \phi ϕ
R ℝ
N ℕ
Z ℤ
Q ℚ
C ℂ
: ∶ \colon
( （
) ）
, ，
"""
"""One sign a line, then how else it is written."""
SAME = {written: sign for sign, *others in map(str.split, SPELLINGS.strip().split("\n")) for written in others}
GREEK = dict(
    zip(
        "alpha beta gamma delta zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon chi psi omega "
        "Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega".split(),
        "αβγδζηθικλμνξπρστυχψωΓΔΘΛΞΠΣΥΦΨΩ",
        strict=True,
    )
)
DROPPED = re.compile(
    r"\\(?:left|right|middle|[bB]igg?[lrm]?|displaystyle|textstyle|scriptstyle|limits|nolimits|quad|qquad|nonumber|notag"
    r"|mathrm|mathit|mathbf|mathsf|boldsymbol|bm|operatorname\*?|text|textrm|textit|textbf|mathop|mathbb|mbox|hbox|rm|vphantom"
    r"|thinspace|enspace|hfill|strut|label\{[^}]*\}|tag\{[^}]*\})(?![A-Za-z])|\\[,;:!> ]|~|\\hspace\*?\{[^}]*\}"
)
LINE = re.compile(r"\\\\(?:\[[^\]]*\])?|&|\\hline|\\(?:begin|end)\{(?:aligned|split|gathered|alignedat)\}(?:\{\d+\})?")
FRACTION = re.compile(r"\\[dtc]?frac\s*([0-9A-Za-z](?![A-Za-z]))\s*([0-9A-Za-z])")
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ", "0123456789+-()n")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢⱼₖ", "0123456789+-()nijk")
SCRIPT = re.compile(r"([⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁽⁾ⁿ]+)|([₀₁₂₃₄₅₆₇₈₉₊₋₍₎ₙᵢⱼₖ]+)")
LONGEST = 4000
"""Characters of a formula that is read; what is longer is compared without its blanks."""
DEEPEST = 40


@lru_cache(maxsize=4096)
def tokens(formula: str) -> tuple[str, ...]:
    """The signs of a formula, spelled one way, without what only sets it."""
    if len(formula) > LONGEST:
        return ("".join(formula.split()),)
    text = SCRIPT.sub(_script, LINE.sub(" ", DROPPED.sub(" ", FRACTION.sub(r"\\frac{\1}{\2}", formula))))
    found: list[str] = []
    for match in TOKEN.finditer(text):
        sign = match.group()
        sign = SAME.get(sign, sign)
        if sign[0] == "\\":
            sign = GREEK.get(sign[1:], sign)
        elif sign[0].isdigit():
            sign = re.sub(r"[{},]", "", sign)
        found.append(sign)
    words = _words(found)
    while words and words[-1] in ".,;:":
        words.pop()
    return tuple(words)


def _script(match: re.Match[str]) -> str:
    if match[1]:
        return f"^{{{match[1].translate(RAISED)}}}"
    return f"_{{{match[2].translate(LOWERED)}}}"


def _words(found: list[str]) -> list[str]:
    """Letters that spell a function become its name; braces around one sign go."""
    whole: list[str] = []
    place = 0
    while place < len(found):
        for length in (6, 5, 4, 3, 2):
            run = "".join(found[place : place + length])
            if len(run) == length and run in FUNCTIONS:
                whole.append("\\" + run)
                place += length
                break
        else:
            whole.append(found[place])
            place += 1
    bare: list[str] = []
    place = 0
    while place < len(whole):
        if whole[place] == "{" and place + 2 < len(whole) and whole[place + 2] == "}":
            bare.append(whole[place + 1])
            place += 3
            continue
        # (mod n), \pmod{n} and \bmod n are one
        if whole[place] == "(" and whole[place + 1 : place + 2] == ["\\mod"] and ")" in whole[place:]:
            close = place + whole[place:].index(")")
            bare += whole[place + 1 : close]
            place = close + 1
            continue
        bare.append(whole[place])
        place += 1
    return bare


@lru_cache(maxsize=4096)
def form(formula: str) -> str:
    """The formula's normal form: its tree, written down, or its signs where it is no expression."""
    signs = tokens(formula)
    try:
        parser = _Parser(signs)
        tree = parser.relation(0)
        if parser.place == len(signs):
            return tree
    except (_NoExpression, RecursionError):
        pass
    return " ".join(signs)


class _NoExpression(Exception):
    """The signs are no expression that is understood."""


RELATIONS = frozenset("= != ≈ ≡ ~ < > <= >= -> => <=> <-> ∈ ∉ ⊂ ⊆ ∝ : |".split())
TURNED = {">": "<", ">=": "<="}
MUTUAL = {"=", "!=", "≈", "≡", "<=>", "~"}
CLOSING = {"(": ")", "[": "]", "⦃": "⦄", "⟨": "⟩", "{": "}"}
ENDS = RELATIONS | frozenset(")]⦄⟩},;+-±")


class _Parser:
    """Relations, sums, products, powers; everything else is a name."""

    def __init__(self, signs: tuple[str, ...]) -> None:
        self.signs = signs
        self.place = 0

    def peek(self) -> str:
        return self.signs[self.place] if self.place < len(self.signs) else ""

    def take(self) -> str:
        if self.place >= len(self.signs):
            raise _NoExpression
        self.place += 1
        return self.signs[self.place - 1]

    def relation(self, depth: int) -> str:
        if depth > DEEPEST:
            raise _NoExpression
        sides, signs = [self.total(depth)], []
        while self.peek() in RELATIONS or self.peek() == ",":
            signs.append(self.take())
            sides.append(self.total(depth))
        if not signs:
            return sides[0]
        if all(sign in TURNED for sign in signs):
            signs, sides = [TURNED[sign] for sign in reversed(signs)], sides[::-1]
        if len(set(signs)) == 1 and signs[0] in MUTUAL:
            sides.sort()
        return (
            "(" + " ".join([sides[0], *(f"{sign} {side}" for sign, side in zip(signs, sides[1:], strict=True))]) + ")"
        )

    def total(self, depth: int) -> str:
        parts = []
        sign = self.take() if self.peek() in ("+", "-", "±") else "+"
        parts.append(sign + self.product(depth))
        while self.peek() in ("+", "-", "±"):
            sign = self.take()
            parts.append(sign + self.product(depth))
        if any(part in ("+...", "-...") for part in parts):
            return f"[{' '.join(parts)}]"  # a_1 + ... + a_n has an order
        return parts[0][1:] if len(parts) == 1 and parts[0][0] == "+" else f"[{' '.join(sorted(parts))}]"

    def product(self, depth: int) -> str:
        above: list[str] = [self.power(depth)]
        below: list[str] = []
        while (sign := self.peek()) and sign not in ENDS:
            if sign in ("*", "/"):
                self.take()
                factor = self.power(depth)
                (above if sign == "*" else below).append(factor)
            else:
                above.append(self.power(depth))
        top = above[0] if len(above) == 1 else f"<{' '.join(sorted(above))}>"
        return f"({top} / {' '.join(sorted(below))})" if below else top

    def power(self, depth: int) -> str:
        base = self.atom(depth)
        scripts: dict[str, str] = {}
        while self.peek() in ("^", "_", "'", "!", "%"):
            sign = self.take()
            if sign in "'!%":
                base += sign
                continue
            if sign in scripts:
                raise _NoExpression
            scripts[sign] = self.argument(depth)
        return base + "".join(f"{sign}{scripts[sign]}" for sign in sorted(scripts))

    def argument(self, depth: int) -> str:
        """What stands in braces, in parentheses, or the next sign."""
        if self.peek() in ("{", "("):
            close = CLOSING[self.take()]
            if self.peek() == close:
                raise _NoExpression
            inside = self.relation(depth + 1)
            if self.take() != close:
                raise _NoExpression
            return inside
        sign = self.take()
        return sign + self.argument(depth) if sign == "-" else sign

    def atom(self, depth: int) -> str:
        if depth > DEEPEST:
            raise _NoExpression
        sign = self.take()
        if sign == "\\frac":
            return f"({self.argument(depth)} / {self.argument(depth)})"
        if sign == "\\sqrt":
            index = ""
            if self.peek() == "[":
                self.take()
                index = self.relation(depth + 1)
                if self.take() != "]":
                    raise _NoExpression
            return f"root{index}({self.argument(depth)})"
        if sign == "|":
            inside = self.total(depth + 1)
            if self.take() != "|":
                raise _NoExpression
            return f"|{inside}|"
        if sign in CLOSING:
            if self.peek() == CLOSING[sign]:
                self.take()
                return sign + CLOSING[sign]
            inside = self.relation(depth + 1)
            if self.take() != CLOSING[sign]:
                raise _NoExpression
            return inside if sign == "{" or (sign == "(" and "," not in inside) else f"{sign}{inside}{CLOSING[sign]}"
        if sign in ENDS or sign in ("^", "_", "*", "/"):
            raise _NoExpression
        return sign
