from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest

from tasks.agentic.verdicts import append_verdict, verdicts_file
from tasks.artifact import Step
from tasks.report.blocks import Document, Headline, Section
from tasks.report.book import Book
from tasks.report.chapter import grids
from tasks.report.chapters import run
from tasks.report.markdown import markdown
from tasks.report.page import CHAPTERS, build_report, publish_report
from tests.tasks.report import data, rollouts, training

ASSET = re.compile(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//|@import|url\(|<script|<link|<img""", re.IGNORECASE)
VOID = {"meta", "br", "rect", "line", "circle", "path", "polyline"}


class Balance(HTMLParser):
    """Raises where an element is closed that was not open."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        assert tag in VOID

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[str, str]:
    root = tmp_path_factory.mktemp("whole")
    return build_report(data.publish(root))


def test_page_is_self_contained_and_well_formed(whole):
    page, _ = whole
    assert not ASSET.search(page)
    parser = Balance()
    parser.feed(page)
    assert parser.open == []
    assert len(page) < 1_000_000


def test_every_chapter_is_written_and_nothing_is_missing(whole):
    page, text = whole
    for chapter in CHAPTERS:
        assert f'<section id="{chapter.key}"' in page
        assert f'href="#{chapter.key}"' in page
        assert f"\n## {chapter.title}\n" in text
    assert "Not run yet" not in page
    assert "Not shown" not in page


def test_the_numbers_that_matter_are_said(whole):
    for text in whole:
        for number in ("13.8 %", "47.8 MB", "73.0 %", "37.0 %", "27.0 MB", "seed 0", "+36.0 points"):
            assert number in text, number
    page, _ = whole
    assert "QK-Clip scaled" in page
    assert "It ended on 4 ranks (expert 2, pipeline 2). Spikes that it went round: 1." in page


def test_the_way_of_dialogues_through_the_filters_is_shown_with_one_of_each_kind(whole):
    page, text = whole
    section = plain(text.split("\n## Dialogues\n")[1].split("\n## ")[0])
    for said in (
        "| drawn | 7,500 dialogues |",
        "| other splits, twice | −1,007 (13.4 %), 6,493 left",
        "| rules | −60 (0.8 %), 6,433 left",
        "| length | −31",
        "| people | −2",
        "| kept | 6,400",
        "| the tool failed: math.divide | tool call 60 | 60 |",
        "| nurse | 2,100 |",
        "tool call: kept",
        "tool call: refused",
        "the assistant is a script; the user is the nurse",
        "✓ rules passed, ✓ judge passed",
        "✗ rules the tool failed: math.divide",
        'expected calls: convert({"km": 3}). must be said: 3000',
    ):
        assert plain(said) in section, said
    assert "another play" not in section.split("Every statistic")[0], "no filter that refused nothing"
    assert "&lt;b&gt;3000&lt;/b&gt;" in page


def plain(text: str) -> str:
    """Without what markdown needs."""
    return re.sub(r"[*\\`]", "", text)


def test_what_people_said_of_dialogues_is_counted(tmp_path):
    steps = data.publish(tmp_path)
    assert "People have looked" not in build_report(steps)[1]
    file = verdicts_file(str(tmp_path))
    append_verdict(file, "of another recipe", "reject", "x", "other")
    assert "People have looked" not in build_report(steps)[1]
    manifest = next(Path(step.uri) / "manifest.json" for step in steps if step.name == "dialogues")
    record = json.loads(manifest.read_text())
    record["config"]["refused"] = ["gone"]
    manifest.write_text(json.dumps(record))
    for name, verdict in (("addition", "accept"), ("tool_call", "reject"), ("gone", "reject"), ("unsure", "accept")):
        append_verdict(file, name, verdict, "x", "mine")
    told = (
        "People have looked at 3 dialogues (`openk2 review`): 1 of those that are trained on are accepted, 1 were "
        "rejected and replaced; 1 more are rejected and leave with the next run."
    )
    assert told in build_report(steps)[1]
    file.write_text("no verdict\n")
    assert "is no verdict" in build_report(steps)[1]


def _reinforcement(text: str) -> str:
    return text.split("\n## Reinforcement learning\n")[1].split("\n## ")[0]


def test_rises_are_told_by_environment_with_paired_intervals(whole):
    _, text = whole
    section = _reinforcement(text)
    row = next(line for line in section.splitlines() if line.startswith("| tool call | 50 |"))
    assert row.endswith("| 32 to 68 % | **+36 (28 to 44)** | 61 to 92 % | -2 (-8 to 4) |")
    assert "| all | 100 | 37 to 73 % | **+36 (28 to 44)** |" in section
    assert "Sampled, by environment" not in section, "the table says it"


def test_figures_that_some_updates_lack_are_drawn_of_the_others(whole):
    _, text = whole
    section = _reinforcement(text)
    for title in ("Critic's agreement with the truth", "Mismatch", "Temperature"):
        assert f"| {title} |  |" in section, title


def test_the_time_without_sampling_is_told(whole):
    assert "For 12.5 % of the iterations' time nothing could be sampled" in _reinforcement(whole[1])


def test_test_is_no_point_of_the_curve_of_development(whole):
    section = _reinforcement(whole[1])
    assert "| development | 40 % to 76 % |" in section
    assert "before and after (37.0 % and 73.0 %)" in section


def test_a_run_without_splits_and_rises_by_environment_is_shown(tmp_path, monkeypatch):
    """An older one: test was measured first and last, development in between."""
    plain = [{key: value for key, value in line.items() if key != "split"} for line in training.rl_metrics()]
    ends = [place for place, line in enumerate(training.rl_metrics()) if line.get("split") == "test"]
    kept = plain[ends[0] :]  # nothing of development was measured at the beginning
    kept = [line for line in kept[:-2] if line["event"] != "evaluation" or line["step"] < 60] + kept[-1:]
    monkeypatch.setitem(data.PARTS, "rl", lambda: {"metrics": (".jsonl", kept), **rollouts.parts()})
    rise = {kind: training.rl()["rise"][kind] for kind in ("sampled", "greedy")}
    monkeypatch.setitem(data.STATISTICS, "rl", lambda: {**training.rl(), "rise": rise})
    page, text = build_report(data.publish(tmp_path))
    assert "could not be made" not in page
    section = _reinforcement(text)
    assert "| development | 52 % to 64 % |" in section
    assert "before and after (37.0 % and 73.0 %)" in section
    assert "Sampled, by environment" in section
    assert "paired difference" not in section


def test_where_the_rows_went_is_said(whole):
    for text in whole:
        row = next(line for line in text.splitlines() if "4,321" in line)
        for cell in ("corpus", "documents", "4,000", "300", "21"):
            assert cell in row, cell


def test_text_of_models_and_corpora_is_escaped(whole):
    page, _ = whole
    assert "<b>never</b>" not in page
    assert "&lt;b&gt;" in page
    assert "&lt;a function&gt;" in page
    assert "&lt;number&gt;" in page


def test_samples_side_by_side(whole):
    page, text = whole
    assert page.count("<blockquote>") >= 4
    assert "In a computer a bus connects 3 or more units" in text


@pytest.mark.parametrize("until", ["sources", "corpus", "rewrites", "tokenizer", "base", "sft", "release"])
def test_what_has_not_run_is_said_and_the_rest_is_there(tmp_path, until):
    page, text = build_report(data.publish(tmp_path, until))
    names = [name for name, _ in data.ORDER]
    done = names[: names.index(until) + 1]
    for chapter in CHAPTERS:
        if chapter.stages and not set(chapter.stages) & set(done):
            assert f"\n## {chapter.title}\n\n*Not run yet.*" in text
    assert f"{len(done)} of {len(names)} steps complete" in page
    assert "could not be made" not in page


def test_nothing_has_run(tmp_path):
    page, text = build_report(data.steps(tmp_path))
    assert "Nothing has been run yet: `openk2 run`" in text
    assert "could not be made" not in page


def test_sources_not_fetched_leave_no_fingerprints_to_ask_for(tmp_path):
    found = data.steps(tmp_path)
    leaf = Step("sources", found[0].config, str(tmp_path), leaf=True)
    corpus = Step("corpus", found[1].config, str(tmp_path), (leaf,))
    page, _ = build_report([leaf, corpus])
    assert "no fingerprint before its sources are fetched" in page
    assert "could not be made" not in page


def test_missing_statistic_is_named_in_its_place(tmp_path, monkeypatch):
    monkeypatch.setitem(data.STATISTICS, "corpus", lambda: {k: v for k, v in data.corpus().items() if k != "by_domain"})
    page, _ = build_report(data.publish(tmp_path, "corpus"))
    assert "the statistics of <code>corpus</code> have no <code>by_domain</code>" in page
    assert "Rejected, by reason" in page, "the rest of the chapter stays"


def test_broken_statistic_is_said_in_its_place_and_logged(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(data.STATISTICS, "rl", lambda: {**training.rl(), "rise": "soon"})
    page, _ = build_report(data.publish(tmp_path))
    assert "the summary could not be made (TypeError" in page
    assert "the summary could not be made" in caplog.text


def test_metrics_without_an_event_are_named(tmp_path, monkeypatch):
    updates = [line for line in training.base_metrics() if line["event"] == "update"]
    monkeypatch.setitem(data.PARTS, "base", lambda: {"metrics": (".jsonl", updates)})
    page, _ = build_report(data.publish(tmp_path, "base"))
    assert "the metrics of <code>base</code> have no <code>evaluation</code> line, only update" in page


def test_gate_that_failed_is_shown_first(tmp_path):
    found = data.publish(tmp_path, "corpus")
    gate = next(step for step in found if step.name == "corpus-gate")
    left = Path(gate.uri) / "docs"
    left.mkdir(parents=True)
    failed = data.expectation("Every document names its licence", "none", "foldoc 12", success=False)
    (left / "verdict.json").write_text(json.dumps([failed]))
    page, text = build_report(found)
    assert "corpus-gate stopped the run" in text
    assert "| 0 of 1 | expectations hold |" in text, "those of a failed gate count too"
    assert "expected none, observed foldoc 12. Look at the corpus." in text
    assert "failed: the run stopped here" in page
    assert 'href="corpus-gate/' in page, "the pages are linked from where the report lies"


@pytest.mark.parametrize("left", ['[{"success": fal', "[{}]"])
def test_a_verdict_that_was_cut_short_is_said_in_its_place(tmp_path, left):
    found = data.publish(tmp_path, "corpus")
    gate = next(step for step in found if step.name == "corpus-gate")
    (Path(gate.uri) / "docs").mkdir(parents=True)
    (Path(gate.uri) / "docs" / "verdict.json").write_text(left)
    page, text = build_report(found)
    assert "The expectations of each gate could not be made" in page
    assert "curated text" in text, "the rest is there"


def test_a_lost_file_costs_its_chapter_and_not_the_page(tmp_path, caplog):
    found = data.publish(tmp_path)
    base = next(step.artifact() for step in found if step.name == "base")
    assert base is not None
    base.file("metrics").unlink()
    _, text = build_report(found)
    assert "Loss and learning rate could not be made" in text
    assert "is listed but missing" in text
    assert "training loss, nats" not in text
    assert "| INT4 release |" in text
    assert "the headline's loss could not be made" in caplog.text


def test_written_as_an_artifact_with_a_copy_for_people(tmp_path):
    found = data.publish(tmp_path)
    artifact = publish_report(found, str(tmp_path))
    assert artifact.file("page").read_bytes() == (tmp_path / "report.html").read_bytes()
    assert artifact.file("markdown").read_text(encoding="utf-8").startswith("# ")
    assert artifact.statistics["complete"] == len(data.ORDER)


def test_shards_that_a_part_lists_are_counted(tmp_path):
    step = Step("tokens", data.Settings(), str(tmp_path))
    table = pl.DataFrame({"bytes": [4000, 66_000], "index_bytes": [50, 60]})
    part = step.put("shards", ".parquet", table.write_parquet, table.height)
    assert run._on_disk(step.publish({})) == part.bytes + 70_110 + (1 + 2) * 32  # blocks of 64 KiB


def test_the_graph_is_as_wide_as_its_widest_row(tmp_path):
    first = Step("first", data.Settings(), str(tmp_path))
    beside = [Step(f"beside-{at}", data.Settings(), str(tmp_path), (first,)) for at in range(5)]
    svg = run.draw(Book([first, *beside]))
    width = float(re.findall(r'viewBox="0 0 (\d+) ', svg)[0])
    places = [float(x) for x in re.findall(r'<rect [^>]* x="(-?\d+)"', svg)]
    assert min(places) >= 0
    assert max(places) + 168 <= width


def test_same_manifests_same_page(tmp_path):
    found = data.publish(tmp_path)
    assert build_report(found) == build_report(list(found))


def test_markup_in_data_stays_text(tmp_path, monkeypatch):
    """What a document or a model says must not become a link, code or an element of the page."""
    evil = "`x` [click](javascript:alert) **loud** <script>alert(1)</script> | cell"

    def parts():
        found = data.corpus_parts()
        suffix, frame = found["rejected/0"]
        return found | {"rejected/0": (suffix, frame.with_columns(text_head=pl.lit(evil)))}

    monkeypatch.setitem(data.PARTS, "corpus", parts)
    page, text = build_report(data.publish(tmp_path, "corpus"))
    assert "`x` [click](javascript:alert) **loud** &lt;script&gt;alert(1)&lt;/script&gt; | cell" in page
    row = next(line for line in text.splitlines() if "click" in line)
    assert "<script>" not in text
    assert re.search(r"\\\[click\\\]", row)
    assert len(re.findall(r"(?<!\\)\|", row)) == 6, "a cell must not open another"


def test_lists_of_records_are_tables_by_place_and_deep_records_have_tables_of_their_own():
    deep = {"losses": {"web": {"nats": 2.5}}, "samples": [{"prompt": "a [b](c)", "said": "d"}]}
    record = {"stages": [{"name": "one", "updates": 3}, {"name": "two", "updates": 4}], "models": {"base": deep}}
    found = {table.columns[0]: [list(row) for row in table.rows] for table in grids(record)}
    assert found == {
        "stages": [["1", "one", "3"], ["2", "two", "4"]],
        "models · base · losses": [["web", "2.5"]],
        "models · base · samples": [["1", "a [b](c)", "d"]],
    }
    assert "a \\[b\\]" in markdown(Document("", "", "", Headline([]), [Section("all", "", "", grids(record))]))


def test_what_is_cut_from_a_list_is_said():
    (table,) = grids({"edges": list(range(20))})
    assert table.rows[0][1].endswith("11, … (20 in all)")


@pytest.mark.parametrize("name", ["base", "evaluation", "release-suites", "scores"])
def test_every_statistic_of_a_stage_can_be_unfolded(whole, name):
    assert f"Every statistic of <code>{name}</code>" in whole[0]


def test_the_mix_shows_its_reasons_and_how_far_the_scores_can_be_believed(whole):
    page, text = whole
    section = text.split("\n## Quality and mix\n")[1].split("\n## ")[0]
    assert "**0.930**" in section
    assert "math is asked for" in section
    assert "3 answers without grades" in section
    assert "undefined (too few, or all the same)" in section
    assert "&lt;b&gt;theorem" in page
    assert "<b>theorem" not in page
