"""The stack of checks with real embeddings, and in which order it asks them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from model.engines.embedding import MiniLM
from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import RECORDED, align
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import CORRUPTIONS, PARAPHRASES

CONFIG = AlignmentConfig()
ENGLISH = PARAPHRASES[:7]


class Nothing:
    """Networks that nobody may ask."""

    def vector(self, text: str) -> Any:
        raise AssertionError("the dear checks were asked although a cheap one had failed")

    def read(self, *texts: Any) -> Any:
        raise AssertionError("the dear checks were asked although a cheap one had failed")


@pytest.mark.parametrize("pair", ENGLISH)
def test_true_paraphrases_pass_the_whole_stack(pair: tuple[str, str], embedder: MiniLM) -> None:
    alignment = align(Pair(*pair), CONFIG, embedder)
    assert alignment.accepted, alignment.why
    assert alignment.reason == ""
    assert list(alignment.scores()) == list(RECORDED)
    assert {name for name, score in alignment.scores().items() if score is None} == {"cosine", "fidelity", "judge"}


@pytest.mark.parametrize(("kind", "number", "old", "new", "check"), CORRUPTIONS)
def test_corruptions_are_refused_before_an_embedding_is_made(
    kind: str, number: int, old: str, new: str, check: str
) -> None:
    source, paraphrase = PARAPHRASES[number]
    alignment = align(Pair(source, paraphrase.replace(old, new)), CONFIG, Nothing())
    assert not alignment.accepted
    assert alignment.reason == check
    assert alignment.why
    failed = alignment.failed
    assert failed is not None
    assert failed.source_sentence
    assert failed.source_sentence in source
    assert failed.rewrite_sentence
    assert failed.rewrite_sentence in paraphrase.replace(old, new)
    assert alignment.scores()["cosine"] is None


def test_another_subject_fails_on_the_cosine(embedder: MiniLM) -> None:
    source = "Honey bees live in colonies. Workers gather nectar from flowers in the fields around the hive."
    other = "Lighthouses stand on cliffs. Keepers used to light the lamps at dusk and put them out at dawn."
    assert align(Pair(source, other), CONFIG, embedder).reason == "cosine"


def test_an_embedding_depends_on_its_text_alone(embedder: MiniLM) -> None:
    texts = [text for pair in PARAPHRASES for text in pair]
    together = embedder.embed(texts)
    assert np.allclose(np.linalg.norm(together, axis=1), 1, atol=1e-5)
    for number in (0, 5, 9):
        assert (embedder.embed([texts[number]])[0] == together[number]).all()
    near = [float(together[2 * number] @ together[2 * number + 1]) for number in range(7)]
    assert min(near) > 0.75
    assert float(together[0] @ together[2]) < 0.4
