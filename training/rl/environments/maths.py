"""Mathematics: the final answer of a reply, equal to the gold one whatever its form (math-verify).

`answer` is {"gold": LaTeX or a plain number}. The problem sets are generated: rows of `FAMILIES`.
"""

from __future__ import annotations

import random
import re
import unicodedata
from collections.abc import Callable, Mapping
from fractions import Fraction
from math import gcd

from model.chat import Reply
from training.draw import problem_id
from training.rl.environments.final import bare, final
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict

NOTATIONS: tuple[tuple[str, str], ...] = (
    (r"(?<=[\w)])\*\*(?=[\w(])", "^"),  # Python's power; any other pair of stars is Markdown's
    (r"\*\*", ""),
    (r"[·⋅]", r"\\cdot "),
    (r"√(\d+|[a-z]|(?=\())", r"\\sqrt{\1}"),
    (r"⁄", "/"),
    (r"∞", r"\\infty "),
    (r"(?<![\\a-zA-Z])pi(?![a-zA-Z])", r"\\pi "),
    (r"^–(?=\s*[\d\\])", "-"),
    (r"(?<=[a-z])[′’ʹ]", "'"),
    (r"、", ", "),
    (r"\s*(?:以及|或者|[或和与及])\s*", ", "),
    (r"(?i)(?<![\\\w])gcd(?=\s*\()", r"\\gcd"),
    (r"(?i)^.*[,;]\s*(?:(?:so|thus|hence|therefore)\b|所以|因此|于是|故|即)\s*", ""),
    (r"^(?:(?:所以|因此|于是|故|即|答|解得)[,:]?|=)\s*", ""),
    (
        r"(?i)^(?:(?:so|thus|hence|therefore|then|finally|we (?:get|have|obtain)"
        r"|this (?:gives|simplifies to))\b,?\s*)+",
        "",
    ),
    (r"^[a-zS]\s*(?:∈|\\in\b)\s*", ""),
    # "5/6 (five sixths)", "3/2 (that is, 1.5)" and "1/3 (about 0.333)": the same in other words, if they are those
    (r"\s*\((?!not\b|or\b|wrong\b)[a-z]{3,}(?:[ ,-]+[a-z]{2,})*\)$", ""),
    (r"\s*\((?:≈|about|approximately|roughly|that is,?|i\.e\.,?)\s*-?[\d.]+\)$", ""),
)
"""How people and models write what the reader knows in LaTeX alone, and how."""
RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
LOWERED = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
WIDE: dict[int, int | str] = {code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)}
VULGAR: dict[int, int | str] = {
    ord(sign): "\\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", sign).split("\u2044"))
    for sign in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"
}
STATES = re.compile(r"\b(?:is|are|equals?(?: to)?)\b|\b(?:[Ii]t|[Tt]hat|x)['’]s\b|(?<![不非])(?:等于|[是为得])")
ASKED = re.compile(
    r"(?!.*\b(?:not|or|but|no|wrong|incorrect|false)\b)\s*(?:the|our|its) (?:[a-z]+ ){0,2}(?:answer|solutions?|sum"
    r"|result|value|fraction|derivative|slope|roots?|set|divisor|factor|gcd|gcf|hcf)(?: (?:of|to|for|in|with)\b[^;]*)?"
    r"|(?!.*[不错非])[^;]*(?:最大公约数|答案|解|解集|结果|和|导数)",
    re.IGNORECASE,
)
"""What stands behind "is" where the answer stands before it: "12 is the greatest common divisor of 24 and 36"."""
NAME = re.compile(
    r"(?i)(?!.*\b(?:not|wrong|incorrect|false|never)\b)(?:(?:the|our|final|its)\s+)*(?:answer|solutions?(?: set)?|sum"
    r"|result|value|fraction|derivative|slope|roots?|greatest common (?:divisor|factor)|gcd|gcf|hcf"
    r"|最大公约数|答案|解|解集|结果|和|导数)"
    r"\s*[:=]\s*(?=[^:=]*$)"
)
MIXED = re.compile(r"(?<![\d./^_{)])(\d{1,6})(?: |\s*又\s*)(\d{1,6})/(\d{1,6})(?![\d./])")


def _latex(said: str) -> str:
    """A final answer as the reader knows it: in LaTeX, without the sentence of which it is the end. A sentence that
    states two things ("it is 4 or it is 3") stays whole, and is no answer."""
    text = said.translate(WIDE | VULGAR)
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+", lambda found: f"^{{{found[0].translate(RAISED)}}}", text)
    text = re.sub("[₀₁₂₃₄₅₆₇₈₉]+", lambda found: f"_{{{found[0].translate(LOWERED)}}}", text)
    for form, plain in NOTATIONS:
        text = re.sub(form, plain, text)
    parts = STATES.split(text)
    if len(parts) == 2:
        text = parts[0] if ASKED.fullmatch(parts[1]) else parts[1]
    text = MIXED.sub(_improper, NAME.sub("", bare(text), count=1))
    return bare(re.sub(r"(?<=\d)\s+(?=\d)", ", ", text))  # the reader would add them up


def _improper(found: re.Match[str]) -> str:
    """1 1/2 as 3/2; what is no such number stays."""
    whole, above, below = map(int, found.groups())
    return f"\\frac{{{whole * below + above}}}{{{below}}}" if 0 < above < below else found[0]


class Mathematics(Environment):
    """One reply, which may reason before its final answer."""

    waits = True

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        if reply.calls or not (said := final(reply.content)):
            return verdict(False, "no final answer")
        return verdict(*self.services.maths.equal(problem.answer["gold"], _latex(said)))

    def gold(self, problem: Problem) -> list[Reply]:
        return [Reply(f"Step by step.\nAnswer: {problem.answer['gold']}")]

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        gold, asked = problem.answer["gold"], str(problem.messages[-1]["content"])
        texts = [
            f"{gold} is not the answer.", f"Wrong: {gold}", f"{gold} (or 1234567)", f"{gold} 1234567", f"not {gold}",
            f"{gold}+1", f"{gold} or 1234567", f"\\boxed{{{gold}}} \\boxed{{1234567}}", asked, "I do not know.",
        ]  # fmt: skip
        return [[Reply(text)] for text in texts]


def _fraction(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return str(value) if value.denominator == 1 else f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _sum(draw: random.Random, level: int) -> tuple[str, str]:
    top = 4 + 4 * level
    # a pair has one order, or a problem could be held out one way round and practised the other
    one, other = sorted(Fraction(draw.randint(1, top), draw.randint(2, top)) for _ in range(2))
    return f"{one} + {other}", _fraction(one + other)


def _linear(draw: random.Random, level: int) -> tuple[str, str]:
    top = 3 + 6 * level
    slope, shift, value = draw.randint(2, top), draw.randint(-top, top), draw.randint(-top, top)
    return f"{slope}x + {shift} = {value}".replace("+ -", "- "), _fraction(Fraction(value - shift, slope))


def _roots(draw: random.Random, level: int) -> tuple[str, str]:
    one, other = sorted(draw.sample(range(-3 - 3 * level, 4 + 3 * level), 2))
    text = f"x^2 + {-(one + other)}x + {one * other} = 0".replace("+ -", "- ")
    return text, f"\\{{{one}, {other}\\}}"


def _slope(draw: random.Random, level: int) -> tuple[str, str]:
    degrees = range(level + 1, 0, -1)
    factors = [draw.randint(2, 4 + 3 * level) for _ in degrees]
    text = " + ".join(f"{factor}x^{degree}" for factor, degree in zip(factors, degrees, strict=True))
    terms = [(factor * degree, degree - 1) for factor, degree in zip(factors, degrees, strict=True)]
    return text, " + ".join(f"{factor}x^{degree}" if degree else str(factor) for factor, degree in terms)


def _divisor(draw: random.Random, level: int) -> tuple[str, str]:
    shared = draw.randint(2, 6 * level)
    one, other = sorted(shared * draw.randint(2, 9 * level) for _ in range(2))
    return f"{one} and {other}", str(gcd(one, other))


Draw = Callable[[random.Random, int], tuple[str, str]]
"""(stream, level from 1) -> what is asked for, and the answer."""

FAMILIES: Mapping[str, tuple[Draw, tuple[str, ...]]] = {
    "fractions": (_sum, ("Compute {0} as one fraction.", "{0} 等于多少？请写成一个分数。")),
    "linear": (_linear, ("Solve for x: {0}", "解方程：{0}")),
    "roots": (_roots, ("Give the set of all real x with {0}.", "求方程 {0} 的所有实数解的集合。")),
    "derivative": (_slope, ("Differentiate {0} with respect to x.", "求 {0} 对 x 的导数。")),
    "divisor": (_divisor, ("What is the greatest common divisor of {0}?", "{0} 的最大公约数是多少？")),
}


def problems(count: int, seed: str) -> list[Problem]:
    """`count` problems, the families in turn, at levels 1 to 3."""
    draw, names = random.Random(f"maths/{seed}"), list(FAMILIES)
    found = []
    for place in range(count):
        name = names[place % len(names)]
        make, phrasings = FAMILIES[name]
        asked, gold = make(draw, draw.randint(1, 3))
        text = draw.choice(phrasings).format(asked)
        message = {"role": "user", "content": text}
        found.append(Problem(problem_id("maths", name, asked), f"math.{name}", "math", (message,), {"gold": gold}))
    return found
