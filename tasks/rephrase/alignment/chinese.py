"""The numbers that a Chinese text writes in words, and what it sets around its digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from tasks.rephrase.alignment import hanzi
from tasks.rephrase.alignment.quantity import Quantity, finished
from tasks.rephrase.alignment.units import lists, unit_at

HAN_PART = re.compile(
    rf"""
    百分之(?P<percent>\d{{1,9}}(?:\.\d{{1,9}})?|[{hanzi.SIGNS}]{{1,9}}(?:点[{hanzi.SIGNS}]{{1,9}})?)
    | (?P<below>[{hanzi.SIGNS}\d]{{1,9}})分之(?P<above>[{hanzi.SIGNS}\d]{{1,9}})
    """,
    re.X,
)
HAN_DECADE = re.compile(
    rf"(?:(?P<century>\d{{1,2}}|[{hanzi.SIGNS}]{{1,3}})世纪)?(?P<decade>\d0|[二三四五六七八九]十)年代"
)
HAN_TENTHS = re.compile(r"(?P<tenths>[一二两三四五六七八九]|\d)成(?![为了就功立长本员年分果])")
HAN_HALF = re.compile(r"[一大]?半(?=[数的以是左]|[，。；])|一半")
HAN_MONTH = re.compile(r"(\d{1,2}|[一二三四五六七八九十]{1,2})月(?!球|亮|光|份额|食|饼|经|相)")
VAGUE = re.compile(r"[几数上成若]$")


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
        above = _either(match["percent"] or match["above"])
        below = Fraction(100) if match["percent"] else _either(match["below"])
        if above is not None and below:
            yield Quantity(above / below, None, "part", True, *match.span(), ((above, None),), match.group())
    for match in HAN_DECADE.finditer(text):
        decade = _either(match["decade"])
        century = _either(match["century"]) if match["century"] else None
        if decade is None:
            continue
        alone = f"{decade}s"
        if century:
            value = (century - 1) * 100 + decade
            yield Quantity(value, None, "year", True, *match.span(), ((alone, None),), match.group())
        else:
            yield Quantity(alone, None, "year", True, *match.span(), (), match.group())
    for match in HAN_TENTHS.finditer(text):
        tenths = _either(match["tenths"])
        if tenths is not None:
            yield Quantity(tenths / 10, None, "part", False, *match.span(), (), match.group())
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
    found = finished(text, number, "cardinal", False, start, end, match.group(), [])
    if found and after == "年" and len(match.group()) == 4 and all(sign in hanzi.DIGITS for sign in match.group()):
        return replace(found, unit=None)
    return found
