"""The times of day that a text says, in figures or in words, in English or in Chinese."""

from __future__ import annotations

import re
import unicodedata

HOURS = {
    name: hour
    for hour, name in enumerate("one two three four five six seven eight nine ten eleven twelve".split(), start=1)
}
HOUR = rf"({'|'.join(HOURS)}|\d{{1,2}})"
MINUTES = {"fifteen": "15", "thirty": "30", "forty": "45"}
HAN = {figure: value for value, figure in enumerate("零一二三四五六七八九十")} | {"两": 2}
PARTS = {"半": "30", "一刻": "15", "三刻": "45"}
LATE = r"(?:\s*p\.?\s?m\b|\s+(?:in the (?:afternoon|evening)|at night))"
TIME = re.compile(
    rf"((?:下午|晚上|傍晚)\s*)?(?<![\d:.])(\d{{1,2}})[:.h](\d{{2}})(?![\d€%]|\s*(?:euros?|dollars?)\b)({LATE})?"
)
OTHER = re.compile(
    r"(?<!room )(?<!floor )(?<!table )(?<!number )(?<!for )(?<![\d:.])\b(six|seven|eight|nine|[6-9])\b(?![:.]\d)"
)
"""An hour of breakfast that stands for itself, as in "six, seven or eight o'clock"."""


def times(text: str) -> set[tuple[int, int]]:
    """(hour, minute) of each. A bare number is an hour behind "at", "from" and the like, or where nothing else is
    said; among hours, those of the early morning are."""
    said = unicodedata.normalize("NFKC", text).casefold().replace("\u2019", "'")
    said = re.sub(r"[零一二三四五六七八九十两]{1,3}(?=\s*(?:点|时|分))", lambda found: str(_number(found[0])), said)
    said = re.sub(r"(\d{1,2})\s*[点时](半|一刻|三刻)", lambda found: f" {found[1]}:{PARTS[found[2]]} ", said)
    said = re.sub(r"(\d{1,2})\s*[点时]\s*(\d{1,2})分?", lambda found: f" {found[1]}:{int(found[2]):02d} ", said)
    said = re.sub(r"(\d{1,2})\s*[点时]", r" \1:00 ", said)
    said = re.sub(rf"\bhalf (?:past |after )?{HOUR}\b(?![:.]\d)", lambda found: _clock(found[1], 30), said)
    said = re.sub(rf"\bquarter (?:past|after) {HOUR}\b", lambda found: _clock(found[1], 15), said)
    said = re.sub(rf"\bquarter (?:to|before) {HOUR}\b", lambda found: _clock(found[1], -15), said)
    said = re.sub(
        rf"\b({'|'.join(HOURS)})[ -](fifteen|thirty|forty(?=[ -]five))(?:[ -]five)?\b",
        lambda found: _clock(found[1], int(MINUTES[found[2]])),
        said,
    )
    said = re.sub(rf"(?<![\d:.]){HOUR}\s*(?:o'clock|(?=[ap]\.?\s?m\b)|(?=\s+in the (?:morning|evening)))", _full, said)
    behind = r"(\b(?:at|from|until|till|by|around|about|is|begins|starts|opens|or|to)\s+|^\W*)"
    said = re.sub(
        rf"{behind}{HOUR}(?=\W*$|[,;!?]|\.(?!\d)|\s+(?:sharp|or|and|onwards|on|in|every|each|until|to)\b)", _bare, said
    )
    found = {
        (int(hour) % 12 + 12 if (before or after) and int(hour) < 13 else int(hour), int(minute))
        for before, hour, minute, after in TIME.findall(said)
        if int(hour) < 24 and int(minute) < 60
    }
    left = TIME.sub(" ", said)
    return found | {(HOURS.get(one) or int(one), 0) for one in OTHER.findall(left)} if found else found


def _number(figures: str) -> int:
    """一 to 九十九."""
    tens, ten, ones = figures.rpartition("十")
    if not ten:
        return int("".join(str(HAN[one]) for one in figures))
    return (HAN[tens[-1]] if tens else 1) * 10 + (HAN[ones[-1]] if ones else 0)


def _clock(hour: str, minute: int) -> str:
    """Minutes after an hour, or before it, in figures."""
    whole = (HOURS.get(hour) or int(hour)) * 60 + minute
    return f" {whole // 60}:{whole % 60:02d} "


def _full(found: re.Match[str]) -> str:
    return _clock(found[1], 0).rstrip()


def _bare(found: re.Match[str]) -> str:
    return found[1] + _clock(found[2], 0)
