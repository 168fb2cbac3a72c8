"""The numbers that a text writes in digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

from tasks.rephrase.alignment.quantity import BLANK, CENTURIES, HALF_DAY, Kind, Quantity, Value, clock, finished
from tasks.rephrase.alignment.units import SUPERSCRIPTS, Unit, named

DIGITS = re.compile(
    r"""
    (?<![A-Za-z_0-9]) (?<![A-Za-z)\]]\^) (?<![A-Za-z)\]]\^[{(-]) (?<![A-Za-z][/]) (?<![0-9][.])
    (?P<digits>
        \d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?                          # 12,345.6
      | \d{1,2}(?:,\d{2})+,\d{3}(?!\d)                              # 12,34,567
      | \d{1,3}(?:[\u00a0\u2009\u202f']\d{3})+(?!\d)(?:[.,]\d+)?    # 12'345 or with a narrow blank
      | [1-9]\d{0,2}(?:[ ]\d{3})+(?!\d)(?:\.\d+)?                   # 12 345
      | [1-9]\d{0,2}(?:\.\d{3}){2,}(?!\d)                           # 12.345.678
      | \d+(?:\.\d+)+                                               # 2.5, 1.2.3
      | \d+,\d+(?!\d|,)                                             # 2,5
      | \d+
    )
    (?: (?P<ordinal>(?:st|nd|rd|th)\b) | (?P<decade>['’]?s\b) )?
    """,
    re.X,
)
POWER = re.compile(
    rf"""
    {BLANK}?[×x*·]{BLANK}?10 (?:\^\{{?|\*\*)? (?P<power>[-−]?\d{{1,3}}|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+) \}}? (?!\d)
    | [eE](?P<e>[-+]?\d{{1,3}})\b
    """,
    re.X,
)
OVER = re.compile(r"[/⁄](\d{1,3})(?![\d/])")
NEGATIVE = re.compile(r"(?:(?<![\w)\]])[-−–]|\b(?:minus|negative) |零下|负)$")
TEN_TO = re.compile(r"10(?:\^\{?(?P<power>[-−]?\d{1,3})\}?|(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+))")
CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-4])(?:[:：]|\.(?=\d\d ?[ap]\.?m\b))(?P<minute>[0-5]\d)(?![\d:])")
GLYPH = re.compile(r"(?<![\d ])[½⅓⅔¼¾⅛⅕⅖]|(?<!\d)(?<= )[½⅓⅔¼¾⅛⅕⅖]")
GLYPHS = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅛": (1, 8), "⅕": (1, 5), "⅖": (2, 5)}
LONGEST = 24
"""Digits of a number that is computed with; a longer one is compared as text."""


def in_digits(text: str) -> Iterator[Quantity]:
    end = 0
    for match in DIGITS.finditer(text):
        if match.start() < end or _names(text, match):
            continue
        clock = CLOCK.match(text, match.start())
        if clock:
            end = clock.end()
            yield _clock(text, clock)
            continue
        quantity = _digits(text, match)
        if quantity is not None:
            end = quantity.end
            yield quantity
    for match in GLYPH.finditer(text):
        found = finished(text, Fraction(*GLYPHS[match.group()]), "part", False, *match.span())
        if found:
            yield found


def _names(text: str, match: re.Match[str]) -> bool:
    """Whether the digits belong to a name: UTF-8, B-52, 3D, 802.11ac."""
    before = text[max(0, match.start() - 12) : match.start()]
    return re.search(r"(?:\b\w*[A-Z]\w*|\b[a-z])[-‐‑]$|[A-Za-z]\.$|\\$", before) is not None


def _number(written: str) -> Value:
    """The number that is written in digits; `2,5` is 2.5 and `2,500` is 2500."""
    if len(written) > LONGEST:
        return re.sub(r"\D", "", written)
    plain = re.sub(r"[ \u00a0\u2009\u202f']", "", written)
    if re.fullmatch(r"\d+(?:,\d{2,3})*,\d{3}(?:\.\d+)?", plain):
        plain = plain.replace(",", "")
    elif re.fullmatch(r"\d{1,3}(?:\.\d{3}){2,}", plain):
        plain = plain.replace(".", "")
    elif plain.count(".") > 1:
        return plain  # a version or an address
    return Fraction(plain.replace(",", "."))


def _clock(text: str, match: re.Match[str]) -> Quantity:
    hour, minute, end = int(match["hour"]), match["minute"], match.end()
    half = HALF_DAY.match(text, end)
    if half:
        hour, end = hour % 12 + 12 * (half["half"].lower() == "p"), half.end()
    return clock(hour, int(minute), match.start(), end, text[match.start() : end], told=half is not None)


def _digits(text: str, match: re.Match[str]) -> Quantity | None:
    start, end = match.start(), match.end()
    value: Value = _number(match["digits"])
    kind: Kind = "cardinal"
    other: list[tuple[Value, Unit | None]] = []
    ten = TEN_TO.match(text, start) if match["digits"] == "10" else None
    power = POWER.match(text, match.end("digits")) if isinstance(value, Fraction) and not ten else None
    if ten:
        value, end = _power(Fraction(1), ten["power"] or ten["raised"]), ten.end()
    elif power and isinstance(value, Fraction):
        value, end = _power(value, power["power"] or power["e"]), power.end()
    elif match["ordinal"]:
        kind = "ordinal"
    elif match["decade"]:
        if match["digits"].endswith("0") and len(match["digits"]) <= 4 and isinstance(value, Fraction):
            kind = "year"
            if match["digits"].endswith("00"):
                other = [(value / 100 + 1, named("century"))]
            elif len(match["digits"]) == 2:
                other = [(century + value, None) for century in CENTURIES]
                value = f"{match['digits']}s"
        elif match["decade"] == "s":
            other, end = [(value, None)], end - 1  # seconds, or the under-16s
    elif (glyph := GLYPHS.get(text[end : end + 1])) and isinstance(value, Fraction):
        value, end = value + Fraction(*glyph), end + 1
    elif "." not in match["digits"] and isinstance(value, Fraction) and (over := OVER.match(text, end)):
        below = int(over[1])
        if value < below:
            other = [(value, None), (Fraction(below), None)]
            value, end = value / below, over.end()
    sign = NEGATIVE.search(text[max(0, start - 10) : start])
    if text[start - 1 : start] in ("'", "’") and len(match["digits"]) == 2 and kind == "cardinal":
        kind, other = "year", [(century + int(match["digits"]), None) for century in CENTURIES]
    if sign and isinstance(value, Fraction) and kind == "cardinal":
        value, start = -value, start - len(sign.group())
    return finished(text, value, kind, True, start, end, match["digits"], other)


def _power(value: Fraction, power: str) -> Value:
    written = power.translate(SUPERSCRIPTS).replace("−", "-")
    if not re.fullmatch(r"[-+]?\d{1,3}", written):
        return f"{value}e{written}"
    return value * Fraction(10) ** int(written)
