"""The measurement: every check asked of every pair, the same however many processes; what is shown of it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from model.engines.embedding import MiniLM, Vector
from model.engines.engine import Completion, EngineError, Prompt
from model.engines.support import Reading, Sentence
from tasks.rephrase.alignment.judge import WHOLE, Judge
from tasks.rephrase.alignment.pair import Verdict
from tasks.rephrase.alignment.stack import NAMES
from tasks.rephrase.calibration import report
from tasks.rephrase.calibration.corpus import of_corpus
from tasks.rephrase.calibration.figures import Outcome
from tasks.rephrase.calibration.measure import LEARNED, Result, consult, measure
from tasks.rephrase.calibration.pairs import Row, load
from tasks.rephrase.config import AlignmentConfig, FidelityJudgeConfig
from tasks.report import html
from tasks.report.markdown import markdown
from tests.tasks.rephrase.conftest import row, write_corpus

CONFIG = AlignmentConfig(fidelity_model="path:/models/asked-for-nothing-here.gguf")
BRIDGE = (
    "The bridge was opened in 1932 by Ada Grey. It has carried eight lanes of traffic ever since. The lighthouse on "
    "the cliff was painted red by its keeper."
)
KEPT = (
    "In 1932 Ada Grey opened the bridge. Eight lanes of traffic have run over it from then on. On the cliff stands a "
    "lighthouse, to which its keeper gave a coat of red paint."
)
LOST = KEPT.split(" On the cliff")[0]
OWN = [
    Row("x/0", "own", "en", "history", "faithful", BRIDGE, KEPT),
    Row("x/1", "own", "en", "history", "omission", BRIDGE, LOST, "the lighthouse is left out"),
    Row("x/2", "own", "en", "history", "number", BRIDGE, KEPT.replace("1932", "1923"), "another year"),
    Row("x/3", "own", "en", "history", "hedge", BRIDGE, KEPT, "nothing: every check lets it pass"),
]
DEV = load(["dev"])[:30]


class MadeUp:
    """Networks whose word on two texts is made up: what one of them has more sentences of, the other does not say."""

    def __init__(self) -> None:
        self._texts = MiniLM()

    def vector(self, text: str) -> Vector:
        return self._texts.vector(text)

    def read(
        self,
        source: str,
        lost: Sequence[tuple[int, int]],
        rewrite: str,
        unsupported: Sequence[tuple[int, int]],
        context: str = "",
    ) -> Reading:
        def judged(spans: Sequence[tuple[int, int]], other: int) -> tuple[Sentence, ...]:
            return tuple(Sentence(*span, 3.0 if place >= other else -3.0) for place, span in enumerate(spans))

        wrong = 2.0 if len(lost) != len(unsupported) else -2.0
        return Reading(judged(lost, len(unsupported)), judged(unsupported, len(lost)), wrong, 0.0)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return measure([*OWN, *DEV], CONFIG, 1, MadeUp)


def test_every_check_is_asked_of_every_pair(results: list[Result]):
    assert [result.row for result in results] == [*OWN, *DEV]
    for result in results:
        asked = [verdict.check for verdict in result.verdicts]
        assert asked == [name for name in NAMES if name in asked]
        assert set(NAMES) - set(asked) <= {"cosine"}  # which has nothing to say where the words of both agree
        assert result.accepted == (not result.refused_by)
        assert result.seconds > 0


def test_what_refuses(results: list[Result]):
    kept, lost, number, hedge = results[:4]
    assert (kept.refused_by, hedge.refused_by) == ((), ())
    assert lost.refused_by == (LEARNED,)
    assert "numbers" in number.refused_by
    assert lost.score < CONFIG.fidelity <= kept.score
    assert [some.accepted_but for some in (kept, lost, number)] == [True, True, False]


def test_processes_change_nothing(results: list[Result]):
    assert measure([*OWN, *DEV], CONFIG, 2, MadeUp) == results


def test_as_page_and_markdown(results: list[Result]):
    found = Outcome(CONFIG, results[:4], "mine.jsonl")
    page, tables = html.page(report.page(found)), markdown(report.overview(found))
    assert page.startswith("<!DOCTYPE html>")
    assert "<script" not in page
    assert "all defects" in tables
    assert f"**{CONFIG.fidelity:g}** configured" in tables
    assert "configured: 0.5" in page
    assert KEPT in page
    assert KEPT not in tables


def test_a_judge_is_asked_of_every_pair_and_the_curve_is_over_its_threshold(results: list[Result]):
    def ask(prompt: Prompt) -> Completion:
        yes = 0.1 if "lighthouse" not in prompt.messages[1].content.partition("<rewriting>")[2] else 0.7
        whole = prompt.messages[1].content.endswith(WHOLE)
        chance = math.log(yes if whole else 1 - yes)
        return Completion("", "length", 9, 0, 1, 0.0, likeliest={"yes": chance, "no": math.log(1 - math.exp(chance))})

    config = CONFIG.model_copy(update={"judge": FidelityJudgeConfig(least=0.6)})
    judged = consult(results[:4], Judge(config.judge, ask), slots=2)
    assert [result.row for result in judged] == OWN
    assert [round(result.score, 6) for result in judged] == [0.7, 0.1, 0.7, 0.7]
    assert [result.refused_by for result in judged] == [(), (LEARNED, "judge"), results[2].refused_by, ()]
    found = Outcome(config, judged, "mine.jsonl")
    assert found.whole.areas["omission"] == 1.0
    assert [point.defects.count for point in found.curve((0.65, 0.75))] == [1, 0]
    tables = markdown(report.overview(found))
    assert "alignment.judge.least" in tables
    assert "**0.6** configured" in tables


def test_failures(results: list[Result]):
    section = report.failures(results[:4], "hedge", 5)
    assert (section.title, section.summary[:8]) == ("Hedge that passes", "1 of 1: ")
    assert "every check lets it pass" in section.blocks[0].note
    assert report.failures(results[:4], "omission", 5).blocks == []


def test_nothing_of_the_test_set_is_shown(results: list[Result]):
    hidden = [replace(result, row=replace(result.row, part="test")) for result in results]
    assert report.failures(hidden, "hedge", 5).blocks == []
    page = html.page(report.page(Outcome(CONFIG, hidden)))
    assert not any(text in page for result in hidden for text in (result.row.source, result.row.rewrite))


def test_what_a_text_holds_cannot_leave_it(results: list[Result]):
    odd = Row("odd\x1b[2J", "own", "e\x1bn", "<script>", "hedge", "<script>x</script> It is 5 m.", "No.", "\x1b[2J")
    page = html.page(report.page(Outcome(CONFIG, [replace(results[3], row=odd), results[0]], "<script>\x1b")))
    assert "odd" in page
    assert "\x1b" not in page
    assert "<script>" not in page


def test_pairs_of_one_side_alone_have_figures_too(results: list[Result]):
    assert "100.0 (" in markdown(report.overview(Outcome(CONFIG, results[:1])))
    assert "refused" in markdown(report.overview(Outcome(CONFIG, results[1:3])))


def test_segments_of_a_corpus_beside_themselves(tmp_path: Path):
    text = "The bridge was opened in 1932 by Ada Grey. It is 503 metres long, and it carries eight lanes. " * 6
    corpus = write_corpus(tmp_path, [row(text), row(text.replace("1932", "1944"))])
    rows = list(of_corpus(corpus, 5, seed=0, tokens=128))
    assert rows
    assert rows == list(of_corpus(corpus, 5, seed=0, tokens=128))
    assert all(row.source == row.rewrite and row.part == "corpus" for row in rows)
    real = measure(rows, CONFIG, 1, MadeUp)
    assert not any("copied" in {verdict.check for verdict in result.verdicts} for result in real)
    found = Outcome(CONFIG, measure(OWN[:2], CONFIG, 1, MadeUp), "mine", real, "corpus 12")
    assert report.overview(found).sections[-1].summary.startswith("Segments of corpus 12 beside themselves")


def test_pairs_of_ones_own_are_measured_as_they_are_written(tmp_path: Path):
    record = {
        "id": "x",
        "language": "en",
        "domain": "history",
        "source": BRIDGE,
        "faithful": [KEPT],
        "defects": [{"kind": "omission", "rewrite": LOST, "wrong": "the lighthouse is left out"}],
    }
    (tmp_path / "own.jsonl").write_text(json.dumps(record), encoding="utf-8")
    assert load([str(tmp_path / "own.jsonl")]) == OWN[:2]


def test_a_model_that_is_not_there_is_told_before_any_process_begins():
    with pytest.raises(EngineError, match="asked-for-nothing-here"):
        measure(OWN, CONFIG, 2)


def test_a_check_that_was_not_asked_has_no_curve():
    rows = [replace(Result(row, (Verdict("numbers", 1.0, row.faithful),)), seconds=0.01) for row in OWN]
    found = Outcome(AlignmentConfig(), rows, "mine.jsonl")
    tables = markdown(report.overview(found))
    assert "names no model" in tables
    assert "** configured" not in tables
