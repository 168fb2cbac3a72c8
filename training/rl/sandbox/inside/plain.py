"""Python's plain values as JSON and back: all that passes between a program and its hidden tests.

What `unpack` gives is of Python's own types, whatever was sent: no class of the program, none of its methods.
"""

from __future__ import annotations

from typing import Any

MUTABLE = (list, dict, set)
SMALL = 1 << 63
"""Whole numbers above it go as hexadecimal text: JSON's readers stumble over thousands of digits."""


def pack(value: Any) -> Any:
    """As JSON-able data: what has no form of its own in JSON becomes {kind: content}."""
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
    for kind in (tuple, set, frozenset):
        if isinstance(value, kind):
            return {kind.__name__: [pack(one) for one in value]}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, bytes | bytearray):
        return {type(value).__name__: value.hex()}
    if isinstance(value, range):
        return {"range": [pack(part) for part in (value.start, value.stop, value.step)]}
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
    if kind not in _FROM_LIST:
        raise ValueError("no plain value")
    parts = [unpack(one) for one in content]
    return _FROM_LIST[kind](parts) if kind in ("tuple", "set", "frozenset") else _FROM_LIST[kind](*parts)


_FROM_LIST: dict[str, Any] = {"tuple": tuple, "set": set, "frozenset": frozenset, "complex": complex, "range": range}
