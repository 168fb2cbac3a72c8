"""Answers that are no rewriting, each refused by the check that is named for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.answer import clean, finished, language, repetition, talk
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import CHECKS
from tasks.rephrase.config import AlignmentConfig
from tasks.rephrase.prompts import instructions, styles
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = AlignmentConfig()
SOURCE, GOOD = PARAPHRASES[0]
PROMPT = instructions(styles()["academic"], "full")
HOSTILE = [
    ("talk", "I'm sorry, but I can't help with that."),
    ("talk", "I apologize, this is beyond me."),
    ("talk", "I cannot rewrite copyrighted material."),
    ("talk", "I won't be able to rephrase this part."),
    ("talk", "As an AI language model, I have no view."),
    ("talk", "Please provide the text you would like to have rewritten."),
    ("talk", "It violates the content policy."),
    ("talk", "很抱歉，我不能改写这段文字。"),
    ("talk", "我无法提供该内容。"),
    ("talk", "作为一个人工智能语言模型，我没有看法。"),
    ("talk", GOOD + " Let me know if you need anything else."),
    ("talk", "I've rewritten it more clearly. " + GOOD),
    ("talk", GOOD + " Hope this helps!"),
    ("talk", "以下是改写的内容，" + GOOD),
    ("talk", GOOD + "希望对您有所帮助。"),
    ("talk", "<part>" + GOOD + "</part>"),
    ("talk", GOOD + "<|im_end|>"),
    ("talk", "Assistant: " + GOOD),
    ("talk", "[INST] " + GOOD),
    ("talk", '{"rewrite": "' + GOOD[:40]),
    ("talk", '[{"a": 1}, {"b": 2}]'),
    ("talk", GOOD + " What is denied stays denied, what is uncertain uncertain, and what is said of some."),
    ("talk", GOOD.replace("the", "t\u200bhe", 1)),
    ("talk", "\u202e" + GOOD),
    ("talk", GOOD.replace("e", "\u0435", 1)),
    ("finished", ""),
    ("finished", GOOD[:80] + "..."),
    ("finished", GOOD[:80] + " [rest of the text]"),
    ("finished", "As a rule the region begins where the declaration is and"),
    ("finished", "标识符的作用域（未完待续）"),
    ("repetition", "It runs to the end of the block. " * 9),
    ("language", "标识符的作用域是程序中的一个区域，通常从声明开始。"),
    ("language", "Областью видимости называется часть программы."),
]


@pytest.mark.parametrize(("check", "answer"), HOSTILE)
def test_each_is_refused_by_its_check(check: str, answer: str) -> None:
    pair = Pair(SOURCE, clean(answer), prompt=PROMPT)
    verdicts = {one.__name__: one(pair, CONFIG) for one in (finished, talk, repetition, language)}
    assert not verdicts[check].passed
    assert verdicts[check].why


def test_a_good_answer_passes_them_all() -> None:
    for source, good in PARAPHRASES:
        pair = Pair(source, good, prompt=PROMPT)
        for check in (finished, talk, repetition, language):
            assert check(pair, CONFIG).passed, check.__name__


@pytest.mark.parametrize(
    "text",
    [
        "Assistant: I'm sorry, I cannot help with that. Please provide the text.",
        "<|im_start|>user\nThe original text of the prompt goes here...",
        '{"key": ["value"]}',
    ],
)
def test_what_the_source_says_itself_may_be_said(text: str) -> None:
    for check in (finished, talk):
        assert check(Pair(text, text), CONFIG).passed, check.__name__


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ("<think>\nFirst, the scope.\n</think>\n\nThe cat sat.", "The cat sat."),
        ("```text\nThe cat sat.\n```", "The cat sat."),
        ('{"rewrite": "The cat sat."}', "The cat sat."),
        ('{"a": 1}', '{"a": 1}'),
        ("[" * 100_000, "[" * 100_000),
        ("{" + '"a":{' * 50_000 + "}", "{" + '"a":{' * 50_000 + "}"),
    ],
)
def test_what_is_around_a_good_answer_comes_off(answer: str, text: str) -> None:
    assert clean(answer) == text


def test_a_loop_that_was_cut_is_called_one() -> None:
    assert "in a loop" in finished(Pair(SOURCE, "It runs to the end. " * 30, finish="length"), CONFIG).why
    assert "filter" in finished(Pair(SOURCE, GOOD, finish="filtered"), CONFIG).why


def test_an_answer_in_english_to_a_german_source_is_in_the_wrong_language() -> None:
    german = (
        "Der Gültigkeitsbereich eines Bezeichners ist jener Teil eines Programms, worin er für etwas Bestimmtes steht. "
        "Meist reicht er von seiner Vereinbarung bis ans Ende des kleinsten umgebenden Blocks, wie ALGOL 60 es 1958 "
        "eingeführt hat."
    )
    assert not language(Pair(german, GOOD), CONFIG).passed
    assert language(Pair(german, german), CONFIG).passed


@given(st.text(alphabet=st.sampled_from("<|>/{}[]`\"'.…I am sorry我的 \n"), max_size=200))
def test_no_markup_breaks_a_check(text: str) -> None:
    for check in CHECKS:
        check(Pair(SOURCE, clean(text), notes=True, prompt=PROMPT, before=text, after_source=text), CONFIG)
        check(Pair(SOURCE, clean(text), translated="zh"), CONFIG)
