"""Every check with what it must refuse and what it must let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment import answer, joints, stack
from tasks.rephrase.alignment.answer import clean
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import CORRUPTIONS, PARAPHRASES

CONFIG = AlignmentConfig()


def failed(pair: Pair) -> list[str]:
    return [verdict.check for check in stack.CHECKS if not (verdict := check(pair, CONFIG)).passed]


@pytest.mark.parametrize("number", range(len(PARAPHRASES)))
def test_true_paraphrases_pass_every_cheap_check(number: int) -> None:
    assert failed(Pair(*PARAPHRASES[number])) == []


@pytest.mark.parametrize(("kind", "number", "old", "new", "check"), CORRUPTIONS)
def test_a_corruption_is_refused_by_its_check(kind: str, number: int, old: str, new: str, check: str) -> None:
    source, paraphrase = PARAPHRASES[number]
    assert old in paraphrase, "the corruption must change something"
    assert check in failed(Pair(source, paraphrase.replace(old, new)))


@pytest.mark.parametrize("number", range(len(PARAPHRASES)))
def test_a_copy_is_no_rewrite(number: int) -> None:
    source = PARAPHRASES[number][0]
    assert "copied" in failed(Pair(source, source))
    assert "copied" in failed(Pair(source, source.replace(" is ", " was ", 1)))


def test_copies_count_whatever_the_case_and_the_line_breaks() -> None:
    source = PARAPHRASES[0][0]
    assert answer.copy_share(source, source.upper().replace(" ", "\n")) == 1.0
    assert answer.copy_share(source, PARAPHRASES[0][1]) < 0.3


def test_what_must_stay_as_it_is_counts_as_no_copy() -> None:
    formula = r"$x = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}$"
    assert answer.copied(Pair(f"The roots are {formula}.", f"One finds as its roots {formula}."), CONFIG).passed


@pytest.mark.parametrize(
    "answer",
    [
        "I'm sorry, but I can't rewrite this text.",
        "As an AI language model, I have no opinion about the text.",
        "Here is the thing: the rewritten text keeps all facts.",
        "A scope is a region. I have rewritten the text to be more concise.",
        "<part>A scope is a region.</part>",
        "很抱歉，我不能改写这段文字。",
    ],
)
def test_refusals_and_talk_about_the_task(answer: str) -> None:
    assert "talk" in failed(Pair(PARAPHRASES[0][0], answer))


def test_a_source_that_speaks_of_refusals_may_be_rewritten() -> None:
    source = "The chatbot answers: I'm sorry, I cannot help. As an AI it has limits."
    assert answer.talk(Pair(source, source), CONFIG).passed


@pytest.mark.parametrize(
    "loop",
    [
        "It runs from the declaration to the end of the block. " * 6,
        "the scope of the scope of the scope of the scope of the scope of the scope of the scope of the scope of",
        "标识符的作用域是程序的一个区域。" * 4,
    ],
)
def test_loops(loop: str) -> None:
    assert "repetition" in failed(Pair(PARAPHRASES[0][0], loop))


def test_a_source_that_repeats_itself_may_do_so_again() -> None:
    chant = "Row, row, row your boat, gently down the stream. " * 3
    assert answer.repetition(Pair(chant, chant), CONFIG).passed


def test_empty_and_cut_answers() -> None:
    source = PARAPHRASES[0][0]
    assert not answer.finished(Pair(source, "  \n"), CONFIG).passed
    assert not answer.finished(Pair(source, PARAPHRASES[0][1], finish="length"), CONFIG).passed


def test_length_band_and_the_styles_own() -> None:
    pair = Pair("a" * 100, "b" * 200)
    assert not answer.length(pair, CONFIG).passed
    assert answer.length(Pair("a" * 100, "b" * 200, length=(0.5, 2.2)), CONFIG).passed
    assert answer.length(pair, CONFIG).score == 2.0


def test_seam() -> None:
    before = PARAPHRASES[1][1]
    assert not joints.seam(Pair("New text.", before, before=before), CONFIG).passed
    assert joints.seam(Pair("New text.", PARAPHRASES[0][1], before=before), CONFIG).passed


def test_language() -> None:
    english, chinese = PARAPHRASES[0][0], PARAPHRASES[7][0]
    german = (
        "Der Gültigkeitsbereich eines Bezeichners ist jener Teil eines Programms, worin er für etwas Bestimmtes steht. "
        "Meist reicht er von seiner Vereinbarung bis ans Ende des kleinsten umgebenden Blocks, wie ALGOL 60 es 1958 "
        "eingeführt hat."
    )
    assert not answer.language(Pair(english, chinese), CONFIG).passed
    assert not answer.language(Pair(chinese, english), CONFIG).passed
    assert not answer.language(Pair(english, german), CONFIG).passed
    assert answer.language(Pair(chinese, PARAPHRASES[7][1]), CONFIG).passed


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Here is the rewritten text:\n\nThe cat sat.", "The cat sat."),
        ("Sure! Here's a formal version:\nThe cat sat.", "The cat sat."),
        ('"The cat sat."', "The cat sat."),
        ('"A" and "B"', '"A" and "B"'),
        ("The rewritten rules: two of them.", "The rewritten rules: two of them."),
        ("改写后的文本：猫坐着。", "猫坐着。"),
        (r'{"rewriting": "Half \ud83d of it."}', "Half \ufffd of it."),
    ],
)
def test_announcements_and_quotes_come_off(answer: str, text: str) -> None:
    assert clean(answer) == text


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_breaks_a_check(source: str, rewrite: str) -> None:
    for check in stack.CHECKS:
        verdict = check(Pair(source, clean(rewrite)), CONFIG)
        assert verdict.passed == (verdict.why == "")
