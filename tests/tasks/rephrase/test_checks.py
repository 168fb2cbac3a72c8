"""Every check with what it must refuse and what it must let through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment import answer, formulas, joints, literals, numbers, stack, talk
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.talk import clean
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import CORRUPTIONS, EXTRA_NEGATIONS, PARAPHRASES

CONFIG = AlignmentConfig()


def failed(pair: Pair) -> list[str]:
    return [verdict.check for check in stack.CHECKS if not (verdict := check(pair, CONFIG)).passed]


@pytest.mark.parametrize("number", range(len(PARAPHRASES)))
def test_true_paraphrases_pass_every_cheap_check(number: int) -> None:
    expected = ["negations"] if number in EXTRA_NEGATIONS else []
    assert failed(Pair(*PARAPHRASES[number])) == expected


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
    assert {"refusal", "chatter", "markup"} & set(failed(Pair(PARAPHRASES[0][0], answer)))


def test_a_source_that_speaks_of_refusals_may_be_rewritten() -> None:
    source = "The chatbot answers: I'm sorry, I cannot help. As an AI it has limits."
    assert talk.refusal(Pair(source, source), CONFIG).passed


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
    ("source", "rewrite", "passes"),
    [
        ("It has three parts.", "There are 3 parts in it.", False),  # the gate reads digits: 3 is new to it
        ("It has 3 parts.", "It is made of three parts.", True),
        ("It has three parts.", "It is made of five parts.", False),
        ("1,234 users in 1999", "In 1999 there were 1234 users", True),
        ("About 25 % of it", "About 25 percent of it", True),
        ("It weighs 5 kg.", "Its weight is 5 g.", False),
        ("1. Open it.\n2. Close it.", "First open it, then close it.", True),
        ("It took 3.5 seconds.", "It took 3.6 seconds.", False),
        ("Version 2.0 came out.", "Version 2.0 was published in 2004.", False),
    ],
)
def test_numbers(source: str, rewrite: str, passes: bool) -> None:
    assert numbers.numbers(Pair(source, rewrite), CONFIG).passed is passes


@given(st.integers(10, 10**9), st.integers(10, 10**9))
def test_any_other_number_is_refused(one: int, other: int) -> None:
    verdict = numbers.numbers(Pair(f"There were {one:,} of them.", f"One counted {other} of them."), CONFIG)
    assert verdict.passed == (one == other)


def test_formulas() -> None:
    source = "For $x > 0$ we have \\[ f(x) = x^2 + 1 \\] and E = mc^2 holds."
    assert formulas.formulas(Pair(source, "If $x>0$ then $f(x) = x^2+1$, and E = mc^2 is true."), CONFIG).passed
    assert not formulas.formulas(Pair(source, "If $x>0$ then $f(x) = x^3+1$, and E = mc^2."), CONFIG).passed
    assert not formulas.formulas(Pair(source, "If $x>0$ then $f(x) = x^2+1$, and E = mc^3."), CONFIG).passed
    more = Pair(source, "If $x>0$ then $f(x) = x^2+1$, so $f(x) > 1$, and E = mc^2.")
    assert not formulas.formulas(more, CONFIG).passed
    assert formulas.formulas(Pair(more.source, more.rewrite, adds=True), CONFIG).passed


@pytest.mark.parametrize(
    ("source", "rewrite", "passes"),
    [
        ("Call `f(x)` with max_size set.", "With max_size set, `f(x)` is called.", True),
        ("Call `f(x)` with max_size set.", "With min_size set, `f(x)` is called.", False),
        ("Run it with --verbose.", "Use --verbose when you run it.", True),
        ("Run it with --verbose.", "Use --quiet when you run it.", False),
        ("Use os.path.join here.", "Here os.path.join is of use.", True),
        ("Write to a@b.org.", "Send a mail to c@b.org.", False),
        ("A plain sentence.", "A sentence with `invented_code`.", False),
    ],
)
def test_code(source: str, rewrite: str, passes: bool) -> None:
    assert literals.code(Pair(source, rewrite), CONFIG).passed is passes


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("Here is the rewritten text:\n\nThe cat sat.", "The cat sat."),
        ("Sure! Here's a formal version:\nThe cat sat.", "The cat sat."),
        ('"The cat sat."', "The cat sat."),
        ('"A" and "B"', '"A" and "B"'),
        ("The rewritten rules: two of them.", "The rewritten rules: two of them."),
        ("改写后的文本：猫坐着。", "猫坐着。"),
    ],
)
def test_announcements_and_quotes_come_off(answer: str, text: str) -> None:
    assert clean(answer) == text


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_breaks_a_check(source: str, rewrite: str) -> None:
    for check in stack.CHECKS:
        verdict = check(Pair(source, talk.clean(rewrite)), CONFIG)
        assert verdict.passed == (verdict.why == "")
