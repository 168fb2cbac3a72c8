"""The same numbers with the same units, in digits or words."""

from __future__ import annotations

import re

from tasks.rephrase.alignment.pair import Pair, Verdict, difference, lists, words
from tasks.rephrase.config import AlignmentConfig

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

LIST_MARKER = re.compile(r"^\s*\d{1,2}[.)]\s", re.M)

UNIT = re.compile(
    r"[ \t]?(%|°[CF]?|[kMGT]i?B(?:/s)?\b|[kMG]?bit/?s?\b|bits?\b|bytes?\b|[kMG]?Hz\b|[kmcµn]?m\b|km/h\b|[km]?g\b"
    r"|[mµn]?s\b|per ?cent\b|(?:second|minute|hour|day|week|month|year|dollar|euro)s?\b)"
)


def numbers(pair: Pair, config: AlignmentConfig) -> Verdict:
    """The same numbers with the same units, in digits or words; none lost, none invented."""
    before, after = _numbers(pair.source), _numbers(pair.rewrite)
    lost, invented = sorted(before.keys() - after.keys()), sorted(after.keys() - before.keys())
    if not lost:
        # "Two prizes" may sum up what the source lists; a small number in words is no invention unless one was lost.
        invented = [number for number in invented if number in _digits(pair.rewrite) or int(number) > 12]
    score = 1 - (len(lost) + len(invented)) / max(len(before | after), 1)
    if lost or invented:
        return Verdict("numbers", score, False, difference(lost, invented))
    for number, units in before.items():
        if units and after[number] and not units & after[number]:
            why = f"{number} {'/'.join(sorted(units))} became {number} {'/'.join(sorted(after[number]))}"
            return Verdict("numbers", score, False, why)
    digits = _digits(pair.source), _digits(pair.rewrite)
    if digits[1] - digits[0]:
        return Verdict("numbers", score, False, difference([], sorted(digits[1] - digits[0])))
    return Verdict("numbers", score, True)


def _digits(text: str) -> set[str]:
    return {re.sub(r",(?=\d{3}(?!\d))", "", number) for number in NUMBER.findall(LIST_MARKER.sub(" ", text))}


def _numbers(text: str) -> dict[str, set[str]]:
    """Number -> its units; numbers in words count with those in digits."""
    text = LIST_MARKER.sub(" ", text)
    found: dict[str, set[str]] = {}
    for match in NUMBER.finditer(text):
        number = re.sub(r",(?=\d{3}(?!\d))", "", match.group())
        unit = UNIT.match(text, match.end())
        name = unit.group(1).lower() if unit and len(unit.group(1)) > 3 else unit.group(1) if unit else ""
        name = {"percent": "%", "per cent": "%"}.get(name, name.rstrip("s") if len(name) > 3 else name)
        found.setdefault(number, set()).update({name} if name else ())
    for word in words(text):
        value = lists()["cardinals"].get(word.lower())
        if value is not None:
            found.setdefault(str(value), set())
    return found
