"""The numbers that a Chinese text writes in words, and what it sets around its digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tasks.rephrase.alignment import hanzi
from tasks.rephrase.alignment.quantity import Quantity, Value, clock, finished
from tasks.rephrase.alignment.units import Unit, lists, unit_at

HAN_PART = re.compile(
    rf"""
    (?P<below>[{hanzi.SIGNS}\d]{{1,9}})分之(?P<above>\d{{1,9}}(?:\.\d{{1,9}})?|[{hanzi.SIGNS}]{{1,9}}(?:点[{hanzi.SIGNS}]{{1,9}})?)
    """,
    re.X,
)
HAN_DECADE = re.compile(
    rf"(?:(?P<century>\d{{1,2}}|[{hanzi.SIGNS}]{{1,3}}|上个?)世纪)?(?P<decade>\d{{4}}|\d0|[一二三四五六七八九]十|[一二][{hanzi.SIGNS}]{{3}})年代"
)
HAN_TENTHS = re.compile(
    r"(?P<tenths>[一二两三四五六七八九]|\d)成(?P<more>[一二三四五六七八九半])?(?![为了功立长本员年分果])"
)
HAN_HALF = re.compile(r"[一大]?半(?=[数的以是左]|[，。；])|一半")
HALF_A_UNIT = re.compile(r"(?<![个大一年小])半(?=个?(?:世纪|小时|钟头|月|年|天|日|公里|米|斤|公斤|吨))")
HALF_MORE = re.compile(r"个?半(?=年|天|小时|钟头|个?月|公里|斤|公斤|米|吨)")
CLOCK = re.compile(
    rf"(?:(?<=[午晨晚上夜早班间天日])|(?<![{hanzi.SIGNS}\d]))(?P<hour>\d{{1,2}}|[{hanzi.SIGNS}]{{1,3}})"
    rf"(?:(?:点|时)(?:(?P<half>半)|(?P<quarter>[一三])刻|(?P<minute>\d{{1,2}}|[{hanzi.SIGNS}]{{1,3}})分?(?!之))"
    rf"|点钟|(?<=[午晨晚上夜早班]..)[点时]|(?<=[午晨晚上夜早班].)[点时])(?![{hanzi.SIGNS}\d间期代])"
)
BEHIND = re.compile(r"(?<=[米元块度岁])(?P<digit>[一二三四五六七八九])(?![个十百千万年月日天分米元名位])")
HAN_MONTH = re.compile(r"(\d{1,2}|[一二三四五六七八九十]{1,2})月(?!球|亮|光|份额|食|饼|经|相)")
NUMBERED = re.compile(r"[几数上成若\d]$")
"""Before a numeral that is none of its own: 几十, 3万."""
RANGE = re.compile(rf"[至到、或][{hanzi.SIGNS}\d]")


def in_hanzi(text: str) -> Iterator[Quantity]:
    """The Chinese numbers of a text, in no order; they may overlap."""
    if not re.search(r"[㐀-鿿]", text):
        return
    yield from _parts(text)
    for match in hanzi.NUMERAL.finditer(text):
        found = _numeral(text, match)
        if found:
            yield found
    for match in HAN_MONTH.finditer(text):
        number = _either(match[1])
        if number and number <= 12 and text[match.start() - 1 : match.start()] != "个":
            yield Quantity(f"month {number}", None, "month", True, *match.span(), (), match.group())
    for match in HALF_A_UNIT.finditer(text):
        if below := unit_at(text, match.end()):
            start, end = match.start(), below[1]
            yield Quantity(Fraction(1, 2), below[0], "part", False, start, end, (), text[start:end])
    for match in CLOCK.finditer(text):
        hour, minute = _either(match["hour"]), _either(match["minute"] or "0")
        if match["half"] or match["quarter"]:
            minute = Fraction(30 if match["half"] else 15 * hanzi.DIGITS[match["quarter"]])
        if hour is not None and minute is not None and hour <= 24 and minute < 60:
            yield clock(int(hour), int(minute), match.start(), match.end(), match.group())
    for match in re.finditer(r"每\s?(?=[㐀-鿿])", text):
        unit = unit_at(text, match.end())
        if unit:
            start, end = match.start(), unit[1]
            yield Quantity(Fraction(1), unit[0], "said", False, start, end, ((Fraction(1), None),), text[start:end])
    for match in re.finditer(r"[双倍只单仅]", text):
        value = Fraction(2 if match.group() in "双倍" else 1)
        yield Quantity(value, None, "said", False, *match.span(), (), match.group())


def _parts(text: str) -> Iterator[Quantity]:
    """Percentages, fractions, tenths, halves, decades."""
    for match in HAN_PART.finditer(text):
        above, below = _either(match["above"]), hanzi.scale(match["below"]) or _either(match["below"])
        if above is not None and below:
            yield Quantity(above / below, None, "part", True, *match.span(), ((above, None),), match.group())
    for match in HAN_DECADE.finditer(text):
        decade = _either(match["decade"])
        if decade is None:
            continue
        century = _either(match["century"]) if match["century"] else None
        if decade >= 100:
            century, decade = Fraction(decade // 100 + 1), decade % 100
        elif match["century"] and not century:
            century = Fraction(20)
        alone = f"{decade}s"
        if century:
            value = (century - 1) * 100 + decade
            yield Quantity(value, None, "year", True, *match.span(), ((alone, None),), match.group())
        else:
            yield Quantity(alone, None, "year", True, *match.span(), (), match.group())
    for match in HAN_TENTHS.finditer(text):
        tenths = _either(match["tenths"])
        if tenths is not None:
            value = tenths / 10 + Fraction(hanzi.DIGITS.get(match["more"], 5) if match["more"] else 0, 100)
            yield Quantity(value, None, "part", False, *match.span(), (), match.group())
    for match in HAN_HALF.finditer(text):
        yield Quantity(Fraction(1, 2), None, "said", False, *match.span(), (), match.group())


def _either(written: str) -> Fraction | None:
    """A number in digits or in Chinese numerals."""
    if re.fullmatch(r"\d{1,20}(?:\.\d{1,20})?", written):
        return Fraction(written)
    return hanzi.value(written)


def _numeral(text: str, match: re.Match[str]) -> Quantity | None:
    """A Chinese numeral, where it counts or numbers something: 三个, 第三, 十六周岁, but not the one in 一般."""
    start, end = match.span()
    about = _about(match.group())
    if not about and re.search(r"[两俩][零一二三四五六七八九]|.[俩两]$", match.group()):
        return None
    number = about[-1][0] if about else hanzi.value(match.group())
    ordinal = text[start - 1 : start] == "第" if start else False
    if not isinstance(number, Fraction) or NUMBERED.search(text[max(0, start - 1) : start]):
        return None
    if size := hanzi.scale(match.group()):
        return Quantity(size, None, "said", False, start, end, (), match.group())
    if match.group() in ("万一", "千万", "零", "一一") or len(set(match.group())) == 1 < len(match.group()):
        return None
    after = text[end : end + 1]
    if (
        after == "几"
        or (match.group()[-1] in "十百" and after in "来")
        or match.group() + after
        in ("十分", "百姓", "百般", "千米", "四周", "四处", "三角", "万分", "百科", "五金", "八卦")
    ):
        return None
    counts = bool(after) and bool(RANGE.match(text, end) or after in lists()["measures"] or unit_at(text, end))
    if len(match.group()) == 1 and not counts and not ordinal:
        return None
    if text[start - 1 : start] in ("零下", "负"):
        number = -number
    if ordinal:
        return Quantity(number, None, "ordinal", False, start, end, (), f"第{match.group()}")
    tenths: list[tuple[Value, Unit | None]] = [(number / 10, None)] if after == "分" else []  # 七分看汤
    found = finished(text, number, "cardinal", False, start, end, match.group(), about[:1] + tenths)
    if found and found.unit and (more := BEHIND.match(text, found.end)):  # 一米二
        return replace(found, value=number + Fraction(hanzi.DIGITS[more["digit"]], 10), end=more.end())
    if found and found.unit and (half := re.compile("多?半(?![载数以是])").match(text, found.end)):
        return replace(found, value=number + Fraction(1, 2), end=half.end())  # 三年半
    if found and found.unit is None and (half := HALF_MORE.match(text, end)) and (below := unit_at(text, half.end())):
        return replace(found, value=number + Fraction(1, 2), unit=below[0], end=below[1])  # 两个半小时
    if found and after == "年" and len(match.group()) == 4 and all(sign in hanzi.DIGITS for sign in match.group()):
        return replace(found, unit=None)
    return found


def _about(numeral: str) -> list[tuple[Value, Unit | None]]:
    """The two numbers of 三四个 and 二三十."""
    match = re.fullmatch(r"([一二两三四五六七八])([二三四五六七八九])([十百千万亿]*)", numeral)
    if match is None or hanzi.DIGITS[match[2]] != hanzi.DIGITS[match[1]] + 1:
        return []
    size = hanzi.value("一" + match[3]) if match[3] else Fraction(1)
    return [(hanzi.DIGITS[digit] * size, None) for digit in match.groups()[:2]] if size else []
