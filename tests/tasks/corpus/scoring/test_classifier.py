"""The classifier as plain functions: it learns, its bytes are fixed, hostile text is scored, and figures are right."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.corpus.codepoints import rolling, token_hashes
from tasks.corpus.scoring.calibration import Calibration, area, average_precision, fit, ranked, reliability, spearman
from tasks.corpus.scoring.classifier import Classifier, balanced, calibrate, features, raw_scores, score, train
from tasks.corpus.scoring.config import ClassifierConfig
from tasks.corpus.scoring.telling import telling
from tests.tasks.corpus.scoring.data import text

CONFIG = ClassifierConfig(bits=14)


def examples(first: int, count: int) -> tuple[list[str], np.ndarray]:
    labels = [seed % 3 != 0 for seed in range(first, first + count)]
    return [text(label, seed, seed % 5 == 0) for seed, label in enumerate(labels, first)], np.array(labels)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return calibrate(train(*examples(0, 600), CONFIG), *examples(600, 200))


def test_it_tells_what_it_was_taught_apart_and_its_probabilities_hold(model: Classifier) -> None:
    texts, labels = examples(800, 300)
    said = score(model, texts)
    assert area(said, labels) > 0.97
    assert reliability(said, labels, balanced(labels))[1] < 0.08
    chinese = [place for place in range(len(texts)) if (800 + place) % 5 == 0]
    assert area(said[chinese], labels[chinese]) > 0.95


def test_the_same_examples_give_the_same_weights_and_another_seed_others(model: Classifier) -> None:
    again = train(*examples(0, 600), CONFIG)
    assert again.weights.tobytes() == model.weights.tobytes()
    other = train(*examples(0, 600), CONFIG.model_copy(update={"seed": 1}))
    assert other.weights.tobytes() != model.weights.tobytes()


def test_a_text_scores_the_same_whatever_stands_beside_it(model: Classifier) -> None:
    texts, _ = examples(0, 1100)  # more than one batch
    together = score(model, texts)
    order = random.Random(0).sample(range(len(texts)), len(texts))
    assert np.array_equal(score(model, [texts[place] for place in order]), together[order])
    assert score(model, [texts[7]])[0] == together[7]


def test_what_is_written_is_what_was_learned(model: Classifier, tmp_path) -> None:
    model.save_weights(tmp_path / "w.safetensors")
    model.save_card(tmp_path / "card.json")
    read = Classifier.load(tmp_path / "w.safetensors", tmp_path / "card.json")
    texts, _ = examples(900, 50)
    assert np.array_equal(score(read, texts), score(model, texts))


@pytest.mark.parametrize(
    "hostile", ["", " \n\t", "\0" * 1000, "\ud800 lone", "a" * 1_000_000, "数" * 300_000, "💥" * 999]
)
def test_hostile_text_gets_a_probability(model: Classifier, hostile: str) -> None:
    assert 0 <= score(model, [hostile])[0] <= 1


def test_only_the_beginning_is_read(model: Classifier) -> None:
    base = text(True, 1)
    base += " " * (CONFIG.characters - len(base)) if len(base) < CONFIG.characters else ""
    assert score(model, [base])[0] == score(model, [base[: CONFIG.characters] + " click buy cheap" * 99])[0]


def test_features_are_the_tokens_and_their_runs_text_by_text() -> None:
    texts = ["One two three", "", "one", "两个 two three"]
    ids, starts = features(texts, 2, 12)
    assert np.diff(starts).tolist() == [5, 0, 1, 7]
    hashes, borders = token_hashes(texts)
    (words, borders), (pairs, edges) = (rolling(hashes, borders, n) for n in (1, 2))
    for place in range(len(texts)):
        wanted = np.concatenate([words[borders[place] : borders[place + 1]], pairs[edges[place] : edges[place + 1]]])
        assert ids[starts[place] : starts[place + 1]].tolist() == (wanted >> np.uint64(52)).tolist()
    assert ids[0] == ids[starts[2]]  # in lower case


def test_the_most_telling_ngrams_are_the_words_that_part_the_sides(model: Classifier) -> None:
    texts, labels = examples(0, 600)
    told = telling(model, texts, labels, most=12)
    good, poor = (
        {word for entry in told[side] for ngram in entry["ngrams"] for word in ngram.split()} for side in told
    )
    assert {"theorem", "proof"} & good
    assert {"click", "buy", "cheap"} & poor
    assert {"theorem", "proof"}.isdisjoint(poor)
    first = told["positive"][0]
    assert first["weight"] > 0
    assert first["positives"] > first["negatives"]


def test_figures_on_cases_worked_by_hand() -> None:
    scores, labels = np.array([0.1, 0.4, 0.35, 0.8]), np.array([False, False, True, True])
    assert area(scores, labels) == 0.75
    assert average_precision(scores, labels, np.ones(4)) == pytest.approx((1 + 2 / 3) / 2)
    assert area(np.zeros(4), labels) == 0.5  # ties
    assert average_precision(np.zeros(4), labels, np.ones(4)) == 0.5
    assert area(scores, np.ones(4, bool)) is None
    rows, error = reliability(np.array([0.05, 0.05, 0.95, 0.95]), np.array([False, True, True, True]), np.ones(4))
    assert rows == [{"said": 0.05, "so": 0.5, "examples": 2}, {"said": 0.95, "so": 1.0, "examples": 2}]
    assert error == pytest.approx(0.25)
    assert spearman(np.array([1, 2, 3, 4]), np.array([1, 8, 27, 64])) == pytest.approx(1)
    assert spearman(np.array([1, 2, 3]), np.array([5, 5, 5])) is None
    assert ranked(np.array([3, 1, 3])).tolist() == [2.5, 1, 2.5]


@given(st.lists(st.tuples(st.floats(-5, 5), st.booleans()), min_size=4, max_size=60))
def test_a_calibration_never_falls_and_stays_a_probability(pairs) -> None:
    scores, labels = np.array([one for one, _ in pairs]), np.array([two for _, two in pairs])
    if labels.all() or not labels.any():
        return
    curve = fit(scores, labels, balanced(labels))
    said = curve.apply(np.linspace(-9, 9, 200))
    assert (np.diff(said) >= -1e-12).all()
    assert ((said >= 0) & (said <= 1)).all()
    mean = float(np.average(curve.apply(scores), weights=balanced(labels)))
    assert mean == pytest.approx(0.5, abs=0.2)


def test_platt_finds_the_curve_that_made_the_labels() -> None:
    draw = np.random.default_rng(0)
    scores = draw.normal(size=20_000)
    labels = draw.random(20_000) < 1 / (1 + np.exp(-(2 * scores - 0.5)))
    curve = fit(scores, labels, np.ones(20_000))
    assert (curve.slope, curve.intercept) == pytest.approx((2, -0.5), abs=0.06)
    opposite = fit(scores, ~labels, np.ones(20_000))
    assert opposite.slope == 0  # a score that says the opposite says nothing
    assert Calibration().apply(np.zeros(1))[0] == 0.5


def test_training_weighs_both_sides_the_same() -> None:
    assert balanced(np.array([True, False, False, False])).tolist() == pytest.approx([2, 2 / 3, 2 / 3, 2 / 3])
    texts = [text(True, seed) for seed in range(300)] + [text(False, seed) for seed in range(20)]
    few = train(texts, np.array([True] * 300 + [False] * 20), CONFIG)
    assert raw_scores(few, [text(False, 999)])[0] < 0 < raw_scores(few, [text(True, 999)])[0]
