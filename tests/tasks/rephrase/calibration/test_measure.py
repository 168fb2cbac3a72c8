"""The measurement, with the real network: every check asked of every case, the same however many processes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.cli import app
from tasks.rephrase.alignment.stack import CHECKS, NAMES
from tasks.rephrase.calibration import outcome, report
from tasks.rephrase.calibration.cases import REAL, TRUE, of_corpus, of_pairs
from tasks.rephrase.calibration.edits import draw
from tasks.rephrase.calibration.measure import Result, judge, measure
from tasks.rephrase.calibration.pairs import TruePair, load
from tasks.rephrase.config import AlignmentConfig
from tasks.report import html
from tasks.report.markdown import markdown
from tests.tasks.rephrase.conftest import row, write_corpus

FEW = sorted(load(), key=lambda pair: draw("test", pair.id))[:10]


@pytest.fixture(scope="module")
def results(embedder) -> list[Result]:
    return [result for document in of_pairs(FEW) for result in judge(document, AlignmentConfig(), embedder)]


def test_every_check_is_asked_of_every_case(results: list[Result]):
    assert {result.case.id for result in results} == {pair.id for pair in FEW}
    assert sum(result.case.kind == TRUE for result in results) == len(FEW)
    for result in results:
        asked = [verdict.check for verdict in result.verdicts]
        assert asked == [name for name in NAMES if name in asked]
        # the network that reads English alone is asked of English alone
        assert set(NAMES) - set(asked) == (set() if result.case.language == "en" else {"cosine"})
        assert result.accepted == (not result.refused_by)


def test_up_to_the_first_refusal_the_stack_says_the_same(results: list[Result], embedder):
    few = [r for document in of_pairs(FEW[:4]) for r in judge(document, AlignmentConfig(), embedder, every=False)]
    known = {result.case: result for result in results}
    for result in few:
        assert result.accepted == known[result.case].accepted
        assert result.refused_by == known[result.case].refused_by[:1]


def test_a_corruption_borrows_from_its_own_half_alone():
    pairs = load()[::6]
    tune = [pair for pair in pairs if pair.half == "tune"]
    both = {case.rewrite for document in of_pairs(pairs) for case in document if case.half == "tune"}
    alone = {case.rewrite for document in of_pairs(tune) for case in document}
    assert both == alone


def test_processes_change_nothing():
    documents = of_pairs(FEW, ("negation", "number_swap"))
    one = measure(documents, AlignmentConfig(), 1, "cheap")
    two = measure(documents, AlignmentConfig(), 2, "cheap")
    assert one == two
    assert {len(result.verdicts) for result in one} == {len(CHECKS)}


def test_as_page_markdown_and_data(results: list[Result]):
    found = outcome.outcome(AlignmentConfig(), results)
    page, tables, data = html.page(report.page(found)), markdown(report.tables(found)), outcome.data(found)
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert "number swap" in tables
    assert json.loads(json.dumps(data)) == data
    assert data["pairs"] == len(FEW)
    test = data["groups"]["test"]
    assert test["accepted"]["of"] == sum(pair.half == "test" for pair in FEW)
    assert test["checks"].keys() == set(NAMES)
    assert html.page(report.page(found)) == page


def test_nothing_of_the_test_half_is_shown(results: list[Result]):
    page = html.page(report.page(outcome.outcome(AlignmentConfig(), results)))
    unseen = [pair for pair in FEW if pair.half == "test"]
    assert unseen
    assert not any(pair.id in page for pair in unseen)


def test_what_a_text_holds_cannot_leave_it(results: list[Result]):
    pair = TruePair(
        id="odd\x1b[2J",
        domain="web",
        language="en",
        style="plain",
        source="<script>x</script> It is 5 m.",
        rewrite="No.",
    )
    (case,) = of_pairs([pair], (), 1)
    found = outcome.outcome(AlignmentConfig(), [Result(case[0], results[0].verdicts)])
    page = html.page(report.page(found))
    assert "\x1b" not in page
    assert "<script>" not in page


def test_segments_of_a_corpus_beside_themselves(tmp_path: Path):
    text = "The bridge was opened in 1932 by Ada Grey. It is 503 metres long, and it carries eight lanes. " * 6
    corpus = write_corpus(tmp_path, [row(text), row(text.replace("1932", "1944"))])
    documents = of_corpus(corpus, 5, seed=0, tokens=128)
    cases = [case for document in documents for case in document]
    assert cases
    assert documents == of_corpus(corpus, 5, seed=0, tokens=128)
    for case in cases:
        assert case.style == REAL
        assert case.faithful == (case.source == case.rewrite)
    for result in measure(documents, AlignmentConfig(), 1, "cheap"):
        assert "copied" not in {verdict.check for verdict in result.verdicts}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--kind", "colour"], "no kind 'colour'"),
        (["--failures", "nothing"], "no kind 'nothing'"),
        (["--failures", "true", "--half", "both"], "no half 'both'"),
        (["--quick", "--json", "/tmp/never.json"], "leave it out"),
        (["--pairs", "/nowhere.jsonl"], "cannot be read"),
        (["--set", "rephrase.alignment.cosine=7"], "cosine"),
    ],
)
def test_what_is_wrong_is_one_sentence(arguments: list[str], told: str):
    found = CliRunner().invoke(app, ["calibrate-alignment", *arguments])
    assert found.exit_code != 0
    assert told in str(found.exception)


def test_the_command(tmp_path: Path):
    own = tmp_path / "own.jsonl"
    own.write_text("".join(json.dumps(pair.model_dump()) + "\n" for pair in FEW), encoding="utf-8")
    arguments = ["--cheap", "--workers", "1", "--root", str(tmp_path), "--pairs", str(own)]
    command = ["calibrate-alignment", *arguments, "--json", str(tmp_path / "new" / "out.json")]
    found = CliRunner().invoke(app, command, catch_exceptions=False)
    assert found.exit_code == 0
    assert "10 pairs" in found.output
    written = (tmp_path / "new" / "out.json").read_bytes()
    CliRunner().invoke(app, command, catch_exceptions=False)
    assert (tmp_path / "new" / "out.json").read_bytes() == written
    # A band that nothing fits breaks the promise to accept.
    narrow = ["--set", "rephrase.alignment.length=[0.999, 1.001]", "--check"]
    assert CliRunner().invoke(app, ["calibrate-alignment", *arguments, *narrow]).exit_code == 1


def test_failures_are_shown_of_the_tune_half():
    found = CliRunner().invoke(
        app,
        ["calibrate-alignment", "--cheap", "--workers", "1", "--sample", "20", "--failures", "relation", "-n", "3"],
        catch_exceptions=False,
    )
    assert "Relation that passes" in found.output
    assert not any(pair.id in found.output for pair in load() if pair.half == "test")
