"""The pass over prose counts what a plain reading counts."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given, settings

from tasks.corpus.codepoints import HAN, PUNCTUATION, SPACE, classes, codepoints
from tasks.corpus.quality import measures, scan
from tasks.corpus.quality.characters import GARBLED, SIMPLIFIED, TERMINAL, TRADITIONAL, marks
from tests.tasks.corpus.quality.texts import PIECES

SHORT = 12
SPACES = "".join(chr(point) for point in np.flatnonzero(classes() & SPACE))


def flagged(flag: int, text: str) -> int:
    return sum(bool(marks()[ord(character)] & flag) for character in text)


def is_han(character: str) -> bool:
    return bool(classes()[ord(character)] & HAN)


def is_lexical(character: str) -> bool:
    return character.isalnum()


def read(text: str, single_han: bool) -> dict[str, int]:
    """Everything that `scan` counts, the slow way."""
    lines = [line for line in (line.strip(SPACES) for line in text.split("\n")) if line]
    if single_han:
        found = re.findall(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+", text)
    else:
        found = [word for word in re.split(f"[{re.escape(SPACES)}]+", text) if word]
    lexical = [word for word in found if any(map(is_lexical, word))]
    runs = re.findall(r"[^\W\d_]+", "".join(c if c.isalpha() else " " for c in text))
    if single_han:
        runs = [
            part
            for run in runs
            for part in re.findall(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\u3400-\u4dbf\u4e00-\u9fff]+", run)
        ]
    lower = {"".join(c.lower() if c.isascii() else c for c in run) for run in runs}
    stops = measures.CHINESE_STOP_WORDS if single_han else measures.STOP_WORDS
    after = [b for a, b in itertools.pairwise(text) if is_han(a) and not is_han(b)]
    after = [b for b in after if classes()[ord(b)] & PUNCTUATION]
    bullets = [
        line for line in lines if line[0] in "•●○■◦‣⁃▪·∙" or (line[0] in "-*–" and len(line) > 1 and line[1] in SPACES)
    ]
    return {
        "characters": len(text),
        "newlines": text.count("\n"),
        "breaks": max(len(lines) - 1, 0),
        "words": len(found),
        "lexical_words": len(lexical),
        "lexical_chars": sum(map(len, lexical)),
        "alphabetic_words": sum(any(map(str.isalpha, word)) for word in found),
        "hashes": sum(re.sub(rf"\A#+(?=[{re.escape(SPACES)}]|\Z)", "", line).count("#") for line in lines),
        "ellipses": text.count("...") + text.count("…"),
        "curly_brackets": text.count("{"),
        "sentences": len(
            re.findall(
                rf"[.!?][\"'”’)\]）」』》.!?]*(?<=[.!?\"'”’)\]）」』》])(?=[{re.escape(SPACES)}]|\Z)|[。！？]", text
            )
        ),
        "lines": len(lines),
        "bullet_lines": len(bullets),
        "ellipsis_lines": sum(line.endswith(("...", "…")) for line in lines),
        "punctuated_lines": sum(flagged(TERMINAL, line[-1]) for line in lines),
        "short_lines": sum(len(line) <= SHORT for line in lines),
        "numeric_lines": sum(
            any(is_lexical(c) and not c.isalpha() for c in line) and not any(map(str.isalpha, line)) for line in lines
        ),
        "paragraphs": len([part for part in re.split(rf"\n[{re.escape(SPACES)}]*\n", text) if part.strip(SPACES)]),
        "stop_words": len(stops & lower),
        "han": sum(map(is_han, text)),
        "marks_after_han": len(after),
        "narrow_after_han": sum(b in ",.!?;" for b in after),
        "garbled": flagged(GARBLED, text),
        "simplified": flagged(SIMPLIFIED, text),
        "traditional": flagged(TRADITIONAL, text),
        "separators": sum(map(text.count, "|｜»·")),
    }


def counted(text: str, single_han: bool) -> dict[str, int]:
    stops = measures._stops(single_han)
    counts = scan.scan(codepoints(text), classes(), marks(), single_han, stops, SHORT)[0]
    return dict(zip(scan.COUNTS, counts.tolist(), strict=True))


@given(PIECES)
@settings(max_examples=400, deadline=None)
@pytest.mark.parametrize("single_han", [False, True])
def test_the_pass_counts_what_a_plain_reading_counts(single_han, text):
    assert counted(text, single_han) == read(text, single_han)


@given(PIECES)
@settings(max_examples=200, deadline=None)
def test_hashes_tell_words_lines_and_paragraphs_apart(text):
    found = scan.scan(codepoints(text), classes(), marks(), False, measures._stops(False), SHORT)
    words = [word for word in re.split(f"[{re.escape(SPACES)}]+", text) if word]
    assert found[1].tolist() == [scan.word_hash(word) for word in words]
    assert found[2].tolist() == [len(word) for word in words]
    lines = [line for line in (line.strip(SPACES) for line in text.split("\n")) if line]
    assert found[4].tolist() == [len(line) for line in lines]
    equal = found[3][:, None] == found[3][None, :]
    assert equal.tolist() == [[a == b for b in lines] for a in lines]


def test_a_capital_and_a_comma_hide_no_stop_word():
    assert counted("The end, of, (and) with. That BE", False)["stop_words"] == 6


def test_every_writing_is_known_by_its_characters():
    assert flagged(SIMPLIFIED, "国学") == 2
    assert flagged(TRADITIONAL, "國學") == 2
    assert flagged(SIMPLIFIED | TRADITIONAL, "中文人") == 0
