"""One document through the flow: windows, prefixes, retries that are told why, endless answers, what is taken back."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Callable

import pytest
from pydantic import ValidationError

from model.engines.embedding import MiniLM
from model.engines.engine import Completion, Prompt, PromptRefused, PromptTooLong
from tasks.rephrase.alignment import joints, stack
from tasks.rephrase.alignment.judge import Judge
from tasks.rephrase.choice import jobs
from tasks.rephrase.config import AlignmentConfig, FidelityJudgeConfig, RephraseConfig, SegmentsConfig, TranslateConfig
from tasks.rephrase.document import CARRIED, TOO_LONG, Job, Outcome, rewrite_document, windows
from tasks.rephrase.prediction import weigh
from tasks.rephrase.prompts import compose, details, perspectives, styles
from tasks.rephrase.segments import segment
from tests.tasks.rephrase.conftest import row
from tests.tasks.rephrase.pairs import PARAPHRASES
from tests.tasks.rephrase.test_translation import PAIRS as TRANSLATIONS

PARTS = [PARAPHRASES[number] for number in (6, 0, 1, 3)]
KNOWN = {" ".join(source.split()): said for source, said in (*PARTS, *TRANSLATIONS)}
CONFIG = RephraseConfig(prompt="full", segments=SegmentsConfig(tokens=60, window=1024), rewritten=0.5)
LONG = CONFIG.model_copy(update={"segments": SegmentsConfig(tokens=90, window=1024)})


class Engine:
    """Answers the part asked for with what it knows of it; `spoil` may change that."""

    name, model, slots = "scripted", "by-hand", 1

    def __init__(self, spoil: Callable[[str, Prompt], str] = lambda said, prompt: said) -> None:
        self.spoil = spoil
        self.prompts: list[Prompt] = []

    def ask(self, prompt: Prompt) -> Completion:
        self.prompts.append(prompt)
        asked = prompt.messages[-1].content
        part = asked[asked.index("<part>\n") + 7 : asked.index("\n</part>")]
        said = "\n\n".join(KNOWN[" ".join(paragraph.split())] for paragraph in part.split("\n\n"))
        return Completion(self.spoil(said, prompt), "stop", 10, 4, 5, 0.0)


def rewrite(
    text: str, engine: Engine, embedder: MiniLM, config: RephraseConfig = CONFIG, style: str = "plain", **of: str
) -> Outcome:
    job = Job(row(text, **of), style, styles()[style])
    return rewrite_document(job, config, engine, engine.ask, embedder)


def document(count: int = 4) -> str:
    return "\n\n".join(source for source, _ in PARTS[:count])


def chat(prompt: Prompt) -> str:
    return "".join(f"<{message.role}>{message.content}" for message in prompt.messages)


def test_every_request_of_a_window_begins_with_the_whole_of_the_one_before(embedder: MiniLM) -> None:
    engine = Engine()
    outcome = rewrite(document(), engine, embedder)
    assert outcome.verdict["accepted"]
    assert outcome.verdict["rewritten"] == 4
    chats = [chat(prompt) for prompt in engine.prompts]
    assert len(chats) == 4
    for before, after in itertools.pairwise(chats):
        assert after.startswith(before)


def test_a_document_longer_than_any_window_goes_on_with_what_was_rewritten(embedder: MiniLM) -> None:
    engine = Engine()
    config = CONFIG.model_copy(update={"segments": SegmentsConfig(tokens=60, window=105)})
    outcome = rewrite(document(), engine, embedder, config)
    assert outcome.verdict["rewritten"] == 4
    found = windows(segment(document(), 60), 105)
    assert [len(window) for window in found] == [2, 2]
    third = engine.prompts[2].messages
    assert len(third) == 2 + 2 * CARRIED
    assert third[2].content == PARTS[1][1]
    assert PARTS[2][0] in third[1].content
    assert PARTS[0][0] not in third[1].content


@pytest.mark.parametrize("size", ["short", "full"])
def test_the_smallest_context_that_is_let_through_holds_every_prompt_and_its_answer(
    size: str, monkeypatch: pytest.MonkeyPatch, embedder: MiniLM
) -> None:
    monkeypatch.setattr("tasks.rephrase.document.align", lambda *_: stack.Alignment((), 1.0))

    def config(context: int) -> RephraseConfig:
        return RephraseConfig(prompt=size, segments=SegmentsConfig(tokens=60, window=512), context=context)

    def holds(context: int) -> bool:
        with contextlib.suppress(ValidationError):
            return bool(config(context))
        return False

    prompts: list[Prompt] = []

    def echo(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        asked = prompt.messages[-1].content
        part = asked[asked.index("<part>\n") + 7 : asked.index("\n</part>")] if size == "full" else asked
        return Completion(part, "stop", 1, 0, 1, 0.0)

    least = next(context for context in range(512, 4096) if holds(context))
    job = Job(row("\n\n".join([document()] * 4)), "plain", styles()["plain"])
    rewrite_document(job, config(least), Engine(), echo, embedder)
    longest = max(weigh(prompt.messages) + prompt.max_tokens for prompt in prompts)
    assert least - 500 < longest <= least


def test_another_attempt_is_told_which_check_refused_and_why(embedder: MiniLM) -> None:
    engine = Engine(lambda said, prompt: said.replace("88", "78") if "refused" not in chat(prompt) else said)
    outcome = rewrite(document(3), engine, embedder)
    assert outcome.verdict["accepted"]
    again = next(prompt for prompt in engine.prompts if "refused" in chat(prompt))
    told = again.messages[-1].content
    assert "part was refused: numbers: 88" in told
    row = next(row for row in outcome.rows if row["reason"] == "numbers")
    assert "88" in row["source_sentence"]
    assert "78" in row["rewrite_sentence"]
    assert told.index(row["source_sentence"]) < told.index(row["rewrite_sentence"])
    assert len(row["source_sentence"]) < len(row["source_text"].strip())
    lenient = engine.prompts[engine.prompts.index(again) - 1]
    assert chat(again).startswith(chat(lenient))


def test_what_a_prompt_spells_otherwise_stands_in_the_rewrite_as_in_its_source(embedder: MiniLM) -> None:
    source, said = PARTS[0]
    sign = " The chat ends its turn with <|im_end|> here."
    engine = Engine()

    def ask(prompt: Prompt) -> Completion:
        engine.prompts.append(prompt)
        return Completion(f"{said} Here the chat ends its turn with < |im_end|>.", "stop", 10, 4, 5, 0.0)

    job = Job(row(source + sign), "plain", styles()["plain"])
    outcome = rewrite_document(job, CONFIG, engine, ask, embedder)
    assert "<|im_end|>" not in chat(engine.prompts[0])
    assert outcome.rewrite["text"] == f"{said} Here the chat ends its turn with <|im_end|>."


def test_what_an_engine_says_of_itself_enters_neither_the_next_prompt_nor_the_record(embedder: MiniLM) -> None:
    refused: list[Prompt] = []

    def refuse(said: str, prompt: Prompt) -> str:
        if not refused:
            refused.append(prompt)
            raise PromptRefused("http://127.0.0.1:8000/v1 refused request 17")
        return said

    def opinion(prompt: Prompt) -> Completion:
        raise PromptRefused("http://127.0.0.1:8000/v1 refused request 18")

    for judge in (None, Judge(FidelityJudgeConfig(margin=1), opinion)):
        refused.clear()
        engine = Engine(refuse)
        job = Job(row(document(2)), "plain", styles()["plain"])
        outcome = rewrite_document(job, CONFIG, engine, engine.ask, embedder, judge)
        assert outcome.verdict["accepted"] == (judge is None)
        assert "127.0.0.1" not in "".join(map(chat, engine.prompts)) + json.dumps(outcome.rows)


def test_a_prompt_that_is_too_long_is_not_asked_again_longer(embedder: MiniLM) -> None:
    def too_long(said: str, prompt: Prompt) -> str:
        raise PromptTooLong("longer than the context")

    engine = Engine(too_long)
    outcome = rewrite(document(2), engine, embedder, CONFIG.model_copy(update={"rewritten": 0.0}))
    assert [one["why"] for one in outcome.rows] == [TOO_LONG] * 2
    assert len(engine.prompts) == 2


@pytest.mark.parametrize(
    ("answer", "check"),
    [
        ("word " * 3_000_000, "finished"),
        ("", "finished"),
        ("I'm sorry, but I cannot rewrite this.", "talk"),
        ('{"rewrite": ', "talk"),
        ("It runs to the end of the block. " * 6, "length"),
    ],
)
def test_a_bad_answer_is_counted_under_its_check_and_loses_no_document(
    embedder: MiniLM, answer: str, check: str
) -> None:
    outcome = rewrite(document(2), Engine(lambda said, prompt: answer), embedder)
    assert outcome.rewrite is None
    assert (outcome.verdict["accepted"], outcome.verdict["reason"]) == (False, "share")
    assert {one["reason"] for one in outcome.rows} <= {check, "repetition"}
    assert all(len(one["rewrite_text"]) < 10_000 for one in outcome.rows)
    assert sum(outcome.ledger.counts["rejected_by_check"].values()) == len(outcome.rows) == 4


def test_a_segment_that_makes_the_whole_stammer_goes_back_to_its_original(embedder: MiniLM) -> None:
    """The first and the last segment say the same sentence, which the source has nowhere."""
    said = PARTS[2][1].split(". ")[0] + "."
    lenient = AlignmentConfig(length=(0.1, 9))
    config = CONFIG.model_copy(update={"alignment": lenient, "rewritten": 0.3})

    def stammer(text: str, prompt: Prompt) -> str:
        return (
            text + " Here, as elsewhere, the whole of the matter is a plain one."
            if "ALGOL" in text or "Curie" in text
            else text
        )

    outcome = rewrite("\n\n".join(PARTS[number][0] for number in (1, 2, 3)), Engine(stammer), embedder, config)
    actions = [piece["action"] for piece in outcome.rewrite["segments"]]
    assert actions == ["rewritten", "rewritten", "original"]
    taken = [one for one in outcome.rows if one["reason"] == "echoes"]
    assert [one["index"] for one in taken] == [2]
    assert "says 'Here, as elsewhere" in taken[0]["why"]
    assert outcome.ledger.counts["accepted"] == 2
    assert outcome.verdict["scores"]["echoes"] == 0
    assert said in outcome.rewrite["text"]


def test_what_stammers_in_many_segments_is_read_again_once(embedder: MiniLM, monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[int] = []
    examine = joints.examine
    monkeypatch.setattr(joints, "examine", lambda *given: [readings.append(1), *examine(*given)][1:])
    lenient = AlignmentConfig(length=(0.1, 9), echoes=0)
    config = CONFIG.model_copy(update={"alignment": lenient, "rewritten": 0.1})
    ends = itertools.cycle(
        ("Here, as elsewhere, the whole matter is a plain one.", "Nobody in that old town had ever doubted it.")
    )
    outcome = rewrite(document(), Engine(lambda said, prompt: f"{said} {next(ends)}"), embedder, config)
    assert [piece["action"] for piece in outcome.rewrite["segments"]] == [*["rewritten"] * 2, *["original"] * 2]
    assert [one["index"] for one in outcome.rows if one["reason"] == "echoes"] == [2, 3]
    assert len(readings) == 2


def test_a_translation_is_english_and_keeps_lineage_and_licence(embedder: MiniLM) -> None:
    text = "\n\n".join(source for source, _ in TRANSLATIONS)
    outcome = rewrite(text, Engine(), embedder, LONG, "translation", domain="math", language="zh")
    assert outcome.verdict["accepted"], outcome.verdict
    done = outcome.rewrite
    assert done["text"] == "\n\n".join(said for _, said in TRANSLATIONS)
    assert (done["language"], done["domain"], done["licence"]) == ("en", "math", "CC0-1.0")
    assert done["source_id"] == row(text)["id"]
    assert outcome.verdict["language"] == "zh"


def test_half_a_translation_is_none(embedder: MiniLM) -> None:
    text = "\n\n".join(source for source, _ in TRANSLATIONS)
    engine = Engine(lambda said, prompt: "" if "$2x=8$" in said else said)
    outcome = rewrite(text, engine, embedder, LONG, "translation", domain="math", language="zh")
    assert outcome.rewrite is None
    assert outcome.verdict["reason"] == "share"


def drawn_of(config: RephraseConfig, identity: str, domain: str = "knowledge", language: str = "en") -> list[Job]:
    return jobs(config, {"id": identity, "domain": domain, "language": language})


def test_perspectives_and_details_are_drawn_by_themselves() -> None:
    config = CONFIG.model_copy(update={"perspectives": 0.5, "details": 0.5})
    drawn = [drawn_of(config, str(number))[0] for number in range(400)]
    assert {one.perspective for one in drawn} == {"", *perspectives()}
    assert {one.detail for one in drawn} == {"", *details()}
    assert 120 < sum(one.perspective != "" for one in drawn) < 260
    pairs = {(one.name, one.perspective) for one in drawn}
    assert len({style for style, perspective in pairs if perspective == "teacher"}) > 5
    assert all(not one.perspective and not one.detail for one in drawn if one.name == "viewpoint")
    short = CONFIG.model_copy(update={"prompt": "short"})
    assert {one.perspective for number in range(60) for one in drawn_of(short, str(number))} == {""}
    mathematics = [drawn_of(config, str(number), "math", "en")[0] for number in range(60)]
    assert {one.name for one in mathematics} == {"learning_note"}
    assert all(not one.perspective or "math" in perspectives()[one.perspective].domains for one in mathematics)
    translate = config.model_copy(update={"translate": TranslateConfig(languages=("zh",), documents=None)})
    assert [one.name for one in drawn_of(translate, "x", "knowledge", "zh")] == ["translation"]
    many = drawn_of(config.model_copy(update={"rewrites": 10}), "x")
    assert len({one.name for one in many}) == 10


def test_a_composed_style_says_all_three_within_its_own_lengths() -> None:
    style = compose(styles()["questions"], perspectives()["teacher"], details()["concise"])
    assert all(manner.full in style.full for manner in (styles()["questions"], details()["concise"]))
    assert style.length == styles()["questions"].length
    assert compose(styles()["plain"], None, None) == styles()["plain"]


def test_every_check_has_a_name_of_its_own() -> None:
    assert len(set(stack.NAMES)) == len(stack.NAMES)
    assert set(stack.NAMES) > stack.MONOLINGUAL
