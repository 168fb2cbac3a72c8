"""One number of a text: its value, its unit, and what the words around it make of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

from tasks.rephrase.alignment.units import Unit, lists, unit_at, unit_before

Value = Fraction | str
"""A number, or the text itself of what is too long to be one."""

BLANK = r"[ \u00a0\u2009\u202f]"
HALF_DAY = re.compile(rf"{BLANK}?(?P<half>[ap])\.?m\b\.?", re.I)
CENTURIES = (Fraction(1700), Fraction(1800), Fraction(1900), Fraction(2000))
"""What a year or decade of two digits may belong to."""
HALF = re.compile(r"[ -]and[ -]a[ -]half\b")
SHORT = re.compile(r" ?(k|mn?|bn|tn)\b", re.I)
BELOW_ZERO = re.compile(r"(?: degrees?)? below (?:zero|freezing)\b")
RATE = re.compile(
    r"\b(?P<part>\d{1,3}|one|two|three|four|five|six|seven|eight|nine)(?: [a-z]+)?"
    r" (?:in|out of|of|per) (?:every )?(?:a )?$",
    re.I,
)

Kind = Literal["cardinal", "ordinal", "part", "year", "said", "month"]


SMALL = 12
"""Greatest number in words without a unit that counts rather than measures."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """One number of a text."""

    value: Value
    unit: Unit | None
    kind: Kind
    """`said`: a word such as `twice` or `both`; `part`: a half, two thirds."""
    digits: bool
    """Written in digits, not in words."""
    start: int
    end: int
    other: tuple[tuple[Value, Unit | None], ...] = ()
    """What it may mean besides: in `2 to 3 million` the 2 is 2,000,000."""
    text: str = ""

    @property
    def fact(self) -> bool:
        """Whether it must be kept; a small number or a word such as `both` may come and go."""
        if self.kind in ("said", "month"):
            return False
        if self.value == 1:
            return self.digits and any(unit and unit.dimension not in ("time", "years") for _, unit in self.meanings)
        if self.digits:
            return self.value != 0 or self.unit is not None
        if self.kind == "part":
            return self.value != Fraction(1, 2)
        return self.unit is not None or isinstance(self.value, str) or self.value > SMALL

    @property
    def meanings(self) -> tuple[tuple[Value, Unit | None], ...]:
        return ((self.value, self.unit), *self.other)


def finished(
    text: str,
    value: Value,
    kind: Kind,
    digits: bool,
    start: int,
    end: int,
    written: str = "",
    other: list[tuple[Value, Unit | None]] | None = None,
) -> Quantity | None:
    """The number that stands at [start, end) with the scale and the unit that follow it, or the currency before it;
    None where it is part of a name such as 3D."""
    meanings = other or []
    money = unit_before(text, start)
    if money:
        start -= 1
    if isinstance(value, Fraction) and kind in ("cardinal", "part"):
        value, end = _scaled(text, value, end, money is not None)
    unit: Unit | None = money
    found = None if money or kind == "year" else _unit_after(text, end, value, digits, written)
    if found:
        unit, end = found
        if isinstance(value, Fraction) and (half := HALF.match(text, end)):
            value, end = value + Fraction(1, 2), half.end()
    if isinstance(value, Fraction) and unit is None and (rate := RATE.search(text[max(0, start - 24) : start])):
        part = int(rate["part"]) if rate["part"].isdigit() else lists()["cardinals"][rate["part"].lower()]
        if part < value:
            meanings = [*meanings, (part / value, None)]
    if kind == "cardinal" and (below_zero := BELOW_ZERO.match(text, end)):
        value, end = (-value if isinstance(value, Fraction) else value), below_zero.end()
    half_day = HALF_DAY.match(text, end) if kind == "cardinal" else None
    if half_day and isinstance(value, Fraction) and 0 < value <= 12:
        meanings = [*meanings, (value % 12 + 12 * (half_day["half"].lower() == "p"), None)]
        end = half_day.end()
    elif digits and re.match(r"(?!x\b)[A-Za-z_]", text[end:]):
        return None  # 3D, 5G
    if unit and unit.name == "year" and kind == "ordinal":
        unit = None
    return Quantity(value, unit, kind, digits, start, end, tuple(meanings), text[start:end].strip())


def clock(hour: int, minute: int, start: int, end: int, text: str, told: bool = False) -> Quantity:
    """A time of day; by a clock of twelve hours too, unless the half of the day is `told`."""
    other: list[tuple[Value, Unit | None]] = [] if told else [(f"{(hour + 12) % 24}:{minute:02}", None)]
    if not minute:
        other += [(Fraction(hour), None), (Fraction(hour % 12 or 12), None)]
    return Quantity(f"{hour % 24}:{minute:02}", None, "cardinal", True, start, end, tuple(other), text)


def _scaled(text: str, value: Fraction, end: int, money: bool) -> tuple[Fraction, int]:
    """`value` times the hundreds and millions that follow at `end`, and where they end."""
    while scale := _scale().match(text, end):
        value, end = value * scales()[scale[1].lower()], scale.end()
    if money and (short := SHORT.match(text, end)):
        value, end = value * lists()["short_scales"][short[1].lower()], short.end()
    if value >= 1 and (half := HALF.match(text, end)):
        value, end = value + Fraction(1, 2), half.end()
        while (scale := _scale().match(text, end)) and scale[1].isalpha():
            value, end = value * scales()[scale[1].lower()], scale.end()
    return value, end


def _unit_after(text: str, end: int, value: Value, digits: bool, written: str) -> tuple[Unit, int] | None:
    found = unit_at(text, end)
    if found is None or isinstance(value, str):
        return None
    stop = found[1]
    name = text[end:stop].strip(" -\u2011\u00a0\u2009\u202f\n")
    if name == "年" and digits and len(written) in (3, 4) and "," not in written:
        return None  # a year
    if name in ("位", "节") or (
        name == "日" and re.search(r"月[\d一二三四五六七八九十]*$", text[max(0, end - 5) : end])
    ):
        return None  # 三位, 第三节, 10月1日
    if not digits and len(name) == 1 and name.isascii() and name.isalpha():
        return None  # `a`, `m`: symbols go with digits
    if not digits and text[end : end + 1] == "-" and name in ("second", "seconds"):
        return None
    return found


@cache
def scales() -> dict[str, int]:
    return lists()["scales"] | {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}


@cache
def _scale() -> re.Pattern[str]:
    names = "|".join(lists()["scales"])
    return re.compile(rf"(?:{BLANK}|-)?((?:{names})\b|[百千](?![瓦赫米克帕焦卡伏])|[万亿])", re.I)
