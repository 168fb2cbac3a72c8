"""Python's plain values as JSON and back: all that passes between a program and its hidden tests.

What `unpack` gives is of Python's own types, whatever was sent: no class of the program, none of its methods.
"""

from __future__ import annotations

import itertools
import json
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from typing import Any

MUTABLE = (list, dict, set)
SMALL = 1 << 63
"""Whole numbers above it go as hexadecimal text: JSON's readers stumble over thousands of digits."""
TAKEN, WRITTEN = 10_000, 1 << 22
"""Values that are taken from an iterator, and characters of them as JSON: whoever reads on is told."""
DIGITS = 10_000
"""Of the longest Decimal or Fraction: their arithmetic takes the square of it."""

Kind = tuple[str, type, Callable[[Any], Any], Callable[[Any], Any]]
"""(name, type, a value as its parts, the value of the parts)"""
KINDS: tuple[Kind, ...] = (
    ("tuple", tuple, list, tuple),
    ("set", set, list, set),
    ("frozenset", frozenset, list, frozenset),
    ("deque", deque, list, deque),
    ("keys", KeysView, list, lambda parts: dict.fromkeys(parts).keys()),
    ("items", ItemsView, list, lambda parts: dict(parts).items()),
    ("values", ValuesView, list, lambda parts: dict(enumerate(parts)).values()),
    ("complex", complex, lambda one: [one.real, one.imag], lambda parts: complex(*parts)),
    ("range", range, lambda one: [one.start, one.stop, one.step], lambda parts: range(*parts)),
    ("decimal", Decimal, lambda one: [_short(Decimal.__str__(one))], lambda parts: Decimal(_short(*parts))),
    ("fraction", Fraction, lambda one: [_short(one.numerator), _short(one.denominator)], lambda parts: _ratio(*parts)),
    # a datetime is a date
    ("datetime", datetime, lambda one: [datetime.isoformat(one)], lambda parts: datetime.fromisoformat(*parts)),
    ("date", date, lambda one: [date.isoformat(one)], lambda parts: date.fromisoformat(*parts)),
    ("time", time, lambda one: [time.isoformat(one)], lambda parts: time.fromisoformat(*parts)),
    ("timedelta", timedelta, lambda one: [one.days, one.seconds, one.microseconds], lambda parts: timedelta(*parts)),
)
"""What has no form of its own in JSON. A value is of the first kind whose type it has."""


def pack(value: Any) -> Any:
    """As JSON-able data: what has no form of its own in JSON becomes {kind: content}. A member of an Enum is its value:
    tests know no class of the program."""
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float.__float__(value)
    if isinstance(value, int):
        number = int.__int__(value)
        return number if -SMALL < number < SMALL else {"int": hex(number)}
    if isinstance(value, list):
        return [pack(one) for one in value]
    if isinstance(value, dict):
        return {"dict": [[pack(key), pack(one)] for key, one in value.items()]}
    if isinstance(value, Enum):
        return pack(value.value)
    if isinstance(value, bytes | bytearray):
        return {"bytes" if isinstance(value, bytes) else "bytearray": value.hex()}
    if isinstance(value, Iterator):
        return {"iterator": _taken(value)}
    for name, kind, parts, _ in KINDS:
        if isinstance(value, kind):
            return {name: [pack(one) for one in parts(value)]}
    if hasattr(value, "dtype") and getattr(value, "shape", None) == ():  # a number of numpy's
        return pack(value.item())
    raise TypeError(f"a value of type {type(value).__name__} is no plain data: tests cannot see it")


def unpack(data: Any) -> Any:
    """The value of `pack`; ValueError for what it cannot have given."""
    if isinstance(data, list):
        return [unpack(one) for one in data]
    if not isinstance(data, dict):
        return data
    if len(data) != 1:
        raise ValueError("no plain value")
    ((kind, content),) = data.items()
    if kind == "int":
        return int(content, 16)
    if kind == "dict":
        return {unpack(key): unpack(one) for key, one in content}
    if kind in ("bytes", "bytearray"):
        return (bytes if kind == "bytes" else bytearray).fromhex(content)
    if kind not in _FROM:
        raise ValueError("no plain value")
    try:
        return _FROM[kind]([unpack(one) for one in content])
    except (TypeError, ArithmeticError) as error:  # parts that it cannot have given
        raise ValueError(f"no plain value: {error}") from None


def _short(number: Any) -> Any:
    """A whole number, or the text of a decimal one; ValueError where it is too long to work with."""
    digits = len(number) if isinstance(number, str) else int(number).bit_length() * 3 // 10
    if digits > DIGITS:
        raise ValueError(f"a number of {digits:,} digits: tests see at most {DIGITS:,}")
    return number


def _ratio(numerator: int, denominator: int) -> Fraction:
    return Fraction(_short(numerator), _short(denominator))


def _taken(values: Iterator[Any]) -> list[Any]:
    """[the next values, packed; whether there are more]: some have no end."""
    found: list[Any] = []
    room = WRITTEN
    for value in itertools.islice(values, TAKEN + 1):
        packed = pack(value)
        room -= len(json.dumps(packed))
        if len(found) == TAKEN or room < 0:
            return [found, True]
        found.append(packed)
    return [found, False]


def _again(values: list[Any], more: bool) -> Iterator[Any]:
    yield from values
    if more:
        raise RuntimeError(f"the iterator goes on after {len(values):,} values: tests see no more of it")


_FROM: dict[str, Callable[[Any], Any]] = {
    "iterator": lambda parts: _again(*parts),
    **{name: make for name, _, _, make in KINDS},
}
