from __future__ import annotations

import polars as pl
import pytest

from tests.expectations.data import CORPUS_GATE, corpus, failures, key

FIRST = pl.int_range(pl.len()) == 0


def test_good_corpus_passes(tmp_path, passed):
    artifact = passed(CORPUS_GATE, corpus(tmp_path))
    assert artifact.statistics["success"]
    assert artifact.statistics["failed"] == 0
    assert artifact.statistics["evaluated"] == len(artifact.statistics["expectations"]) > 20


def first(column: str, value: object) -> pl.Expr:
    return pl.when(FIRST).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)


def retext(frame: pl.DataFrame, text: str) -> pl.DataFrame:
    return frame.with_columns(first("text", text), first("id", key(text)))


def rename_domain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(first("domain", "poetry"))


DEFECTS = {
    "a document twice": (lambda f: pl.concat([f, f.head(1)]), {"whole.duplicate_ids"}),
    "an id of another text": (lambda f: f.with_columns(first("id", "0" * 32)), {"files.wrong_id"}),
    "no licence": (lambda f: f.with_columns(first("licence", None)), {"files.no_licence", "sources.no_licence"}),
    "a licence of 'Unknown'": (
        lambda f: f.with_columns(first("licence", "Unknown")),
        {"files.no_licence", "sources.no_licence"},
    ),
    "no url": (lambda f: f.with_columns(first("url", " ")), {"files.no_origin"}),
    "an empty text": (lambda f: retext(f, ""), {"files.wrong_length"}),
    "an endless text": (lambda f: retext(f, "word " * 3000), {"files.wrong_length"}),
    "a domain nobody named": (rename_domain, {"domains.domain"}),
    "no Chinese": (
        lambda f: f.filter(pl.col("language") == "en"),
        {"languages.documents", "languages.share"},
    ),
    "broken charset": (lambda f: retext(retext(f, "�" * 60), "caf� " * 30), {"whole.damaged_share"}),
    "too few documents": (
        lambda f: f.filter(pl.int_range(pl.len()) % 3 == 0),
        {"whole.documents", "whole.bytes"},
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defect_blocks(tmp_path, blocked, defect):
    change, expected = DEFECTS[defect]
    failure = blocked(CORPUS_GATE, corpus(tmp_path, change))
    assert expected <= failures(failure)
    # Nothing that has nothing to do with the defect may fail: a gate that cries wolf is switched off.
    assert len(failures(failure) - expected) <= 2, failures(failure)


def test_missing_domain_names_it(tmp_path, blocked):
    failure = blocked(CORPUS_GATE, corpus(tmp_path, lambda f: f.filter(pl.col("domain") != "math")))
    assert {"domains.documents", "domains.share", "whole.documents"} <= failures(failure)
    assert "math 0 documents" in str(failure)


def test_one_source_for_everything(tmp_path, blocked):
    gate = CORPUS_GATE.model_copy(update={"largest_source": 0.2})
    assert failures(blocked(gate, corpus(tmp_path))) == {"sources.share"}


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"documents": 49}, {"whole.misstated"}),
        ({"read": 70}, {"whole.unaccounted"}),
        ({"rejected": 600, "read": 649}, {"whole.rejected_share", "whole.unnamed"}),
        ({"unreadable": 30, "read": 90}, {"whole.unreadable_share", "whole.unnamed"}),
    ],
)
def test_statistics_that_do_not_add_up(tmp_path, blocked, stated, expected):
    assert failures(blocked(CORPUS_GATE, corpus(tmp_path, **stated))) == expected


def test_reject_without_a_reason(tmp_path, blocked):
    subject = corpus(tmp_path, reject=lambda f: f.with_columns(first("reason", None)))
    assert failures(blocked(CORPUS_GATE, subject)) == {"whole.unexplained"}


def test_empty_corpus_is_refused_not_passed_over(tmp_path, blocked):
    failed = failures(blocked(CORPUS_GATE, corpus(tmp_path, lambda f: f.head(0))))
    assert {"whole.documents", "whole.bytes", "domains.documents"} <= failed


def by_source(**counts: dict[str, int]) -> dict[str, dict[str, int]]:
    """What the corpus stage says of the sources that the fixture's documents are of, and of others."""
    names = ("web-en", "code-en", "math-en", "knowledge-en", "knowledge-zh")
    return {name: {"raw_bytes": 1000, "unreadable_bytes": 0} for name in names} | counts


def test_a_source_that_gave_nothing_is_refused_by_name(tmp_path, blocked):
    failure = blocked(CORPUS_GATE, corpus(tmp_path, by_source=by_source(letters={"raw_bytes": 10, "documents": 0})))
    assert failures(failure) == {"sources.documents"}
    assert "letters 0 documents" in str(failure)


@pytest.mark.parametrize(("lost", "fails"), [(500, False), (501, True), (1000, True)])
def test_a_source_whose_bytes_are_mostly_unreadable_is_refused_by_name(tmp_path, lost, fails, blocked, passed):
    """One lost file is one unreadable record of dozens, and may be all that there was."""
    gate = CORPUS_GATE.model_copy(update={"unreadable": 0.5})
    stated = by_source(**{"math-en": {"raw_bytes": 1000, "unreadable_bytes": lost}})
    if not fails:
        passed(gate, corpus(tmp_path, by_source=stated))
        return
    failure = blocked(gate, corpus(tmp_path, by_source=stated))
    assert failures(failure) == {"sources.unreadable_share"}
    assert "math-en" in str(failure)


def test_many_raw_bytes_that_are_unreadable_are_refused_whatever_the_records(tmp_path, blocked):
    stated = by_source(**{"math-en": {"raw_bytes": 4000, "unreadable_bytes": 1900}})
    failure = blocked(CORPUS_GATE, corpus(tmp_path, by_source=stated))
    assert failures(failure) == {"whole.unreadable_bytes_share"}
