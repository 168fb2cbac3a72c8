"""The two stages on a tiny model: items from files, contamination by the corpus' own rule, scores, gate and page."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from expectations.config import SuitesGate
from expectations.gate import GateFailed, judge
from model.chat import Chat
from model.config import Config
from model.engines.engine import RequestLimits
from model.reply import Reply, ToolCall
from tasks.artifact import Step
from tasks.corpus.config import CorpusConfig
from tasks.evaluate.suites import measuring, positions, sets
from tasks.evaluate.suites.calls import wrong
from tasks.evaluate.suites.config import Answer, Calls, SuitesConfig
from tasks.evaluate.suites.item import SuiteError, Unmeasurable
from tasks.evaluate.suites.subject import Ask, Network
from tasks.evaluate.suites.target import TargetError, measured, opened
from tasks.launch import Execution
from tasks.report.comparison import ComparisonError, compose, gathered, read_record, write_comparison
from tasks.report.suites import Tried, needles
from tests.shards import publish_shards
from tests.tasks.evaluate.conftest import publish_model, publish_tokenizer, small_model, small_tokenizer
from training.rl.environments.functions import declared

QUESTION = "How many of the nine grey geese that crossed the wide river came back home before winter?"
OTHER = QUESTION.replace("geese", "cranes").replace("river", "moor")
SHORT = "What is 12 + 30?"
COUNTS = """import os; open(os.environ["OPENK2_SCORES"], "w").write('{"correct": 1, "count": 4}')"""
ROWS = [
    {"kind": "answer", "name": "sums", "text_fields": ["question"], "max_new_tokens": 4, "template": "{question}"},
    {"kind": "choice", "name": "letters", "max_new_tokens": 1},
    {"kind": "needle", "lengths": [64, 4096], "depths": [0.5], "repeats": 1, "max_new_tokens": 2, "form": "raw"},
    {"kind": "positions", "windows": 2, "longest": 64},
    {"kind": "answer", "name": "absent", "path": "nowhere/*.jsonl", "optional": True},
    {"kind": "external", "name": "counts", "command": [sys.executable, "-c", COUNTS]},
]


class Plain(Config):
    """A stage's configuration that says nothing."""


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Step, Step, SuitesConfig]:
    """(benchmarks, suites of a checkpoint, both published; their configuration)."""
    root = tmp_path_factory.mktemp("root")
    data = root / "items.jsonl"
    rows = [
        {"id": "geese", "question": QUESTION, "choices": ["2", "7"], "answer": 1},
        {"id": "sum", "question": SHORT, "choices": ["42", "41"], "answer": 0},
        {"id": "other", "question": OTHER, "choices": ["1", "2"], "answer": "B"},
    ]
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    own = {"answer": {"path": str(data)}, "choice": {"path": str(data)}}
    config = SuitesConfig.model_validate({"rows": [own.get(str(row["kind"]), {}) | row for row in ROWS]})
    corpus = Step("corpus", CorpusConfig(), str(root))
    texts = [f"Once upon a time. {QUESTION.upper()} Nobody knew.", "Another text about nothing in particular at all."]
    documents = pl.DataFrame({"id": ["first", "second"], "text": texts})
    corpus.put("documents/made/000", ".parquet", documents.write_parquet)
    corpus.publish({})
    rewrites = Step("rewrites", Plain(), str(root), (corpus,))
    rewrites.put("rewrites/000", ".parquet", documents.head(0).write_parquet)
    rewrites.publish({})
    benchmarks = Step("benchmarks", config, str(root), (corpus, rewrites))
    sets.run(benchmarks, Execution())
    tokenizer, model = publish_tokenizer(root), publish_model(root, "base", small_model())
    tokens = Step("tokens", Plain(), str(root))
    held = np.random.default_rng(0).integers(0, 256, 300).astype("<u4")
    index = pa.table({"start": [0], "end": [300], "id": ["document"]})
    publish_shards(tokens, {"heldout/web/made/0": (held, index)}, {"vocabulary": 384, "end_of_document": 300})
    suites = Step("base-suites", config, str(root), (model, benchmarks, tokenizer, tokens))
    measuring.run(suites, Execution(threads=1))
    return benchmarks, suites, config


def test_an_item_that_the_corpus_holds_is_found_by_the_corpus_own_rule(made):
    statistics = made[0].require().statistics
    assert statistics["suites"]["sums"] == {"items": 3, "contaminated": 1, "too_short": 1}
    assert "nowhere" in statistics["missing"]["absent"]
    (line,) = [json.loads(line) for line in made[0].require().file("contamination").read_text().splitlines()[:1]]
    assert (line["item"], line["document"], line["share"]) == ("geese", "first", 1.0)
    assert sets.chosen(made[0].require())["letters"].contaminated == {"geese"}


def test_columns_of_parquet_that_json_has_no_form_for_are_kept_as_text(tmp_path):
    day = datetime.date(2026, 1, 2)
    pq.write_table(
        pa.table({"question": ["a"], "answer": ["b"], "day": [day], "image": [b"\xff"]}), tmp_path / "s.parquet"
    )
    suite = Answer(kind="answer", name="s", path=str(tmp_path / "s.parquet"))
    sets._lines(map(sets._stored, sets.items_of(suite, 0)))(tmp_path / "items")
    (row,) = sets._read(tmp_path / "items")
    assert row["row"] == {"question": "a", "answer": "b", "day": "2026-01-02", "image": "b'\\xff'"}


def written(file: Path, *rows: dict) -> str:
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(file)


def test_calls_that_are_due_may_lie_in_files_of_ones_own(tmp_path):
    turn = [[{"role": "user", "content": "Play it."}]]
    asked = written(tmp_path / "asked.jsonl", {"id": 7, "question": turn, "function": [{"name": "play"}]})
    due = written(tmp_path / "due.jsonl", {"id": 7, "ground_truth": [{"play": {}}]})
    (item,) = sets.items_of(Calls(kind="calls", name="c", path=asked, answers=due), 0)
    assert item.row["ground_truth"] == [{"play": {}}]
    (tool,) = declared(item.row["function"])  # which declares no parameters
    assert tool["function"]["parameters"] == {"type": "object", "properties": {}}
    assert not wrong(Reply("", (ToolCall("play", {}, 0),)), item.row["function"], item.row["ground_truth"])
    assert wrong(Reply("", (ToolCall("stop", {}, 0),)), item.row["function"], [{"stop": {"now": [1]}}])


@pytest.mark.parametrize(
    ("suite", "missing"),
    [
        ({"kind": "code", "item_field": "id"}, "entry_point"),
        ({"kind": "calls", "text_fields": ["prompt"]}, "question"),
        ({"kind": "calls", "text_fields": ["prompt"], "answers": "mine.jsonl"}, "ground_truth"),
    ],
)
def test_a_record_that_lacks_what_its_suite_reads_is_told_before_any_is_measured(tmp_path, monkeypatch, suite, missing):
    monkeypatch.chdir(tmp_path)
    place = written(Path("mine.jsonl"), {"id": "a", "prompt": "def f():"})
    (row,) = SuitesConfig.model_validate({"rows": [suite | {"name": "mine", "path": place}]}).rows
    with pytest.raises(SuiteError, match=f"suite 'mine': record 0 of mine.jsonl has no field '{missing}'"):
        sets.items_of(row, 0)


def test_scores_have_intervals_and_contamination_and_what_cannot_be_measured_says_so(made):
    records = made[1].require().statistics["models"]["base"]
    for name in ("sums", "letters"):
        assert records[name]["items"] == 3
        assert records[name]["contaminated"] == 1
        assert records[name]["score"]["low"] <= records[name]["score"]["value"] <= records[name]["score"]["high"]
        assert "clean" in records[name]
    assert records["letters"]["details"]["chance"] == 0.5
    assert "nothing lies at" in records["absent"]["unmeasured"]
    assert (records["counts"]["items"], records["counts"]["score"]["value"]) == (4, 0.25)
    rows = pq.read_table(made[1].require().file("answers/base")).to_pylist()
    assert [row["why"] for row in rows if row["item"] == "4096@0.5#0"] == ["the window has no room for it"]
    assert {row["item"] for row in rows if row["contaminated"]} == {"geese"}
    assert "% (" in measuring.run_page(made[1].require())


def test_the_same_inputs_and_seed_give_the_same_bytes(made):
    artifact = made[1].require()
    before = {part.key: part.sha256 for part in artifact.parts()}
    made[1].discard()
    assert {part.key: part.sha256 for part in measuring.run(made[1], Execution(threads=1)).parts()} == before


def test_loss_by_position_is_that_of_the_forward_and_the_model_keeps_its_yarn(made):
    model = small_model()
    subject = Network(model, Chat(small_tokenizer()))
    tokens = next(step for step in made[1].inputs if step.name == "tokens").require()
    before = model.config
    bins = positions.measure(made[2].rows[3], subject, tokens, 0).details["bins"]
    assert model.config == before
    assert [(one["from"], one["to"]) for one in bins] == [(0, 16), (16, 32), (32, 64)]
    held = positions._windows(tokens, 2, 65, 384)
    hidden = model(held[:, :-1]).hidden_BSD
    whole = model.loss(hidden, held[:, 1:]).item()
    assert sum(one["loss"] * (one["to"] - one["from"]) for one in bins) / 64 == pytest.approx(whole, abs=1e-3)
    assert any(one["loss"] != one["without_yarn"] for one in bins)


def test_likelihoods_are_those_of_one_row_alone_and_say_what_is_greedy():
    subject = Network(small_model(), Chat(small_tokenizer()))
    pairs = [("What is 12 + 30?", " 42"), ("x", " a much longer answer than that"), ("", "42")]
    together = subject.likelihoods(pairs)
    for pair, told in zip(pairs, together, strict=True):
        (alone,) = subject.likelihoods([pair])
        assert alone.log_p == pytest.approx(told.log_p, rel=1e-4)
    (reply,) = subject.replies([Ask(text="What is 12", max_new_tokens=1)])[0]
    if reply.content and not reply.content.isspace():
        assert subject.likelihoods([("What is 12", reply.content)])[0].tokens == 1
    with pytest.raises(Unmeasurable, match="longer than the model's window"):
        subject.likelihoods([("", "word " * 600)])


def test_the_gate_refuses_scores_below_their_floor_and_what_was_never_measured(made):
    def gate(**literals) -> Step:
        return Step("base-suites-gate", SuitesGate.model_validate(literals), made[1].root, (made[1],))

    judge(gate(contaminated=0.5), made[1])
    with pytest.raises(GateFailed, match=r"expected at most 10 %, observed .*33"):
        judge(gate(), made[1])
    with pytest.raises(GateFailed, match=r"observed .*absent on base 0 %"):
        judge(gate(contaminated=0.5, floors={"absent": 0.1}), made[1])


def test_the_page_holds_every_measurement_of_a_root_and_records_from_elsewhere(made, tmp_path):
    root = made[1].root
    subject = Network(small_model(seed=1), Chat(small_tokenizer()))
    config = made[2].named(["letters"])
    record = measured(config, subject, sets.unchecked(config), None, "elsewhere")
    assert record["suites"]["letters"]["contaminated"] is None
    path = tmp_path / "record.json"
    path.write_text(json.dumps(record))
    page = Path(write_comparison(root, [str(path)])).read_text()
    for words in ("Side by side", "elsewhere", "letters", "not looked for", "without YaRN", "nothing lies at"):
        assert words in page
    other = tmp_path / "other.json"
    other.write_text(json.dumps(record | {"label": "base", "finished": "9999"}))
    page = Path(write_comparison(root, [str(path), str(other), str(other)])).read_text()
    heads = page[page.index("<th") : page.index("</thead>")]
    assert ">base<" in heads
    assert f">base ({other})<" in heads, "not in place of the root's own"
    again = gathered(root) + [model.__class__(model.label, model.records, "9999", "later") for model in gathered(root)]
    (time,) = [section for section in compose(again).sections if section.key == "time"]
    assert time.blocks
    path.write_text("{}")
    with pytest.raises(ComparisonError, match="is no record"):
        write_comparison(root, [str(path)])
    with pytest.raises(ComparisonError, match="nothing has been measured"):
        write_comparison(str(tmp_path / "empty"))


def test_a_target_that_is_no_model_is_refused_in_a_sentence(tmp_path):
    made = dict.fromkeys(("base", "sft", "rl", "release", "tokenizer"))
    for target, said in ((str(tmp_path), "no tokenizer.json"), ("base", "not published"), ("http://h/v1", "--model")):
        with pytest.raises(TargetError, match=said), opened(target, "", made, RequestLimits()):
            pass


def test_suites_are_refused_that_cannot_be_told_apart_or_are_not_there():
    row = {"kind": "needle"}
    with pytest.raises(ValueError, match="two suites are called 'needle'"):
        SuitesConfig.model_validate({"rows": [row, row]})
    with pytest.raises(ValueError, match="there is no suite 'x'"):
        SuitesConfig.model_validate({"rows": [row]}).named(["x"])
    with pytest.raises(ValueError, match="pass@5 needs that many samples"):
        SuitesConfig.model_validate({"rows": [{"kind": "code", "name": "h", "path": "x", "k": [5]}]})


def test_models_tried_at_other_depths_stand_in_one_table():
    def tried(label, grid):
        return Tried(label, {"needle": {"kind": "needle", "details": {"grid": grid}}})

    (block,) = needles([tried("a", {"64": {"0": 1.0, "1": 0.5}}), tried("b", {"128": {"0.5": 0.0}})])
    assert block.columns == ["depth 0 %", "depth 50 %", "depth 100 %"]
    shares = {name: [cell and cell[0] for cell in cells] for name, cells in block.rows}
    assert shares == {"a, 64 tokens": [1.0, None, 0.5], "b, 128 tokens": [None, 0.0, None]}


@pytest.mark.parametrize(
    "record",
    [
        "[" * 100_000,
        "[]",
        '{"label": 1, "finished": 2, "suites": [], "scores": {}}',
        '{"label": 1, "finished": 2, "suites": {"a": 1}, "scores": {}}',
        '{"label": 1, "finished": 2, "suites": {"a": {"score": 0.5}}, "scores": {}}',
        '{"label": 1, "finished": 2, "suites": {"a": {"score": {"value": 1}}}, "scores": {}}',
    ],
)
def test_what_is_no_record_is_one_sentence(tmp_path, record):
    (tmp_path / "x.json").write_text(record)
    with pytest.raises(ComparisonError, match="is no record"):
        read_record(str(tmp_path / "x.json"))


@pytest.mark.parametrize(("pattern", "told"), [("(", "no regular expression"), ("answer", "no group")])
def test_a_pattern_without_a_group_is_refused_when_it_is_read(pattern, told):
    with pytest.raises(ValueError, match=told):
        SuitesConfig.model_validate({"rows": [{"kind": "answer", "name": "a", "path": "x", "reply_pattern": pattern}]})
