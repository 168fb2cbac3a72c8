"""Chinese numerals: what they are worth, and where a text has them."""

from __future__ import annotations

import re
from fractions import Fraction

DIGITS = {sign: value for value, sign in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "俩": 2}
SMALL = {"十": 10, "百": 100, "千": 1000}
LARGE = {"万": 10**4, "亿": 10**8}

SIGNS = "".join([*DIGITS, *SMALL, *LARGE])
NUMERAL = re.compile(rf"[{SIGNS}]{{1,24}}(?:点[{''.join(DIGITS)}]{{1,12}})?")


def scale(numeral: str) -> Fraction | None:
    """What a sign of size alone is worth: the 万 of 万分之五."""
    size = (SMALL | LARGE).get(numeral)
    return None if size is None else Fraction(size)


def value(numeral: str) -> Fraction | None:
    """What a numeral such as 三百零五, 两千万, 一九四九 or 三点一四 is worth; None where it is none."""
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
