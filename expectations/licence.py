"""Whether a licence policy lets an SPDX expression in, evaluated apart from curation, which enforces the same."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

LONGEST = 2000
"""Characters of an expression: a longer one, which nobody wrote, is not allowed."""
DEEPEST = 20
"""Parentheses within each other, likewise."""
_MALFORMED = ["?"]  # left over at the end, where nothing may be
_TOKEN = re.compile(r"\(|\)|[^\s()]+")
_WHICH = re.compile(r"-(?:only|or-later)$|\+$")
"""What an entry such as `LGPL-2.1` leaves open: it takes that version alone as well as any later one."""


def allowed(expression: str, patterns: Sequence[str]) -> bool:
    """One side of an `OR` is enough, an `AND` wants both and binds closer, a licence `WITH` an exception
    passes where it would without; what is no expression is not allowed."""
    if len(expression) > LONGEST or expression.count("(") > DEEPEST:
        return False
    tokens = _TOKEN.findall(expression)
    verdict, rest = _either(tokens, patterns)
    return verdict and not rest


def _either(tokens: list[str], patterns: Sequence[str]) -> tuple[bool, list[str]]:
    verdict, rest = _both(tokens, patterns)
    while rest[:1] == ["OR"]:
        other, rest = _both(rest[1:], patterns)
        verdict = verdict or other
    return verdict, rest


def _both(tokens: list[str], patterns: Sequence[str]) -> tuple[bool, list[str]]:
    verdict, rest = _one(tokens, patterns)
    while rest[:1] == ["AND"]:
        other, rest = _one(rest[1:], patterns)
        verdict = verdict and other
    return verdict, rest


def _one(tokens: list[str], patterns: Sequence[str]) -> tuple[bool, list[str]]:
    if not tokens or tokens[0] in (")", "AND", "OR", "WITH"):
        return False, _MALFORMED
    if tokens[0] == "(":
        verdict, rest = _either(tokens[1:], patterns)
        return (verdict, rest[1:]) if rest[:1] == [")"] else (False, _MALFORMED)
    names, rest = [tokens[0].lower()], tokens[1:]
    if rest[:1] == ["WITH"]:
        names, rest = [*names, " ".join(tokens[:3]).lower()], tokens[3:]
    names.append(_WHICH.sub("", names[0]))
    return any(fnmatchcase(name, pattern.lower()) for name in names for pattern in patterns), rest
