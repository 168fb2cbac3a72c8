"""Texts as the network reads them, and how near a pair is to a refusal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.engines.embedding import MiniLM, States
from tasks.rephrase.alignment.joints import ahead
from tasks.rephrase.alignment.limits import LIMITS
from tasks.rephrase.alignment.margin import distance, margin
from tasks.rephrase.alignment.meaning import chinese, cosine
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.alignment.words import CachedReaders, Match, cosines, read
from tasks.rephrase.config import AlignmentConfig
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = AlignmentConfig()
ENGLISH = [pair for pair in PARAPHRASES if not chinese(pair[0])]
FOREIGN = [
    "The lighthouse keeper painted the railing red before the storm.",
    "Wool is washed in lukewarm water so that it does not shrink.",
    "The tram to the harbour leaves from the second platform.",
    "Violins are tuned in fifths, from the lowest string up.",
]


def test_a_text_is_read_the_same_whatever_was_read_before_and_however_long_it_is(embedder: MiniLM) -> None:
    long = " ".join(source for source, _ in ENGLISH) * 3
    alone_, _, again = embedder.states(long), embedder.states("Something else."), embedder.states(long)
    assert (alone_.words_SD == again.words_SD).all()
    assert len(alone_.spans_S2) > 512
    assert len(alone_.spans_S2) == len(alone_.words_SD)
    assert np.isclose(np.linalg.norm(alone_.vector_D), 1, atol=1e-5)
    short = ENGLISH[0][0]
    assert np.allclose(embedder.states(short).vector_D, embedder.embed([short])[0], atol=1e-6)


@pytest.mark.parametrize("text", ["", "  ", "...", "\u0301", "🙂"])
def test_a_text_without_words_is_compared_with_anything(embedder: MiniLM, text: str) -> None:
    for pair in (Pair(text, ENGLISH[0][0]), Pair(ENGLISH[0][0], text), Pair(text, text)):
        match = Match(pair, embedder)
        assert len(match.source.words_WD) == len(match.source.words)
        assert ahead(match, CONFIG).passed
        verdict = cosine(match, CONFIG)
        assert verdict is not None
        assert -1 <= verdict.score <= 1 + 1e-6


@given(st.floats(-1, 2), st.floats(0, 1), st.sampled_from(["least", "most", "band"]))
def test_a_distance_has_the_sign_of_the_verdict(score: float, limit: float, side: str) -> None:
    least, most = {"least": (limit, None), "most": (None, limit), "band": (limit / 2, 1.5 + limit)}[side]
    passed = (least is None or score >= least) and (most is None or score <= most)
    found = distance(score, least, most)
    assert -1 <= found <= 1
    assert found >= 0 if passed else found <= 0


def test_the_margin_is_that_of_the_nearest_threshold() -> None:
    pair = Pair("source", "rewrite")
    verdicts = [Verdict("numbers", 0.0, False), Verdict("length", 1.0, True), Verdict("cosine", 0.8, True)]
    assert margin(pair, verdicts, AlignmentConfig(cosine=0.75)) == pytest.approx(0.2)
    assert margin(pair, [*verdicts, Verdict("fidelity", 0.25, False)], CONFIG) == pytest.approx(-0.5)
    assert margin(pair, verdicts[:1], CONFIG) is None
    longer = Verdict("length", 2.0, True)
    assert margin(Pair("source", "rewrite", length=(0.5, 3.0)), [longer], CONFIG) == pytest.approx(0.5)
    assert all(hasattr(CONFIG, limit.field) for limit in LIMITS.values())


def test_texts_read_at_once_are_read_the_same(embedder: MiniLM) -> None:
    texts = [source for source, _ in ENGLISH] * 2
    expected = [embedder.states(text).words_SD for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = [states.words_SD for states in pool.map(embedder.states, texts)]
    assert all((one == other).all() for one, other in zip(expected, found, strict=True))


class Counting:
    """Notes what it reads."""

    def __init__(self, embedder: MiniLM) -> None:
        self.embedder, self.texts, self.seconds = embedder, [], 0.0  # type: ignore[var-annotated]

    def states(self, text: str) -> States:
        self.texts.append(text)
        states = self.embedder.states(text)
        self.seconds += states.seconds
        return states


def test_a_source_is_read_once_for_all_attempts_and_as_a_neighbour(embedder: MiniLM) -> None:
    counting = Counting(embedder)
    reader = CachedReaders(counting)
    (one, said_one), (two, said_two) = ENGLISH[:2]
    first, plain = Pair(one, said_one, after_source=two), Pair(two, said_two, before_source=one)
    reader.keep(one, two)
    for some in (first, Pair(one, FOREIGN[0], after_source=two)):
        cosine(Match(some, reader), CONFIG)
        ahead(Match(some, reader), CONFIG)
    reader.keep(two, one)
    found, expected = ([check(Match(plain, by), CONFIG) for check in (cosine, ahead)] for by in (reader, embedder))
    assert found == expected
    assert counting.texts.count(one) == counting.texts.count(two) == 1
    assert counting.texts.count(said_one) > 1
    assert reader.seconds == counting.seconds > 0
    reader.keep(FOREIGN[0])
    read(one, reader)
    assert counting.texts.count(one) == 2


@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 2**32 - 1))
def test_a_cosine_depends_on_its_two_rows_alone(rows: int, others: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    one, other = (draw.standard_normal((count, 384)).astype(np.float32) for count in (rows, others))
    near = cosines(one, other)
    assert near.shape == (rows, others)
    assert np.allclose(near, one.astype(float) @ other.T, atol=1e-4)
    for row in range(rows):
        for column in range(others):
            assert cosines(one[[row]], other[[column]])[0, 0] == near[row, column]
