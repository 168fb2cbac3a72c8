"""Corruptions: each differs from its rewrite, is the same every time, and changes only what it says."""

from __future__ import annotations

import re
from difflib import SequenceMatcher

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.calibration.corruptions import KINDS, pool_of, text_of, variants
from tasks.rephrase.calibration.edits import Pool, Text, lists
from tasks.rephrase.calibration.numeric import another, values
from tasks.rephrase.calibration.pairs import load
from tasks.rephrase.segments import sentences

TEXTS = [text_of(pair) for pair in load(["free"]) if pair.half == "tune"]
POOL = pool_of(TEXTS)
ALL = {kind: [variants(text, kind, POOL, 3) for text in TEXTS] for kind in KINDS}


def made(kind: str, rewrite: str, source: str = "", **fields: str) -> set[str]:
    """Everything that a kind makes of a rewrite."""
    text = Text("one", source or rewrite, rewrite, **fields)
    return {corruption.text for corruption in variants(text, kind, POOL, 100)}


def changed(old: str, new: str) -> list[tuple[str, str]]:
    """Words taken out and put in, place by place."""
    before, after = (re.findall(r"\d+|[A-Za-z]+|.", text, re.S) for text in (old, new))
    return [
        ("".join(before[a:b]), "".join(after[c:d]))
        for tag, a, b, c, d in SequenceMatcher(None, before, after, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_differs_and_is_the_same_every_time(kind: str):
    for text, found in zip(TEXTS, ALL[kind], strict=True):
        for index, corruption in enumerate(found):
            assert corruption.text.split() != text.rewrite.split()
            assert corruption.text.strip()
            assert corruption.why
            if index == 0:
                assert variants(text, kind, POOL, 1) == [corruption]
        assert len({corruption.text for corruption in found}) == len(found)


@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("number_swap", 0.85),
        ("unit_swap", 0.3),
        ("negation", 0.95),
        ("entity_swap", 0.75),
        ("dropped_sentence", 0.95),
        ("added_sentence", 0.98),
        ("relation", 0.75),
        ("formula", 0.1),
        ("code", 0.15),
    ],
)
def test_most_texts_offer_something(kind: str, share: float):
    # the other pairs were written for one kind, such as denials, and need not offer the rest
    general = ("chinese-", "humanities-", "math-", "science-", "technical-")
    offered = [
        bool(found)
        for text, found in zip(TEXTS, ALL[kind], strict=True)
        if text.id.startswith(general) and not (text.adds and kind == "added_sentence")
    ]
    assert sum(offered) / len(offered) > share


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("dropped_sentence", "added_sentence")])
def test_changes_a_few_words_and_nothing_else(kind: str):
    for text, found in zip(TEXTS[::3], ALL[kind][::3], strict=True):
        for corruption in found[:1]:
            pieces = changed(text.rewrite, corruption.text)
            assert sum(len(old) for old, _ in pieces) <= 60, (text.id, corruption.why)
            assert sum(len(new) for _, new in pieces) <= 60, (text.id, corruption.why)


def test_a_swapped_number_is_another_number_and_touches_no_word_besides():
    small = lists()["cardinals"] | lists()["ordinals"]
    for text, found in zip(TEXTS, ALL["number_swap"], strict=True):
        for corruption in found[:1]:
            for old, new in changed(text.rewrite, corruption.text):
                for piece in (old, new):
                    assert re.fullmatch(r"[\d.,]*(?:\d|st|nd|rd|th|s)|[两二三四五六七八九]|", piece) or (
                        piece.lower() in small
                    ), (text.id, corruption.why)


def test_a_dropped_sentence_is_gone_and_an_added_one_is_whole():
    for text, dropped, added in zip(TEXTS, ALL["dropped_sentence"], ALL["added_sentence"], strict=True):
        for corruption in dropped:
            assert len(corruption.text) < len(text.rewrite)
            assert corruption.why.removeprefix("dropped '").removesuffix("'") not in corruption.text
            assert "?" not in corruption.why[-3:]
        for corruption in added:
            sentence = corruption.why.removeprefix("added '").removesuffix("'")
            assert "".join(corruption.text.replace(sentence, "", 1).split()) == "".join(text.rewrite.split())
            assert sentence not in text.source


def test_a_swapped_name_stands_in_neither_text():
    for text, found in zip(TEXTS, ALL["entity_swap"], strict=True):
        for corruption in found:
            old, new = re.match(r"'(.+?)' became '(.+?)'(?: in one of|$)", corruption.why).groups()  # type: ignore[union-attr]
            assert new.lower() not in f"{text.source}\n{text.rewrite}".lower()
            assert old in text.rewrite
            assert new in corruption.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("The lake is deep.", "The lake is not deep."),
        ("A key can be lost.", "A key cannot be lost."),
        ("The river never dries.", "The river dries."),
        ("It fails unless it is wound.", "It fails if it is wound."),
        ("The valve does not open.", "The valve opens."),
        ("They do not melt here.", "They melt here."),
        ("The rule leads to delay.", "The rule does not lead to delay."),
        ("The work began in May.", "The work did not begin in May."),
        ("It works without oil.", "It works with oil."),
        ("In neither case nor in the other it holds.", "In both case and in the other it holds."),
        ("Nothing was found.", "Something was found."),
        ("Those aren't the same.", "Those are the same."),
        ("铜是金属。", "铜不是金属。"),
        ("它不能飞。", "它能飞。"),
        ("这里没有水。", "这里有水。"),
    ],
)
def test_negations_that_are_made(old: str, new: str):
    assert new in made("negation", old)


@pytest.mark.parametrize(
    "text",
    ["Is it deep?", "What is called a lake?", "`is not` stays", "It is not deep and never was not.", "A means to pay."],
)
def test_negations_that_are_not_made(text: str):
    assert not {new for new in made("negation", text) if new.count("not") > text.count("not")}


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("relation", "Ada left before noon.", "Ada left after noon."),
        ("relation", "It holds more than 5 litres.", "It holds less than 5 litres."),
        ("relation", "Rain increases growth.", "Rain decreases growth."),
        ("relation", "Dust causes asthma.", "Dust is caused by asthma."),
        ("relation", "In 1904 Boeing acquired Airbus.", "In 1904 Airbus acquired Boeing."),
        ("relation", "There were 87 churches and in all 95 shops.", "There were 95 churches and in all 87 shops."),
        ("relation", "战争之前", "战争之后"),
        ("formula", "So $a + b$ holds.", "So $a - b$ holds."),
        ("formula", r"We have $x \leq 3$.", r"We have $x \geq 3$."),
        ("formula", r"It is $\frac{1}{n}$.", r"It is $\frac{n}{1}$."),
        ("code", "Call `get_name` first.", "Call `set_name` first."),
        ("code", "See https://example.org/etc now.", "See https://example.net/etc now."),
        ("unit_swap", "It froze at 5 °C.", "It froze at 5 °F."),
        ("unit_swap", "长5公里。", "长5米。"),
        ("entity_swap", "He met her in Paris.", None),
    ],
)
def test_what_is_made(kind: str, old: str, new: str | None):
    found = made(kind, old)
    assert (
        found
        if new is None
        else found
        & ({new} | {new.replace("example.net", "example.com"), new.replace("set", "del"), new.replace("5米", "5厘米")})
    )


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("number_swap", "1. Mix.\n2. Bake.\nStep 3: eat."),
        ("number_swap", "Use `ls -1` and $x^2$."),
        ("unit_swap", "In the 1820s it rose."),
        ("relation", "Ada and Grace met."),
        ("relation", "It went on over the years."),
        ("entity_swap", "The lake is deep. Water is cold."),
        ("dropped_sentence", "One sentence alone is never dropped."),
        ("dropped_sentence", "# Heading\n\nOnly one statement stands here below it."),
        ("formula", "No formula here."),
        ("code", "No code here."),
    ],
)
def test_what_offers_nothing(kind: str, text: str):
    assert made(kind, text) == set()


def test_steps_that_a_style_adds_are_left_alone():
    text = Text("one", "Then $x = 2$.", "Then $x = 2$, since $1 + 1 = 2$.", adds=True)
    assert all("1 + 1 = 2" in corruption.text for corruption in variants(text, "formula", Pool(), 20))
    assert "5" not in "".join(made("number_swap", "The two rules.", "The rules."))


@given(st.integers(0, 10**7), st.integers(0, 50))
def test_another_number_is_another_of_the_same_form(number: int, salt: int):
    for form in (str(number), f"{number:,}", f"{number}.5"):
        new = another(form, salt)
        assert float(new.replace(",", "")) != float(form.replace(",", ""))
        assert abs(len(new) - len(form)) <= 1
        assert values(new) != values(form)


@given(st.text(max_size=200), st.sampled_from(sorted(KINDS)))
def test_any_text_at_all(body: str, kind: str):
    text = Text("any", body, body)
    for corruption in variants(text, kind, POOL, 2):
        assert corruption.text.split() != body.split()


def test_every_sentence_of_the_pool_is_one_of_a_text():
    known = {sentence for text in TEXTS for sentence in sentences(text.rewrite)}
    assert {sentence for some in POOL.sentences.values() for _, sentence in some} <= known
