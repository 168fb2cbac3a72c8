"""The quantities that a text states: numbers in digits or words, English or Chinese, with their units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from tasks.rephrase.alignment.chinese import in_chinese
from tasks.rephrase.alignment.dates import in_dates
from tasks.rephrase.alignment.english import in_english
from tasks.rephrase.alignment.pair import CODE, FORMULA, URL
from tasks.rephrase.alignment.quantity import Quantity, Value, in_digits

MARKER = re.compile(
    r"^[-*+•>#|_ \t]{0,40}(?:(?:step|part|question|q|point|stage|note|case)[ \t]*|第)?"
    r"(?:\(?\d{1,2}(?:[.):、：．）](?=[\s*_㐀-鿿]|$)|步)|(?:one|two|three|four|five|six|seven|eight|nine|ten)[:.]"
    r"|[一二三四五六七八九十]{1,2}[、.．）)])"
    r"|\b(?:steps?|items?|points?|parts?|examples?|exercise|cases?) \d{1,2}\b(?!\.\d)"
    r"|(?<![\w)\]\ufffc*])[(（]\d[)）](?=\s|[㐀-鿿])|[①-⑳]",
    re.M | re.I,
)
"""The number of a step or a point, which numbers and measures nothing."""
CONNECTOR = re.compile(
    r"""
    \s? (?: [-–—~～至到或×x/、,] | (?:,[ ])?(?:and|or|to) | and[ ](?:about|some) | by | versus | vs\.?
          | (?:,?[ ])?(?:then|but) | through | (?:up|down)[ ]to | rather[ ]than | instead[ ]of | as[ ]against
          | to[ ]every ) \s?
    (?:about[ ]|roughly[ ]|nearly[ ]|约|的)?
    """,
    re.X,
)
TEX = (
    (re.compile(r"\s*\\(?:times|cdot)\s*(?=10\^)"), "×"),
    (re.compile(r"\s*\^\{?\\circ\}?\s*"), "°"),
    (re.compile(r"~?\\(?:mathrm|text|rm)\{\s*([A-Za-zµμΩ°%/^23]+)\}"), r" \1"),
)
"""A number with its unit in TeX, and in plain text."""
PLAIN = re.compile(r"[-−]?\d+(?:\.\d+)?(?:×10\^(?:\d|\{[-−]?\d+\}))?%?(?: ?°? ?[A-Za-zµμΩ][A-Za-zµμΩ/^23]*)?")
RANGE = re.compile(r" ?[-–—~～] ?| (?:to|through|until) |[至到]")
COMPOUND = re.compile(r",? ?(?:and |零|又)?")
"""Between the parts of a measure in two units."""
MONEY = ("dollar", "pound", "euro", "yuan")
OF_MONTH = re.compile(r"[ -](?:of )?")
DAY_BEHIND = re.compile(r"\.?[ -](?:the )?|(?<=月)[ ]?|[ ]?")


@lru_cache(maxsize=512)
def quantities(text: str) -> tuple[Quantity, ...]:
    """The quantities of `text` in their order; code, URLs and formulas that are more than a number are left out."""
    bare = prose(text)
    dates = list(in_dates(bare))
    taken = {place for one in dates for place in range(one.start, one.end)}
    others = [*in_digits(bare), *in_english(bare), *in_chinese(bare)]
    found = dates + [one for one in others if one.start not in taken and one.end - 1 not in taken]
    kept: list[Quantity] = []
    for quantity in sorted(found, key=lambda quantity: (quantity.start, -quantity.end)):
        if not kept or quantity.start >= kept[-1].end:
            kept.append(quantity)
    return tuple(_joined(bare, kept))


def ranges(text: str) -> Iterator[tuple[Quantity, Quantity, bool]]:
    """Both ends of every range or score such as `3 to 5` and `3–1`: the end, the other one, whether it is the first."""
    bare = prose(text)
    for one, other in pairwise(quantities(text)):
        if RANGE.fullmatch(bare[one.end : other.start]):
            yield one, other, True
            yield other, one, False


def days(text: str) -> dict[tuple[Value, Value], Quantity]:
    """The days of months by day and month, and where each month stands."""
    bare = prose(text)
    found: dict[tuple[Value, Value], Quantity] = {}
    for one, other in pairwise(quantities(text)):
        day, month = (one, other) if one.kind == "day" else (other, one)
        gap = OF_MONTH if one is day else DAY_BEHIND
        if (day.kind, month.kind) == ("day", "month") and gap.fullmatch(bare[one.end : other.start]):
            found[day.value, month.value] = month
    return found


@lru_cache(maxsize=512)
def prose(text: str) -> str:
    """The text without what other checks hold it to, every character in its place."""
    text = FORMULA.sub(_number_or_blanks, CODE.sub(lambda match: "\ufffc" * len(match.group()), text))
    for pattern in (URL, MARKER):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)
    return text


def _number_or_blanks(match: re.Match[str]) -> str:
    plain = number(next((group for group in match.groups() if group is not None), ""))
    if not plain:
        return " " * len(match.group())
    glued = match.string[match.end() : match.end() + 1].isalnum()
    return plain.rjust(len(match.group()) - glued) + " " * glued


def number(formula: str) -> str:
    """The number that a formula is, in plain text; nothing where it is none."""
    plain = re.sub(r"\\[,;:! ]|\{,\}|(?<=\d),(?=\d{3})|\\(?=%)", "", formula).strip()
    for pattern, put in TEX:
        plain = pattern.sub(put, plain)
    plain = plain.replace("° ", "°")
    return plain if PLAIN.fullmatch(plain) else ""


def _joined(text: str, found: list[Quantity]) -> Iterator[Quantity]:
    """In `10 to 20 kg` and `2 or 3 million` the first number has the unit and the scale of the second too; `nine out of
    ten` is a share."""
    for place in range(len(found) - 2, -1, -1):
        one, other = found[place], found[place + 1]
        if not CONNECTOR.fullmatch(text[one.end : other.start]) or "cardinal" not in (one.kind, other.kind):
            continue
        if isinstance(one.value, str) or isinstance(other.value, str):
            continue
        if one.kind == "cardinal" and one.unit is None and other.kind in ("cardinal", "part", "ordinal"):
            meanings = [(one.value * size, unit) for _, unit in other.meanings for size in (1, other.scale)]
            found[place] = replace(one, other=(*one.other, *dict.fromkeys(meanings)))
    _compounds(text, found)
    for place, (one, other) in enumerate(pairwise(tuple(found))):  # nine out of ten
        if isinstance(one.value, Fraction) and isinstance(other.value, Fraction) and other.value:
            share = (one.value / other.value, None)
            if share in other.other:
                found[place] = replace(one, other=(*one.other, share))
    yield from _days(text, found)


def _compounds(text: str, found: list[Quantity]) -> None:
    """In `2 hours and 30 minutes` and `four pounds fifty` both numbers may mean the whole, too."""
    for place in range(len(found) - 2, -1, -1):
        one, other = found[place], found[place + 1]
        gap = text[one.end : other.start]
        if isinstance(one.value, str) or isinstance(other.value, str) or one.unit is None or one.kind == "said":
            continue
        if other.unit is None:
            words = other.kind == "cardinal" and not other.digits and gap == " " and other.value < 100
            total = one.value + other.value / 100 if words and one.unit.dimension in MONEY else None
        else:
            parts = _goes_on(text, one, other)
            known = (value for value, unit in other.other if unit == other.unit and isinstance(value, Fraction))
            whole = next(known, other.value)
            share = whole * other.unit.factor / one.unit.factor
            total = one.value + share if parts and 0 < share < 1 else None
        if total is not None:
            found[place] = replace(one, other=((total, one.unit), *one.other))
            last = place + 1
            found[last] = replace(other, other=(*other.other, (total, one.unit)))
            while last + 1 < len(found) and _goes_on(text, found[last], found[last + 1]):
                last += 1
                found[last] = replace(found[last], other=(*found[last].other, (total, one.unit)))


def _goes_on(text: str, one: Quantity, other: Quantity) -> bool:
    """Whether a measure goes on with a smaller unit."""
    if one.unit is None or other.unit is None or one.unit.dimension != other.unit.dimension:
        return False
    return other.unit.factor < one.unit.factor and COMPOUND.fullmatch(text[one.end : other.start]) is not None


def _days(text: str, found: list[Quantity]) -> list[Quantity]:
    """The numbers beside a month, and what they are in one range with, are its days."""
    months = [place for place, one in enumerate(found) if one.kind == "month"]
    for month in months:
        for place, gap in ((month - 1, OF_MONTH), (month + 1, DAY_BEHIND)):
            if 0 <= place < len(found) and _day_of(text, found, place, month, gap):
                found[place] = replace(found[place], kind="day")
        place = month - 2
        while place >= 0 and found[place + 1].kind == "day" and _day_of(text, found, place, place + 1, CONNECTOR):
            found[place] = replace(found[place], kind="day")
            place -= 1
    return found


def _day_of(text: str, found: list[Quantity], place: int, other: int, gap: re.Pattern[str]) -> bool:
    """Whether a number may be a day and stands so near to another one that it is."""
    one, first, last = found[place], *sorted((found[place], found[other]), key=lambda each: each.start)
    fits = one.unit is None and one.kind in ("cardinal", "ordinal") and not isinstance(one.value, str)
    return fits and one.value in range(1, 32) and gap.fullmatch(text[first.end : last.start]) is not None
