"""The numbers that a text writes in English words."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache

from tasks.rephrase.alignment.quantity import CENTURIES, HALF, Meaning, Quantity, finished
from tasks.rephrase.alignment.units import lists, named, unit_at

PARTS = {"half": 2, "halves": 2, "third": 3, "thirds": 3, "quarter": 4, "quarters": 4}
DECADE = re.compile(r"\b(?:the|in|and|or|to|early|late|mid|his|her)[ -]$", re.I)
OF_A = re.compile(r"(?: of)? an?(?= [A-Za-zµ])")
A_SIZE = re.compile(r" (?:million|billion|dozen|degree)")
SHARE = re.compile(r" (?:of|as|more|less|the|that|to|smaller|larger)\b|[,.;:)]")
"""Behind a fourth that is a share, and no ordinal."""


@cache
def _words() -> re.Pattern[str]:
    numbers = _any([*lists()["cardinals"], *(name for name in lists()["scales"] if name.isascii())])
    ordinals = _any(lists()["ordinals"])
    parts = _any([*PARTS, *(f"{ordinal}s" for ordinal in lists()["ordinals"] if ordinal != "second")])
    article = r"(?:an?[ ](?=hundred|thousand|million|billion|trillion|dozen))?"
    digits = _any(name for name, number in lists()["cardinals"].items() if number < 10)
    run = rf"{article}(?:{numbers})\b(?:(?:[ -]|[ -]and[ -](?=(?:{numbers})\b))(?:{numbers})\b)*"
    return re.compile(
        rf"""(?<![\w@\#])(?:
            (?:(?P<minus>minus|negative)[ ])?(?P<run>{run})
            (?:(?<!\bat[ ]one)[ ]point(?P<decimals>(?:[ ](?:{digits})\b)+)
              |[ -](?P<part>{parts}|(?P<ordinal>{ordinals}))(?![\w-]))?
          | (?!a[ ]second[.,;:)])(?:an?|every)[ -](?P<apart>half|third|quarter|{ordinals})\b(?!-)
          | (?P<single>{ordinals})\b(?!\ss\b)
          | (?P<half>half|halves|halved|halving|halve|quarters?)\b
          | (?P<article>an?|per|each|every|any)(?=[ ][a-zµ])
          | (?P<decade>{_any(lists()["decades"])})\b
          | (?P<saying>{_any(lists()["saying"])})\b
        )""",
        re.I | re.X,
    )


def _any(words: Iterable[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


def in_english(text: str) -> Iterator[Quantity]:
    """The numbers in words, fractions, ordinals and words such as `both`; they may overlap."""
    for match in _words().finditer(text):
        if match["run"]:
            yield from _run(text, match)
            continue
        name = next(name for name in READERS if match[name])
        if single := READERS[name](text, match):
            yield single


def _article(text: str, match: re.Match[str]) -> Quantity | None:
    """An article before a unit: a year, a mile and a half. A symbol is none: `a m`."""
    found = unit_at(text, match.end(), match.group())
    if found is None:
        return None
    unit, end = found
    if half := HALF.match(text, end):
        return Quantity(Fraction(3, 2), unit, "cardinal", False, match.start(), half.end())
    return Quantity(Fraction(1), unit, "said", False, match.start(), end, ((Fraction(1), None),))


def _apart(text: str, match: re.Match[str]) -> Quantity | None:
    """A half, a tenth; `a second` and `a fourth` that is a share of nothing are ordinals."""
    start, end, word = *match.span(), match["apart"].lower()
    below = PARTS.get(word) or lists()["ordinals"][word]
    other: list[Meaning] = [(Fraction(below), None)]
    found = finished(text, Fraction(1, below), "part", False, start, _of(text, end), other=other)
    alone = word == "quarter" and found and not found.unit
    if found and (word in ("first", "second") or alone or (word not in PARTS and not SHARE.match(text, end))):
        share = ((Fraction(1, below), None),)
        return replace(found, value=Fraction(below), unit=None, kind="ordinal", end=end, other=share)
    return found


def _half(text: str, match: re.Match[str]) -> Quantity | None:
    quarter = match["half"].lower().startswith("quarter")
    value = Fraction(1, 4 if quarter else 2)
    found = finished(text, value, "part", False, match.start(), _of(text, match.end()))
    return replace(found, kind="said") if found and (quarter or not found.unit) else found


def _single(text: str, match: re.Match[str]) -> Quantity | None:
    return _ordinal(text, Fraction(lists()["ordinals"][match["single"].lower()]), *match.span())


def _decade(text: str, match: re.Match[str]) -> Quantity | None:
    if not DECADE.search(text[max(0, match.start() - 8) : match.start()]):
        return None
    decade = lists()["decades"][match["decade"].lower()]
    other = tuple((century + decade, None) for century in CENTURIES)
    return Quantity(f"{decade}s", None, "year", False, *match.span(), other)


def _saying(text: str, match: re.Match[str]) -> Quantity | None:
    said = lists()["saying"][match["saying"].lower()]
    if isinstance(said, str):  # monthly
        return Quantity(Fraction(1), named(said), "said", False, *match.span(), ((Fraction(1), None),))
    return Quantity(Fraction(said), None, "said", False, *match.span())


READERS: dict[str, Callable[[str, re.Match[str]], Quantity | None]] = {
    "article": _article,
    "apart": _apart,
    "half": _half,
    "single": _single,
    "decade": _decade,
    "saying": _saying,
}


def _of(text: str, end: int) -> int:
    """Behind `half` and the like a unit may follow with `of a` or an article: half a century, a quarter of an hour."""
    match = OF_A.match(text, end)
    fits = match and (A_SIZE.match(text, match.end()) or unit_at(text, match.end(), "half"))
    return match.end() if match and fits else end


def _run(text: str, match: re.Match[str]) -> Iterator[Quantity]:
    """A run of number words: one number, or several that follow one another."""
    found = _numbers(text, match)
    number, start, end = found[-1]
    value = Fraction(number)
    if match["decimals"]:
        digits = "".join(str(lists()["cardinals"][word]) for word in match["decimals"].lower().split())
        value, end = value + Fraction(int(digits), 10 ** len(digits)), match.end()
    last = _with_part(text, match, number, start)
    if last is None:
        last = finished(text, value, "cardinal", False, start, end)
        years = [part for part, _, _ in found]  # nineteen forty-five, but not `between ten and thirteen`
        apart = len(found) == 2 and "and" in text[found[0][2] : start].lower()
        if last and len(years) == 2 and not apart and 10 <= years[0] <= 20 and 10 <= years[1] <= 99:
            yield replace(last, value=Fraction(years[0] * 100 + years[1]), start=found[0][1])
            return
        if last and match["minus"] and len(found) == 1:
            last = replace(last, value=-value, start=match.start())
    for number, start, end in found[:-1]:
        if quantity := finished(text, Fraction(number), "cardinal", False, start, end):
            yield quantity
    if last:
        yield last


def _numbers(text: str, match: re.Match[str]) -> list[tuple[int, int, int]]:
    """(number, start, end) of every number of a run."""
    found: list[tuple[int, int, int]] = []
    total, group, last, begin, stop = 0, 0, 0, -1, 0
    joined = False
    for word in re.compile(r"[a-z]+", re.I).finditer(text, *match.span("run")):
        name = word.group().lower()
        if name in ("a", "an", "and"):
            joined = name == "and"
            begin = word.start() if begin < 0 and not joined else begin
            continue
        if name in lists()["scales"]:
            scale = lists()["scales"][name]
            begin = word.start() if begin < 0 else begin
            if scale in (100, 12):
                group = (group or 1) * scale
            else:
                total, group = total + (group or 1) * scale, 0
            last, stop, joined = scale, word.end(), False
            continue
        value = lists()["cardinals"][name]
        # a hundred and five; twenty-one
        if begin >= 0 and ((last >= 100 and value < 100) or (20 <= last < 100 and 0 < value < 10 and not joined)):
            group += value
        else:
            if begin >= 0:
                found.append((total + group, begin, stop))
            total, group, begin = 0, value, word.start()
        last, stop, joined = value or 1, word.end(), False
    return [*found, (total + group, begin, stop)]


def _with_part(text: str, match: re.Match[str], number: int, start: int) -> Quantity | None:
    """Two thirds, twenty-first, one fourth; None where nothing of the kind follows."""
    word = (match["part"] or "").lower()
    if not word or (word == "second" and not match["ordinal"]):
        return None
    below = PARTS.get(word) or lists()["ordinals"].get(word) or lists()["ordinals"][word.rstrip("s")]
    if not match["ordinal"]:
        return finished(text, Fraction(number, below), "part", False, start, _of(text, match.end()))
    if (20 <= number % 100 < 100 and below < 10) or number >= 100:
        return _ordinal(text, Fraction(number + below if below < 100 else number * below), start, match.end())
    if number == 1:
        return Quantity(Fraction(1, below), None, "part", False, start, match.end(), ((Fraction(below), None),))
    return None


def _ordinal(text: str, value: Fraction, start: int, end: int) -> Quantity:
    """An ordinal, with the century that it counts."""
    found = unit_at(text, end, "nth")
    if found and found[0].name in ("century", "millennium"):
        return Quantity(value, found[0], "ordinal", False, start, found[1])
    return Quantity(value, None, "ordinal", False, start, end)
