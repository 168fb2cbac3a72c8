"""Text to token ids without a Python object a token: UTF-8 as Arrow holds it in, a uint32 array out.

A tokenizer that `tokenizer.train` made (or any with the same pre-tokenizer, a byte-level BPE) is run by kernels of our
own, because the library spends most of its time on the regular expression and on objects that nobody reads: one pass
finds where words end, a small table remembers the tokens of short words, and a heap merges the others. The tokens are
the library's, bit by bit; where a tokenizer is of another make, the library itself is asked.

The kernels are compiled at their first call and kept on disk.

Legend: Y bytes of text, N documents, T tokens, M merges, C code points, W remembered words.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from tokenizers import Regex, models, pre_tokenizers
from tokenizers import Tokenizer as BPE

from model.compiled import compiled
from tasks.tokens.tokenizer import byte_of_char, encode_texts, pre_tokenizer
from training.shards import TOKEN

LETTER, NUMBER, SPACE, LINE, HAN = (np.uint8(1 << bit) for bit in range(5))
"""Flags of a code point, as the pre-tokenizer's expression has them: letters with their marks, numbers, white space,
line ends, Han characters."""
CODE_POINTS = 0x110000
LAST_LETTER = 0x33480
"""No code point from here on is a letter, a number, white space or Han, but for MARKS."""
MARKS = range(0xE0000, 0xE0200)
SHORT = 15
"""Most bytes of a word that is remembered: with its length it fills two 64-bit numbers."""
REMEMBERED = 1 << 16
"""Words remembered at most; one that falls on another's slot takes it."""

_ODD = np.uint64(0x9E3779B97F4A7C15)
_NOTHING = np.uint64(0xFFFFFFFFFFFFFFFF)


class Encoder:
    """One tokenizer, ready to encode many texts. Not for several threads at once."""

    def __init__(self, tokenizer: BPE) -> None:
        self.tokenizer = tokenizer
        record = json.loads(tokenizer.to_str())
        digits = _digits(record) if tokenizer.encode_special_tokens else None
        self.kernel = None if digits is None else Kernel(record["model"], digits)
        """None where the tokenizer is of another make: then the library encodes."""

    @property
    def vocabulary(self) -> int:
        """Entries, special tokens included."""
        return self.tokenizer.get_vocab_size(with_added_tokens=True)

    def encode(
        self, texts: pa.StringArray, head: Sequence[int] = (), tail: Sequence[int] = ()
    ) -> tuple[np.ndarray, np.ndarray]:
        """The tokens of every text, one after the other (uint32 [T]), and where those of each end (int64 [N]). `head`
        and `tail` enclose those of a text that has any; no other special token is among them, however it is spelled."""
        if self.kernel is not None:
            return self.kernel.encode(texts, head, tail)
        encoded = [[*head, *ids, *tail] if ids else [] for ids in encode_texts(self.tokenizer, texts.to_pylist())]
        end_N = np.cumsum([len(ids) for ids in encoded], dtype=np.int64)
        return np.concatenate([np.empty(0, TOKEN), *(np.asarray(ids, TOKEN) for ids in encoded)]), end_N


def _digits(record: dict[str, Any]) -> int | None:
    """The `digits` of a tokenizer for which the kernels give what the library would, None for others: its pre-tokenizer
    must be ours and its model a plain byte-level BPE, with nothing normalised or found in text before."""
    model = record["model"]
    others = "dropout continuing_subword_prefix end_of_word_suffix byte_fallback ignore_merges unk_token".split()
    plain = model["type"] == "BPE" and not any(model.get(name) for name in others)
    if not plain or record["normalizer"] is not None or not all(token["special"] for token in record["added_tokens"]):
        return None
    if not set(byte_of_char()) <= set(model["vocab"]):
        return None
    made = BPE(models.BPE())
    for digits in (1, 3):
        made.pre_tokenizer = pre_tokenizer(digits)
        if json.loads(made.to_str())["pre_tokenizer"] == record["pre_tokenizer"]:
            return digits
    return None


class Kernel:
    """What the compiled functions read of a tokenizer, and the words they remember."""

    def __init__(self, model: dict[str, Any], digits: int) -> None:
        vocabulary = model["vocab"]
        self.digits = digits
        self.byte_ids = np.zeros(256, np.uint32)
        for char, byte in byte_of_char().items():
            self.byte_ids[byte] = vocabulary[char]
        merges = [(vocabulary[one], vocabulary[other], vocabulary[one + other]) for one, other in model["merges"]]
        self.pairs = np.full((1 << (4 * len(merges) + 16).bit_length(), 2), _NOTHING)
        _fill(self.pairs, np.asarray(merges, np.uint64).reshape(-1, 3))
        self.words_W2 = np.full((REMEMBERED, 2), _NOTHING)
        self.tokens_W = np.zeros((REMEMBERED, SHORT + 1), np.uint32)

    def encode(self, texts: pa.StringArray, head: Sequence[int], tail: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        texts = texts.cast(pa.large_string())
        _, offsets, data = texts.buffers()
        border_N = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
        text_Y = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
        ids_T = np.empty(int(border_N[-1] - border_N[0]) + len(texts) * (len(head) + len(tail)), TOKEN)
        end_N = np.empty(len(texts), np.int64)
        borders = np.asarray(head, TOKEN), np.asarray(tail, TOKEN)
        tables = self.digits, classes(), self.byte_ids, self.pairs, self.words_W2, self.tokens_W
        count = _encode(text_Y, border_N, *borders, *tables, ids_T, end_N)
        return ids_T[:count], end_N


@cache
def classes() -> np.ndarray:
    """uint8 [C]: the flags of every code point, by the library's own expressions. Built once a process."""
    points = [*range(LAST_LETTER), *MARKS]
    every = "".join(chr(point) if not 0xD800 <= point < 0xE000 else "\0" for point in points)
    places = np.asarray(points)
    table = np.zeros(CODE_POINTS, np.uint8)
    for flag, pattern in ((LETTER, r"[\p{L}\p{M}]+"), (NUMBER, r"\p{N}+"), (SPACE, r"\s+"), (HAN, r"\p{Han}+")):
        split = pre_tokenizers.Split(Regex(pattern), behavior="removed", invert=True)
        for _, (first, end) in split.pre_tokenize_str(every):
            table[places[first:end]] |= flag
    table[[ord("\r"), ord("\n")]] |= LINE
    return table


# ------------------------------------------------------------------------------------------------------------- kernels


@compiled(inline="always")
def _look(text_Y, at, classes_C):  # type: ignore[no-untyped-def]
    """(flags of the character at byte `at`, its bytes); the text is UTF-8."""
    one = text_Y[at]
    if one < 0x80:
        return classes_C[one], 1
    if one < 0xE0:
        return classes_C[((one & 0x1F) << 6) | (text_Y[at + 1] & 0x3F)], 2
    if one < 0xF0:
        point = ((one & 0x0F) << 12) | ((text_Y[at + 1] & 0x3F) << 6) | (text_Y[at + 2] & 0x3F)
        return classes_C[point], 3
    point = (one & 0x07) << 18 | (text_Y[at + 1] & 0x3F) << 12 | (text_Y[at + 2] & 0x3F) << 6 | (text_Y[at + 3] & 0x3F)
    return classes_C[point], 4


@compiled
def _run(text_Y, at, end, classes_C, mask, wanted):  # type: ignore[no-untyped-def]
    """Where the run of characters with `flags & mask == wanted` from `at` on ends."""
    while at < end:
        flags, size = _look(text_Y, at, classes_C)
        if flags & mask != wanted:
            break
        at += size
    return at


@compiled
def _word(text_Y, at, end, digits, classes_C):  # type: ignore[no-untyped-def]
    """Where the word that begins at `at` ends: the alternatives of `tokenizer.words`, in their order."""
    flags, size = _look(text_Y, at, classes_C)
    follow = at + size
    if flags & HAN:
        return _run(text_Y, follow, end, classes_C, HAN, HAN)
    if flags & LETTER:
        return _run(text_Y, follow, end, classes_C, LETTER | HAN, LETTER)
    beyond = _look(text_Y, follow, classes_C)[0] if follow < end else SPACE
    if not flags & (NUMBER | LINE) and beyond & (LETTER | HAN) == LETTER:
        return _run(text_Y, follow, end, classes_C, LETTER | HAN, LETTER)
    if flags & NUMBER:
        for _ in range(digits - 1):
            if follow == end:
                break
            flags, size = _look(text_Y, follow, classes_C)
            if not flags & NUMBER:
                break
            follow += size
        return follow
    sign = SPACE | LETTER | NUMBER
    if not flags & sign or (text_Y[at] == 0x20 and not beyond & sign):
        follow = _run(text_Y, follow, end, classes_C, sign, np.uint8(0))
        return _run(text_Y, follow, end, classes_C, LINE, LINE)
    # White space: up to its last line end, or up to the character before its last where something follows.
    lines, last, place = -1, at, at
    while place < end:
        flags, size = _look(text_Y, place, classes_C)
        if not flags & SPACE:
            break
        last = place
        place += size
        if flags & LINE:
            lines = place
    if lines >= 0:
        return lines
    return last if place < end and last > at else place


@compiled(inline="always")
def _slot(key, size):  # type: ignore[no-untyped-def]
    mixed = key * _ODD
    return (mixed ^ (mixed >> np.uint64(29))) & np.uint64(size - 1)


@compiled
def _fill(pairs, merges_M3):  # type: ignore[no-untyped-def]
    """Enter the merges: (left id, right id) -> (rank, id). Of a pair that is listed twice the last one counts."""
    size = len(pairs)
    for rank in range(len(merges_M3)):
        key = merges_M3[rank, 0] << np.uint64(32) | merges_M3[rank, 1]
        slot = _slot(key, size)
        while pairs[slot, 0] != _NOTHING and pairs[slot, 0] != key:
            slot = (slot + np.uint64(1)) & np.uint64(size - 1)
        pairs[slot, 0] = key
        pairs[slot, 1] = np.uint64(rank) << np.uint64(32) | merges_M3[rank, 2]


@compiled
def _find(pairs, one, other):  # type: ignore[no-untyped-def]
    """rank << 32 | id of the merge of two tokens, _NOTHING where there is none."""
    key = np.uint64(one) << np.uint64(32) | np.uint64(other)
    size = len(pairs)
    slot = _slot(key, size)
    while True:
        found = pairs[slot, 0]
        if found == key:
            return pairs[slot, 1]
        if found == _NOTHING:
            return _NOTHING
        slot = (slot + np.uint64(1)) & np.uint64(size - 1)


@compiled
def _push(heap, length, value):  # type: ignore[no-untyped-def]
    place = length
    while place > 0:
        above = (place - 1) >> 1
        if heap[above] <= value:
            break
        heap[place] = heap[above]
        place = above
    heap[place] = value
    return length + 1


@compiled
def _pop(heap, length):  # type: ignore[no-untyped-def]
    """Take the smallest away; what is left has the length returned."""
    length -= 1
    value, place = heap[length], 0
    while True:
        below = 2 * place + 1
        if below >= length:
            break
        if below + 1 < length and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= value:
            break
        heap[place] = heap[below]
        place = below
    heap[place] = value
    return length


@compiled
def _merge(text_Y, at, end, byte_ids, pairs, token, before, after, merge, heap, ids_T, count):  # type: ignore[no-untyped-def]
    """Append the tokens of the word text_Y[at:end] to ids_T: of all adjacent pairs the one of the lowest rank, the
    leftmost of equals, becomes one token, until none has a merge. `merge` is what each pair would become; an entry of
    the heap that it contradicts is out of date."""
    size = end - at
    length = 0
    for place in range(size):
        token[place] = byte_ids[text_Y[at + place]]
        before[place], after[place] = place - 1, place + 1
    for place in range(size - 1):
        merge[place] = _find(pairs, token[place], token[place + 1])
        if merge[place] != _NOTHING:
            length = _push(heap, length, merge[place] >> np.uint64(32) << np.uint64(32) | np.uint64(place))
    merge[size - 1] = _NOTHING
    while length:
        top = heap[0]
        length = _pop(heap, length)
        at = np.int64(top & np.uint64(0xFFFFFFFF))
        if merge[at] == _NOTHING or merge[at] >> np.uint64(32) != top >> np.uint64(32):
            continue
        token[at] = np.uint32(merge[at] & np.uint64(0xFFFFFFFF))
        right = after[at]
        merge[right] = _NOTHING
        after[at] = after[right]
        if after[at] < size:
            before[after[at]] = at
            merge[at] = _find(pairs, token[at], token[after[at]])
            if merge[at] != _NOTHING:
                length = _push(heap, length, merge[at] >> np.uint64(32) << np.uint64(32) | np.uint64(at))
        else:
            merge[at] = _NOTHING
        left = before[at]
        if left >= 0:
            merge[left] = _find(pairs, token[left], token[at])
            if merge[left] != _NOTHING:
                length = _push(heap, length, merge[left] >> np.uint64(32) << np.uint64(32) | np.uint64(left))
    place = 0
    while place < size:
        ids_T[count] = token[place]
        count += 1
        place = after[place]
    return count


@compiled(nogil=True)
def _encode(text_Y, border_N, head, tail, digits, classes_C, byte_ids, pairs, words_W2, tokens_W, ids_T, end_N):  # type: ignore[no-untyped-def]
    """Fill `ids_T` and `end_N`; returns how many tokens there are."""
    longest = max(1, np.max(np.diff(border_N))) if len(end_N) else 1
    token = np.empty(longest, np.uint32)
    before, after = np.empty(longest, np.int32), np.empty(longest, np.int32)
    merge, heap = np.empty(longest, np.uint64), np.empty(3 * longest, np.uint64)
    count = 0
    for number in range(len(end_N)):
        at, end = border_N[number], border_N[number + 1]
        if at < end:
            for value in head:
                ids_T[count] = value
                count += 1
        while at < end:
            stop = _word(text_Y, at, end, digits, classes_C)
            size = stop - at
            if size > SHORT:
                count = _merge(text_Y, at, stop, byte_ids, pairs, token, before, after, merge, heap, ids_T, count)
                at = stop
                continue
            low, high = np.uint64(0), np.uint64(size) << np.uint64(56)
            for place in range(min(size, 8)):
                low |= np.uint64(text_Y[at + place]) << np.uint64(8 * place)
            for place in range(8, size):
                high |= np.uint64(text_Y[at + place]) << np.uint64(8 * (place - 8))
            slot = _slot(low ^ (high * _ODD), len(words_W2))
            if words_W2[slot, 0] != low or words_W2[slot, 1] != high:
                first = count
                count = _merge(text_Y, at, stop, byte_ids, pairs, token, before, after, merge, heap, ids_T, count)
                words_W2[slot, 0], words_W2[slot, 1] = low, high
                tokens_W[slot, 0] = count - first
                for place in range(count - first):
                    tokens_W[slot, place + 1] = ids_T[first + place]
            else:
                for place in range(tokens_W[slot, 0]):
                    ids_T[count] = tokens_W[slot, place + 1]
                    count += 1
            at = stop
        if border_N[number] < end:
            for value in tail:
                ids_T[count] = value
                count += 1
        end_N[number] = count
    return count
