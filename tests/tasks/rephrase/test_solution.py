"""Learning notes: navigation may go, the final answer must stand."""

from __future__ import annotations

import pytest

from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.solution import answer, essential, final_answer
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("So we have $x = 3$ and \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"),
        ("We add them. Answer: 42 apples.", "42 apples"),
        ("**Answer:** $x = 7$", "x = 7"),
        ("解：由 $2x=8$ 得 $x=4$。答案：$x=4$。", "x=4"),
        ("Solution. From $2x = 8$ we get $x = 8/2 = 4$.", "4"),
        ("Therefore \\[ a^2 + b^2 = c^2 \\]", "c^2"),
        ("Therefore \\begin{equation*} x = 3 \\end{equation*}", "3"),
        ("Let $G$ be a group of order $p$.", ""),
        ("No formula at all.", ""),
        ("\\boxed{ never closed", ""),
    ],
)
def test_the_answer_is_found(text: str, wanted: str) -> None:
    assert final_answer(text).strip() == wanted


@pytest.mark.parametrize(
    ("source", "note", "passes"),
    [
        ("Hence \\boxed{\\frac{1}{2}}.", "The result is $\\dfrac{1}{2}$.", True),
        ("Hence \\boxed{\\frac{1}{2}}.", "The result is a half.", False),
        ("Solution: thus $x = 4$.", "Dividing by two leaves $x = 4$.", True),
        ("Solution: thus $x = 4$.", "Dividing by two leaves $x = 5$.", False),
        ("Solution: thus $x = 4$.", "So $x = 4$, and \\boxed{7}.", False),
        ("Answer: 42 apples.", "There are **42 apples** in the end.", True),
        ("Let $G$ be a group.", "A group $G$.", True),
    ],
)
def test_a_note_keeps_it(source: str, note: str, passes: bool) -> None:
    verdict = answer(Pair(source, note, notes=True), CONFIG)
    assert verdict.passed is passes
    assert passes == (verdict.why == "")
    assert answer(Pair(source, note), CONFIG).passed


def test_navigation_goes_and_mathematics_stays() -> None:
    page = (
        "Home | Exercises | Log in\nProblem. Solve $2x = 8$.\nShare this on X\nSolution: $x = 4$.\nPage 3 of 10\n"
        "Copyright 2019 by somebody\n下一页\nNext: the integral of $f$ is the next topic."
    )
    assert (
        essential(page) == "Problem. Solve $2x = 8$.\nSolution: $x = 4$.\nNext: the integral of $f$ is the next topic."
    )
    assert essential("Home\nMenu") == "Home\nMenu"
    assert essential("Home " + "- / " * 1000 + "x.y") == "Home " + "- / " * 1000 + "x.y"
