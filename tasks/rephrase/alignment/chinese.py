"""Chinese numerals: what they are worth, and where a text has them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction

from tasks.rephrase.alignment.quantity import Meaning, Quantity, finished
from tasks.rephrase.alignment.units import lists, named, unit_at

DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
SMALL = {"十": 10, "百": 100, "千": 1000}
LARGE = {"万": 10**4, "亿": 10**8}
TENS = {"廿": "二十", "卅": "三十"}
SIGNS = "".join([*DIGITS, *SMALL, *LARGE, *TENS])
NUMERAL = re.compile(rf"[{SIGNS}]{{1,24}}(?:点[{''.join(DIGITS)}]{{1,12}})?")
ABOUT = re.compile(
    r"(?P<tens>[二三四五六七八九]?十)?(?P<one>[一二两三四五六七八])(?P<next>[二三四五六七八九])(?P<size>[十百千万亿]*)"
)
BEHIND = re.compile(r"(?<=[米元块度岁])(?P<digits>[一二三四五六七八九]{1,2}+)(?![个十百千万年月日天分米元名位])")
HALF_BEHIND = re.compile("多?半(?![载数以是])")
HALF_MORE = re.compile(r"个?半(?=年|天|小时|钟头|个?月|公里|斤|公斤|米|吨)")
NO_NUMBER = re.compile(r"万一|千万|一[一三四五六七八九]|(.)\1+|[两俩][零一二三四五六七八九]|.+[俩两]")
NO_COUNT = re.compile(r"十分|百姓|百般|千米|四周|四处|三角|万分|百科|五金|八卦|.*[十百]来|.*[几月]|零[^度]?")
"""A numeral with the sign behind it that is a word, about so many, or a month."""


def value(numeral: str) -> Fraction | None:
    """What a numeral such as 三百零五, 两千万, 一九四九 or 三点一四 is worth; None where it is none."""
    for sign, written in TENS.items():
        numeral = numeral.replace(sign, written)
    whole, _, decimals = numeral.partition("点")
    if not whole or not set(whole) <= set(SIGNS) or not set(decimals) <= set(DIGITS):
        return None
    if decimals:
        number = value(whole)
        digits = "".join(str(DIGITS[sign]) for sign in decimals)
        return None if number is None else number + Fraction(int(digits), 10 ** len(digits))
    if all(sign in DIGITS for sign in whole):
        return Fraction(int("".join(str(DIGITS[sign]) for sign in whole)))
    return _read(whole)


def _read(numeral: str) -> Fraction | None:
    total, group, digit = 0, 0, None
    last = 0
    for sign in numeral:
        if sign in DIGITS:
            if digit:
                return None  # 三五十: about so many, no number
            digit = DIGITS[sign]
        elif sign in SMALL:
            if digit is None and sign != "十":
                return None
            group += (1 if digit is None else digit) * SMALL[sign]
            digit, last = None, SMALL[sign]
        else:
            group += digit or 0
            if not group and not total:
                return None
            # 两千万亿: a scale on everything before it.
            total = (total + group) * LARGE[sign] if total and LARGE[sign] > 10**4 else total + group * LARGE[sign]
            group, digit, last = 0, None, LARGE[sign]
    if digit:
        # 三万五 is 35,000, but 三百零五 is 305.
        group += digit * (last // 10 if last > 10 and "零" not in numeral[-2:] and "〇" not in numeral[-2:] else 1)
    return Fraction(total + group)


def in_chinese(text: str) -> Iterator[Quantity]:
    """The Chinese numbers of a text, in no order; they may overlap."""
    if not re.search(r"[㐀-鿿]", text):
        return
    for pattern, read in READERS:
        for match in pattern.finditer(text):
            if found := read(text, match):
                yield found


def _either(written: str) -> Fraction | None:
    """A number in digits or in Chinese numerals, also a sign of size alone: the 万 of 万分之五."""
    if re.fullmatch(r"\d{1,20}(?:\.\d{1,20})?", written):
        return Fraction(written)
    size = (SMALL | LARGE).get(written)
    return value(written) if size is None else Fraction(size)


def _part(text: str, match: re.Match[str]) -> Quantity | None:
    """百分之五, 三分之二"""
    above, below = _either(match["above"]), _either(match["below"])
    if above is None or not below:
        return None
    if below == 100:
        return Quantity(above, named("percent"), "part", True, *match.span())
    return Quantity(above / below, None, "part", True, *match.span(), parts=(above, below))


def _decade(text: str, match: re.Match[str]) -> Quantity | None:
    """二十世纪七十年代, 1970年代"""
    decade = _either(match["decade"])
    if decade is None:
        return None
    century = _either(match["century"]) or Fraction(20) if match["century"] else None
    if decade >= 100:
        century, decade = Fraction(decade // 100 + 1), decade % 100
    alone = f"{decade}s"
    if century is None:
        return Quantity(alone, None, "year", True, *match.span())
    return Quantity((century - 1) * 100 + decade, None, "year", True, *match.span(), ((alone, None),))


def _tenths(text: str, match: re.Match[str]) -> Quantity | None:
    """四成八, 八五折"""
    tenths = _either(match["tenths"]) or Fraction(0)
    more = 5 if match["more"] == "半" else _either(match["more"] or "0") or Fraction(0)
    percent = tenths * 10 + more
    if match["more"]:  # 五成 alone may be a half
        return Quantity(percent, named("percent"), "part", False, *match.span())
    return Quantity(percent / 100, None, "part", False, *match.span())


def _said(text: str, match: re.Match[str]) -> Quantity | None:
    """一半, 双, 倍, 只"""
    amount = {"双": Fraction(2), "倍": Fraction(2)}.get(match.group(), Fraction(1, 2 if "半" in match.group() else 1))
    return Quantity(amount, None, "said", False, *match.span())


def _of_unit(text: str, match: re.Match[str]) -> Quantity | None:
    """半个世纪, 每秒, 每月"""
    found = unit_at(text, match.end())
    if found is None and match.group()[0] == "每" and text[match.end()] == "月":
        found = named("month"), match.end() + 1
    if found is None:
        return None
    if match.group()[0] == "半":
        return Quantity(Fraction(1, 2), found[0], "part", False, match.start(), found[1])
    return Quantity(Fraction(1), found[0], "said", False, match.start(), found[1], ((Fraction(1), None),))


def _numeral(text: str, match: re.Match[str]) -> Quantity | None:
    """A Chinese numeral, where it counts or numbers something: 三个, 第三, 十六周岁, but not the one in 一般."""
    start, end, written = *match.span(), match.group()
    before, after = text[start - 1 : start] if start else "", text[end : end + 1]
    about = _about(written)
    number = about[-1][0] if about else value(written)
    if (NO_NUMBER.fullmatch(written) and not about) or re.match(r"[几数上成若\d]", before):
        return None
    if not isinstance(number, Fraction) or NO_COUNT.fullmatch(written + after):
        return None
    if written == "十":
        return Quantity(number, None, "said", False, start, end)
    unit = unit_at(text, end, written)
    counts = bool(re.match(rf"[至到、或][{SIGNS}\d]", text[end:])) or (after and after in lists()["measures"]) or unit
    if before == "第":
        return Quantity(number, None, "ordinal", False, start, end)
    if len(written) == 1 and not counts:
        return None
    if text[max(0, start - 2) : start] == "零下" or before == "负":
        number = -number
    tenths: list[Meaning] = [(number / 10, None)] if after == "分" else []  # 七分看汤
    found = finished(text, number, "cardinal", False, start, end, other=about[:1] + tenths)
    if found and found.unit and (more := BEHIND.match(text, found.end)):  # 一米二, 一米七五
        return replace(found, value=number + (value("零点" + more["digits"]) or 0), end=more.end())
    if found and found.unit and (half := HALF_BEHIND.match(text, found.end)):
        return replace(found, value=number + Fraction(1, 2), end=half.end())  # 三年半
    if found and found.unit is None and (half := HALF_MORE.match(text, end)) and (below := unit_at(text, half.end())):
        return replace(found, value=number + Fraction(1, 2), unit=below[0], end=below[1])  # 两个半小时
    if found and after == "年" and len(written) == 4 and all(sign in DIGITS for sign in written):
        return replace(found, unit=None)
    return found


def _about(numeral: str) -> list[Meaning]:
    """The two numbers of 三四个, 二三十, 十五六 and 三五天."""
    match = ABOUT.fullmatch(numeral)
    if match is None or (DIGITS[match["next"]] != DIGITS[match["one"]] + 1 and numeral[:2] != "三五"):
        return []
    size = value("一" + match["size"]) if match["size"] else Fraction(1)
    tens = value(match["tens"] or "零") or 0
    return [((tens + DIGITS[match[name]]) * size, None) for name in ("one", "next")] if size else []


READERS: tuple[tuple[re.Pattern[str], Callable[[str, re.Match[str]], Quantity | None]], ...] = (
    (
        re.compile(
            rf"(?P<below>[{SIGNS}\d]{{1,9}})分之"
            rf"(?P<above>\d{{1,9}}(?:\.\d{{1,9}})?|[{SIGNS}]{{1,9}}(?:点[{SIGNS}]{{1,9}})?)"
        ),
        _part,
    ),
    (
        re.compile(
            rf"(?:(?P<century>\d{{1,2}}|[{SIGNS}]{{1,3}}|上个?)世纪)?"
            rf"(?P<decade>\d{{4}}|\d0|[一二三四五六七八九]十|[一二][{SIGNS}]{{3}})年代"
        ),
        _decade,
    ),
    (
        re.compile(
            r"(?P<tenths>[一二两三四五六七八九]|\d)成(?P<more>[一二三四五六七八九半])?(?![为了功立长本员年分果])"
        ),
        _tenths,
    ),
    (
        re.compile(
            r"(?P<tenths>[一二三四五六七八九]|(?<![\d.])[1-9])\.?(?P<more>[一二三四五六七八九]|\d)?折(?![叠断磨腾扣射合])"
        ),
        _tenths,
    ),
    (re.compile(r"[一大]?半(?=[数的以是左]|[，。；])|一半|[双倍只单仅]"), _said),
    (
        re.compile(r"(?<![个大一年小])半(?=个?(?:世纪|小时|钟头|月|年|天|日|公里|米|斤|公斤|吨))|每\s?(?=[㐀-鿿])"),
        _of_unit,
    ),
    (NUMERAL, _numeral),
)
