"""Words paired by the network, what sentences lack on the other side, and how near a pair is to a refusal."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.coverage_weights import fit
from model.engines.embedding import MiniLM, States
from tasks.rephrase.alignment.characters import chinese, loneliest
from tasks.rephrase.alignment.coverage import MEASURES, WEIGHTS, alone, coverage
from tasks.rephrase.alignment.joints import ahead
from tasks.rephrase.alignment.limits import LIMITS
from tasks.rephrase.alignment.margin import distance, margin
from tasks.rephrase.alignment.meaning import cosine
from tasks.rephrase.alignment.nli import sentence_pairs
from tasks.rephrase.alignment.pair import Pair, Verdict
from tasks.rephrase.alignment.words import CachedEmbedder, Match, cosines, read
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


def test_words_find_their_partners_in_other_words_and_another_order(embedder: MiniLM) -> None:
    source = "The king refused to sign the treaty. A gifted physician cured the queen."
    match = Match(
        Pair(source, "A talented doctor healed the queen. The monarch declined to sign the treaty."), embedder
    )
    partners, near = match.partners
    found = {word.text: match.rewrite.words[partners[place]].text for place, word in enumerate(match.source.words)}
    wanted = {"king": "monarch", "refused": "declined", "physician": "doctor", "treaty": "treaty", "cured": "healed"}
    assert {word: found[word] for word in wanted} == wanted
    assert near.min() > 0.3
    assert sentence_pairs(match) == [(0, 1), (1, 0)]
    weights = {word.lower: word.weight for word in match.source.words}
    assert weights["the"] == weights["to"] == 0 < weights["king"] < weights["physician"] <= 1


def test_a_text_is_read_the_same_whatever_was_read_before_and_however_long_it_is(embedder: MiniLM) -> None:
    long = " ".join(source for source, _ in ENGLISH) * 3
    alone_, _, again = embedder.states(long), embedder.states("Something else."), embedder.states(long)
    assert (alone_.words_SD == again.words_SD).all()
    assert len(alone_.spans_S2) > 512
    assert len(alone_.spans_S2) == len(alone_.words_SD) == len(alone_.hidden_SD) == len(alone_.ids_S)
    assert np.isclose(np.linalg.norm(alone_.vector_D), 1, atol=1e-5)
    short = ENGLISH[0][0]
    assert np.allclose(embedder.states(short).vector_D, embedder.embed([short])[0], atol=1e-6)


@pytest.mark.parametrize("text", ["", "  ", "...", "\u0301", "🙂"])
def test_a_text_without_words_is_compared_with_anything(embedder: MiniLM, text: str) -> None:
    for pair in (Pair(text, ENGLISH[0][0]), Pair(ENGLISH[0][0], text), Pair(text, text)):
        match = Match(pair, embedder)
        assert match.near_ON.shape == (len(match.source.words), len(match.rewrite.words))
        assert match.mutual() == [] or text == "🙂"
        verdict = coverage(match, CONFIG)
        assert verdict is not None
        assert 0 <= verdict.score <= 1


@pytest.mark.parametrize("number", range(len(ENGLISH)))
def test_a_paraphrase_covers_its_source_and_a_foreign_sentence_does_not(embedder: MiniLM, number: int) -> None:
    source, paraphrase = ENGLISH[number]
    faithful = coverage(Match(Pair(source, paraphrase), embedder), CONFIG)
    assert faithful is not None
    assert faithful.passed, faithful.why
    foreign = FOREIGN[number % len(FOREIGN)]
    for pair, way in (
        (Pair(source, f"{paraphrase} {foreign}"), "added"),
        (Pair(f"{source} {foreign}", paraphrase), "dropped"),
    ):
        verdict = coverage(Match(pair, embedder), CONFIG)
        assert verdict is not None
        assert not verdict.passed
        assert verdict.why.startswith(f"{way} '")
        named = verdict.why.rpartition("nothing like ")[2].rstrip(")").split(", ")
        assert len(set(named) & set(foreign.rstrip(".").split())) >= 2
        assert verdict.score < faithful.score


def test_where_the_style_adds_steps_nothing_is_held_to_be_added(embedder: MiniLM) -> None:
    source, paraphrase = ENGLISH[0]
    longer = f"{paraphrase} {FOREIGN[0]}"
    assert not coverage(Match(Pair(source, longer), embedder), CONFIG).passed  # type: ignore[union-attr]
    assert alone(Match(Pair(source, longer, adds=True), embedder), "added") == []
    assert coverage(Match(Pair(source, longer, adds=True), embedder), CONFIG).passed  # type: ignore[union-attr]


def test_chinese_is_compared_by_characters_and_not_by_the_network(embedder: MiniLM) -> None:
    source = "蜂蜜水分含量低，细菌很难在其中繁殖。世界许多卫生机构建议，不要给婴儿喂蜂蜜。"
    rewrite = "蜂蜜含的水分少，所以细菌难以繁殖。许多卫生机构都建议不给婴儿喂蜂蜜。"
    faithful = coverage(Match(Pair(source, rewrite), embedder), CONFIG)
    assert faithful is not None
    assert faithful.passed
    dropped = coverage(Match(Pair(source + "地铁列车每隔三分钟从中央车站开往机场。", rewrite), embedder), CONFIG)
    assert dropped is not None
    assert not dropped.passed
    assert dropped.why.startswith("dropped '地铁")
    assert cosine(Match(Pair(source, rewrite), embedder), CONFIG) is None
    assert coverage(Match(Pair(source, ENGLISH[0][0]), embedder), CONFIG) is None
    assert loneliest(source, source).chance == 0


def test_the_weights_in_the_file_are_those_of_the_measures_and_can_be_fitted_again(embedder: MiniLM) -> None:
    known = json.loads(WEIGHTS.read_text(encoding="utf-8"))
    assert {tuple(known[way]) for way in known} == {(*MEASURES, "base")}
    examples = []
    for number, (source, paraphrase) in enumerate(ENGLISH):
        foreign = FOREIGN[number % len(FOREIGN)]
        examples.append(("true", Match(Pair(source, paraphrase), embedder)))
        examples.append(("dropped_sentence", Match(Pair(f"{source} {foreign}", paraphrase), embedder)))
        examples.append(("added_sentence", Match(Pair(source, f"{paraphrase} {foreign}"), embedder)))
    fitted = fit(examples)
    assert fitted == fit(examples)
    assert fitted["dropped"]["share"] > 0 < fitted["added"]["share"]


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
    assert margin(pair, [*verdicts, Verdict("coverage", 0.25, False)], CONFIG) == pytest.approx(-0.5)
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
    reader = CachedEmbedder(counting)
    (one, said_one), (two, said_two) = ENGLISH[:2]
    first, plain = Pair(one, said_one, after_source=two), Pair(two, said_two, before_source=one)
    reader.keep(one, two)
    for some in (first, Pair(one, FOREIGN[0], after_source=two)):
        coverage(Match(some, reader), CONFIG)
        ahead(Match(some, reader), CONFIG)
    reader.keep(two, one)
    found, expected = ([check(Match(plain, by), CONFIG) for check in (coverage, ahead)] for by in (reader, embedder))
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
