"""A document's plan: what is found by rule, how long it may be, and that every window's prompt carries it."""

from __future__ import annotations

import pytest

from model.engines.embedding import MiniLM
from model.engines.engine import Completion, Price, Prompt
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tasks.rephrase.document import Job, laid_out, rewrite_document
from tasks.rephrase.plan import NO_PLAN, Plan, plan_of
from tasks.rephrase.prediction import Rates, predict
from tasks.rephrase.prompts import planned, styles
from tasks.rephrase.segments import estimate_tokens, segment
from tests.linear import assert_linear
from tests.tasks.rephrase.conftest import row

FILLER = "The text goes on for a while about other matters, none of which introduces anything that comes back later. "
TEXT = "\n\n".join(["Let $q_0$ be the start state of the automaton. " + FILLER, *[FILLER * 2] * 22])
CONFIG = RephraseConfig(segments=SegmentsConfig(tokens=60, window=400, plan=0.25), attempts=1, rewritten=0.0)


def found(text: str, tokens: int = 400) -> Plan:
    return plan_of(text, segment(text), tokens)


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("Let $n$ be the number of states. It is small.", "$n$ be the number of states"),
        ("Let n be the number of states, which is small.", "n be the number of states"),
        ("The map $f$ denotes the product.", "$f$ denotes the product"),
        ("We have $a+b$, where $a$ is the length of the word $w$; it is finite.", "$a$ is the length of the word $w$"),
        ("The empty word is denoted by $e$.", "The empty word is denoted by $e$"),
        (r"Here \(q_0\) denotes the start state.", r"\(q_0\) denotes the start state"),
        ("设$n$为状态数，它很小。", "$n$为状态数"),
        ("其中$x$表示输入。", "$x$表示输入"),
        ("The World Health Organization (WHO) was asked.", "WHO: World Health Organization"),
        ("Members of the Bank of England (BoE) met.", "BoE: Bank of England"),
        (
            "The IEEE (Institute of Electrical and Electronics Engineers) met.",
            "IEEE: Institute of Electrical and Electronics Engineers",
        ),
        ("世界卫生组织（以下简称“世卫组织”）说。", "世界卫生组织（以下简称“世卫组织”）"),
        ("Such a set is called a *regular language*, and is closed.", "regular language"),
        ("The **Kleene star** is one.", "Kleene star"),
        ("这种集合称为“正则语言”，是封闭的。", "正则语言"),
        ("In Paris, Stephen Kleene met one. There Stephen Kleene stayed.", "Stephen Kleene"),
    ],
)
def test_notation_abbreviations_terms_and_names_are_found(text: str, entry: str) -> None:
    assert entry in found(text).glossary


@pytest.mark.parametrize(
    "text",
    [
        "It rained (in May) and some people (about 40) left.",
        "The report of the group (ABC) is here.",  # no initials of what stands before it
        "In Paris, Stephen Kleene met one.",  # once
        "The cost is $5 and $6 a day.",
    ],
)
def test_what_defines_nothing_is_no_entry(text: str) -> None:
    assert found(text).glossary == ()


def test_the_outline_is_of_headings_or_first_sentences_from_end_to_end() -> None:
    text = "\n\n".join(f"# Chapter {number}\n\n{FILLER}" for number in range(60))
    assert found(text, 2000).outline == tuple(f"Chapter {number}" for number in range(60))
    some = found(text, 200).outline
    assert some[0] == "Chapter 0"
    assert int(some[-1].split()[1]) > 45
    assert found(f"First one. {FILLER}").outline == ("First one.",)


@pytest.mark.parametrize("tokens", [0, 30, 60, 100, 300, 1000])
def test_a_plan_is_never_longer_than_it_may_be(tokens: int) -> None:
    text = "\n\n".join(
        f"# The {number}th\n\nLet $a_{{{number}}}$ be the number {number}. It is called a *{number}th thing*."
        for number in range(200)
    )
    plan = found(text, tokens)
    assert estimate_tokens(planned(plan, styles()["plain"], "full")) <= tokens
    assert (plan == NO_PLAN) == (tokens < 60)
    assert not plan.glossary or plan.glossary[0] == "$a_{0}$ be the number 0"


@pytest.mark.parametrize("size", ["short", "full"])
def test_the_notation_of_the_first_window_is_named_in_the_prompts_of_the_third(size, embedder: MiniLM) -> None:
    config = CONFIG.model_copy(update={"prompt": size})
    job, prompts = Job(row(TEXT), "plain", styles()["plain"]), []

    class Silent:
        name, model = "scripted", "by-hand"

    def ask(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        return Completion("", "stop", 1, 0, 1, 0.0)

    segments, shown, plan = laid_out(job, config)
    assert len(shown) >= 3
    rewrite_document(job, config, Silent(), ask, embedder)  # type: ignore[arg-type]
    assert len(prompts) == len(segments)
    definition = "$q_0$ be the start state of the automaton"
    third = prompts[shown[2][0].index]
    assert definition not in "".join(part.text for part in shown[2])
    assert definition in "".join(message.content for message in third.messages)
    head = planned(plan, job.style, size)
    assert all(head in "".join(message.content for message in prompt.messages) for prompt in prompts)
    for window in shown:
        assert estimate_tokens(head + "".join(part.text for part in window)) <= config.segments.window + 1
    assert predict(config, [job], 1, 1, Rates(first=0.0, retry=0.0), Price()).requests == len(prompts)


def test_a_document_that_one_window_shows_has_none() -> None:
    job = Job(row(TEXT), "plain", styles()["plain"])
    wide = CONFIG.model_copy(update={"segments": SegmentsConfig(tokens=60, window=4096)})
    none = CONFIG.model_copy(update={"segments": SegmentsConfig(tokens=60, window=400, plan=0)})
    assert laid_out(job, wide)[2] == laid_out(job, none)[2] == NO_PLAN
    assert planned(NO_PLAN, job.style, "full") == planned(NO_PLAN, job.style, "short") == ""


@pytest.mark.parametrize(
    "piece", ["a", "Ab", "A-", "Let $", "Aa Bb ", "where $x$ is ", "called **", "（简称", "a b (", "《", "denoted by $"]
)
def test_time_grows_with_the_text(piece: str) -> None:
    assert_linear(lambda size: found(piece * (size // len(piece))), 20_000)
