"""What lm-evaluation-harness asks and gets; with the library itself where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from model.chat import Chat
from tasks.evaluate.suites.harness import continuations, harness, likelihoods
from tasks.evaluate.suites.subject import Ask, Network
from tests.tasks.evaluate.conftest import small_model, small_tokenizer


@dataclass
class Instance:
    """A request, as the harness makes them."""

    args: tuple[Any, ...]


@pytest.fixture(scope="module")
def subject() -> Network:
    return Network(small_model(), Chat(small_tokenizer()))


def test_likelihoods_of_pairs_and_of_texts_by_themselves(subject):
    pair, alone = likelihoods(subject, [Instance(("12 + 30 =", " 42")), Instance(("The answer",))])
    assert pair == (pytest.approx(subject.likelihoods([("12 + 30 =", " 42")])[0].log_p, rel=1e-4), False)
    assert alone[0] < 0


def test_continuations_end_before_what_they_are_to_end_at(subject):
    (whole,) = continuations(subject, [Instance(("What is", {"max_gen_toks": 8}))])
    assert whole == subject.replies([Ask(text="What is", max_new_tokens=8)])[0][0].content
    stop = whole[len(whole) // 2]
    asked = [
        Instance(("What is", {"until": [stop, "never"], "max_gen_toks": 8})),
        Instance(("a" * 900, {"until": "x"})),
    ]
    assert continuations(subject, asked) == [whole[: whole.index(stop)], ""]
    assert continuations(subject, [Instance(("What is", {"until": ["", "never"], "max_gen_toks": 8}))]) == [whole]


def test_the_library_takes_it_for_a_model(subject):
    pytest.importorskip("lm_eval.api.model", reason="the extra `harness` is not installed")
    assert harness(subject).loglikelihood([Instance(("a", "b"))])[0][0] < 0
