from __future__ import annotations

import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expectations.licence import LONGEST, allowed
from expectations.personal import personal
from expectations.similarity import Sample
from tasks.corpus.licence import allowed as curated
from tasks.corpus.licence import normalised
from tests.expectations.data import CORPUS_GATE, Promise, corpus, failures, key

WORDS = [f"{first}{second}" for first in "bcdfghklmnprst" for second in ("alo", "eni", "iru", "oma", "ute")]


def prose(seed: int, words: int = 120) -> str:
    draw = random.Random(seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def distinct(frame: pl.DataFrame) -> pl.DataFrame:
    """The documents with texts of their own, so that no two are alike."""
    texts = pl.Series("text", [prose(number) for number in range(frame.height)])
    return frame.with_columns(texts, pl.Series("id", [key(text) for text in texts]))


def with_texts(*extra: str):
    """The same, the first documents' texts replaced."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        texts = [*extra, *distinct(frame)["text"].to_list()[len(extra) :]]
        return frame.with_columns(pl.Series("text", texts), pl.Series("id", [key(text) for text in texts]))

    return change


def edited(text: str, every: int) -> str:
    """The text with one word in `every` changed."""
    return " ".join(f"{word}x" if at % every == 0 else word for at, word in enumerate(text.split()))


NEAR = Promise(dedup={"near": {"threshold": 0.8, "ngram": 5}})
POLICY = Promise(licences=("CC-BY-4.0", "GPL-*"))
PII = Promise(safety={"pii": {"kinds": ("EMAIL", "KEY")}})
GATE = CORPUS_GATE.model_copy(update={"near_duplicates": 0.01, "personal": 0.0})


def test_kept_promises_pass_and_are_judged(tmp_path, passed):
    config = NEAR.model_copy(update={"licences": POLICY.licences, "safety": PII.safety})
    artifact = passed(GATE, corpus(tmp_path, distinct, config=config))
    judged = {f"{one['table']}.{one['column']}" for one in artifact.statistics["expectations"]}
    assert {"licences.refused", "sample.near_duplicates_share", "sample.personal_share"} <= judged


def test_what_was_never_promised_is_not_judged(tmp_path, passed):
    artifact = passed(GATE, corpus(tmp_path, with_texts("write to jane@rails.org or " * 20)))
    assert not {one["table"] for one in artifact.statistics["expectations"]} & {"licences", "sample"}


def test_near_duplicate_left_blocks_and_both_are_named(tmp_path, blocked):
    text = prose(1000)
    failure = blocked(GATE, corpus(tmp_path, with_texts(text, edited(text, 60)), config=NEAR))
    assert failures(failure) == {"sample.near_duplicates_share"}
    assert key(text) in str(failure)


def test_many_copies_are_no_less_seen_than_two():
    text = prose(11)
    sample = Sample(5, 1.0)
    sample.add(pl.DataFrame({"id": [f"{n:03}" for n in range(200)], "text": [f"{text} {n}" for n in range(200)]}))
    assert sample.pairs(0.8)["other"].n_unique() > 100


def test_similar_texts_below_the_threshold_pass(tmp_path, passed):
    text = prose(1000)
    passed(GATE, corpus(tmp_path, with_texts(text, edited(text, 12)), config=NEAR))


def test_licence_that_the_policy_refuses_blocks(tmp_path, blocked):
    def change(frame):
        return distinct(frame).with_columns(
            pl.when(pl.col("domain") == "math").then(pl.lit("CC-BY-NC-4.0")).otherwise("licence").alias("licence")
        )

    failure = blocked(GATE, corpus(tmp_path, change, config=POLICY))
    assert failures(failure) == {"licences.refused"}
    assert "CC-BY-NC-4.0" in str(failure)


@pytest.mark.parametrize("secret", ["mail jane.doe@rails.org", "AKIA" + "Q7ZP" * 4, "ghp_" + "aB3d" * 9])
def test_personal_data_left_blocks(tmp_path, blocked, secret):
    failure = blocked(GATE, corpus(tmp_path, with_texts(f"{prose(7)} {secret} now"), config=PII))
    assert failures(failure) == {"sample.personal_share"}


@pytest.mark.parametrize(
    "text",
    [
        "write to you@example.com",
        "git clone git@github.com:me/it",
        "ssh://user@host.org:22",
        "a @decorator.com",
        "<PII:EMAIL>",
        "an id such as AKIAIOSFODNN7EXAMPLE",
    ],
)
def test_what_is_nobodys_is_no_personal_data(text):
    assert personal(text, {"EMAIL", "KEY"}) == ""


def test_personal_data_is_looked_for_in_linear_time():
    for text in ("a" * 300_000 + "@", "a.@" * 100_000, "-----BEGIN PRIVATE KEY-----" * 20_000, "x@" + "a." * 150_000):
        personal(text, {"EMAIL", "KEY"})


@pytest.mark.parametrize(
    ("expression", "verdict"),
    [
        ("MIT", True),
        ("MIT OR Proprietary", True),
        ("MIT AND Proprietary", False),
        ("Proprietary OR MIT AND BSD-3-Clause", True),
        ("(Proprietary OR MIT) AND BSD-3-Clause", True),
        ("(Proprietary OR MIT) AND Closed", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("BSD-3-Clause WITH Some-exception", True),
        ("", False),
        ("MIT OR", False),
        ("(MIT", False),
        ("MIT MIT", False),
        ("(" * 30 + "MIT" + ")" * 30, False),
        ("MIT OR " * LONGEST + "MIT", False),
    ],
)
def test_licence_expressions(expression, verdict):
    assert allowed(expression, ("MIT", "BSD-*")) is verdict


@pytest.mark.parametrize("entry", ["GPL-2.0", "LGPL-2.1", "AGPL-3.0", "GFDL-1.3", "Apache-2.0"])
@pytest.mark.parametrize("which", ["", "-only", "-or-later", "+", "-or-later WITH some-exception"])
def test_an_entry_that_leaves_open_which_version_takes_here_what_curation_took(entry, which):
    taken = [licence for licence in (f"{entry}{which}", f"MIT AND {entry}{which}") if curated(licence, (entry, "MIT"))]
    assert taken
    for licence in taken:
        assert allowed(normalised(licence), (entry, "MIT"))
        assert not allowed(normalised(licence), ("MIT",))


@given(st.text(alphabet="()MITANDORWH x", max_size=200))
def test_any_expression_has_a_verdict(expression):
    assert allowed(expression, ("MIT",)) in (True, False)


def exact(one: str, other: str, n: int = 5) -> float:
    a, b = ({tuple(words[at : at + n]) for at in range(len(words) - n + 1)} for words in (one.split(), other.split()))
    return len(a & b) / len(a | b)


def test_similarity_is_the_exact_jaccard_of_shingles():
    text = prose(3)
    texts = [text, edited(text, 40), prose(4)]
    sample = Sample(5, 1.0)
    sample.add(pl.DataFrame({"id": ["a", "b", "c"], "text": texts}))
    pairs = sample.pairs(0.1)
    assert pairs.select("id", "other").rows() == [("a", "b")]
    assert pairs["similarity"][0] == pytest.approx(exact(texts[0], texts[1]), abs=1e-4)


def test_sample_takes_pairs_together_and_does_not_depend_on_batches():
    texts = [text for seed in range(300) for text in (prose(seed, 60), edited(prose(seed, 60), 59))]
    frame = pl.DataFrame({"id": [str(number) for number in range(len(texts))], "text": texts})
    whole, parts = Sample(5, 0.2), Sample(5, 0.2)
    whole.add(frame)
    for rows in frame.iter_slices(7):
        parts.add(rows)
    assert whole.ids == parts.ids
    assert 60 < len(whole.ids) < 200
    # drawn one by one, one pair in twenty-five would be whole; pairs at 0.75 come in together
    assert whole.pairs(0.6).height > 0.3 * len(whole.ids)


def test_chinese_is_compared_by_characters():
    text = "".join(chr(0x4E00 + random.Random(5).randrange(3000) + number) for number in range(200))
    sample = Sample(5, 1.0)
    sample.add(pl.DataFrame({"id": ["a", "b"], "text": [text, text[:190]]}))
    assert sample.pairs(0.9).height == 1


def test_everything_that_was_dropped_has_a_row(tmp_path, blocked):
    subject = corpus(tmp_path, reject=lambda frame: frame.filter(pl.col("stage") != "read"), rejected=12, read=61)
    assert failures(blocked(CORPUS_GATE, subject)) == {"whole.unnamed"}
