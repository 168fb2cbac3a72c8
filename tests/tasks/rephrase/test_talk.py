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
    *(
        ("talk", GOOD.replace(" ", f" {sign}", 1))
        for sign in (
            *("\x00", "\x08", "\x0b", "\x0c", "\x1b", "\x7f", "\x9b", "\xad", "\u200b", "\u200e", "\u200f", "\ufeff"),
            *("\ufff9", "\ufffd", "\ue000", "\U000f0001"),
        )
    ),
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
        "A soft\xad hyphen, a mark \u200e and a character that could not be read: \ufffd.",
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
        ("The cat\r\nsat.\rIt\u2028slept.\u2029", "The cat\nsat.\nIt\nslept."),
        ('{"rewrite": "The cat\\r\\nsat."}', "The cat\nsat."),
        ('{"a": 1}', '{"a": 1}'),
        ("[" * 100_000, "[" * 100_000),
        ("{" + '"a":{' * 50_000 + "}", "{" + '"a":{' * 50_000 + "}"),
    ],
)
def test_what_is_around_a_good_answer_comes_off(answer: str, text: str) -> None:
    assert clean(answer) == text


@pytest.mark.parametrize(
    "line",
    [
        "Here is the rewritten text:",
        "Here's the rewritten version of the passage:",
        "Sure! Here is a rewritten version that is plain and easy to read:",
        "Certainly, here is the rewrite:",
        "Of course. Here's a rewrite of the paragraph in a friendlier tone:",
        "Here is my rewriting:",
        "Here is a more formal and scholarly version of the text:",
        "Here is the text:",
        "Here is the passage rewritten in plain English:",
        "Here's the revised paragraph:",
        "Here is the paraphrase:",
        "Here are the rephrased sentences:",
        "Here is the English translation:",
        "Here is the translation of the passage into English:",
        "Here is a clear study note:",
        "This is the rephrased version:",
        "The rewritten text:",
        "Rewritten version:",
        "Revised text:",
        "Rewrite:",
        "Translation:",
        "以下是改写后的文本：",
        "好的，以下是改写后的内容：",
        "下面是这段文字的改写：",
        "以下是对原文的改写:",
        "以下为改写版本：",
        "以下是重写后的段落：",
        "改写后的版本如下：",
        "改写后：",
        "译文：",
        "以下是英文译文：",
        "以下是学习笔记：",
        "下面是翻译成英文的文本：",
    ],
)
def test_a_line_that_announces_the_answer_comes_off(line: str) -> None:
    assert clean(f"{line}\n\nThe cat sat.\n\nIt slept.") == "The cat sat.\n\nIt slept."


@pytest.mark.parametrize(
    "text",
    [
        "Here are the three laws of motion that Newton gave and that all schools teach:\n\n1. What rests rests.",
        "Here are the parts of a flower:\n\n- petals",
        "Here are the books that she translated:\n\n- Emma",
        "Here are the translated works of the poet:\n\n- an ode",
        "Here is the text of the treaty:\n\nArticle 1.",
        "Here is the passage of the law that forbids it:\n\nNobody may enter.",
        "Here is how a version is released:\n\n1. Tag it.",
        "Here are the versions that are still supported:\n\n- 3.12",
        "Here are the rewriting rules of the grammar:\n\nS -> NP VP",
        "Here is the code:\n\n    x = 1",
        "Here's what you need:\n\n- flour",
        "Here is a proof:\n\nLet n be even.",
        "Here is the input:\n\n3 4",
        "Here is an excerpt:\n\nIt was a dark night.",
        "Sample input:\n\n3 4",
        "Here is a version that supports IPv6:\n\n    connect6()",
        "Sure, here are the steps:\n\n1. Stop.",
        "The revised plan of the city has three parts:\n\nFirst the port.",
        "The revised version of the law has three parts:\n\nFirst the fees.",
        "The translated novels sold well in two countries:\n\n- France",
        "The translation of a protein has three stages:\n\n1. Initiation",
        "There are two kinds of translation:\n\n- free",
        "Rewriting a fraction takes two steps:\n\n1. Factor.",
        "A section has these parts:\n\n- a heading",
        "These are the study notes of three students:\n\nAnna.",
        "以下是广东省经济发达的沿海城市：广州、深圳、珠海这三座。",
        "以下是三个城市：\n\n北京、上海和广州。",
        "下面是制作面包的步骤：\n\n1. 和面。",
        "以下是牛顿的三条定律：\n\n一、惯性。",
        "以下是翻译学的三个流派：\n\n一、语言学派。",
        "改写后的法律规定了三件事：\n\n一、税率。",
        "改写后的程序分三步：读入、计算、输出。",
        "软件版本：\n\n3.12",
        "这是他一生中最重要的三部作品：\n\n《边城》",
    ],
)
def test_a_first_line_of_the_text_itself_stays(text: str) -> None:
    assert clean(text) == text


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
