"""What a run will ask, held to what it asks: documents gone through without an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from model.engines.engine import Message, Price
from tasks.rephrase.config import RephraseConfig, SegmentsConfig
from tasks.rephrase.document import Job
from tasks.rephrase.ledger import Ledger, add, statistics
from tasks.rephrase.prediction import FILE, Rates, comparison, keep_rates, known_rates, predict, shared, weigh
from tasks.rephrase.prompts import styles
from tasks.rephrase.segments import estimate_tokens, segment
from tests.tasks.rephrase.conftest import row
from tests.tasks.rephrase.pairs import PARAPHRASES

CONFIG = RephraseConfig(prompt="full", segments=SegmentsConfig(tokens=60, window=1024), attempts=3, rewritten=0.5)
TEXT = "\n\n".join(source for source, _ in PARAPHRASES[:6])
JOB = Job(row(TEXT), "academic", styles()["academic"])
PARTS = segment(TEXT, 60)
CERTAIN = Rates(first=1.0)


def test_every_segment_is_asked_once_by_a_rewriter_that_never_fails() -> None:
    found = predict(CONFIG, [JOB], 1, 1, CERTAIN, Price())
    assert found.requests == found.segments == len(PARTS)
    assert found.tokens_generated == pytest.approx(sum(estimate_tokens(part.text) for part in PARTS), rel=0.3)
    # a chat that holds all before it: all but the first prompt and each new part was there already
    assert 0.5 * found.tokens_prompt < found.tokens_cached < found.tokens_prompt
    assert (found.money, found.seconds, found.basis) == (0, None, "assumed")


def test_a_rewriter_that_always_fails_is_asked_until_the_document_is_lost() -> None:
    found = predict(CONFIG, [JOB], 1, 1, Rates(first=0.0, retry=0.0), Price())
    lost = len(PARTS) - int(CONFIG.rewritten * len(PARTS) + 0.999) + 1
    assert found.requests == CONFIG.attempts * lost


def test_a_translation_is_lost_with_its_first_segment() -> None:
    name = next(name for name, style in styles().items() if style.translates)
    job = Job(row(TEXT), name, styles()[name])
    found = predict(CONFIG, [job], 1, 1, Rates(first=0.0, retry=0.0), Price())
    assert found.requests == CONFIG.attempts


def test_every_candidate_is_counted_and_finds_its_prompt_in_the_cache() -> None:
    one, three = (
        predict(CONFIG.model_copy(update={"best_of": count}), [JOB], 1, 1, CERTAIN, Price()) for count in (1, 3)
    )
    assert (three.segments, three.requests) == (one.segments, 3 * one.requests)
    assert three.tokens_generated == pytest.approx(3 * one.tokens_generated, abs=3)
    assert three.tokens_prompt == pytest.approx(3 * one.tokens_prompt, abs=3)
    assert three.tokens_prompt - three.tokens_cached == one.tokens_prompt - one.tokens_cached


def test_a_sample_stands_for_the_whole_and_money_follows_the_tokens() -> None:
    price = Price(prompt=3.0, cached=0.3, generated=15.0)
    one = predict(CONFIG, [JOB], 1, 1, CERTAIN, price)
    many = predict(CONFIG, [JOB, JOB], 2, 500, Rates(first=1.0, generated_per_second=100.0, measured=True), price)
    assert many.requests == 500 * one.requests
    assert many.money == pytest.approx(500 * one.money, rel=1e-3)
    computed = one.tokens_prompt - one.tokens_cached
    assert one.money == pytest.approx(
        (3 * computed + 0.3 * one.tokens_cached + 15 * one.tokens_generated) / 1e6, abs=2e-6
    )
    assert many.seconds == pytest.approx(many.tokens_generated / 100, abs=0.1)
    assert f"{many.requests:,} requests" in many.sentence()
    assert "at the last measured rate" in many.sentence()
    assert "assumed" not in many.sentence()


def test_nothing_chosen_is_nothing_predicted() -> None:
    found = predict(CONFIG, [], 0, 0, CERTAIN, Price())
    assert (found.documents, found.requests, found.tokens_prompt, found.tokens_cached) == (0, 0, 0, 0)


def test_what_two_prompts_share_is_their_common_beginning() -> None:
    system, user = Message("system", "Be brief."), Message("user", "One two three four five.")
    before = (system, user, Message("assistant", "Yes."))
    assert shared(before, (*before, Message("user", "More."))) == weigh(before)
    assert shared(before, (Message("system", "Be kind."), user)) == estimate_tokens("Be ")
    assert shared((), before) == 0
    stricter = (system, Message("user", "One two three four five. Check."))
    assert weigh((system,)) < shared(before, stricter) <= weigh(before)


def test_what_was_measured_makes_the_next_prediction(tmp_path: Path) -> None:
    assert known_rates(tmp_path, "e", "m") == Rates()
    ledger = Ledger()
    ledger._everywhere(
        "s", "d", {"segments": 30, "accepted": 15, "asked": 20, "accepted_first": 10, "accepted_retry": 5}
    )
    add(ledger.counts, {"attempts_again": 10})
    counts = ledger.counts
    tokens = {"tokens_prompt": 900, "tokens_cached": 500, "tokens_generated": 300, "seconds_wall": 10.0}
    measured = {"estimated_prompt": 600, "measured_prompt": 900, "estimated_generated": 200, "measured_generated": 300}
    add(counts, tokens | measured | {"estimated_cached": 1000, "measured_cached": 500, "expected_generated": 400.0})
    found = statistics(counts)
    assert found["tokens_per_estimate"] == {"prompt": 1.5, "generated": 1.5}
    keep_rates(tmp_path, "e", "m", counts, found)
    assert known_rates(tmp_path, "e", "m") == Rates(1.5, 0.5, 0.75, 0.5, 0.5, 30.0, True)
    assert known_rates(tmp_path, "e", "other") == Rates()
    (tmp_path / FILE).write_text('{"e|m": {"prompt": "much"}}')
    assert known_rates(tmp_path, "e", "m") == Rates()
    (tmp_path / FILE).write_text("not json")
    assert known_rates(tmp_path, "e", "m") == Rates()


def test_predicted_and_actual_stand_side_by_side() -> None:
    names = ("requests", "tokens_prompt", "tokens_cached", "tokens_generated")
    found = dict.fromkeys(names, 30) | {"money": 0.5, "seconds_wall": 9.0}
    table = comparison(dict.fromkeys(names, 20) | {"money": 0.0, "seconds": None}, found)
    assert table["requests"] == {"predicted": 20, "actual": 30, "ratio": 1.5}
    assert table["money"] == {"predicted": 0.0, "actual": 0.5, "ratio": None}
    assert table["seconds"] == {"predicted": None, "actual": 9.0, "ratio": None}
    assert comparison({}, found) == {}
