"""Formulas are found by their delimiters, and broken ones are told from whole ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tasks.corpus.codepoints import classes, codepoints
from tasks.corpus.quality import formulas
from tests.tasks.corpus.quality.texts import PIECES


def counted(text: str) -> dict[str, int]:
    return dict(zip(formulas.COUNTS, formulas.scan(codepoints(text), classes()).tolist(), strict=True))


@pytest.mark.parametrize(
    ("text", "found", "broken", "inside"),
    [
        ("Let $x^2$ be", 1, 0, 5),
        ("Let $$x^2$$ be", 1, 0, 7),
        (r"Let \(x\) and \[y\] be", 2, 0, 10),
        ("$x_{1$ is", 1, 1, 6),
        ("$x}{$ is", 1, 1, 5),
        ("Let $x be\n\nand $y$", 2, 1, 3),
        (r"Let \(x be", 1, 1, 0),
        ("$$x = 1\n\nend", 1, 1, 0),
        ("It costs $5 or so", 0, 0, 0),
        (r"A \$ sign and \\(x", 0, 0, 0),
        ("$x$ and $y$", 2, 0, 6),
        ("the sign `$x` and `f(x)$`, and $y$", 1, 0, 3),
        ("a ` alone\nand $y$", 1, 0, 3),
        ("", 0, 0, 0),
    ],
)
def test_formulas(text, found, broken, inside):
    counts = counted(text)
    assert (counts["formulas"], counts["broken"], counts["in_formulas"]) == (found, broken, inside)


@pytest.mark.parametrize(
    ("word", "garbled"),
    [
        ("x1y2z3", 1),
        ("a+b=c*d", 1),
        ("co-operation's", 0),
        ("x_1", 0),
        ("src/main.py:12", 0),
        ("word", 0),
        ("2026-11-21", 0),
    ],
)
def test_garbled_words_go_to_and_fro(word, garbled):
    assert counted(f"the {word} end")["garbled_words"] == garbled
    assert counted(f"the ${word}$ end")["garbled_words"] == 0


@given(PIECES)
@settings(max_examples=300, deadline=None)
def test_counts_are_within_their_bounds(text):
    counts = counted(text)
    assert counts["visible"] == sum(not character.isspace() for character in text)
    assert 0 <= counts["in_formulas"] <= counts["visible"]
    assert counts["broken"] <= counts["formulas"]
    assert counts["garbled_words"] <= counts["words"]
