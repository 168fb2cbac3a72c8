"""One number of a text: its value, its unit, and what the words around it make of it; and those written in digits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from tasks.rephrase.alignment.units import SUPERSCRIPTS, Unit, lists, named, scale_at, unit_at, unit_before

Value = Fraction | str
"""A number, or the text itself of what is none to reckon with: a time of day, a version, 10^999."""
Meaning = tuple[Value, Unit | None]
Kind = Literal["cardinal", "ordinal", "part", "year", "month", "weekday", "day", "side", "said"]

DIGITS = re.compile(
    r"""
    (?<![A-Za-z_0-9]) (?<![A-Za-z)\]]\^) (?<![A-Za-z)\]]\^[{(-]) (?<![A-Za-z][/]) (?<![0-9][.])
    (?P<digits>
        \d{1,3}(?:,\d{2,3})*,\d{3}(?!\d)(?:\.\d+)?                     # 12,345.6 and 12,34,567
      | [1-9]\d{0,2}(?:[ \u00a0\u2009\u202f']\d{3})+(?!\d)(?:[.]\d+)?  # 12 345
      | \d+(?:\.\d+)+                                                  # 2.5, 12.345.678, 1.2.3
      | (?<![.)\]])\.\d++(?!\.\d)                                      # .5
      | \d+,\d+(?!\d|,)                                                # 2,5
      | \d+
    )
    (?: (?P<ordinal>(?:st|nd|rd|th)\b) | (?P<decade>['’]?s\b) )?
    """,
    re.X,
)
SCIENTIFIC = re.compile(
    r"(?:[ \u00a0\u2009\u202f]?[×x*·][ \u00a0\u2009\u202f]?10|(?<=(?<!\d)10))(?:\^\{?|\*\*)?"
    r"(?P<power>[-−]?\d{1,3}|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)\}?(?!\d)|[eE](?P<e>[-+]?\d{1,3})\b"
)
YEAR_TO = re.compile(r"(?<!\d)(1\d|20)\d\d[-–—/]$")
"""Before the last two digits of a later year: 1914-18."""
MIXED = re.compile(r"(?<!\d{4})[ -]([1-9]\d?)[/⁄]([2-9]|\d\d)(?![\d/])")
"""Behind the 2 of 2 1/2; not behind a year."""
OVER = re.compile(r"[/⁄](\d{1,3})(?![\d/])")
NEGATIVE = re.compile(r"(?:(?<![A-Za-z0-9_)\]])[-−–]|\b(?:minus|negative) |零下|负)$")
BELOW_ZERO = re.compile(r"(?: degrees?)? below (?:zero|freezing)\b")
CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-4])(?:[:：]|\.(?=\d\d ?[ap]\.?m\b))(?P<minute>[0-5]\d)(?![\d:])")
HALF_DAY = re.compile(
    r"[ \u00a0\u2009\u202f]?(?:a\.?m\b\.?|(?:o['’]clock )?in the morning\b"
    r"|(?P<pm>p\.?m\b\.?|(?:o['’]clock )?in the (?:afternoon|evening)\b))",
    re.I,
)
GLYPHS = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅛": (1, 8), "⅕": (1, 5), "⅖": (2, 5)}
NAME = re.compile(r"(?:(?:\b\w*[A-Z]\w*|\b[a-z])[-‐‑]|[A-Za-z]\.|\\)$")
"""Before the digits of a name: UTF-8, B-52, 802.11ac."""
HALF = re.compile(r"[ -]and[ -]a[ -]half\b")
RATE = re.compile(
    r"\b(?P<part>\d{1,3}|one|two|three|four|five|six|seven|eight|nine)(?: [a-z]+)?"
    r" (?:in|out of|of|per) (?:every )?(?:a )?$",
    re.I,
)
CENTURIES = (Fraction(1700), Fraction(1800), Fraction(1900), Fraction(2000))
"""What a year or decade of two digits may belong to."""
LONGEST = 24
"""Digits of a number that is computed with; a longer one is compared as text."""
SMALL = 12
"""Greatest number in words without a unit that counts rather than measures."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a text."""

    value: Value
    unit: Unit | None
    kind: Kind
    """`said`: a word such as `twice` or `both`; `part`: a half, two thirds; `day`: of a month; `side`: before or after
    Christ or noon (dates.py)."""
    digits: bool
    """Written in digits, not in words."""
    start: int
    end: int
    other: tuple[Meaning, ...] = ()
    """What it may mean besides: in `2 to 3 million` the 2 is 2,000,000."""
    scale: int = 1
    """The last scale behind it: that million."""
    parts: tuple[Fraction, ...] = ()
    """Of a fraction in digits, what is above and below the stroke: `2/3` may be `2 of 3`."""

    @property
    def fact(self) -> bool:
        """Whether it must be kept; a small number or a word such as `both` may come and go."""
        if self.kind in ("said", "month", "weekday"):
            return False
        if self.value == 1:
            return self.digits and any(unit and unit.dimension not in ("time", "years") for _, unit in self.meanings)
        if self.digits:
            return self.value != 0 or self.unit is not None
        if self.kind == "part":
            return self.value != Fraction(1, 2)
        return self.unit is not None or isinstance(self.value, str) or self.value > SMALL

    @property
    def meanings(self) -> tuple[Meaning, ...]:
        return ((self.value, self.unit), *self.other)


def finished(
    text: str,
    value: Value,
    kind: Kind,
    digits: bool,
    start: int,
    end: int,
    other: Sequence[Meaning] = (),
) -> Quantity | None:
    """The number that stands at [start, end) with the scale and the unit that follow it, or the currency before it;
    None where it is part of a name such as 3D."""
    meanings, written, scale = list(other), text[start:end], 1
    unit, spelled = unit_before(text, start), text[start - 1 : start]
    if isinstance(value, Fraction) and kind in ("cardinal", "part"):
        value, end, scale = _scaled(text, value, end, money=unit is not None)
    if unit is not None:
        start -= 1
    elif kind != "year" and isinstance(value, Fraction) and (found := unit_at(text, end, written)):
        spelled = text[end : found[1]].strip(" -")
        unit, end = found
        if half := HALF.match(text, end):
            value, end = value + Fraction(1, 2), half.end()
    if unit and (also := lists()["also"].get(spelled.lower())):
        meanings.append((value, named(also)))
    if isinstance(value, Fraction) and unit is None and (rate := RATE.search(text[max(0, start - 24) : start])):
        part = int(rate["part"]) if rate["part"].isdigit() else lists()["cardinals"][rate["part"].lower()]
        if part < value:
            meanings.append((part / value, None))
    if kind == "cardinal" and isinstance(value, Fraction):
        if below_zero := BELOW_ZERO.match(text, end):
            value, end = -value, below_zero.end()
            if unit is None and (found := unit_at(text, end, written)):
                unit, end = found
        half_day = HALF_DAY.match(text, end) if unit is None else None
        if half_day and 0 < value <= 12:
            meanings.append((value % 12 + 12 * bool(half_day["pm"]), None))
            end = half_day.end()
        elif digits and unit is None and re.match(r"k\b", text[end:]):
            meanings.append((value, None))  # 30k
            value, end = value * 1000, end + 1
        elif digits and re.match(r"(?!x\b)[A-Za-z_]", text[end:]):
            return None  # 3D, 5G
    if unit and unit.name == "year" and kind == "ordinal":
        unit = None
    return Quantity(value, unit, kind, digits, start, end, tuple(meanings), scale)


def _scaled(text: str, value: Fraction, end: int, money: bool) -> tuple[Fraction, int, int]:
    """`value` times the hundreds and millions that follow at `end`, where they end, and the last of them."""
    size = 1
    while True:
        if scale := scale_at(text, end, money):
            size, end = scale
            value *= size
        elif value >= 1 and (half := HALF.match(text, end)):  # two and a half million, a million and a half
            value, end = value + Fraction(size, 2), half.end()
        else:
            return value, end, size


def in_digits(text: str) -> Iterator[Quantity]:
    end = 0
    for match in DIGITS.finditer(text):
        if match.start() < end or NAME.search(text[max(0, match.start() - 12) : match.start()]):
            continue
        clock = CLOCK.match(text, match.start())
        quantity = _clock(text, clock) if clock else _digits(text, match)
        if quantity is not None:
            end = quantity.end
            yield quantity
    for match in re.finditer(rf"(?<![\d ])[{''.join(GLYPHS)}]|(?<!\d)(?<= )[{''.join(GLYPHS)}]", text):
        if found := finished(text, Fraction(*GLYPHS[match.group()]), "part", False, *match.span()):
            yield found


def _clock(text: str, match: re.Match[str]) -> Quantity:
    """A time of day, or how long something took."""
    hour, minute, end = int(match["hour"]), int(match["minute"]), match.end()
    half = HALF_DAY.match(text, end)
    if half:
        hour, end = hour % 12 + 12 * bool(half["pm"]), half.end()
    found = time_of_day(hour, minute, match.start(), end, told=bool(half) or match["hour"][0] == "0")
    took = [(Fraction(60 * hour + minute), named(unit)) for unit in ("minute", "second")]
    return found if half else replace(found, other=(*found.other, *took))


def time_of_day(hour: int, minute: int, start: int, end: int, told: bool) -> Quantity:
    """A time of day; by a clock of twelve hours too, where the half of the day is not `told`."""
    other: list[Meaning] = []
    if not told and 1 <= hour <= 12:
        other.append((f"{(hour + 12) % 24}:{minute:02}", None))
    if not minute:
        other += [(Fraction(hour), None), (Fraction(hour % 12 or 12), None)]
    return Quantity(f"{hour % 24}:{minute:02}", None, "cardinal", True, start, end, tuple(other))


def _number(written: str) -> Value:
    """The number that is written in digits; `2,5` is 2.5 and `2,500` is 2500."""
    if len(written) > LONGEST:
        return re.sub(r"\D", "", written)
    plain = re.sub(r"[ \u00a0\u2009\u202f']", "", written)
    if re.fullmatch(r"\d+(?:,\d{2,3})*,\d{3}(?:\.\d+)?", plain) or plain != written:
        plain = plain.replace(",", "")
    elif plain.count(".") > 1:  # grouped by dots, or a version or an address
        if not re.fullmatch(r"[1-9]\d{0,2}(?:\.\d{3})+", plain):
            return plain
        plain = plain.replace(".", "")
    return Fraction(plain.replace(",", "."))


def _digits(text: str, match: re.Match[str]) -> Quantity | None:
    start, end = match.start(), match.end()
    value, other = _number(match["digits"]), list[Meaning]()
    kind: Kind = "cardinal"
    parts: tuple[Fraction, ...] = ()
    if text[end : end + 1] == "月":
        return None
    if not isinstance(value, Fraction):
        return finished(text, value, "cardinal", True, start, end)
    power = SCIENTIFIC.match(text, match.end("digits"))
    if power:
        bare = match["digits"] == "10" and power.group()[0] in "^*{⁰¹²³⁴⁵⁶⁷⁸⁹⁻"
        scaled, end = _scientific(Fraction(1) if bare else value, power["power"] or power["e"]), power.end()
        return finished(text, scaled, "cardinal", True, start, end)
    if match["ordinal"]:
        kind = "ordinal"
    elif match["decade"] and match["digits"].endswith("0") and len(match["digits"]) <= 4:
        kind = "year"
        if match["digits"].endswith("00"):
            other = [(value / 100 + 1, named("century"))]
        elif len(match["digits"]) == 2:
            other = [(century + value, None) for century in CENTURIES]
            return finished(text, f"{match['digits']}s", kind, True, start, end, other)
    elif match["decade"] == "s":
        other, end = [(value, None)], end - 1  # seconds, or the under-16s
    elif glyph := GLYPHS.get(text[end : end + 1]):
        value, end = value + Fraction(*glyph), end + 1
    elif value.denominator == 1 and (mixed := MIXED.match(text, end)) and int(mixed[1]) < int(mixed[2]):
        value, end = value + Fraction(int(mixed[1]), int(mixed[2])), mixed.end()
    elif value.denominator == 1 and (over := OVER.match(text, end)) and value < int(over[1]):
        parts, end = (value, Fraction(int(over[1]))), over.end()
        value = parts[0] / parts[1]
    century = YEAR_TO.search(text[max(0, start - 6) : start]) if re.fullmatch(r"\d\d", match.group()) else None
    if century and (last := Fraction(int(century[1]) * 100) + value) > int(century.group()[:4]):
        kind, other, value = "year", [(value, None)], last  # 1914-18
    elif kind == "cardinal" and text[start - 1 : start] in ("'", "’") and len(match["digits"]) == 2:
        kind, other = "year", [(century + value, None) for century in CENTURIES]
    elif kind == "cardinal" and (sign := NEGATIVE.search(text[max(0, start - 10) : start])):
        value, start = -value, start - len(sign.group())
    found = finished(text, value, kind, True, start, end, other)
    return replace(found, parts=parts) if found else None


def _scientific(value: Fraction, power: str) -> Value:
    written = power.translate(SUPERSCRIPTS).replace("−", "-")
    if not re.fullmatch(r"[-+]?\d{1,2}", written):
        return f"{value}e{written}"
    return value * Fraction(10) ** int(written)
