"""Numbers changed to other plausible ones, units to others of their kind."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from tasks.rephrase.calibration.edits import (
    Change,
    Pool,
    Span,
    Text,
    cased,
    draw,
    lists,
    literal_spans,
    outside,
    pick,
    replaced,
)

DIGITS = re.compile(
    r"(?<!`\()(?<![A-Za-z0-9_./^])(?<![A-Za-z][-–])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:(?:st|nd|rd|th|s)\b|(?![A-Za-z0-9_/]|\.\d))"
)
MARKER = re.compile(r"^[ \t]*(?:[-*+>]+[ \t]*)?(?:\*\*|#+ )?(?:step )?\(?\d{1,2}(?:[.):]|\s[-–])", re.M | re.I)
CHINESE = re.compile(
    r"(?<![一二两三四五六七八九十百千万第几])([两三四五六七八九])(?=(?:个|种|次|年|天|条|名|位|座|家|倍|类|层|篇|部|岁|项|步|米|公里|人|组|卷|章|首|世纪|成|块|大))"
)
CHINESE_DIGITS = "二三四五六七八九"


def number_swap(text: Text, pool: Pool) -> Iterator[Change]:
    """A number, in digits or words, becomes another; the list markers and the numbers in names and code stay."""
    body = text.rewrite
    blocked = sorted([*literal_spans(body), *(match.span() for match in MARKER.finditer(body))])
    mine, source = values(body), values(text.source)
    # What a style's own steps say again has nothing to be held against.
    known = {value for value, times in source.items() if not (text.adds and mine[value] > times)}
    for match in DIGITS.finditer(body):
        # A small number that the source lacks sums something up ("three conditions"): nothing tells a wrong one.
        short = len(re.sub(r"\D", "", match.group())) < 3 and "." not in match.group()
        unknown = (short or text.adds) and _value(match.group()) not in known
        if outside(blocked, *match.span()) and not unknown and not (text.adds and _calculated(body, *match.span())):
            yield replaced(body, match.span(), another(match.group(), text.id, match.start()))
    cardinals, ordinals = lists()["cardinals"], lists()["ordinals"]
    for match in re.finditer(r"(?<![\w-])[A-Za-z]+(?:-(?=[a-z]))?", body):
        word = match.group().rstrip("-").lower()
        after = re.match(r"[A-Za-z]+", body[match.end() :])
        if after and match.group().endswith("-") and after.group() in cardinals | ordinals:
            continue  # twenty-five is one number
        for words in (cardinals, ordinals):
            if word in words and str(words[word]) in known and outside(blocked, *match.span()):
                near = [name for name, value in words.items() if name != word and _near(value, words[word])]
                new = cased(pick(near, text.id, match.start()), match.group())
                yield replaced(body, (match.start(), match.start() + len(word)), new)
    for match in CHINESE.finditer(body):
        if outside(blocked, *match.span()):
            old = match.group(1).replace("两", "二")
            new = pick([digit for digit in CHINESE_DIGITS if digit != old], text.id, match.start())
            yield replaced(body, match.span(1), new.replace("二", "两"))


def unit_swap(text: Text, pool: Pool) -> Iterator[Change]:
    """A unit behind a number becomes another of its kind and about its size: km, m; °C, °F; million, billion."""
    body = text.rewrite
    blocked = literal_spans(body)
    for match in _units().finditer(body):
        span: Span = match.span("unit")
        if outside(blocked, *match.span()):
            group = next(group for group in lists()["units"] if match["unit"] in group)
            place = group.index(match["unit"])
            near = [unit for unit in group[max(0, place - 2) : place + 3] if unit != match["unit"]]
            yield replaced(body, span, pick(near, text.id, span[0]))


def _calculated(body: str, start: int, end: int) -> bool:
    """Whether the number is part of a calculation, which a style that adds steps may have added."""
    return bool(re.search(r"[=+*/^(−-]\s*$", body[:start]) or re.match(r"\s*[=+*/^)−]", body[end:]))


def another(number: str, *parts: object) -> str:
    """Another number of the same form: 1666 -> 1668, 13,200 -> 13,700, 2.4 -> 2.9, 19th -> 17th, 1970s -> 1950s."""
    digits, suffix = re.fullmatch(r"([\d.,]*\d)([a-z]*)", number).groups()  # type: ignore[union-attr]
    for trial in range(100):
        bits = draw(*parts, number, trial)
        new = _changed(digits, suffix == "s", bits)
        if new != digits and float(new.replace(",", "")) != float(digits.replace(",", "")):
            return new + (_ordinal(int(new.replace(",", ""))) if suffix not in ("", "s") else suffix)
    return digits + "0" + suffix  # nothing of its length differs


def _changed(digits: str, decade: bool, bits: int) -> str:
    places = [place for place, sign in enumerate(digits) if sign.isdigit()]
    if decade:
        places = places[:-1]
    if re.fullmatch(r"1[0-9]{3}|20[0-9]{2}", digits):
        places = places[2:]  # a year stays in its century
    elif len(places) > 1 and digits[0] != "0":
        places = places[1:]  # the first digit of a long number stays: a plausible slip, and the harder one to see
    if not decade and len(digits) in (2, 4) and digits.isdigit() and bits % 4 == 0 and digits[-1] != digits[-2]:
        turned = digits[:-2] + digits[-1] + digits[-2]
        return turned if turned[0] != "0" else digits
    place = places[bits // 4 % len(places)]
    new = str((int(digits[place]) + 1 + bits // 64 % 9) % 10)
    if new == "0" and place == 0:
        new = "1" if digits[place] != "1" else "2"
    zeros = re.search(r"[1-9]([0,]+)$", digits)
    if zeros and not decade and place >= zeros.start(1) and bits // 7 % 2:
        place, new = zeros.start(), str(int(digits[zeros.start()]) % 9 + 1)  # round numbers stay round half the time
    return digits[:place] + new + digits[place + 1 :]


def values(text: str) -> Counter[str]:
    """The numbers of a text, in digits or words, as digits, and how often each is said."""
    found = [_value(match.group()) for match in re.finditer(r"\d+(?:,\d{3})*(?:\.\d+)?", text)]
    table = lists()["cardinals"] | lists()["ordinals"]
    return Counter([*found, *(str(table[word]) for word in re.findall(r"[a-z]+", text.lower()) if word in table)])


def _value(number: str) -> str:
    return re.sub(r"[^\d.]", "", number).rstrip(".")


def _near(one: int, other: int) -> bool:
    return 0 < abs(one - other) <= max(4, other // 2)


def _ordinal(number: int) -> str:
    return "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")


@cache
def _units() -> re.Pattern[str]:
    units = sorted({unit for group in lists()["units"] for unit in group}, key=lambda unit: (-len(unit), unit))
    latin = "|".join(re.escape(unit) for unit in units if unit.isascii() or not re.match(r"[㐀-鿿]", unit))
    han = "|".join(unit for unit in units if re.match(r"[㐀-鿿]", unit))
    return re.compile(
        rf"(?:\d|\b(?:{'|'.join(lists()['cardinals'])}))(?!s\b)[ \u00a0-]?(?P<unit>(?:{latin})(?![\w/])|(?:{han}))"
    )
