"""Units: how they are written, what they measure, and how many of the base unit they are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tasks.rephrase.alignment.pair import HAN

WORDS = Path(__file__).with_name("numbers.yaml")

_WORD = re.compile(r"[A-Za-zµμΩ°℃%]{3,}|[%$€£]")

POWERS = {"square": 2, "squared": 2, "sq": 2, "cubic": 3, "cubed": 3, "平方": 2, "立方": 3}

SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


@dataclass(frozen=True, slots=True)
class Unit:
    """What a unit measures and how many of the base unit it is."""

    dimension: str
    """Such as `length`, `length/time`, `dollar`."""
    factor: Fraction
    """In the base unit of the dimension."""
    name: str
    """What it is called; for a person."""
    above: Unit | None = None
    """In `km/h` the `km`."""


@cache
def lists() -> dict[str, Any]:
    """The lists of numbers.yaml."""
    found: dict[str, Any] = yaml.safe_load(WORDS.read_text(encoding="utf-8"))
    return found


def unit_at(text: str, place: int, number: str = "1") -> tuple[Unit, int] | None:
    """The unit that is written at `place` (a blank or a hyphen before it) behind `number`, and where it ends; None
    where it is something else there: the year of 1958年, a month's day, an ordinal's letter."""
    match = _pattern().match(text, place)
    unit = _one(match) if match else None
    if match is None or unit is None:
        return None
    end = match.end()
    name = text[place:end].strip(" -\u2011\u00a0\u2009\u202f\n")
    digits = number.rstrip("}")[-1:].isdigit()  # 10^{-7} m
    if (
        (name == "年" and re.fullmatch(r"\d{3,4}", number))
        or name in ("位", "节", "个里")
        or (name == "日" and re.search(r"月[\d一二三四五六七八九十]*$", text[max(0, place - 5) : place]))
        or (name in ("角", "毛") and not re.search(r"元[\d一二三四五六七八九]$", text[max(0, place - 2) : place]))
        or (not digits and len(name) == 1 and name.isascii() and name.isalpha())  # `a m`
        or (not digits and text[place : place + 1] == "-" and name in ("second", "seconds"))
    ):
        return None
    if match["inverse"]:  # s⁻¹
        return Unit(f"1/{unit.dimension}", 1 / unit.factor, f"1/{unit.name}"), end
    below = _below().match(text, end)
    if below is not None and (other := _one(below)) is not None:
        name = f"{unit.name}/{other.name}"
        return Unit(f"{unit.dimension}/{other.dimension}", unit.factor / other.factor, name, unit), below.end()
    return unit, end


def scale_at(text: str, place: int, money: bool = False) -> tuple[int, int] | None:
    """The hundred or million, of `money` also the k or bn, that follows a number at `place`, and where it ends."""
    match = _scale().match(text, place) or (_short().match(text, place) if money else None)
    if match is None:
        return None
    return lists()["scales"].get(match[1].lower()) or lists()["short_scales"][match[1].lower()], match.end()


@cache
def _scale() -> re.Pattern[str]:
    words = "|".join(name for name in lists()["scales"] if name.isascii())
    return re.compile(rf"(?:[ \u00a0\u2009\u202f]|-)?((?:{words})\b|[百千](?![瓦赫米克帕焦卡伏])|[万亿])", re.I)


@cache
def _short() -> re.Pattern[str]:
    return re.compile(rf" ?({'|'.join(lists()['short_scales'])})\b", re.I)


def unit_before(text: str, place: int) -> Unit | None:
    """A currency sign that ends at `place`."""
    return _spelled().get(text[place - 1 : place]) if place and text[place - 1] in "$€£¥₹" else None


def named(name: str) -> Unit:
    """The unit of that name; KeyError where there is none."""
    return _spelled()[name]


def mentions(text: str) -> set[Unit]:
    """The units of time that are spelled out anywhere in `text`, with or without a number."""
    found = [_spelled().get(word.lower()) for word in [*_WORD.findall(text), *_han().findall(text)]]
    return {unit for unit in found if unit and unit.dimension == "time"}


def _one(match: re.Match[str]) -> Unit | None:
    """The unit of a match, to its power, which is taken for positive."""
    unit = _spelled().get(match["unit"]) or _spelled().get(match["unit"].lower())
    written = match["power"] or match["inverse"] or match["area"] or match["han"]
    if unit is None or not written:
        return unit
    power = written.lower().strip(" .^{-⁻}").translate(SUPERSCRIPTS)
    exponent = POWERS.get(power) or int(power)
    if exponent == 1:
        return unit
    return Unit(f"{unit.dimension}^{exponent}", unit.factor**exponent, f"{unit.name}^{exponent}")


@cache
def _spelled() -> dict[str, Unit]:
    """Spelling -> unit. Symbols keep their case; words are in lower case."""
    found: dict[str, Unit] = {}
    words = lists()
    for name, (symbol, dimension, factor, spellings) in words["metric"].items():
        base = Fraction(factor)
        prefixes = dict(words["prefixes"])
        if name in ("byte", "bit"):
            prefixes = {key: value for key, value in prefixes.items() if key in "kKMGTPE"} | words["binary"]
        for prefix, scale in {"": 1, **prefixes}.items():
            found[prefix + symbol] = Unit(dimension, base * Fraction(str(scale)), prefix + symbol)
        long = words["prefix_words"] | (words["binary_words"] if name in ("byte", "bit") else {})
        for spelling in spellings:
            found.setdefault(spelling, Unit(dimension, base, symbol))
            if len(spelling) > 2 or not spelling.isascii():
                for prefix, scale in long.items():
                    if prefix.isascii() == spelling.isascii():
                        found.setdefault(
                            prefix + spelling, Unit(dimension, base * Fraction(str(scale)), prefix + spelling)
                        )
    for name, (dimension, factor, spellings) in words["units"].items():
        for spelling in spellings:
            found[spelling] = Unit(dimension, Fraction(factor), name)
    for spelling, meant in words["more_metric"].items():
        number, symbol = meant.split()
        found[spelling] = Unit(found[symbol].dimension, Fraction(number) * found[symbol].factor, spelling)
    for wrong in ("hm", "fs", "hs", "ds", "cs", "Ts", "ks", "Ms", "Gs", "pm"):  # words, names or nothing
        found.pop(wrong, None)
    return found


@cache
def _alternatives() -> str:
    latin = sorted((u for u in _spelled() if not HAN.match(u)), key=lambda u: (-len(u), u))
    signs = [u for u in latin if not u[-1].isalpha()]
    words = [u for u in latin if u[-1].isalpha()]
    symbols = "|".join(re.escape(u) for u in words if len(u) <= 3 or not u.islower())
    long = "|".join(re.escape(u) for u in words if len(u) > 3 and u.islower())
    signed = "|".join(re.escape(u) for u in signs)
    unit = rf"(?P<unit>(?:(?:{symbols}|(?i:{long}))(?!['’]?[A-Za-z])|(?:{signed})|(?:{_han().pattern})))"
    power = r"(?P<power>[²³]|(?:\^|(?<=m))[23]\b| squared\b| cubed\b)?(?P<inverse>⁻[¹²³]|\^-[123]\b|\^\{-[123]\})?"
    return rf"(?:(?P<area>(?i:square|sq\.?|cubic))[ -])?[多余来]?个?(?P<han>平方|立方)?{unit}{power}"


@cache
def _han() -> re.Pattern[str]:
    return re.compile("|".join(sorted((u for u in _spelled() if HAN.match(u)), key=lambda u: (-len(u), u))))


@cache
def _pattern() -> re.Pattern[str]:
    return re.compile(
        r"[ \t\u00a0\u2009\u202f]?[-\u2011]?(?:\n(?=[a-z]))?"
        r"(?:(?:more|further|extra|additional|full|whole|working|consecutive|short|long) "
        r"|[a-z]{2,}(?:ing|al|ar|ive|ic) (?=(?:minute|hour|day|week|month|year)s\b))?" + _alternatives()
    )


@cache
def _below() -> re.Pattern[str]:
    """`/s²`, `per second`, `每秒`; of ` s⁻²` only where its power is negative."""
    return re.compile(
        r"(?:(?:/| per | an? (?=second|minute|hour|day|week|month|year)| each | every |每)"
        rf"|[ ·⋅\u00a0\u2009\u202f]?(?=[A-Za-zµμΩ]{{1,3}}(?:⁻[¹²³]|\^\{{?-[123]))){_alternatives()}"
    )
