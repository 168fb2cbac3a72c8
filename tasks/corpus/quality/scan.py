"""One pass over a text's characters: words, lines, paragraphs, sentences and what they look like."""

from __future__ import annotations

import numpy as np

from model.compiled import compiled
from tasks.corpus.codepoints import DIGIT, HAN, LETTER, PUNCTUATION, SPACE
from tasks.corpus.quality.characters import (
    BULLET,
    CLOSER,
    GARBLED,
    SIMPLIFIED,
    STOP,
    TERMINAL,
    TRADITIONAL,
    WIDE_STOP,
)

COUNTS = (
    "characters", "newlines", "breaks", "words", "lexical_words", "lexical_chars", "alphabetic_words", "hashes",
    "ellipses", "curly_brackets", "sentences", "lines", "bullet_lines", "ellipsis_lines", "punctuated_lines",
    "short_lines", "numeric_lines", "paragraphs", "stop_words", "han", "marks_after_han", "narrow_after_han",
    "garbled", "simplified", "traditional", "separators",
)  # fmt: skip
"""What `scan` counts, in the order of its array."""
(
    CHARACTERS, NEWLINES, BREAKS, WORDS, LEXICAL_WORDS, LEXICAL_CHARS, ALPHABETIC_WORDS, HASHES,
    ELLIPSES, CURLY_BRACKETS, SENTENCES, LINES, BULLET_LINES, ELLIPSIS_LINES, PUNCTUATED_LINES,
    SHORT_LINES, NUMERIC_LINES, PARAGRAPHS, STOP_WORDS, HAN_CHARS, MARKS_AFTER_HAN, NARROW_AFTER_HAN,
    GARBLED_CHARS, SIMPLIFIED_CHARS, TRADITIONAL_CHARS, SEPARATORS,
) = range(len(COUNTS))  # fmt: skip

_BASIS, _PRIME = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_NEWLINE, _HASH, _DOT, _ELLIPSIS = ord("\n"), ord("#"), ord("."), ord("…")
_DASH, _STAR, _EN_DASH = ord("-"), ord("*"), ord("–")
_BRACE, _BAR, _WIDE_BAR, _GUILLEMET, _MIDDLE_DOT = ord("{"), ord("|"), ord("｜"), ord("»"), ord("·")


def word_hash(word: str) -> int:
    """The hash that `scan` gives a word: FNV-1a over its code points."""
    value = int(_BASIS)
    for character in word:
        value = (value ^ ord(character)) * int(_PRIME) & 0xFFFFFFFFFFFFFFFF
    return value


@compiled
def _stop(run, stops):  # type: ignore[no-untyped-def]
    """The bit of the stop word that `run` is, or 0."""
    for number in range(len(stops)):
        if stops[number] == run:
            return np.uint64(1) << np.uint64(number)
    return np.uint64(0)


@compiled
def scan(points, classes, marks, single_han, stops, short):  # type: ignore[no-untyped-def]
    """(counts int64 [COUNTS], words uint64 [W], their lengths int32 [W], lines uint64 [L], their lengths, paragraphs
    uint64 [P], their lengths): hashes of words, of stripped lines that are not blank, of paragraphs.

    Args:
        points: uint32 [characters].
        classes: `codepoints.classes()`.
        marks: `characters.marks()`.
        single_han: words are single Han characters and runs of letters and digits; otherwise what white space parts.
        stops: uint64, at most 64: `word_hash` of the stop words, in lower case.
        short: lines of at most so many characters are short.
    """
    size = len(points)
    counts = np.zeros(len(COUNTS), np.int64)
    words = np.empty(size if single_han else size // 2 + 1, np.uint64)
    word_lengths = np.empty(len(words), np.int32)
    lines = np.empty(size // 2 + 1, np.uint64)
    line_lengths = np.empty(len(lines), np.int32)
    paragraphs = np.empty(size // 2 + 1, np.uint64)
    paragraph_lengths = np.empty(len(paragraphs), np.int32)
    n_words, n_lines, n_paragraphs = 0, 0, 0
    # the word
    inside, word, length, letter, lexical = False, _BASIS, 0, False, False
    # the run of letters within it, in lower case, which a stop word is
    run, run_length, seen = _BASIS, 0, np.uint64(0)
    # the line: its hash to here and to its last visible character
    line, solid, first, last, line_letters, line_digits = _BASIS, _BASIS, -1, -1, False, False
    # the paragraph, and whether a sentence may end here
    paragraph, paragraph_first, paragraph_last = _BASIS, -1, -1
    stopped, dots, after_han = False, 0, False
    # whether only the # of a heading may have stood in the line, and how many: a blank or the line's end must follow
    heading, marks_of_heading = True, 0

    for at in range(size + 1):
        point = points[at] if at < size else np.uint32(_NEWLINE)
        kind = classes[point]
        mark = marks[point]
        space = kind & SPACE != 0
        # words and the runs of letters within them
        alone = single_han and kind & HAN != 0
        if kind & LETTER and not alone:
            lower = point | np.uint32(32) if point < 128 else point
            run = (run ^ np.uint64(lower)) * _PRIME
            run_length += 1
        elif run_length:
            seen |= _stop(run, stops)
            run, run_length = _BASIS, 0
        if alone:
            seen |= _stop((_BASIS ^ np.uint64(point)) * _PRIME, stops)
        ends = space or alone or (single_han and kind & (LETTER | DIGIT) == 0)
        if ends and inside:
            words[n_words] = word
            word_lengths[n_words] = length
            n_words += 1
            if letter:
                counts[ALPHABETIC_WORDS] += 1
            if lexical:
                counts[LEXICAL_WORDS] += 1
                counts[LEXICAL_CHARS] += length
            inside, word, length, letter, lexical = False, _BASIS, 0, False, False
        if alone:
            words[n_words] = (_BASIS ^ np.uint64(point)) * _PRIME
            word_lengths[n_words] = 1
            n_words += 1
            counts[ALPHABETIC_WORDS] += 1
            counts[LEXICAL_WORDS] += 1
            counts[LEXICAL_CHARS] += 1
        elif not ends:
            inside = True
            word = (word ^ np.uint64(point)) * _PRIME
            length += 1
            letter = letter or kind & LETTER != 0
            lexical = lexical or kind & (LETTER | DIGIT) != 0
        # sentences
        if mark & WIDE_STOP:
            counts[SENTENCES] += 1
            stopped = False
        elif mark & STOP:
            stopped = True
        elif space:
            if stopped:
                counts[SENTENCES] += 1
            stopped = False
        elif not mark & CLOSER:
            stopped = False
        # signs
        dots = dots + 1 if point == _DOT else 0
        if dots == 3:
            counts[ELLIPSES] += 1
            dots = 0
        elif point == _ELLIPSIS:
            counts[ELLIPSES] += 1
        elif point == _BRACE:
            counts[CURLY_BRACKETS] += 1
        elif point in (_BAR, _WIDE_BAR, _GUILLEMET, _MIDDLE_DOT):
            counts[SEPARATORS] += 1
        elif point == _HASH:
            counts[HASHES] += not heading
            marks_of_heading += heading
        if heading and not space and point != _HASH:
            counts[HASHES] += marks_of_heading
        heading = heading and (point == _HASH or (space and first < 0))
        if kind & HAN:
            counts[HAN_CHARS] += 1
            counts[SIMPLIFIED_CHARS] += mark & SIMPLIFIED != 0
            counts[TRADITIONAL_CHARS] += mark & TRADITIONAL != 0
        elif after_han and kind & PUNCTUATION:
            counts[MARKS_AFTER_HAN] += 1
            counts[NARROW_AFTER_HAN] += point == 44 or point == 46 or point == 33 or point == 63 or point == 59
        after_han = kind & HAN != 0
        counts[GARBLED_CHARS] += mark & GARBLED != 0
        # lines
        if point == _NEWLINE:
            if at < size:
                counts[NEWLINES] += 1
            if first < 0:
                if paragraph_first >= 0:
                    paragraphs[n_paragraphs] = paragraph
                    paragraph_lengths[n_paragraphs] = paragraph_last - paragraph_first + 1
                    n_paragraphs += 1
                    paragraph, paragraph_first = _BASIS, -1
            else:
                lines[n_lines] = solid
                line_lengths[n_lines] = last - first + 1
                n_lines += 1
                paragraph = (paragraph ^ solid) * _PRIME
                if paragraph_first < 0:
                    paragraph_first = first
                paragraph_last = last
                head, tail = points[first], points[last]
                listed = head in (_DASH, _STAR, _EN_DASH)
                if marks[head] & BULLET or (listed and first < last and classes[points[first + 1]] & SPACE):
                    counts[BULLET_LINES] += 1
                if tail == _ELLIPSIS or (
                    tail == _DOT and last - first >= 2 and points[last - 1] == _DOT and points[last - 2] == _DOT
                ):
                    counts[ELLIPSIS_LINES] += 1
                counts[PUNCTUATED_LINES] += marks[tail] & TERMINAL != 0
                counts[SHORT_LINES] += last - first + 1 <= short
                counts[NUMERIC_LINES] += line_digits and not line_letters
            line, solid, first, last, line_letters, line_digits = _BASIS, _BASIS, -1, -1, False, False
            heading, marks_of_heading = True, 0
        else:
            if not space:
                if first < 0:
                    first = at
                last = at
                line_letters = line_letters or kind & LETTER != 0
                line_digits = line_digits or kind & DIGIT != 0
            if first >= 0:
                line = (line ^ np.uint64(point)) * _PRIME
                if not space:
                    solid = line
    if paragraph_first >= 0:
        paragraphs[n_paragraphs] = paragraph
        paragraph_lengths[n_paragraphs] = paragraph_last - paragraph_first + 1
        n_paragraphs += 1
    while seen:
        counts[STOP_WORDS] += np.int64(seen & np.uint64(1))
        seen >>= np.uint64(1)
    counts[CHARACTERS], counts[WORDS], counts[LINES], counts[PARAGRAPHS] = size, n_words, n_lines, n_paragraphs
    counts[BREAKS] = max(n_lines - 1, 0)
    return (
        counts, words[:n_words], word_lengths[:n_words], lines[:n_lines], line_lengths[:n_lines],
        paragraphs[:n_paragraphs], paragraph_lengths[:n_paragraphs],
    )  # fmt: skip
