"""The numbers that a text writes in English words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

from tasks.rephrase.alignment.quantity import CENTURIES, HALF, Quantity, Value, clock, finished
from tasks.rephrase.alignment.units import Unit, lists, unit_at

PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4}
DECADE = re.compile(r"\b(?:the|in|and|or|to|early|late|mid|his|her)[ -]$", re.I)
BEFORE_MONTH = re.compile(
    r"(?:\d(?:st|nd|rd|th)?|\b(?:in|of|since|until|by|early|late|mid|from|to|last|next|between|and|during))[ -]$", re.I
)
THING = re.compile(r" [a-z]+ and a half\b")
OF_A = re.compile(
    r"(?:[ ]of)?[ ]an?(?=[ ](?:second|minute|hour|day|week|month|year|decade|century|millennium|million|billion|dozen"
    r"|mile|kilomet|met|degree))"
)


SYMBOLS = ("", "m", "s", "t", "h", "d", "g", "L", "K", "A", "V", "N")
"""Units that an article cannot stand before: `a m` is none."""


@cache
def _words() -> re.Pattern[str]:
    numbers = _any([*lists()["cardinals"], *lists()["scales"]])
    ordinals = _any(lists()["ordinals"])
    parts = _any([*PARTS, *(f"{ordinal}s" for ordinal in lists()["ordinals"] if ordinal != "second")])
    saying = _any([*lists()["saying"], *lists()["decades"]])
    article = r"(?:an?[ ](?=hundred|thousand|million|billion|trillion|dozen))?"
    run = rf"{article}(?:{numbers})\b(?:(?:[ -]|[ -]and[ -](?=(?:{numbers})\b))(?:{numbers})\b)*"
    return re.compile(
        rf"""(?<![\w@\#])(?:
            (?P<clock>half[ ]past|(?:a[ ])?quarter[ ](?:past|to))[ ](?P<hour>{numbers}|\d{{1,2}})\b
          | (?:(?P<minus>minus|negative)[ ])?(?P<run>{run}) (?:[ -](?P<part>{parts}|(?P<ordinal>{ordinals}))(?![\w-]))?
          | (?P<article>an?|per|each|every)[ -](?P<apart>half|third|quarter|{ordinals})\b(?!-)
          | (?P<single>{ordinals})\b
          | (?P<half>half|halves|halved|halving|halve|quarters?)\b
          | (?P<one>an?|per|each|every|any)(?=[ ][a-zµ])
          | (?P<saying>{saying})\b
          | (?P<month>{_any(lists()["months"])})\b
        )""",
        re.I | re.X,
    )


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def in_words(text: str) -> Iterator[Quantity]:
    """The numbers in words, fractions, ordinals, months and words such as `both`; they may overlap."""
    for match in _words().finditer(text):
        if match["run"]:
            found = list(_run(text, match))
            if match["minus"] and found and not isinstance(found[0].value, str):
                found[0] = replace(found[0], value=-found[0].value, start=match.start())
            yield from found
            continue
        for name, read in READERS.items():
            if match[name]:
                single = read(text, match)
                if single:
                    yield single
                break


def _one(text: str, match: re.Match[str]) -> Quantity | None:
    """An article before a unit, or before a thing of which there is a half more: a year, a mile and a half."""
    start, end = match.span()
    found = unit_at(text, end)
    if found is None or text[end : found[1]].strip() in SYMBOLS:
        half = THING.match(text, end) if match["one"].lower() in ("a", "an") else None
        if half is None:
            return None
        return Quantity(Fraction(3, 2), None, "said", False, start, half.end(), (), text[start : half.end()])
    unit, stop = found
    half = HALF.match(text, stop)
    if half:
        stop = half.end()
        return Quantity(Fraction(3, 2), unit, "cardinal", False, start, stop, (), text[start:stop])
    return Quantity(Fraction(1), unit, "said", False, start, stop, ((Fraction(1), None),), text[start:stop])


def _apart(text: str, match: re.Match[str]) -> Quantity | None:
    """A half, a tenth; `a second` and `a fourth` that is a share of nothing are ordinals."""
    start, end = match.span()
    word = match["apart"].lower()
    below = PARTS.get(word) or lists()["ordinals"][word]
    other: list[tuple[Value, Unit | None]] = [(Fraction(below), None)]
    found = finished(text, Fraction(1, below), "part", False, start, _of(text, end), other=other)
    if found is None:
        return None
    if (
        word in ("first", "second")
        or (word == "quarter" and not found.unit)
        or (word not in PARTS and not _share(text, end))
    ):
        share = ((Fraction(1, below), None),)
        return replace(found, value=Fraction(below), unit=None, kind="ordinal", end=end, other=share)
    return found


def _half(text: str, match: re.Match[str]) -> Quantity | None:
    start, end = match.span()
    if match["half"].lower().startswith("quarter"):
        found = finished(text, Fraction(1, 4), "said", False, start, _of(text, end))
        return found and replace(found, kind="said")
    found = finished(text, Fraction(1, 2), "part", False, start, _of(text, end))
    return found if found is None or found.unit else replace(found, kind="said")


def _single(text: str, match: re.Match[str]) -> Quantity | None:
    value = Fraction(lists()["ordinals"][match["single"].lower()])
    if value == 2 and re.compile(r"s\b").match(text, match.end()):
        return None
    return _century(text, value, *match.span())


def _month(text: str, match: re.Match[str]) -> Quantity | None:
    if not match["month"][0].isupper() or not _is_month(text, match):
        return None
    number = lists()["months"][match["month"].lower()]
    return Quantity(f"month {number}", None, "month", False, *match.span(), (), match["month"])


def _saying(text: str, match: re.Match[str]) -> Quantity | None:
    start, end = match.span()
    word = match["saying"].lower()
    if word not in lists()["decades"]:
        return Quantity(Fraction(lists()["saying"][word]), None, "said", False, start, end, (), word)
    if DECADE.search(text[max(0, start - 8) : start]):
        decade = lists()["decades"][word]
        other = tuple((century + decade, None) for century in CENTURIES)
        return Quantity(f"{decade}s", None, "year", False, start, end, other, word)
    return None


def _clock(text: str, match: re.Match[str]) -> Quantity | None:
    word = match["hour"].lower()
    hour = int(word) if word.isdigit() else lists()["cardinals"].get(word, 99)
    if hour > 24:
        return None
    early = match["clock"].lower().endswith("to")
    minute = 45 if early else 30 if match["clock"].lower().startswith("half") else 15
    return clock((hour - early) % 24, minute, *match.span(), match.group())


READERS: dict[str, Callable[[str, re.Match[str]], Quantity | None]] = {
    "clock": _clock,
    "one": _one,
    "apart": _apart,
    "half": _half,
    "single": _single,
    "month": _month,
    "saying": _saying,
}


def _is_month(text: str, match: re.Match[str]) -> bool:
    if match["month"].lower() not in ("may", "march", "mar", "sep", "dec", "jan"):
        return True
    near = text[max(0, match.start() - 14) : match.start()]
    return BEFORE_MONTH.search(near) is not None or re.match(r"\.? \d", text[match.end() :]) is not None


def _of(text: str, end: int) -> int:
    """Behind `half` and the like a unit may follow with `of a` or an article: half a century, a quarter of an hour."""
    match = OF_A.match(text, end)
    return match.end() if match else end


def _share(text: str, end: int) -> bool:
    return re.compile(r" (?:of|as|more|less|the|that|to|smaller|larger)\b|[,.;:)]").match(text, end) is not None


def _run(text: str, match: re.Match[str]) -> Iterator[Quantity]:
    """A run of number words: one number, or several that follow one another."""
    found = _numbers(text, match)
    for number, start, end in found[:-1]:
        quantity = finished(text, Fraction(number), "cardinal", False, start, end)
        if quantity:
            yield quantity
    number, start, end = found[-1]
    behind = _with_part(text, match, number, start)
    if behind:
        yield behind
        return
    last = finished(text, Fraction(number), "cardinal", False, start, end)
    if last is None:
        return
    yield last
    years = [part for part, _, _ in found]  # nineteen forty-five
    if len(years) == 2 and 10 <= years[0] <= 20 and 10 <= years[1] <= 99:
        yield replace(last, value=Fraction(years[0] * 100 + years[1]), start=found[0][1], text=match["run"])


def _numbers(text: str, match: re.Match[str]) -> list[tuple[int, int, int]]:
    """(number, start, end) of every number of a run."""
    words = list(re.compile(r"[a-z]+", re.I).finditer(text, *match.span("run")))
    found: list[tuple[int, int, int]] = []
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
        hundreds = last >= 100  # a hundred and five
        if begin >= 0 and ((hundreds and value < 100) or (20 <= last < 100 and 0 < value < 10 and not joined)):
            group, last, stop = group + value, value, word.end()
        else:
            if begin >= 0:
                found.append((total + group, begin, stop))
            total, group, last, begin, stop = 0, value, value or 1, word.start(), word.end()
        joined = False
    return [*found, (total + group, begin, stop)]


def _with_part(text: str, match: re.Match[str], number: int, start: int) -> Quantity | None:
    """Two thirds, twenty-first, one fourth; None where nothing of the kind follows."""
    word = (match["part"] or "").lower()
    if match["ordinal"]:
        below = lists()["ordinals"][word]
        if (20 <= number % 100 < 100 and below < 10) or number >= 100:
            value = number + below if below < 100 else number * below
            return _century(text, Fraction(value), start, match.end())
        if number == 1:
            other = ((Fraction(below), None),)
            return Quantity(Fraction(1, below), None, "part", False, start, match.end(), other, match.group())
    elif word and word != "second":
        below = PARTS.get(word) or lists()["ordinals"][word.rstrip("s")]
        return finished(text, Fraction(number, below), "part", False, start, _of(text, match.end()))
    return None


def _century(text: str, value: Fraction, start: int, end: int) -> Quantity:
    """An ordinal, with the century that it counts."""
    found = unit_at(text, end)
    if found and found[0].name in ("century", "millennium"):
        return Quantity(value, found[0], "ordinal", False, start, found[1], (), text[start:end])
    return Quantity(value, None, "ordinal", False, start, end, (), text[start:end])
