"""Texts as code points, classes of characters, and hashes of tokens and of runs of tokens: what rules, duplicates,
decontamination and features share.

A token is a word in lower case (letters and digits in a row, no `_`) or a single Han character. The kernels read UTF-8
once, are compiled at their first call and kept on disk. Array legend: N texts, T tokens, W windows.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from model.compiled import compiled

CODE_POINTS = 0x110000
LETTER, DIGIT, HAN, SPACE, NEWLINE, UPPER, LOWER, PUNCTUATION = (1 << bit for bit in range(8))
"""Flags of `classes()`. DIGIT: what Python counts as alphanumeric and not as a letter; HAN: ideographs that are tokens
by themselves (LETTER, too); NEWLINE: where `str.splitlines` cuts; PUNCTUATION: category P, and the symbols of ASCII."""
WORD = LETTER | DIGIT
"""Characters that words consist of."""

_HAN = ((0x3400, 0x4DC0), (0x4E00, 0xA000))
_NEWLINES = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
# Flags above the code point in the table of `_lowered`.
_ALONE, _LAST, _POINT = np.uint32(1 << 31), np.uint32(1 << 30), np.uint32((1 << 21) - 1)
# FNV-1a over code points, and the finaliser of MurmurHash3 (both in the public domain).
_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_MIX_1, _MIX_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_S33 = np.uint64(33)


def codepoints(text: str) -> np.ndarray:
    """uint32 [characters]; lone surrogates pass. Read-only."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)


@cache
def classes() -> np.ndarray:
    """uint8 [CODE_POINTS]: the flags of every code point. Built once per process (some 60 ms), read-only."""
    table = np.zeros(CODE_POINTS, np.uint8)
    every = _every()
    for match in re.finditer(r"[^\W_]+", every):
        for point in range(*match.span()):
            char = every[point]
            flag = LETTER if char.isalpha() else DIGIT
            table[point] = flag | (UPPER if char.isupper() else LOWER if char.islower() else 0)
    for match in re.finditer(r"\s+", every):
        table[slice(*match.span())] |= SPACE
    table[[ord(char) for char in _NEWLINES]] |= NEWLINE
    for first, end in _HAN:
        table[first:end] |= HAN
    # No plane above the first has punctuation.
    for point in np.flatnonzero(table[:0x20000] == 0).tolist():
        if unicodedata.category(every[point])[0] == "P" or (point < 128 and every[point].isprintable()):
            table[point] |= PUNCTUATION
    table.flags.writeable = False
    return table


@dataclass(frozen=True)
class Tokens:
    """The tokens of N texts: those of text i stand at starts[i]:starts[i + 1]."""

    hashes: np.ndarray
    """uint64 [T]."""
    starts: np.ndarray
    """int64 [N + 1]."""
    begins: np.ndarray
    """int32 [T]: where a token begins in its text, in characters; empty where places were not asked for."""
    ends: np.ndarray
    """int32 [T]: where it ends."""


def tokens(texts: Sequence[str], places: bool = True) -> Tokens:
    """The tokens of a batch of texts, with their places where wanted."""
    encoded = [(_sigma(text) if "Σ" in text else text).encode("utf-8", "surrogatepass") for text in texts]
    ends_N = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)), dtype=np.int64)
    # A word of one letter and what divides it from the next are two bytes at least.
    room = (int(ends_N[-1]) if encoded else 0) // 2 + len(encoded)
    hashes = np.empty(room, np.uint64)
    begins, ends = (np.empty(room if places else 0, np.int32) for _ in range(2))
    starts = np.zeros(len(encoded) + 1, np.int64)
    _tokens(np.frombuffer(b"".join(encoded), np.uint8), ends_N, _lowered(), hashes, starts, begins, ends)
    count = int(starts[-1])
    return Tokens(hashes[:count].copy(), starts, begins[:count].copy(), ends[:count].copy())


def token_hashes(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(hashes uint64 [T], starts int64 [N + 1]) of a batch of texts."""
    found = tokens(texts, places=False)
    return found.hashes, found.starts


def rolling(hashes: np.ndarray, starts: np.ndarray, n: int, short: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(uint64 [W], starts int64 [N + 1]): hashes of the runs of `n` tokens within each text, in order and with repeats.

    A text of fewer tokens has none or, with `short`, that of all its tokens as its only one.
    """
    if n < 1:
        raise ValueError(f"a run of {n} tokens: n must be at least 1")
    lengths = np.diff(starts)
    counts = np.maximum(lengths - (n - 1), (lengths > 0) if short else 0)
    borders = np.zeros(len(starts), np.int64)
    np.cumsum(counts, out=borders[1:])
    windows = np.empty(int(borders[-1]), np.uint64)
    _rolling(hashes, starts, n, np.uint64(pow(int(_ODD), n, 1 << 64)), borders, windows)
    return windows, borders


def _every() -> str:
    return np.arange(CODE_POINTS, dtype=np.uint32).tobytes().decode("utf-32-le", "surrogatepass")


@cache
def _lowered() -> np.ndarray:
    """uint32 [CODE_POINTS]: the lower case of a character of a word, with flags; 0 where no word goes on."""
    # İ alone becomes two characters, of which the second belongs to no word; a Σ has been seen to by `_sigma`.
    lower = codepoints(_every().replace("İ", "i").replace("Σ", "σ").lower())
    table = np.where(classes()[lower] & WORD, lower, 0).astype(np.uint32)
    for first, end in _HAN:
        table[first:end] |= _ALONE
    table[ord("İ")] |= _LAST
    table.flags.writeable = False
    return table


def _sigma(text: str) -> str:
    """`text` with every Σ in lower case, which has another form at the end of a word; İ stays, being two in lower."""
    lower = text.replace("İ", "I").lower()
    return "".join(low if char == "Σ" else char for char, low in zip(text, lower, strict=True))


@compiled
def _mixed(value):  # type: ignore[no-untyped-def]
    value = (value ^ (value >> _S33)) * _MIX_1
    value = (value ^ (value >> _S33)) * _MIX_2
    return value ^ (value >> _S33)


@compiled
def _tokens(data, ends_N, lowered, hashes, starts, begins, ends):  # type: ignore[no-untyped-def]
    """Reads UTF-8 (as Python encodes it: every sequence is whole)."""
    places = len(begins) > 0
    at, count = 0, 0
    for text in range(len(ends_N)):
        stop = ends_N[text]
        value, inside = _BASIS, False
        place = 0
        while at < stop:
            byte = np.uint32(data[at])
            if byte < 0x80:
                point = byte
                at += 1
            elif byte < 0xE0:
                point = ((byte & np.uint32(0x1F)) << np.uint32(6)) | (np.uint32(data[at + 1]) & np.uint32(0x3F))
                at += 2
            elif byte < 0xF0:
                point = (
                    ((byte & np.uint32(0x0F)) << np.uint32(12))
                    | ((np.uint32(data[at + 1]) & np.uint32(0x3F)) << np.uint32(6))
                    | (np.uint32(data[at + 2]) & np.uint32(0x3F))
                )
                at += 3
            else:
                point = (
                    ((byte & np.uint32(0x07)) << np.uint32(18))
                    | ((np.uint32(data[at + 1]) & np.uint32(0x3F)) << np.uint32(12))
                    | ((np.uint32(data[at + 2]) & np.uint32(0x3F)) << np.uint32(6))
                    | (np.uint32(data[at + 3]) & np.uint32(0x3F))
                )
                at += 4
            low = lowered[point]
            if inside and (low == 0 or low & _ALONE):
                hashes[count] = _mixed(value)
                if places:
                    ends[count] = place
                count += 1
                inside = False
            if low != 0:
                if not inside:
                    value, inside = _BASIS, True
                    if places:
                        begins[count] = place
                value = (value ^ np.uint64(low & _POINT)) * _PRIME
                if low & (_ALONE | _LAST):
                    hashes[count] = _mixed(value)
                    if places:
                        ends[count] = place + 1
                    count += 1
                    inside = False
            place += 1
        if inside:
            hashes[count] = _mixed(value)
            if places:
                ends[count] = place
            count += 1
        starts[text + 1] = count


@compiled
def _rolling(hashes, starts, n, power, borders, windows):  # type: ignore[no-untyped-def]
    """Karp and Rabin's rolling hash modulo 2^64, mixed: power is the base to the n."""
    for text in range(len(starts) - 1):
        first, stop = starts[text], starts[text + 1]
        value = np.uint64(0)
        out = borders[text]
        for at in range(first, stop):
            value = value * _ODD + hashes[at]
            if at - first >= n:
                value -= power * hashes[at - n]
            if at - first >= n - 1:
                windows[out] = _mixed(value)
                out += 1
        if out < borders[text + 1]:
            windows[out] = _mixed(value)
