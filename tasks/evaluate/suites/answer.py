"""Generated answers compared with the right one: as numbers where both are, else as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction

from tasks.evaluate.suites.config import Answer
from tasks.evaluate.suites.item import Item, Measured, Scored, Unmeasurable, rate
from tasks.evaluate.suites.subject import Ask, Subject
from training.rl.environments.final import boxed

# `To answer this question we add` says none
SAID = re.compile(
    r"(?:answer|答案)[*_]*+(?:\s*+(?:is\b|是|为)[*_]*+\s*+[:：]?|\s*+[:：]|[^\S\n]*+\n)\s*+([^\n]+)", re.IGNORECASE
)
NUMBER = re.compile(r"[-+−]?\$?(?:\d[\d,]*(?:\.\d+)?|(?<!\d)\.\d+)(?:/\d+)?%?")
GROUPED = re.compile(r"(?<![\d.,])(\d{1,3})((?:,\d{3})+)(?![\d,])")
FRACTION = re.compile(r"([-+]?)\\[dt]?frac(?:\{([^{}]+)\}|(\d))(?:\{([^{}]+)\}|(\d))")  # `\frac12` too
DECORATION = re.compile(r"\\(?:text|mathrm|mbox)\{([^{}]*)\}|\\(?:left|right|!|,|;| )|\\[()\[\]]|[$\s]")

EDGES = ".。*_`\"'“”‘’「」"
LETTER = re.compile(r"^\((\w)\)$")  # a choice by its letter
CHOICE = re.compile(r"\(?([a-z])[).:]\s*\S")  # and with its text behind it


def measure(suite: Answer, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """One greedy reply for every item."""
    for item in items:
        if missing := [name for name in (suite.question_field, suite.answer_field) if name not in item.row]:
            raise Unmeasurable(f"item {item.id} of suite '{suite.name}' has no field {missing[0]!r}")
    asks = [
        Ask.of(
            suite.form,
            suite.template.replace("{question}", str(item.row[suite.question_field])),
            max_new_tokens=suite.max_new_tokens,
        )
        for item in items
    ]
    scored = []
    for item, replies in zip(items, subject.replies(asks), strict=True):
        due = due_answer(suite, str(item.row[suite.answer_field]))
        if replies is None:
            scored.append(Scored(item.id, 0.0, "", "the window has no room for it"))
            continue
        said = said_answer(suite, replies[0].content, due)
        right = said is not None and equal(said, due)
        scored.append(Scored(item.id, float(right), replies[0].content, "" if right else f"{said} where {due} is due"))
    return Measured("right answers", scored, rate(scored))


def due_answer(suite: Answer, text: str) -> str:
    """The right answer within a record's field."""
    if suite.answer_pattern is None:
        return boxed(text) or text
    found = re.search(suite.answer_pattern, text)
    if found is None:
        raise Unmeasurable(f"suite '{suite.name}': answer_pattern finds nothing in {text[:80]!r}")
    return found[1]


def said_answer(suite: Answer, reply: str, due: str = "") -> str | None:
    """The answer that a reply gives; None where it gives none. Where no words mark it, it is the last number, or the
    last line where the answer that is due is no number."""
    if suite.reply_pattern is not None:
        matches = list(re.finditer(suite.reply_pattern, reply))
        return matches[-1][1] if matches else None
    if (inner := boxed(reply)) is not None:
        return inner
    if marked := SAID.findall(reply):
        return str(marked[-1]).strip().rstrip(".。")
    lines = reply.split("\n") if due and number(due) is None else NUMBER.findall(reply)
    return next((one.strip() for one in reversed(lines) if one.strip()), None)


def equal(said: str, due: str) -> bool:
    """Whether two answers say the same: exact numbers (1/2, 0.5, 50% and \\frac{1}{2} are one; what asks for a
    percentage may leave its sign out), else the same text but for spaces, quotes around it, TeX's and Markdown's
    decoration, and what stands behind the letter of a choice."""
    one, other = number(said), number(due)
    if one is None and other is not None and len(found := NUMBER.findall(said.rpartition("=")[2])) == 1:
        one = number(found[0])  # "18 dollars", "x = 18"
    if one is None and other is None:
        plain, letter = _plain(said), _plain(due)
        chosen = CHOICE.match(plain) if len(letter) == 1 else None
        return (chosen[1] if chosen else plain) == letter
    if one is not None and other is not None and ("%" in said) != ("%" in due):
        return one == other or (one * 100 == other if "%" in said else one == other * 100)
    return one == other  # a number is no text: "1 2" is not 12


def number(text: str) -> Fraction | None:
    """The exact value of a text that is one number, None for any other."""
    text = re.sub(r"(?<=\d)\s+(?=\d{1,400}/\d)", "&", text)  # 1 1/2
    if re.search(r"\d\s+\d", text):
        return None  # two numbers
    plain = FRACTION.sub(_written_out, DECORATION.sub(r"\1", text)).replace("−", "-")
    plain = GROUPED.sub(lambda found: found[0].replace(",", ""), plain).rstrip(".")
    percent = plain.endswith(("%", "\\%"))
    plain = plain.rstrip("%").rstrip("\\")
    whole, mixed, part = plain.rpartition("&")
    if not re.fullmatch(r"[-+]?(?:\d{1,400}|(?=\.))(?:\.\d{1,400})?(?:/\d{1,400})?", part):
        return None
    if mixed and not re.fullmatch(r"[-+]?\d{1,400}", whole):
        return None
    over, _, under = part.partition("/")
    if under and int(under) == 0:
        return None
    value = Fraction(over) / (int(under) if under else 1)
    if mixed:
        value = int(whole) + (-value if whole.startswith("-") else value)
    return value / 100 if percent else value


def _written_out(fraction: re.Match[str]) -> str:
    sign, over, digit, under, other = fraction.groups()
    behind = fraction.string[: fraction.start()][-1:].isdigit()  # 1\\frac{1}{2} is one and a half
    return f"{'&' if behind and not sign else ''}{sign}{over or digit}/{under or other}"


def _plain(text: str) -> str:
    plain = DECORATION.sub(r"\1", text).strip(EDGES).lower()
    return LETTER.sub(r"\1", plain)
