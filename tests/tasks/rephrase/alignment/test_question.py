"""Parts with a question: where it stands, which questions are refused, and a document that goes through the stage."""

from __future__ import annotations

import json
import re

import pytest

from model.engines.embedding import MiniLM
from model.engines.engine import Completion, Prompt
from tasks.rephrase.alignment.answer import copied
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.question import SCHEMA, answered, corrected, question
from tasks.rephrase.alignment.stack import align
from tasks.rephrase.config import AlignmentConfig, RephraseConfig, SegmentsConfig
from tasks.rephrase.document import Job, rewrite_document
from tasks.rephrase.prompts import styles
from tests.tasks.rephrase.conftest import row

CONFIG = AlignmentConfig()
ENTRY = "# wind pump\n\n<farming> A pump driven by a wheel of blades.  Motors replaced most of them after 1930."
SEVERAL = f"It was sold in pairs.\n\n{ENTRY}\n\n# wind rose\n\nA chart of the directions of the wind."


def pair(said: str, part: str = ENTRY, **more: object) -> Pair:
    return Pair(part, answered(said, part), question=said, **more)  # type: ignore[arg-type]


def test_a_question_takes_the_place_of_the_heading_that_it_says_and_nothing_else_changes() -> None:
    assert answered("What is a wind rose?", SEVERAL) == SEVERAL.replace("# wind rose", "# What is a wind rose?")
    assert answered("What replaced most pumps?", ENTRY) == f"What replaced most pumps?\n\n{ENTRY}"


@pytest.mark.parametrize("heading", ["# When not to", "# ***", "## Is it?", "```\n# a clock\n```"])
def test_a_heading_that_says_nothing_and_a_comment_in_code_stay(heading: str) -> None:
    part = f"{heading}\n\nA tide clock is a clock with a single hand."
    assert answered("What is a tide clock?", part) == f"What is a tide clock?\n\n{part}"
    part = f"{heading}\n\n# tide clock\n\nA clock with a single hand."
    assert answered("What is a tide clock?", part) == part.replace("# tide clock", "# What is a tide clock?")


@pytest.mark.parametrize(
    "said",
    [
        "Why is hepatitis A important?",
        "How is hepatitis A acquired?",
        "When was Apollo A announced?",
        "What is type A influenza?",
        "Which hepatitis A infection is mild?",
        "What is the A in MPA?",
        "What is A level?",
    ],
)
def test_a_letter_is_no_article(said: str) -> None:
    assert corrected(said, "# something else\n\nWhat it is.") == said


@pytest.mark.parametrize(
    ("said", "heading", "corrected_"),
    [
        ("What is a installer?", "installer", "What is an installer?"),
        ("What is a onc?", "ONC", "What is an ONC?"),
        ("What is A installer?", "installer", "What is An installer?"),
        ("What is a LML?", "LML (language)", "What is an LML?"),
        ("What is an LAN?", "LAN", "What is a LAN?"),
        ("What is the eccles-jordan circuit?", "Eccles-Jordan circuit", "What is the Eccles-Jordan circuit?"),
        ("What is a UUCP?", "uucp", "What is a uucp?"),
        ("Who needs a hour of a user?", "something else", "Who needs an hour of a user?"),
    ],
)
def test_a_question_has_the_headings_spelling_and_the_article_that_its_word_wants(
    said: str, heading: str, corrected_: str
) -> None:
    assert corrected(said, f"# {heading}\n\nWhat it is.") == corrected_


@pytest.mark.parametrize(
    ("said", "part"),
    [
        ("What is a wind pump?", ENTRY),
        ("Which wheel drives the wind pump?", ENTRY),
        ("When did motors replace wind pumps?", ENTRY),
        ("What is a wind rose?", SEVERAL),
        (
            "What drives a wind pump?",
            "A wheel of blades drives a wind pump.\n\n```\n# the wheel\nturn()\n```\n\nIt turns.",
        ),
        ("What is dew point?", "Air cools at night.  The dew point is the temperature at which dew forms."),
    ],
)
def test_what_the_part_answers_may_be_asked(said: str, part: str, embedder: MiniLM) -> None:
    alignment = align(pair(said, part), CONFIG.model_copy(update={"answerable": 0.3}), embedder)
    assert alignment.accepted, (alignment.reason, alignment.why)
    assert alignment.scores()["question"] == 1


@pytest.mark.parametrize(
    ("said", "part", "why"),
    [
        ("Who invented the wind pump?", ENTRY, "invented"),
        ("What replaced the wind pump in 1940?", ENTRY, "1940"),
        ("What is a motor?", ENTRY, "does not say what motor is"),
        ("What is a wind rose?", "Three kinds of wind rose are common.", "does not say what wind rose is"),
        ("What is a wind rose?", "The wind rose is thought to be old.", "does not say what wind rose is"),
        ("What is a wind?", ENTRY, "does not say what wind is"),
        ("Which pairs were sold?", SEVERAL, "none of them"),
        ("What is a wind vane?", "# wind vane\n\n<weather> See weathercock.", "does not say"),
        ("Is a wind pump a pump?", ENTRY, "no question"),
        ("What is it?", ENTRY, "nothing that the part"),
        ("What is a wind pump? What is a wheel?", ENTRY, "no question"),
    ],
)
def test_what_the_part_does_not_answer_is_refused(said: str, part: str, why: str) -> None:
    verdict = question(pair(said, part), CONFIG)
    assert not verdict.passed
    assert why in verdict.why
    assert verdict.score == 0
    assert verdict.rewrite_sentence == said


def test_a_refusal_without_a_word_in_common_stands_beside_the_sources_first_sentence() -> None:
    alignment = align(pair("Who invented it?", ENTRY), CONFIG, None)  # type: ignore[arg-type]
    assert alignment.failed is not None
    assert alignment.failed.source_sentence == "# wind pump"


def test_a_question_is_asked_once_and_may_name_what_the_part_before_was_about() -> None:
    part = "Motors replaced most of them after 1930."
    assert not question(pair("Which motors replaced the wind pump?", part), CONFIG).passed
    assert question(pair("Which motors replaced the wind pump?", part, before_source=ENTRY), CONFIG).passed
    assert not question(pair("What is a wind pump?", asked=("What is a wind pump?",)), CONFIG).passed


def test_a_question_far_from_its_part_is_refused_by_the_network(embedder: MiniLM) -> None:
    part = "The river rose by two metres, and the bridge over the wheel of the old mill was closed."
    alignment = align(pair("How was the wheel closed?", part), CONFIG.model_copy(update={"answerable": 0.9}), embedder)
    assert alignment.reason == "answerable"


def test_a_question_copied_from_its_part_is_refused() -> None:
    part = "Everybody asked which of the two pumps was driven by the wheel of blades."
    said = "Which of the two pumps was driven by the wheel of blades?"
    assert not copied(pair(said, part), CONFIG).passed
    assert copied(pair("What is a wind pump?"), CONFIG).passed


def test_a_document_gets_a_question_a_part_and_keeps_every_word(embedder: MiniLM) -> None:
    prompts: list[Prompt] = []

    def ask(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        heading = re.search("^# (.+)$", prompt.messages[-1].content, re.M)
        said = f"What is a {heading[1]}?" if heading else "What is a motor?"
        return Completion(json.dumps({"question": said}), "stop", 10, 4, 5, 0.0)

    between = "Their wheels were made of wood.  Many a farm had more than one."
    text = f"{ENTRY}\n\n{between}\n\n# wind rose\n\nA chart of winds."
    config = RephraseConfig(segments=SegmentsConfig(tokens=16, window=1024), rewritten=0.5, best_of=2)
    name = "question_before"
    engine = type("Engine", (), {"name": "scripted", "model": "by-hand"})()
    outcome = rewrite_document(Job(row(text), name, styles()[name]), config, engine, ask, embedder)
    assert outcome.rewrite is not None, outcome.verdict
    told = outcome.rewrite["text"]
    assert told.count("?") == 2
    assert told.replace("What is a ", "").replace("?", "") == text
    assert all(prompt.schema == SCHEMA for prompt in prompts)
    assert {one["question"] for one in outcome.rows if one["accepted"]} == {
        "What is a wind pump?",
        "What is a wind rose?",
    }
    assert {one["reason"] for one in outcome.rows} == {"", "best_of", "question"}
    beginnings = {prompt.messages[:-1] for prompt in prompts}
    assert len(beginnings) == 1  # in the engine's cache, for every part of every document
