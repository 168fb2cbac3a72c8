"""Numbers that stand together: ranges whose ends share a unit, hours with their minutes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

from tasks.rephrase.alignment.quantity import Quantity, scales
from tasks.rephrase.alignment.units import lists

CONNECTOR = re.compile(
    r"""
    \s? (?: [-–—~～至到或×x/、,] | to | (?:,[ ])?and | (?:,[ ])?or | and[ ]about | and[ ]some | by | versus | vs\.?
          | ,[ ]to | (?:,?[ ])?(?:then|but) | through | up[ ]to | rather[ ]than | as[ ]against ) \s?
    (?:about[ ]|roughly[ ]|nearly[ ]|约|的)?
    """,
    re.X,
)
AND_SO = re.compile(r" (?:or|to|and|rather than|instead of|instead of every|to every|down to|up to) |[到至或]")
PIECES = {"hour": "minute", "minute": "s", "foot": "inch", "year": "month", "day": "hour", "h": "min", "week": "day"}


def joined(text: str, found: list[Quantity]) -> Iterator[Quantity]:
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
    for place, (one, other) in enumerate(pairwise(tuple(found))):  # nine out of ten
        if isinstance(one.value, Fraction) and isinstance(other.value, Fraction) and other.value:
            share = (one.value / other.value, None)
            if share in other.other:
                found[place] = replace(one, other=(*one.other, share))
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
            if gap.strip() not in ("", "and", "零") or after.unit.name != smaller or isinstance(after.value, str):
                break
            total += after.value * after.unit.factor / one.unit.factor
            end, last, place = after.end, after, place + 1
        yield one if last is one else replace(one, value=total, end=end, text=text[one.start : end])
        place += 1


def _scale_of(quantity: Quantity) -> int:
    match = re.search(rf"({'|'.join(lists()['scales'])})\b|[十百千万亿](?=[㐀-鿿]*$)", quantity.text, re.I)
    return scales()[match.group().lower()] if match else 1
