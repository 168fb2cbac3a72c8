"""The quantities that a text states: numbers in digits or words, English or Chinese, with their units."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from tasks.rephrase.alignment.chinese import in_hanzi
from tasks.rephrase.alignment.digits import in_digits
from tasks.rephrase.alignment.pair import CODE, FORMULA, URL
from tasks.rephrase.alignment.quantity import Quantity
from tasks.rephrase.alignment.ranges import joined
from tasks.rephrase.alignment.units import named
from tasks.rephrase.alignment.wording import in_words

MARKER = re.compile(
    r"^[-*+•>#|_ \t]{0,40}(?:(?:step|part|question|q|point|stage|note|case)[ \t]*|第)?"
    r"(?:\(?\d{1,2}(?:[.):、：．）](?=[\s*_㐀-鿿]|$)|步)|(?:one|two|three|four|five|six|seven|eight|nine|ten)[:.]"
    r"|[一二三四五六七八九十]{1,2}[、.．）)])",
    re.M | re.I,
)
ENUMERATED = re.compile(r"(?<![\w)\]\ufffc*])[(（]\d[)）](?=\s|[㐀-鿿])|[①-⑳]")
RULER = re.compile(r"(?<=[a-zé] )(?P<roman>X{0,3}(?:IX|IV|V?I{0,3}))(?![\w-]|\.\w)")
ROMAN = {"I": 1, "V": 5, "X": 10}
NEXT_YEAR = re.compile(
    r"(?i)\b(?:next|following|previous|preceding) year\b|\byear (?:later|after|before|earlier|previously)\b"
    r"|\b(?:that|this|following|next|previous|preceding|same) decade\b"
    r"|次年|翌年|第二年|来年|前一年|上一年|一年[前后之以]"
)


@lru_cache(maxsize=512)
def quantities(text: str) -> tuple[Quantity, ...]:
    """The quantities of `text` in their order; code, URLs and formulas that are more than a number are left out."""
    bare = prose(text)
    found = sorted(_all(bare), key=lambda quantity: (quantity.start, -quantity.end))
    kept: list[Quantity] = []
    for quantity in found:
        if not kept or quantity.start >= kept[-1].end:
            kept.append(quantity)
    return tuple(joined(bare, kept))


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


def _all(text: str) -> Iterator[Quantity]:
    yield from in_digits(text)
    for match in NEXT_YEAR.finditer(text):
        unit = named("decade" if match.group().endswith("decade") else "year")
        back = re.search(r"(?i)previous|preceding|before|earlier|[前上]", match.group())
        yield Quantity(
            Fraction(-1 if back else 1), unit, "said", False, *match.span(), ((Fraction(1), unit),), match.group()
        )
    yield from in_words(text)
    yield from in_hanzi(text)
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
