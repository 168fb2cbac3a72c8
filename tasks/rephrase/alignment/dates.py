"""Dates and times of day: months and weekdays by name, dates in digits, hours in words, and the half of the day or the
era that a number belongs to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache

from tasks.rephrase.alignment import chinese
from tasks.rephrase.alignment.quantity import HALF_DAY, Kind, Quantity, time_of_day
from tasks.rephrase.alignment.units import lists

NUMERIC = re.compile(
    r"(?<![\w.,/-])(?:"
    r"(?P<year>\d{4})(?P<sign>[-/.])(?P<month>0?[1-9]|1[0-2])(?P=sign)(?P<day>0?[1-9]|[12]\d|3[01])"
    r"|(?P<first>0?[1-9]|[12]\d|3[01])(?P<mark>[-/.])(?P<second>0?[1-9]|[12]\d|3[01])(?P=mark)(?P<last>\d{4})"
    r"|(?P<only>0[1-9]|1[0-2])/(?P<of>\d{4})"
    r")(?![\w/-]|\.\d)",
    re.A,
)
"""2021-12-25, 25/12/2021, 12/25/2021, 25.12.2021, 12/2021."""
BEFORE = re.compile(
    r"(?:\d(?:st|nd|rd|th)?|\b(?:in|on|of|by|since|until|till|from|to|through|between|late|early|mid|last|next|every|each"
    r"|before|after|during|this))[ -]$",
    re.I,
)
BEHIND = re.compile(r"\.? \d")
MONTH_ZH = re.compile(
    r"(?<![\d.个几数零〇一二两三四五六七八九十百])"
    r"(?:(?P<digits>1[0-2]|0?[1-9])[ \u00a0]?|(?P<written>十[一二]?|[一二三四五六七八九]))"
    r"月(?![球亮光饼薪牙台]|[一二两三四五六七八九十]次)"
)
WEEKDAY_ZH = re.compile(r"(?:星期|礼拜|周)(?P<day>[一二三四五六日天])(?![个年月岁期世])")
HOURS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
HOUR = rf"(?P<hour>{'|'.join(HOURS)}|1[0-2]|0?[1-9])"
PARTS = {"quarter": 15, "half": 30, "five": 5, "ten": 10, "twenty": 20, "twenty-five": 25, "twenty five": 25}
SPOKEN = re.compile(
    r"\b(?:(?:a )?(?P<part>quarter|half)|(?P<minutes>twenty[- ]five|twenty|ten|five|[1-5]?\d)(?P<said> minutes)?) "
    rf"(?P<side>past|to) {HOUR}(?![:.-]?\w|%| (?:percent|minutes?|hours?|seconds?|days?|thirds?|quarters?|half)\b)",
    re.I,
)
"""Half past eight, a quarter to seven, twenty past three; not `five to ten`, which is a range."""
HALVES_ZH = r"(?P<am>上午|早上|早晨|清晨|凌晨|[今当]?晚上?(?=(?:12|十二)[点时]))|(?P<pm>下午|傍晚|晚上|今晚|当晚)"
CLOCK_ZH = re.compile(
    rf"(?:{HALVES_ZH})?(?P<hour>2[0-4]|1?\d|二十[一二三四]?|十[一二三四五六七八九]?|[零一二两三四五六七八九])[点时]"
    r"(?:(?P<minute>[0-5]?\d|[二三四五]?十[一二三四五六七八九]?|[零〇][一二三四五六七八九])分?(?![.\d%个])"
    r"|(?P<part>半|[一三]刻)|(?P<whole>[整钟]|(?=开[门始会车课放演]|关门|营业|打烊|到[家达校站场岸]|抵达|出发|动身|发车|起[床飞身]|启程"
    r"|入睡|睡觉|就寝|[上下][班课]|放学|集合|见面|结束|[之以]?[前后](?![排面者景提]))))?"
)
ERA = re.compile(
    r"\b(?P<number>\d{1,4})(?:st|nd|rd|th)?(?P<century> century)?\s?"
    r"(?:(?P<bc>BCE?\b|B\.\s?C\.)|(?:CE|AD)\b|A\.\s?D\.)"
    r"|\bAD (?P<anno>\d{1,4}\b)|公元(?P<before>前)?(?P<year>\d{1,4}|[〇零一二三四五六七八九]{1,4})年"
)
HALF = re.compile(rf"\b{HOUR}(?:[:.][0-5]\d)?{HALF_DAY.pattern}", re.I)
OPPOSITES = {"bc": "ad", "ad": "bc", "am": "pm", "pm": "am"}


def in_dates(text: str) -> Iterator[Quantity]:
    """The dates and times of a text, in no order; before any other reading of the same place."""
    for match in NUMERIC.finditer(text):
        yield from _numeric(match)
    yield from _named(text)
    for match in SPOKEN.finditer(text):
        if found := _spoken(text, match):
            yield found
    for match in CLOCK_ZH.finditer(text):
        if found := _chinese_clock(match):
            yield found


def opposite(value: str) -> str:
    """`44 ad` of `44 bc`, `8 pm` of `8 am`."""
    number, _, side = value.rpartition(" ")
    return f"{number} {OPPOSITES[side]}"


def sides(text: str) -> dict[str, Quantity]:
    """The numbers that are said to be before or after Christ, before or after noon, by name: `44 bc`, `8 pm`."""
    found: dict[str, Quantity] = {}

    def tell(match: re.Match[str], number: int, side: str) -> None:
        name = f"{number} {side}"
        found.setdefault(name, Quantity(name, None, "side", True, *match.span()))

    for match in ERA.finditer(text):
        number = _number(match["number"] or match["anno"] or match["year"])
        side = "bc" if match["bc"] or match["before"] else "ad"
        tell(match, -number if match["century"] else number, side)
    for match in HALF.finditer(text):
        tell(match, _hour(match["hour"]), "pm" if match["pm"] else "am")
    for match in CLOCK_ZH.finditer(text):
        if match["am"] or match["pm"]:
            tell(match, _number(match["hour"]), "pm" if match["pm"] else "am")
    return found


def mentioned(text: str) -> set[str]:
    """Months that may be named anywhere in a text, also by what may be another word."""
    found = {lists()["months"].get(word) for word in re.findall(r"[a-z]+", text.lower())}
    return {f"month {number}" for number in found if number}


def _numeric(match: re.Match[str]) -> Iterator[Quantity]:
    def part(kind: Kind, name: str, value: Fraction | str, *other: Fraction | str) -> Quantity:
        return Quantity(value, None, kind, True, *match.span(name), tuple((each, None) for each in other))

    if match["year"]:
        yield part("year", "year", Fraction(match["year"]))
        yield part("month", "month", f"month {int(match['month'])}")
        yield part("day", "day", Fraction(match["day"]))
        return
    if match["only"]:
        yield part("month", "only", f"month {int(match['only'])}")
        yield part("year", "of", Fraction(match["of"]))
        return
    first, second = int(match["first"]), int(match["second"])
    if first > 12 and second > 12:
        return
    yield part("year", "last", Fraction(match["last"]))
    if max(first, second) > 12:
        names = ("second", "first") if first > 12 else ("first", "second")
        yield part("month", names[0], f"month {min(first, second)}")
        yield part("day", names[1], Fraction(max(first, second)))
    else:  # 02/06: either may be the month
        yield part("month", "second", f"month {second}", f"month {first}")
        yield part("day", "first", Fraction(first), Fraction(second))


@cache
def _names() -> re.Pattern[str]:
    days = "|".join(lists()["weekdays"])
    return re.compile(rf"\b(?:(?P<month>{'|'.join(lists()['months'])})(?![a-z])|(?P<day>{days})s?\b)", re.I)


def _named(text: str) -> Iterator[Quantity]:
    """Months and weekdays by name. What may be another word (May, March, Jan) is one where a date goes on."""
    for match in _names().finditer(text):
        word = match.group()
        if not word[0].isupper():
            continue
        if match["day"]:
            number = lists()["weekdays"][match["day"].lower()]
            yield Quantity(f"weekday {number}", None, "weekday", False, *match.span())
            continue
        before = text[max(0, match.start() - 24) : match.start()]
        sure = len(word) > 3 and word.lower() not in ("march", "sept")
        if sure or BEHIND.match(text, match.end()) or BEFORE.search(before):
            yield Quantity(f"month {lists()['months'][word.lower()]}", None, "month", False, *match.span())
    for match in MONTH_ZH.finditer(text):
        number = int(match["digits"] or chinese.value(match["written"]) or 0)
        yield Quantity(f"month {number}", None, "month", False, *match.span())
    for match in WEEKDAY_ZH.finditer(text):
        yield Quantity(
            f"weekday {min('一二三四五六日天'.index(match['day']), 6) + 1}", None, "weekday", False, *match.span()
        )


def _spoken(text: str, match: re.Match[str]) -> Quantity | None:
    written, past = (match["part"] or match["minutes"]).lower(), match["side"].lower() == "past"
    minute = int(written) if written.isdigit() else PARTS[written]
    if not past and (written == "half" or not (match["part"] or match["said"])):
        return None
    hour = _hour(match["hour"])
    hour, minute = (hour, minute) if past else (hour - 1 or 12, 60 - minute)
    half = HALF_DAY.match(text, match.end())
    return time_of_day(hour % 12 + 12 * bool(half["pm"]) if half else hour, minute, *match.span(), told=bool(half))


def _chinese_clock(match: re.Match[str]) -> Quantity | None:
    """八点半, 上午9点15分, 晚上九点, 九点开门; not 三点建议."""
    half = match["am"] or match["pm"]
    if not (half or match["minute"] or match["part"]) and match["whole"] is None:
        return None
    hour = _number(match["hour"])
    minute = {"半": 30, "一刻": 15, "三刻": 45}.get(match["part"] or "", 0)
    if match["minute"]:
        minute = _number(match["minute"])
    if half and hour <= 12:
        hour = hour % 12 + 12 * bool(match["pm"])
    return time_of_day(hour, minute, *match.span(), told=bool(half) or hour > 12)


def _hour(written: str) -> int:
    return int(written) if written.isdigit() else HOURS.index(written.lower()) + 1


def _number(written: str) -> int:
    return int(written) if written.isdigit() else int(chinese.value(written) or 0)
