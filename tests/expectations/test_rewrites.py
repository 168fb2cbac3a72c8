from __future__ import annotations

import polars as pl
import pytest

from expectations import attempts
from tests.expectations.data import (
    REWRITES_GATE,
    THRESHOLDS,
    corpus,
    documents,
    failures,
    rewrites,
    rewritten,
    segments,
)

ACCEPTED = pl.col("accepted")
FIRST_ACCEPTED = ACCEPTED & (ACCEPTED.cum_sum() == 1)


def first(column: str, value: object) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) == 0).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)


def rewrite_as(expression: pl.Expr) -> pl.Expr:
    return pl.when(FIRST_ACCEPTED).then(expression).otherwise(pl.col("rewrite_text")).alias("rewrite_text")


def test_good_rewrites_pass(tmp_path, passed):
    assert passed(REWRITES_GATE, rewrites(tmp_path)).statistics["success"]


DOCUMENT_DEFECTS = {
    "a source that is not in the corpus": (lambda f: f.with_columns(first("source_id", "f" * 32)), {"whole.orphans"}),
    "another licence than the source's": (lambda f: f.with_columns(first("licence", "MIT")), {"whole.foreign"}),
    "a rewrite twice": (lambda f: pl.concat([f, f.head(1)]), {"whole.written_twice"}),
    "one text in every style": (lambda f: f.with_columns(id=pl.lit("0" * 32)), {"whole.same_text"}),
    "an empty rewrite": (lambda f: f.with_columns(first("text", " \n")), {"whole.blank"}),
    "a style nothing was accepted in": (lambda f: f.with_columns(first("style", "dialogue")), {"whole.unbacked"}),
    "too few": (lambda f: f.head(2), {"whole.documents"}),
}


@pytest.mark.parametrize("defect", DOCUMENT_DEFECTS)
def test_defect_in_the_documents_blocks(tmp_path, blocked, defect):
    change, expected = DOCUMENT_DEFECTS[defect]
    failed = failures(blocked(REWRITES_GATE, rewrites(tmp_path, change)))
    assert expected <= failed
    assert len(failed) <= 2, failed


ALL_REFUSED = {"whole.fallback_rate"} | {
    f"{table}.{rate}_rate" for table in ("styles", "domains") for rate in ("acceptance", "fallback")
}


def test_two_styles_may_now_and_then_give_the_same_text(tmp_path, passed):
    one = rewritten().head(1)
    other = pl.lit("explain" if one["style"][0] == "notes" else "notes").alias("style")
    tried = segments().filter(pl.col("source_id") == one["source_id"][0]).with_columns(other)
    subject = rewrites(tmp_path, lambda f: pl.concat([f, one.with_columns(other)]), lambda f: pl.concat([f, tried]))
    assert passed(REWRITES_GATE, subject).statistics["success"]


SEGMENT_DEFECTS = {
    "nothing accepted": (
        lambda f: f.with_columns(accepted=pl.lit(False), reason=pl.lit("numbers")),
        {"whole.acceptance_rate"},
    ),
    "everything accepted": (
        lambda f: f.with_columns(
            accepted=pl.lit(True), reason=pl.lit(""), rewrite_text=pl.lit("So: ") + pl.col("source_text")
        ),
        {"whole.acceptance_rate"},
    ),
    "accepted though a check failed": (
        lambda f: f.with_columns(reason=pl.when(FIRST_ACCEPTED).then(pl.lit("negation")).otherwise("reason")),
        {"whole.contradicted"},
    ),
    "refused without a reason": (
        lambda f: f.with_columns(reason=pl.lit("")),
        {"whole.unexplained"},
    ),
    "a segment of an unknown document": (
        lambda f: f.with_columns(first("source_id", "f" * 32)),
        {"whole.groundless"},
    ),
    "no style": (lambda f: f.with_columns(first("style", None)), {"styles.unnamed"}),
    "a number that the check refused": (
        lambda f: f.with_columns(
            scores=pl.col("scores").struct.with_fields(
                numbers=pl.when(FIRST_ACCEPTED).then(0.5).otherwise(pl.field("numbers"))
            )
        ),
        {"accepted.other_numbers"},
    ),
    "a copy": (lambda f: f.with_columns(rewrite_as(pl.col("source_text") + pl.lit("\n"))), {"accepted.copies"}),
    "a rewrite cut to nothing": (
        lambda f: f.with_columns(rewrite_as(pl.lit(""))),
        {"accepted.empty", "accepted.outside_length"},
    ),
    "a rewrite that rambles": (
        lambda f: f.with_columns(rewrite_as(pl.col("source_text") + pl.lit(" and so on" * 100))),
        {"accepted.outside_length"},
    ),
}


@pytest.mark.parametrize("defect", SEGMENT_DEFECTS)
def test_defect_in_the_segments_blocks(tmp_path, blocked, defect):
    change, expected = SEGMENT_DEFECTS[defect]
    failed = failures(blocked(REWRITES_GATE, rewrites(tmp_path, segment=change)))
    assert expected <= failed
    follows = {"whole.unbacked", "records.unscored"} | (ALL_REFUSED if defect == "nothing accepted" else set())
    assert len(failed - follows) <= 2, failed


RECORD_DEFECTS = {
    "no prompt": (lambda f: f.with_columns(first("prompt_hash", " ")), {"records.untraced"}),
    "no model": (lambda f: f.with_columns(first("model", None)), {"records.untraced"}),
    "no seed": (lambda f: f.with_columns(first("seed", None)), {"records.untraced"}),
    "no domain": (lambda f: f.with_columns(first("domain", None)), {"domains.unnamed"}),
    "a candidate twice": (lambda f: pl.concat([f, f.filter(~ACCEPTED).head(1)]), {"records.gaps"}),
    "a gap among the attempts": (lambda f: f.with_columns(first("attempt", 1)), {"records.gaps"}),
    "accepted under a threshold": (lambda f: f.with_columns(scores(cosine=0.7)), {"records.failing"}),
    "accepted over a band": (lambda f: f.with_columns(scores(length=2.6)), {"records.failing"}),
    "accepted without a score": (lambda f: f.with_columns(scores(numbers=None)), {"records.unscored"}),
    "the language check refused too often": (
        lambda f: f.with_columns(reason=pl.when("accepted").then(pl.lit("")).otherwise(pl.lit("language"))),
        {"refused.share"},
    ),
    "said again at a seam": (
        lambda f: f.with_columns(
            rewrite_text=pl.when("accepted")
            .then(pl.lit("It is said in so many words that this is so. ") + pl.col("source_text"))
            .otherwise("rewrite_text")
        ),
        {"accepted.said_again"},
    ),
}


def scores(**changed: float | None) -> pl.Expr:
    """The scores of the first accepted attempt, some of them changed."""
    own = pl.col("scores")
    names = ("length", "numbers", "cosine", "judge")
    values = [pl.lit(changed[name], pl.Float64) if name in changed else own.struct.field(name) for name in names]
    return (
        pl.when(FIRST_ACCEPTED).then(pl.struct(**dict(zip(names, values, strict=True)))).otherwise(own).alias("scores")
    )


@pytest.mark.parametrize("defect", RECORD_DEFECTS)
def test_defect_in_what_is_recorded_blocks(tmp_path, blocked, defect):
    change, expected = RECORD_DEFECTS[defect]
    assert failures(blocked(REWRITES_GATE, rewrites(tmp_path, segment=change))) == expected


@pytest.mark.parametrize("scored", [{"cosine": None}, {"judge": 0.9}], ids=["cosine", "judge"])
def test_a_check_that_need_not_score_may_have_scored_some(tmp_path, passed, scored):
    """`cosine` is silent where the words agree, and `judge` is asked about the grey zone alone."""
    change = scores(**scored)
    assert passed(REWRITES_GATE, rewrites(tmp_path, segment=lambda f: f.with_columns(change))).statistics["success"]


def test_two_segments_without_a_score_of_different_checks_are_both_found(tmp_path, blocked):
    """As many scores each, but no check may be left out of either."""
    number = ACCEPTED.cum_sum()
    change = pl.col("scores").struct.with_fields(
        length=pl.when(number % 2 == 0).then(pl.field("length")),
        numbers=pl.when(number % 2 == 1).then(pl.field("numbers")),
    )
    subject = rewrites(tmp_path, segment=lambda f: f.with_columns(change.alias("scores")))
    assert failures(blocked(REWRITES_GATE, subject)) == {"records.unscored"}


def test_band_of_a_style_is_its_own(tmp_path, passed):
    """2.4 times as long is much for all styles but the notes, whose own band says so."""
    notes = pl.col("style") == "notes"
    longer = pl.col("scores").struct.with_fields(length=pl.lit(2.4))
    change = pl.when(notes & ACCEPTED).then(longer).otherwise("scores").alias("scores")
    assert passed(REWRITES_GATE, rewrites(tmp_path, segment=lambda f: f.with_columns(change))).statistics["success"]


def test_length_of_a_style_with_its_own_band_is_the_one_that_the_check_measured(tmp_path, passed):
    """A page's navigation is no part of what a note rewrites, nor are the blanks between segments."""
    page = pl.when(pl.col("style") == "notes").then(pl.lit("Home\nLogin\n" * 200)).otherwise(pl.lit("\n" * 2000))
    change = pl.when(ACCEPTED).then(pl.col("source_text") + page).otherwise("source_text").alias("source_text")
    assert passed(REWRITES_GATE, rewrites(tmp_path, segment=lambda f: f.with_columns(change))).statistics["success"]


def test_band_of_a_level_of_detail_is_its_own(tmp_path, blocked):
    """1.1 times as long is allowed at that level, 1.3 is not, though it would be at others."""
    concise = pl.lit("concise").alias("detail")
    longer = [concise, scores(length=1.3)]
    subject = rewrites(tmp_path, segment=lambda f: f.filter(pl.col("style") == "explain").with_columns(longer))
    gate = REWRITES_GATE.model_copy(update={"documents": 0})
    assert "records.failing" in failures(blocked(gate, subject))


@pytest.mark.parametrize(
    "recorded",
    [{}, {**THRESHOLDS, "cosine": {**THRESHOLDS["cosine"], "least": 0.5}}],
    ids=["none", "another"],
)
def test_recorded_thresholds_are_the_configured_ones(tmp_path, blocked, recorded):
    assert failures(blocked(REWRITES_GATE, rewrites(tmp_path, thresholds=recorded))) == {"records.unlike"}


def test_another_language_than_the_row_says_blocks(tmp_path, blocked):
    subject = rewrites(tmp_path, lambda f: f.with_columns(first("text", "这是一个用中文写的段落，没有一个英文词。")))
    assert failures(blocked(REWRITES_GATE, subject)) == {"accepted.other_language"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [("磨坊用石头砌成。" + "return transform(argument)" * 3, True), ("The mill is of stone. " * 3, False)],
    ids=["code", "English"],
)
def test_a_chinese_document_may_keep_its_code_but_not_become_english(tmp_path, passed, blocked, text, kept):
    """Nine in ten of its letters are those of code, and as many of its rewrite's."""
    source = f"河边的磨坊是石头的。{'return transform(argument)' * 3}"

    def chinese(frame):
        return frame.with_columns(
            text=pl.when(pl.col("source_id") == identity).then(pl.lit(text)).otherwise("text"),
            language=pl.when(pl.col("source_id") == identity).then(pl.lit("zh")).otherwise("language"),
        )

    identity = segments()["source_id"][0]
    sources = documents().with_columns(
        text=pl.when(pl.col("id") == identity).then(pl.lit(source)).otherwise("text"),
        language=pl.when(pl.col("id") == identity).then(pl.lit("zh")).otherwise("language"),
    )
    subject = rewrites(tmp_path, chinese, of=corpus(tmp_path, lambda _: sources))
    if kept:
        assert passed(REWRITES_GATE, subject).statistics["success"]
    else:
        assert failures(blocked(REWRITES_GATE, subject)) == {"accepted.other_language"}


def test_chinese_is_the_language_of_chinese_rows(tmp_path, passed):
    change = [first("text", "这是 bash 的手册。"), first("language", "zh")]
    subject = rewrites(tmp_path, lambda f: f.with_columns(change))
    assert passed(REWRITES_GATE, subject).statistics["success"]


def style_fails(frame: pl.DataFrame) -> pl.DataFrame:
    """Nothing of one style accepted."""
    notes = pl.col("style") == "notes"
    accepted = ACCEPTED & ~notes
    reason = pl.when(notes).then(pl.lit("numbers")).otherwise("reason")
    return frame.with_columns(accepted=accepted, reason=reason)


def test_one_style_that_never_works_blocks_where_it_was_tried_often_enough(tmp_path, blocked, passed):
    subject = rewrites(tmp_path, lambda f: f.filter(pl.col("style") != "notes"), style_fails)
    gate = REWRITES_GATE.model_copy(update={"fallback_rate": 1.0, "group": 24})
    expected = {f"{table}.{rate}" for table in ("styles", "domains") for rate in ("acceptance_rate", "fallback_rate")}
    assert failures(blocked(gate, subject)) == expected
    assert passed(gate.model_copy(update={"group": 25}), subject).statistics["success"], "too few to judge by"


def test_retries_beyond_the_ceiling_block(tmp_path, blocked):
    gate = REWRITES_GATE.model_copy(update={"retry_rate": 0.2})
    assert failures(blocked(gate, rewrites(tmp_path, segment=retry))) == {"whole.retry_rate"}


def test_seam_counts_only_what_the_sources_do_not_share():
    seam = attempts._Seam()
    said = "A sentence that is long enough to be counted."
    place = ("a", "steps")
    assert not seam.again(place, "One source.", said)
    assert seam.again(place, "Another source.", f"{said} And more.")
    assert not seam.again(("b", "steps"), "A third source.", f"{said} And more."), "another document"
    assert not seam.again(("b", "steps"), "A fourth source.", "Short. Short.")
    refrain = "A refrain of the source that comes back in every part."
    assert not seam.again(("c", "steps"), refrain, f"Rewritten: {refrain}")
    assert not seam.again(("c", "steps"), refrain, f"Rewritten: {refrain}"), "the sources share it"


def retry(frame: pl.DataFrame) -> pl.DataFrame:
    """A refused first attempt at ten of the accepted segments."""
    again = frame.filter(ACCEPTED).head(10)
    key = ["source_id", "style", "index"]
    first_ones = again.with_columns(accepted=pl.lit(False), reason=pl.lit("length"))
    later = frame.join(again.select(key, second=pl.lit(1)), on=key, how="left", maintain_order="left")
    later = later.with_columns(attempt=pl.col("second").fill_null(0).cast(frame.schema["attempt"])).drop("second")
    return pl.concat([first_ones, later])


def test_every_attempt_counts(tmp_path, passed):
    """A refused first attempt at an accepted segment lowers the rate and breaks no rule."""

    artifact = passed(REWRITES_GATE, rewrites(tmp_path, segment=retry))
    observed = {
        item["column"]: item["observed"] for item in artifact.statistics["expectations"] if item["table"] == "whole"
    }
    assert observed["segments"] == "50 segments"
    assert observed["acceptance_rate"] == "60 %"


def test_segment_accepted_twice_blocks(tmp_path, blocked):
    def twice(frame):
        return pl.concat(
            [frame, frame.filter(ACCEPTED).head(1).with_columns(attempt=pl.lit(1, frame.schema["attempt"]))]
        )

    assert failures(blocked(REWRITES_GATE, rewrites(tmp_path, segment=twice))) == {"whole.accepted_twice"}


def test_misstated_acceptance_blocks(tmp_path, blocked):
    assert failures(blocked(REWRITES_GATE, rewrites(tmp_path, accepted=99))) == {"whole.misstated"}


def test_nothing_to_rewrite_may_pass_where_the_gate_allows_it(tmp_path, passed):
    gate = REWRITES_GATE.model_copy(update={"documents": 0, "segments": 0, "acceptance_rate": (0.0, 1.0)})
    subject = rewrites(tmp_path, lambda f: f.head(0), lambda f: f.head(0))
    assert passed(gate, subject).statistics["success"]
