"""What characters mean to the rules, beyond the classes of `tasks.corpus.codepoints`."""

from __future__ import annotations

from functools import cache

import numpy as np

from tasks.corpus.codepoints import CODE_POINTS

TERMINAL, STOP, WIDE_STOP, CLOSER, BULLET, SIMPLIFIED, TRADITIONAL, GARBLED = (1 << bit for bit in range(8))
"""Flags of `marks()`. TERMINAL: what a line of text ends with; STOP: what a sentence ends with before a blank;
WIDE_STOP: what ends one by itself; CLOSER: what may stand after a STOP; BULLET: begins an item by itself; SIMPLIFIED,
TRADITIONAL: Han characters of one writing only; GARBLED: what no text has."""

# FineWeb's stop characters were . ! ? " '; datatrove's list today adds the full stops of other scripts. The curly
# quotes are the straight ones in typographic dress.
_TERMINAL = ".!?\"'”’…。！？．｡﹒﹖﹗؟۔։‼⁇⁈⁉"
_CLOSERS = "\"'”’)]）」』》"
_BULLETS = "•●○■◦‣⁃▪·∙"


@cache
def marks() -> np.ndarray:
    """uint8 [CODE_POINTS]: the flags of every code point. Read-only."""
    table = np.zeros(CODE_POINTS, np.uint8)
    for characters, flag in (
        (_TERMINAL, TERMINAL),
        (".!?", STOP),
        ("。！？", WIDE_STOP),
        (_CLOSERS, CLOSER),
        (_BULLETS, BULLET),
    ):
        for character in characters:
            table[ord(character)] |= flag
    for first, end in ((0x80, 0xA0), (0xD800, 0xE000), (0xE000, 0xF900), (0xFFFD, 0x10000), (0xF0000, CODE_POINTS)):
        table[first:end] |= GARBLED
    table[0x85] = 0
    # The national standards list the characters of each writing: GB 2312 the simplified, Big5 the traditional ones.
    han = [chr(point) for point in range(0x4E00, 0xA000)]
    simplified = {character for character in han if character.encode("gb2312", "ignore")}
    traditional = {character for character in han if character.encode("big5", "ignore")}
    for character in simplified ^ traditional:
        table[ord(character)] |= SIMPLIFIED if character in simplified else TRADITIONAL
    table.flags.writeable = False
    return table
