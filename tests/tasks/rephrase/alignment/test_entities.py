"""Names: which forms back one another, and which name was invented."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.rephrase.alignment.entities import entities, names
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.config import AlignmentConfig

CONFIG = AlignmentConfig()


@pytest.mark.parametrize(
    ("source", "rewrite"),
    [
        ("The Danish architect came from Iceland.", "Originally from Iceland, the architect was a Dane."),
        ("Italy's runner won in Sweden.", "The Italian took the Swedish race."),
        ("The World Health Organization met in Geneva.", "In Geneva the WHO held a meeting."),
        ("The IMO met in London.", "The International Maritime Organization gathered in London."),
        ("The United States and the EU agreed.", "There was an agreement between the US and the European Union."),
        ("Hume's work shows it, as Kant said.", "It is shown by the work of Hume, said Kant."),
        ("It runs on Wi-Fi with UTF-8 and IPv4.", "With UTF-8 and IPv4, it is Wi-Fi that it runs on."),
        ("Stars of the Baltic sea.", "**Notes On Stars**\n\nThe stars belong to the Baltic Sea."),
        ("The temperature was 20 °C in Peru.", "It was warm: 20 °C. Following that, Peruvians rested."),
        ("印度尼西亚和法国签了约。", "签约的是法国与印尼。"),
        ("亚历山大·弗莱明在伦敦发现了它。", "它由弗莱明在伦敦发现。"),
    ],
)
def test_another_form_of_a_name_is_the_name(source: str, rewrite: str) -> None:
    verdict = entities(Pair(source, rewrite), CONFIG)
    assert verdict.passed, verdict.why


@pytest.mark.parametrize(
    ("source", "rewrite", "name"),
    [
        ("He was born in Warsaw in 1867.", "In 1867 he was born in Vienna.", "Vienna"),
        ("He was born in Warsaw in 1867.", "Vienna saw him born in 1867, not Warsaw.", "Vienna"),
        ("In May it rained in Kenya.", "In August, Kenya saw rain.", "August"),
        ("In August it rained in Kenya.", "In May, Kenya saw rain.", "May"),
        ("The Austrian team lost.", "The team from Australia lost.", "Australia"),
        ("The WHO met.", "A meeting was held by the NASA.", "NASA"),
        ("It was proved by G. H. Hardy.", "The proof is by F. Riesz, or G. H. Hardy.", "Riesz"),
        ("小说《红楼梦》写于北京。", "写于北京的小说是《水浒传》。", "水浒传"),
        ("他生于上海。", "他的出生地是广州。", "广州"),
        ("肯·汤普森设计了它。", "它由罗布·派克设计。", "布·派克"),
    ],
)
def test_an_invented_name_is_named(source: str, rewrite: str, name: str) -> None:
    verdict = entities(Pair(source, rewrite), CONFIG)
    assert not verdict.passed
    assert name in verdict.why


def test_a_capital_says_nothing_where_a_sentence_begins() -> None:
    text = "Originating there, it spread. Turning back was hard: Nobody did. (See Euler.)\n- Buy it in Oslo."
    assert names(text) == ["Euler", "Oslo"]


def test_code_formulas_and_numerals_hold_no_names() -> None:
    assert names("run `Foo Bar` for $X_{Max}$ at https://Example.org/Some under Louis XIV") == ["Louis"]


def test_names_that_are_lost_count() -> None:
    source = "Then Ann, Bob, Eve and Carl met Dora in Oslo."
    verdict = entities(Pair(source, "Five people met in Oslo."), CONFIG)
    assert not verdict.passed
    assert verdict.score == pytest.approx(1 / 6)
    assert "Ann" in verdict.why


@given(st.text(max_size=200))
def test_a_text_backs_its_own_names(text: str) -> None:
    assert entities(Pair(text, text), CONFIG).passed
