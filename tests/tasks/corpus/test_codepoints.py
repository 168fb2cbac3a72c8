"""The kernels give what regular expressions and plain Python give, for any text whatever."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.corpus import codepoints as kernels
from tasks.corpus.codepoints import DIGIT, HAN, LETTER, LOWER, NEWLINE, PUNCTUATION, SPACE, UPPER, WORD
from tests.linear import assert_linear

REGEX = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff]|[^\W_\u3400-\u4dbf\u4e00-\u9fff]+")
ODD = st.sampled_from(
    "İıΣσςſẞßKÅǅ一中龥㐀〇々。_\u0307\u0345\u00ad٣²½\ud800\udfff\U0001d400\U00010400\U00020000\0 \n\x85"
)
TEXTS = st.text(st.one_of(ODD, st.characters(), st.sampled_from("abzAZ09 .,-")), max_size=60)
ROOM = 1 << 64
# The first call compiles, hence no deadlines.


def mixed(value: int) -> int:
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value = (value ^ value >> 33) * factor % ROOM
    return value ^ value >> 33


def hashed(word: str) -> int:
    value = 0xCBF29CE484222325
    for char in word:
        value = (value ^ ord(char)) * 0x100000001B3 % ROOM
    return mixed(value)


@given(st.lists(TEXTS, max_size=5))
@example(["ΑΣ", "ΑΣΑ Σ İΣ", "ΣİΣ.Σ", "Iİ_İİ", "中İ文Σ"])
@settings(max_examples=400, deadline=None)
def test_tokens_are_those_of_the_regular_expression(texts):
    expected = [[hashed(word) for word in REGEX.findall(text.lower())] for text in texts]
    hashes, starts = kernels.token_hashes(texts)
    assert [hashes[starts[at] : starts[at + 1]].tolist() for at in range(len(texts))] == expected
    assert starts[-1] == len(hashes)


@pytest.mark.parametrize("first", range(0, kernels.CODE_POINTS, 0x10000))
def test_every_code_point_is_read_as_the_regular_expression_reads_it(first):
    texts = [f"a{chr(point)}B" for point in range(first, first + 0x10000, 1 if first < 0x20000 else 7)]
    hashes, starts = kernels.token_hashes(texts)
    words = [REGEX.findall(text.lower()) for text in texts]
    assert np.diff(starts).tolist() == [len(found) for found in words]
    sample = range(0, len(texts), 11)
    assert [hashes[starts[at] : starts[at + 1]].tolist() for at in sample] == [
        [hashed(word) for word in words[at]] for at in sample
    ]


@given(TEXTS)
@settings(deadline=None)
def test_places_are_those_of_the_regular_expression(text):
    found = kernels.tokens([text])
    if "İ" not in text:  # which grows by a character in lower case
        spans = [match.span() for match in REGEX.finditer(text.lower())]
        assert list(zip(found.begins.tolist(), found.ends.tolist(), strict=True)) == spans
    assert len(found.begins) == len(found.ends) == len(found.hashes)
    borders = np.stack([found.begins, found.ends], 1).reshape(-1)
    assert (np.diff(borders) >= 0).all()
    assert not len(borders) or borders[-1] <= len(text)


@given(st.lists(TEXTS, max_size=4), st.integers(1, 7), st.booleans())
@settings(deadline=None)
def test_rolling_hashes_are_those_of_each_run(texts, n, short):
    hashes, starts = kernels.token_hashes(texts)
    windows, borders = kernels.rolling(hashes, starts, n, short)
    for at in range(len(texts)):
        words = hashes[starts[at] : starts[at + 1]].tolist()
        runs = [words[first : first + n] for first in range(len(words) - n + 1)]
        if short and words and not runs:
            runs = [words]
        expected = []
        for run in runs:
            value = 0
            for word in run:
                value = (value * 0x9E3779B97F4A7C15 + word) % ROOM
            expected.append(mixed(value))
        assert windows[borders[at] : borders[at + 1]].tolist() == expected
    assert borders[-1] == len(windows)


def test_rolling_refuses_runs_of_nothing():
    with pytest.raises(ValueError, match="at least 1"):
        kernels.rolling(*kernels.token_hashes(["a b"]), 0)


@given(TEXTS)
@settings(deadline=None)
def test_codepoints_are_the_characters(text):
    assert kernels.codepoints(text).tolist() == [ord(char) for char in text]


@given(st.one_of(ODD, st.characters(), st.integers(0, 0x2FFF).map(chr)))
@settings(deadline=None)
def test_classes_are_those_of_python(char):
    flags = int(kernels.classes()[ord(char)])
    alphanumeric = char.isalnum()
    assert bool(flags & WORD) == alphanumeric
    assert bool(flags & LETTER) == char.isalpha()
    assert bool(flags & DIGIT) == (alphanumeric and not char.isalpha())
    assert bool(flags & UPPER) == (alphanumeric and char.isupper())
    assert bool(flags & LOWER) == (alphanumeric and char.islower())
    assert bool(flags & SPACE) == char.isspace()
    assert bool(flags & NEWLINE) == (len(f"a{char}b".splitlines()) == 2)
    assert bool(flags & HAN) == bool(re.match(r"[\u3400-\u4dbf\u4e00-\u9fff]", char))
    symbol = char.isascii() and char.isprintable() and not alphanumeric and not char.isspace()
    assert bool(flags & PUNCTUATION) == (unicodedata.category(char)[0] == "P" or symbol)


def test_hostile_texts_take_linear_time():
    def work(text: str) -> None:
        hashes, starts = kernels.token_hashes([text])
        kernels.rolling(hashes, starts, 50)

    work("compiled")
    for unit in ("Σ", "İ", "a", " ", "中", "Σİ"):
        assert_linear(lambda size, unit=unit: work(unit * size), 100_000)
