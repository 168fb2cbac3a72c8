"""The pass over programs counts what a plain reading counts."""

from __future__ import annotations

import base64
import random

import pytest
from hypothesis import given, settings

from tasks.corpus.codepoints import classes, codepoints
from tasks.corpus.quality import program
from tests.tasks.corpus.quality.texts import PIECES


def counted(text: str) -> dict[str, int]:
    return dict(zip(program.COUNTS, program.scan(codepoints(text), classes()).tolist(), strict=True))


@given(PIECES)
@settings(max_examples=300, deadline=None)
def test_the_pass_counts_what_a_plain_reading_counts(text):
    found = counted(text)
    lines = text.split("\n")
    if text.endswith("\n") or not text:
        lines.pop()
    assert found["characters"] == len(text)
    assert found["lines"] == len(lines)
    assert found["longest"] == max(map(len, lines), default=0)
    assert found["filled_lines"] == sum(bool(line.strip()) for line in lines)
    assert found["letters"] == sum(map(str.isalpha, text))
    assert found["alphanumerics"] == sum(map(str.isalnum, text))
    assert found["blanks"] == sum(map(str.isspace, text))
    assert 0 <= found["encoded"] <= len(text)
    assert found["encoded_longest"] <= found["encoded"]


DATA = base64.b64encode(random.Random(0).randbytes(300)).decode()


@pytest.mark.parametrize(
    ("text", "longest"),
    [
        (f"x = '{DATA}'", len(DATA)),
        (DATA[:63] + " ", 0),
        (DATA[:40] + "\n" + DATA[40:80], 81),
        ("x = [0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a, 0x79, 0x88]", 46),
        ("x = [0x1f, 0x2e, 0x3d, 0x4c, 0x5b, 0x6a, 0x79]", 0),
        (r"b'\x1f\x2e\x3d\x4c\x5b\x6a\x79\x88'", 32),
        (r"'\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587\u4e2d\u6587'", 48),
        ("1f 2e 3d 4c 5b 6a 79 88", 23),
        ("2026 2027 2028 2029 2030 2031 2032 2033", 0),
        ("added faded decade facade beaded", 0),
    ],
)
def test_binary_data_spelled_out_is_found(text, longest):
    assert counted(text)["encoded_longest"] == longest
    assert counted(text)["encoded"] == longest


@pytest.mark.parametrize(
    ("line", "comment"),
    [
        ("# a remark", 1), ("#!/bin/sh", 1), ("#include <stdio.h>", 0), ("// x", 1), ("/* x", 1), (" * x", 1),
        ("*pointer = 1;", 0), ("-- x", 1), ("; x", 1), ("-1", 0), ("x = 1  # y", 0), ("/ 2", 0),
    ],
)  # fmt: skip
def test_comments_are_told_from_programs(line, comment):
    assert counted(line)["comment_lines"] == comment
