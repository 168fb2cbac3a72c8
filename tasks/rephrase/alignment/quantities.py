"""The quantities that a text states: numbers in digits or words, English or Chinese, with their units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, lru_cache
from typing import Literal

from tasks.rephrase.alignment import hanzi
from tasks.rephrase.alignment.pair import CODE, FORMULA, URL
from tasks.rephrase.alignment.units import SUPERSCRIPTS, Unit, lists, named, unit_at, unit_before

Value = Fraction | str
"""A number, or the text itself of what is too long to be one."""

MARKER = re.compile(
    r"^[-*+•>#|_ \t]{0,40}(?:(?:step|part|question|q|point|stage|note|case)[ \t]*|第)?"
    r"(?:\(?\d{1,2}(?:[.):、：．）](?=[\s*_㐀-鿿]|$)|步)|(?:one|two|three|four|five|six|seven|eight|nine|ten)[:.]"
    r"|[一二三四五六七八九十]{1,2}[、.．）)])",
    re.M | re.I,
)
ENUMERATED = re.compile(r"(?<![\w)\]\ufffc*])[(（]\d[)）](?=\s|[㐀-鿿])|[①-⑳]")

BLANK = r"[ \u00a0\u2009\u202f]"
DIGITS = re.compile(
    r"(?<![A-Za-z_0-9])(?<![A-Za-z][/])(?<![0-9][.])"
    r"(?P<digits>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d{1,2}(?:,\d{2})+,\d{3}(?!\d)|\d{1,3}(?:[\u00a0\u2009\u202f']\d{3})+(?!\d)(?:[.,]\d+)?"
    r"|[1-9]\d{0,2}(?: \d{3})+(?!\d)(?:\.\d+)?|[1-9]\d{0,2}(?:\.\d{3}){2,}(?!\d)|\d+(?:\.\d+)+|\d+,\d+(?!\d|,)|\d+)"
    r"(?:(?P<ordinal>(?:st|nd|rd|th)\b)|(?P<decade>['’]?s\b))?"
)
POWER = re.compile(
    rf"{BLANK}?[×x*·]{BLANK}?10(?:\^\{{?|\*\*)?(?P<power>[-−]?\d{{1,3}}|[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+)\}}?(?!\d)|[eE](?P<e>[-+]?\d{{1,3}})\b"
)
TEN_TO = re.compile(r"10(?:\^\{?(?P<power>[-−]?\d{1,3})\}?|(?P<raised>[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+))")
CLOCK = re.compile(r"(?P<hour>[01]?\d|2[0-4])[:：](?P<minute>[0-5]\d)(?![\d:])")
HALF_DAY = re.compile(rf"{BLANK}?(?P<half>[ap])\.?m\b\.?", re.I)
RATE = re.compile(r"(?i)\b(?:one|1)(?: [a-z]+)? (?:in|out of|of|per) (?:every )?(?:a )?$")
GLYPHS = {"½": (1, 2), "⅓": (1, 3), "⅔": (2, 3), "¼": (1, 4), "¾": (3, 4), "⅛": (1, 8), "⅕": (1, 5), "⅖": (2, 5)}
PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4}
RULER = re.compile(r"(?<=[a-zé] )(?P<roman>X{0,3}(?:IX|IV|V?I{0,3}))(?![\w-]|\.\w)")
ROMAN = {"I": 1, "V": 5, "X": 10}
LONGEST = 24
"""Digits of a number that is computed with; a longer one is compared as text."""

Kind = Literal["cardinal", "ordinal", "part", "year", "said", "month"]


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
        """Whether it must be kept; a small count or a word such as `both` may come and go."""
        if self.kind in ("said", "month"):
            return False
        if self.value == 1:
            return self.digits and any(unit and unit.dimension not in ("time", "years") for _, unit in self.meanings)
        if self.digits:
            return self.value != 0 or self.unit is not None
        if self.kind == "part":
            return self.value != Fraction(1, 2)
        return self.unit is not None or isinstance(self.value, str) or self.value > 12

    @property
    def meanings(self) -> tuple[tuple[Value, Unit | None], ...]:
        return ((self.value, self.unit), *self.other)


@lru_cache(maxsize=512)
def quantities(text: str) -> tuple[Quantity, ...]:
    """The quantities of `text` in their order; code, URLs and formulas that are more than a number are left out."""
    bare = prose(text)
    found = sorted(_all(bare), key=lambda quantity: (quantity.start, -quantity.end))
    kept: list[Quantity] = []
    for quantity in found:
        if not kept or quantity.start >= kept[-1].end:
            kept.append(quantity)
    return tuple(_joined(bare, kept))


def prose(text: str) -> str:
    """The text without what other checks hold it to, every character in its place."""
    text = FORMULA.sub(_number_or_blanks, CODE.sub(lambda match: "\ufffc" * len(match.group()), text))
    for pattern in (URL, MARKER, ENUMERATED):
        text = pattern.sub(_blanks, text)
    return text


def _blanks(match: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", match.group())


def _number_or_blanks(match: re.Match[str]) -> str:
    inside = next((group for group in match.groups() if group is not None), "")
    plain = re.sub(r"\\[,;:! ]|\{,\}|(?<=\d),(?=\d{3})|\\(?=%)", "", inside).strip()
    if re.fullmatch(r"[-−]?\d+(?:\.\d+)?%?", plain):
        return plain.rjust(len(match.group()) - 1) + " "
    return " " * len(match.group())


NEXT_YEAR = re.compile(
    r"(?i)\b(?:next|following|previous|preceding) year\b|\byear (?:later|after|before|earlier|previously)\b"
    r"|\b(?:that|this|following|next|previous|preceding|same) decade\b"
    r"|次年|翌年|第二年|来年|前一年|上一年|一年[前后之以]"
)


def _all(text: str) -> Iterator[Quantity]:
    yield from _in_digits(text)
    for match in NEXT_YEAR.finditer(text):
        unit = named("decade" if match.group().endswith("decade") else "year")
        back = re.search(r"(?i)previous|preceding|before|earlier|[前上]", match.group())
        yield Quantity(
            Fraction(-1 if back else 1), unit, "said", False, *match.span(), ((Fraction(1), unit),), match.group()
        )
    yield from _in_words(text)
    yield from _in_hanzi(text)
    for match in RULER.finditer(text):
        if match["roman"] and (len(match["roman"]) > 1 or match["roman"] in "VX") and _named(text, match.start()):
            number = sum(
                -ROMAN[sign]
                if ROMAN[sign] < max((ROMAN[later] for later in match["roman"][place:]), default=0)
                else ROMAN[sign]
                for place, sign in enumerate(match["roman"])
            )
            yield Quantity(Fraction(number), None, "ordinal", number > 2, *match.span(), text=match["roman"])


def _named(text: str, place: int) -> bool:
    return re.search(r"(?:^|[^\w])[A-ZÀ-Þ][\w’'-]+ $", text[max(0, place - 24) : place]) is not None


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


def _in_digits(text: str) -> Iterator[Quantity]:
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


def _names(text: str, match: re.Match[str]) -> bool:
    """Whether the digits belong to a name: UTF-8, B-52, 3D, 802.11ac."""
    before = text[max(0, match.start() - 12) : match.start()]
    if re.search(r"(?:\b\w*[A-Z]\w*|\b[a-z])[-‐‑]$", before) or re.search(r"[A-Za-z]\.$|\\$", before):
        return True
    return False


def _clock(text: str, match: re.Match[str]) -> Quantity:
    hour, minute, end = int(match["hour"]), match["minute"], match.end()
    half = HALF_DAY.match(text, end)
    if half:
        hour, end = hour % 12 + 12 * (half["half"].lower() == "p"), half.end()
    other = ((Fraction(hour), None), (Fraction(hour % 12 or 12), None)) if minute == "00" else ()
    return Quantity(f"{hour}:{minute}", None, "cardinal", True, match.start(), end, other, text[match.start() : end])


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
        if len(match["digits"]) in (2, 4) and match["digits"].endswith("0"):
            kind = "year"
            if len(match["digits"]) == 4 and match["digits"].endswith("00") and isinstance(value, Fraction):
                other = [(value / 100 + 1, named("century"))]
        elif match["decade"] == "s":
            end -= 1
    elif (glyph := GLYPHS.get(text[end : end + 1])) and isinstance(value, Fraction):
        value, end = value + Fraction(*glyph), end + 1
    elif (
        isinstance(value, Fraction)
        and (over := re.compile(r"[/⁄](\d{1,3})(?![\d/])").match(text, end))
        and "." not in match["digits"]
    ):
        if int(over[1]) and value < int(over[1]):
            other = [(value, None), (Fraction(int(over[1])), None)]
            value, end = value / int(over[1]), over.end()
    sign = re.search(r"(?:(?<![\w)\]])[-−–]|\b(?:minus|negative) |零下|负)$", text[max(0, start - 10) : start])
    if sign and isinstance(value, Fraction) and kind == "cardinal":
        value, start = -value, start - len(sign.group())
    return _finish(text, value, kind, True, start, end, match["digits"], other)


def _power(value: Fraction, power: str) -> Value:
    written = power.translate(SUPERSCRIPTS).replace("−", "-")
    if not re.fullmatch(r"[-+]?\d{1,3}", written):
        return f"{value}e{written}"
    return value * Fraction(10) ** int(written)


def _finish(
    text: str,
    value: Value,
    kind: Kind,
    digits: bool,
    start: int,
    end: int,
    written: str,
    other: list[tuple[Value, Unit | None]],
) -> Quantity | None:
    """The scale and the unit that follow a number, or the currency before it."""
    money = unit_before(text, start)
    if money:
        start -= 1
    if isinstance(value, Fraction) and kind in ("cardinal", "part"):
        while scale := _scale().match(text, end):
            value, end = value * _scales()[scale[1].lower()], scale.end()
        if money and (short := re.compile(r" ?(k|mn?|bn|tn)\b", re.I).match(text, end)):
            value, end = value * lists()["short_scales"][short[1].lower()], short.end()
        if half := re.compile(r"[ -]and[ -]a[ -]half\b").match(text, end):
            value, end = value + Fraction(1, 2), half.end()
        while (scale := _scale().match(text, end)) and scale[1].isalpha():
            value, end = value * _scales()[scale[1].lower()], scale.end()
    unit: Unit | None = money
    found = None if money or kind == "year" else _unit_after(text, end, value, digits, written)
    if found:
        unit, end = found
        half = re.compile(r" and a half\b").match(text, end)
        if half and isinstance(value, Fraction):
            value, end = value + Fraction(1, 2), half.end()
    if (
        isinstance(value, Fraction)
        and value > 0
        and unit is None
        and (rate := RATE.search(text[max(0, start - 20) : start]))
    ):
        other = [*other, (1 / value, None)]
    if kind == "cardinal" and (off := re.compile(r"(?: degrees?)? below (?:zero|freezing)\b").match(text, end)):
        value, end = (-value if isinstance(value, Fraction) else value), off.end()
    if (
        kind == "cardinal"
        and isinstance(value, Fraction)
        and (half_day := HALF_DAY.match(text, end))
        and 0 < value <= 12
    ):
        other = [*other, (value % 12 + 12 * (half_day["half"].lower() == "p"), None)]
        end = half_day.end()
    elif digits and end < len(text) and re.match(r"[A-Za-z_]", text[end]) and not re.match(r"x\b", text[end:]):
        return None  # 3D, 5G
    if unit and unit.name == "year" and kind == "ordinal":
        unit = None
    return Quantity(value, unit, kind, digits, start, end, tuple(other), text[start:end].strip())


def _unit_after(text: str, end: int, value: Value, digits: bool, written: str) -> tuple[Unit, int] | None:
    found = unit_at(text, end)
    if found is None or isinstance(value, str):
        return None
    unit, stop = found
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
def _scales() -> dict[str, int]:
    return lists()["scales"] | {"十": 10, "百": 100, "千": 1000, "万": 10**4, "亿": 10**8}


@cache
def _scale() -> re.Pattern[str]:
    names = "|".join(lists()["scales"])
    return re.compile(rf"(?:{BLANK}|-)?((?:{names})\b|[百千](?![瓦赫米克帕焦卡伏])|[万亿])", re.I)


@cache
def _words() -> re.Pattern[str]:
    numbers = "|".join(sorted([*lists()["cardinals"], *lists()["scales"]], key=len, reverse=True))
    ordinals = "|".join(sorted(lists()["ordinals"], key=len, reverse=True))
    parts = "|".join(sorted([*PARTS, *(f"{o}s" for o in lists()["ordinals"])], key=len, reverse=True))
    saying = "|".join(sorted([*lists()["saying"], *lists()["decades"]], key=len, reverse=True))
    months = "|".join(sorted(lists()["months"], key=len, reverse=True))
    number = rf"(?:{numbers})\b"
    run = rf"(?:an? (?=hundred|thousand|million|billion|trillion|dozen))?{number}(?:(?:[ -]|[ -]and[ -](?=(?:{numbers})\b)){number})*"
    return re.compile(
        rf"(?<![\w@#])(?:(?P<run>{run})(?:[ -](?P<part>{parts}|(?P<ordinal>{ordinals}))(?![\w-]))?"
        rf"|(?P<article>an?|per|each|every)[ -](?P<apart>half|third|quarter|{ordinals})\b(?!-)"
        rf"|(?P<single>{ordinals})\b|(?P<half>half|halves|halved|halving|halve|quarters?)\b"
        rf"|(?P<one>an?|per|each|every|any)(?= [a-zµ])|(?P<saying>{saying})\b|(?P<month>{months})\b)",
        re.I,
    )


def _in_words(text: str) -> Iterator[Quantity]:
    for match in _words().finditer(text):
        start, end = match.span()
        if match["run"]:
            yield from _run(text, match)
        elif match["one"]:
            found = unit_at(text, end)
            if found and text[end : found[1]].strip() not in (
                "",
                "m",
                "s",
                "t",
                "h",
                "d",
                "g",
                "L",
                "K",
                "A",
                "V",
                "N",
            ):
                unit, stop = found
                half = re.compile(r" and a half\b").match(text, stop)
                if half:
                    yield Quantity(
                        Fraction(3, 2), unit, "cardinal", False, start, half.end(), (), text[start : half.end()]
                    )
                else:
                    yield Quantity(
                        Fraction(1), unit, "said", False, start, stop, ((Fraction(1), None),), text[start:stop]
                    )
        elif match["apart"]:
            word = match["apart"].lower()
            below = PARTS.get(word) or lists()["ordinals"][word]
            found = _finish(
                text, Fraction(1, below), "part", False, start, _of(text, end), "", [(Fraction(below), None)]
            )
            if (found and word in ("first", "second", "quarter")) or (
                found and word not in PARTS and not _share(text, end)
            ):
                found = replace(
                    found,
                    value=Fraction(below),
                    unit=None,
                    kind="ordinal",
                    end=end,
                    other=((Fraction(1, below), None),),
                )
            if found:
                yield found
        elif match["half"]:
            below = 4 if match["half"].lower().startswith("quarter") else 2
            found = _finish(
                text, Fraction(1, below), "part" if below == 2 else "said", False, start, _of(text, end), "", []
            )
            if found:
                yield replace(found, kind="said") if below == 4 or found.unit is None else found
        elif match["single"]:
            value = Fraction(lists()["ordinals"][match["single"].lower()])
            found = unit_at(text, end)
            known = found if found and found[0].name in ("century", "millennium") else None
            if value == 2 and re.compile(r"s\b").match(text, end):
                continue
            yield Quantity(
                value,
                known[0] if known else None,
                "ordinal",
                False,
                start,
                known[1] if known else end,
                (),
                text[start:end],
            )
        elif match["month"]:
            if match["month"][0].isupper() and _is_month(text, match):
                number = Fraction(lists()["months"][match["month"].lower()])
                yield Quantity(f"month {number}", None, "month", False, start, end, (), match["month"])
        else:
            word = match["saying"].lower()
            if word in lists()["decades"]:
                century = lists()["decades"][word]
                if re.search(r"(?i)\b(?:the|in|early|late|mid|his|her)[ -]$", text[max(0, start - 8) : start]):
                    yield Quantity(f"{century}s", None, "year", False, start, end, (), word)
                continue
            yield Quantity(Fraction(lists()["saying"][word]), None, "said", False, start, end, (), word)


def _is_month(text: str, match: re.Match[str]) -> bool:
    if match["month"].lower() not in ("may", "march", "mar", "sep", "dec", "jan"):
        return True
    near = text[max(0, match.start() - 14) : match.start()]
    return bool(
        re.search(
            r"(?i)(?:\d(?:st|nd|rd|th)?|\b(?:in|of|since|until|by|early|late|mid|from|to|last|next|between|and|during))[ -]$",
            near,
        )
        or re.match(r"\.? \d", text[match.end() :])
    )


def _of(text: str, end: int) -> int:
    """Behind `half` and the like a unit may follow with `of a` or an article: half a century, a quarter of an hour."""
    match = re.compile(
        r"(?: of)? an?(?= (?:second|minute|hour|day|week|month|year|decade|century|millennium|million|billion|dozen|mile|kilomet|met|degree))"
    ).match(text, end)
    return match.end() if match else end


def _share(text: str, end: int) -> bool:
    return re.compile(r" (?:of|as|more|less|the|that|to|smaller|larger)\b|[,.;:)]").match(text, end) is not None


def _run(text: str, match: re.Match[str]) -> Iterator[Quantity]:
    """A run of number words: one number, or several that follow one another."""
    words = list(re.compile(r"[a-z]+", re.I).finditer(text, *match.span("run")))
    numbers: list[tuple[int, int, int]] = []
    total, group, last, begin, stop = 0, 0, 0, -1, 0
    article = words[0].group().lower() in ("a", "an")
    joined = False
    for word in words[1 if article else 0 :]:
        name = word.group().lower()
        if name == "and":
            joined = True
            continue
        if name in lists()["scales"]:
            scale = lists()["scales"][name]
            if begin < 0:
                begin, group = (match.start("run") if article else word.start()), 1
            if scale in (100, 12):
                group = (group or 1) * scale
            else:
                total, group = total + (group or 1) * scale, 0
            last, stop, joined = scale, word.end(), False
            continue
        value = lists()["cardinals"][name]
        fits = begin >= 0 and (
            (last >= 100 and last != 12 and (value < 100)) or (20 <= last < 100 and 0 < value < 10 and not joined)
        )
        if joined and not (last >= 100 and last != 12):
            fits = False
        if fits:
            group, last, stop = group + value, value, word.end()
        else:
            if begin >= 0:
                numbers.append((total + group, begin, stop))
            total, group, last, begin, stop = 0, value, value or 1, word.start(), word.end()
        joined = False
    numbers.append((total + group, begin, stop))
    for number, start, end in numbers[:-1]:
        found = _finish(text, Fraction(number), "cardinal", False, start, end, "", [])
        if found:
            yield found
    number, start, end = numbers[-1]
    if match["ordinal"] and match["ordinal"].lower() in lists()["ordinals"]:
        below = lists()["ordinals"][match["ordinal"].lower()]
        if (20 <= number % 100 < 100 and below < 10) or number >= 100:
            yield _century(text, Fraction(number + below if below < 100 else number * below), start, match.end())
            return
        if number == 1:
            yield Quantity(
                Fraction(1, below), None, "part", False, start, match.end(), ((Fraction(below), None),), match.group()
            )
            return
    elif match["part"]:
        word = match["part"].lower()
        below = PARTS.get(word) or lists()["ordinals"][word.rstrip("s")]
        if word != "second":
            found = _finish(text, Fraction(number, below), "part", False, start, _of(text, match.end()), "", [])
            if found:
                yield found
            return
    found = _finish(text, Fraction(number), "cardinal", False, start, end, "", [])
    if found:
        years = [part for part, _, _ in numbers]
        yield found
        if len(years) == 2 and 10 <= years[0] <= 20 and 10 <= years[1] <= 99:
            yield replace(found, value=Fraction(years[0] * 100 + years[1]), start=numbers[0][1], text=match["run"])


def _century(text: str, value: Fraction, start: int, end: int) -> Quantity:
    found = unit_at(text, end)
    known = found if found and found[0].name == "century" else None
    return Quantity(
        value, known[0] if known else None, "ordinal", False, start, known[1] if known else end, (), text[start:end]
    )


HAN_PART = re.compile(
    rf"百分之(?P<percent>\d{{1,9}}(?:\.\d{{1,9}})?|[{hanzi.SIGNS}]{{1,9}}(?:点[{hanzi.SIGNS}]{{1,9}})?)|(?P<below>[{hanzi.SIGNS}\d]{{1,9}})分之(?P<above>[{hanzi.SIGNS}\d]{{1,9}})"
)
HAN_DECADE = re.compile(
    rf"(?:(?P<century>\d{{1,2}}|[{hanzi.SIGNS}]{{1,3}})世纪)?(?P<decade>\d0|[二三四五六七八九]十)年代"
)
HAN_TENTHS = re.compile(r"(?P<tenths>[一二两三四五六七八九]|\d)成(?![为了就功立长本员年分果])")
HAN_HALF = re.compile(r"[一大]?半(?=[数的以是左]|[，。；])|一半")
VAGUE = re.compile(r"[几数上成若]$")


def _in_hanzi(text: str) -> Iterator[Quantity]:
    if not re.search(r"[㐀-鿿]", text):
        return
    for match in HAN_PART.finditer(text):
        if match["percent"]:
            above, below = _either(match["percent"]), Fraction(100)
        else:
            above, below = _either(match["above"]), _either(match["below"])
        if above is not None and below:
            yield Quantity(above / below, None, "part", True, *match.span(), ((above, None),), match.group())
    for match in HAN_DECADE.finditer(text):
        decade = _either(match["decade"])
        century = _either(match["century"]) if match["century"] else None
        if decade is not None:
            value: Value = (century - 1) * 100 + decade if century else f"{decade}s"
            yield Quantity(
                value, None, "year", True, *match.span(), ((f"{decade}s", None),) if century else (), match.group()
            )
    for match in HAN_TENTHS.finditer(text):
        tenths = _either(match["tenths"])
        if tenths is not None:
            yield Quantity(tenths / 10, None, "part", False, *match.span(), (), match.group())
    for match in HAN_HALF.finditer(text):
        yield Quantity(Fraction(1, 2), None, "said", False, *match.span(), (), match.group())
    for match in hanzi.NUMERAL.finditer(text):
        found = _numeral(text, match)
        if found:
            yield found
    for match in re.finditer(r"(\d{1,2}|[一二三四五六七八九十]{1,2})月(?!球|亮|光|份额|食|饼|经|相)", text):
        number = _either(match[1])
        if number and number <= 12 and text[match.start() - 1 : match.start()] != "个":
            yield Quantity(f"month {number}", None, "month", True, match.start(), match.end(), (), match.group())
    for match in re.finditer(r"[每一]\s?(?=[㐀-鿿])", text):
        unit = unit_at(text, match.end())
        if unit and match.group()[0] == "每":
            yield Quantity(
                Fraction(1),
                unit[0],
                "said",
                False,
                match.start(),
                unit[1],
                ((Fraction(1), None),),
                text[match.start() : unit[1]],
            )
    for match in re.finditer(r"[双倍只单仅]", text):
        yield Quantity(
            Fraction(2 if match.group() in "双倍" else 1), None, "said", False, *match.span(), (), match.group()
        )


def _either(written: str) -> Fraction | None:
    """A number in digits or in Chinese numerals."""
    if re.fullmatch(r"\d{1,20}(?:\.\d{1,20})?", written):
        return Fraction(written)
    return hanzi.value(written)


def _numeral(text: str, match: re.Match[str]) -> Quantity | None:
    """A Chinese numeral, where it counts or numbers something: 三个, 第三, 十六周岁, but not the one in 一般."""
    start, end = match.span()
    number = hanzi.value(match.group())
    ordinal = text[start - 1 : start] == "第" if start else False
    if number is None or (start and VAGUE.search(text[start - 1 : start])) or text[start - 1 : start].isdigit():
        return None
    if match.group() in ("一", "万一", "千万", "百万", "万", "亿", "百", "千", "零", "一一"):
        return None
    after = text[end : end + 1]
    if (
        after == "几"
        or (match.group()[-1] in "十百" and after in "来")
        or match.group() + after
        in ("十分", "百姓", "百般", "千米", "四周", "四处", "三角", "万分", "百科", "五金", "八卦")
    ):
        return None
    counts = after in lists()["measures"] and bool(after)
    if len(match.group()) == 1 and not counts and not ordinal:
        return None
    if text[start - 1 : start] in ("零下", "负"):
        number = -number
    if ordinal:
        return Quantity(number, None, "ordinal", False, start, end, (), f"第{match.group()}")
    found = _finish(text, number, "cardinal", False, start, end, match.group(), [])
    if found and after == "年" and len(match.group()) == 4 and all(sign in hanzi.DIGITS for sign in match.group()):
        return replace(found, unit=None)
    return found


CONNECTOR = re.compile(
    r"\s?(?:[-–—~～至到或×x/、,]|to|and|or|and about|and some|by|versus|vs\.?|,? (?:and|or|to|then|but)|through|up to|rather than|as against)\s?(?:about |roughly |nearly |约|的|)?"
)
AND_SO = re.compile(r" (?:or|to|and|rather than|instead of|instead of every|to every|down to|up to) |[到至或]")
PIECES = {"hour": "minute", "minute": "s", "foot": "inch", "year": "month", "day": "hour", "h": "min", "week": "day"}


def _joined(text: str, found: list[Quantity]) -> Iterator[Quantity]:
    """In `10 to 20 kg` and `2 or 3 million` the first number has the unit and the scale of the second; `3 hours 10
    minutes` is one quantity."""
    for place in range(len(found) - 2, -1, -1):
        one, other = found[place], found[place + 1]
        if one.kind != "cardinal" or one.unit is not None or isinstance(one.value, str) or isinstance(other.value, str):
            continue
        if other.kind not in ("cardinal", "part", "ordinal") or not CONNECTOR.fullmatch(text[one.end : other.start]):
            continue
        meanings = list(one.other)
        for unit in dict.fromkeys(unit for _, unit in other.meanings):
            scale = _scale_of(other)
            if unit is not None:
                meanings.append((one.value, unit))
                if scale > 1:
                    meanings.append((one.value * scale, unit))
            if scale > 1:
                meanings.append((one.value * scale, None))
        found[place] = replace(one, other=tuple(meanings))
    for one, place in zip(found, range(1, len(found)), strict=False):
        after = found[place]  # a year or two, from 15 minutes to 5
        if (
            one.unit
            and after.unit is None
            and after.kind == "cardinal"
            and AND_SO.fullmatch(text[one.end : after.start])
        ):
            found[place] = replace(after, other=(*after.other, (after.value, one.unit)))
    place = 0
    while place < len(found):
        one = found[place]
        total, end, last = one.value, one.end, one
        while place + 1 < len(found) and one.unit and (after := found[place + 1]).unit and isinstance(total, Fraction):
            gap = text[end : after.start]
            smaller = PIECES.get(last.unit.name) if last.unit else None
            if gap.strip() not in ("", "and", ",", "零") or after.unit.name != smaller or isinstance(after.value, str):
                break
            total += after.value * after.unit.factor / one.unit.factor
            end, last, place = after.end, after, place + 1
        yield one if last is one else replace(one, value=total, end=end, text=text[one.start : end])
        place += 1


def _scale_of(quantity: Quantity) -> int:
    match = re.search(rf"({'|'.join(lists()['scales'])})\b|[十百千万亿](?=[㐀-鿿]*$)", quantity.text, re.I)
    return _scales()[match.group().lower()] if match else 1
