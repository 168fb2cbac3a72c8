"""One pass over a text that says which of many searches are worth making in it, and where digits stand densely."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.compiled import compiled

GATES_MAX = 63
DIGITS_MIN = 7
"""Digits that a run must have to be dense: no telephone number, card, account or resident id has fewer."""
_BITS, _SHIFT = 15, 5  # three shifts of five bits: the sum depends on the last three bytes and on nothing before
_DIGIT, _JOINT = 1, 2


def _kinds() -> np.ndarray:
    table = np.zeros(256, np.uint8)
    table[list(b"0123456789")] = _DIGIT
    table[list(b" ().-/")] = _JOINT
    return table


class Scan:
    """Looks for up to 63 strings at once by three bytes of each. Strings that share them, or their hash, share a bit: a
    set bit means that the string may be there."""

    def __init__(self, strings: Sequence[bytes]) -> None:
        if len(strings) > GATES_MAX or min(map(len, strings)) < 3:
            raise ValueError(f"a scan takes at most {GATES_MAX} strings of three bytes or more")
        self._table = np.zeros(1 << _BITS, np.int64)
        self._kinds = _kinds()
        for bit, string in enumerate(strings):
            value = 0
            for byte in string[:3]:
                value = ((value << _SHIFT) ^ byte) & ((1 << _BITS) - 1)
            self._table[value] |= 1 << bit

    def __call__(self, data: bytes) -> tuple[int, list[tuple[int, int]]]:
        """(bits of the strings that may be in `data`, UTF-8; [(begin, end)] of dense digits, in characters)."""
        room = np.empty((len(data) // DIGITS_MIN + 1, 2), np.int64)
        bits, count = _scan(np.frombuffer(data, np.uint8), self._table, self._kinds, room)
        return int(bits), [(int(begin), int(end)) for begin, end in room[:count]]


@compiled
def _scan(data, table, kinds, room):  # type: ignore[no-untyped-def]
    value, bits, count = np.int64(0), np.int64(0), 0
    place, begin, end, digits = 0, -1, 0, 0
    for at in range(len(data)):
        byte = data[at]
        value = ((value << _SHIFT) ^ np.int64(byte)) & ((1 << _BITS) - 1)
        bits |= table[value]
        kind = kinds[byte]
        if kind == _DIGIT:
            if begin < 0:
                begin, digits = place, 0
            digits += 1
            end = place + 1
        elif kind == 0 and begin >= 0:
            if digits >= DIGITS_MIN:
                room[count, 0], room[count, 1] = begin, end
                count += 1
            begin = -1
        if byte & 0xC0 != 0x80:
            place += 1
    if begin >= 0 and digits >= DIGITS_MIN:
        room[count, 0], room[count, 1] = begin, end
        count += 1
    return bits, count
