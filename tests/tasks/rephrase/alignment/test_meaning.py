"""Texts as the network reads them, and how near a pair is to a refusal."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.engines.embedding import MiniLM, Vector
from model.engines.support import Reading
from tasks.rephrase.alignment.limits import LIMITS, distance, margin
from tasks.rephrase.alignment.meaning import chinese, cosine
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.alignment.reading import CachedReaders
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
    alone_, _, again = embedder.vector(long), embedder.vector("Something else."), embedder.vector(long)
    assert (alone_.vector_D == again.vector_D).all()
    assert np.isclose(np.linalg.norm(alone_.vector_D), 1, atol=1e-5)
    assert not np.allclose(alone_.vector_D, embedder.vector(long[: len(long) // 3]).vector_D)
    short = ENGLISH[0][0]
    assert np.allclose(embedder.vector(short).vector_D, embedder.embed([short])[0], atol=1e-6)


@pytest.mark.parametrize("text", ["", "  ", "...", "\u0301", "🙂"])
def test_a_text_without_words_is_compared_with_anything(embedder: MiniLM, text: str) -> None:
    for pair in (Pair(text, ENGLISH[0][0]), Pair(ENGLISH[0][0], text), Pair(text, text)):
        verdict = cosine(pair, embedder, CONFIG)
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
    expected = [embedder.vector(text).vector_D for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = [read.vector_D for read in pool.map(embedder.vector, texts)]
    assert all((one == other).all() for one, other in zip(expected, found, strict=True))


def test_texts_that_share_their_words_are_not_read_by_the_network() -> None:
    for source, rewrite in PARAPHRASES:
        assert cosine(Pair(source, rewrite), Unasked(), CONFIG) is None


def test_a_chinese_text_about_something_else_is_refused_without_the_network() -> None:
    source = "蜜蜂成群生活在蜂巢里，工蜂从蜂巢周围田野里的花朵上采集花蜜，再把它酿成蜂蜜储存起来过冬。"
    said = "工蜂飞到田野里，从花朵采来花蜜，酿成蜂蜜，好让住在蜂巢里的一群蜜蜂过冬。"
    other = "灯塔通常建在海边的悬崖顶上，守塔人每到黄昏便点亮灯火，天亮以后再一一熄灭。"
    assert cosine(Pair(source, said), Unasked(), CONFIG) is None
    verdict = cosine(Pair(source, other), Unasked(), CONFIG)
    assert verdict is not None
    assert not verdict.passed
    assert verdict.why
    assert cosine(Pair("第一章", "首章"), Unasked(), CONFIG) is None  # too short to tell


class Unasked:
    """A network that nobody may ask."""

    def vector(self, text: str) -> Vector:
        raise AssertionError(f"the network was asked of '{text[:60]}'")

    def read(self, *texts: object) -> Reading:
        raise AssertionError("the network was asked")


class Counting:
    """Notes what it reads."""

    def __init__(self, embedder: MiniLM) -> None:
        self.embedder, self.texts, self.seconds = embedder, [], 0.0  # type: ignore[var-annotated]

    def vector(self, text: str) -> Vector:
        self.texts.append(text)
        found = self.embedder.vector(text)
        self.seconds += found.seconds
        return found


def test_a_source_is_read_once_for_all_attempts(embedder: MiniLM) -> None:
    counting = Counting(embedder)
    reader = CachedReaders(counting)
    source = ENGLISH[0][0]
    reader.keep(source)
    for rewrite in FOREIGN[:2]:
        found, expected = (cosine(Pair(source, rewrite), by, CONFIG) for by in (reader, embedder))
        assert found == expected
    assert counting.texts == [source, *FOREIGN[:2]]
    assert reader.seconds == counting.seconds > 0
    reader.keep(FOREIGN[0])
    reader.vector(source)
    assert counting.texts.count(source) == 2
