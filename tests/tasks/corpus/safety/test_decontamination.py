"""Evaluation sets: a planted item is found whatever its dress and explained; what only comes near is left alone."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import random
import textwrap
import unicodedata
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.artifact import Step
from tasks.corpus import evaluations
from tasks.corpus.acquire import AcquireError, acquire
from tasks.corpus.evaluations import EvaluationError
from tasks.corpus.safety import decontamination
from tasks.corpus.safety.config import DecontaminationConfig
from tasks.corpus.safety.decontamination import HITS, Decontamination, Item, read_items
from tasks.corpus.sources import EvaluationSource, SourcesConfig
from tests.linear import assert_linear

VOCABULARY = [
    f"{a}{b}" for a in "river stone cloud metal paper glass".split() for b in "ing ed er ly tion ment ness".split()
]
QUESTION = (
    "A farmer has seventeen sheep and sells all but nine of them at the market before noon. How many sheep does "
    "the farmer still have when the market closes, and how many would remain if five more were bought?"
)
PROGRAM = (
    "def below_zero(operations):\n    balance = 0\n    for op in operations:\n        balance += op\n"
    "        if balance < 0:\n            return True\n    return False\n"
)
SHORT = "Move the final report within the document folder to temp"  # ten words


def prose(seed: int, count: int = 300) -> str:
    return " ".join(random.Random(seed).choices(VOCABULARY, k=count))


def look(*items: str, **config) -> Decontamination:
    return Decontamination(
        DecontaminationConfig(**config), [Item("exam", f"q{number}", text) for number, text in enumerate(items)]
    )


def dressed(text: str) -> list[str]:
    return [
        text,
        text.upper(),
        text.replace(" ", "\n\t "),
        text.replace(" ", ", "),
        "> " + text.replace("\n", "\n> "),
        "".join(f"\n{at:3d}) {line}" for at, line in enumerate(textwrap.wrap(text, 30), start=1)),
        "".join(f"\n> ({chr(97 + at)}) {line}" for at, line in enumerate(textwrap.wrap(text, 30))),
        text.translate({point: point + 0xFEE0 for point in range(0x21, 0x7F)}),
        text.replace(".", " !?").replace("(", " [ "),
    ]


@pytest.mark.parametrize("item", [QUESTION, PROGRAM, SHORT])
def test_a_planted_item_is_found_in_every_dress_and_explained(item):
    own = look(prose(1), item, prose(2))
    for dress in dressed(item):
        before = prose(3) + "\n\n"
        text = before + dress + "\n\n" + prose(4)
        (hit,) = own.hits(text)
        assert (hit.set, hit.item, hit.share) == ("exam", "q1", 1.0)
        assert len(before) <= hit.begin < hit.end <= len(before) + len(dress)
        assert text[hit.begin : hit.end].startswith(hit.passage)
        assert "exam q1" in hit.sentence()
        assert "100% of the item" in hit.sentence()


def test_an_item_is_mended_as_documents_are():
    """Soft hyphens, letters in two parts and wrong decodings as PDFs and exports have them."""
    plain = QUESTION.replace("noon", "caf\u00e9").replace("market", "caf\u00e9")
    for worn in (
        unicodedata.normalize("NFD", plain),
        plain.replace("farmer", "far\u00admer").replace("how", "h\u200bow"),
        plain.encode().decode("latin-1"),
    ):
        assert look(worn).hits(plain)[0].share == 1.0


def test_near_misses_are_left():
    own = look(QUESTION, SHORT)
    words = QUESTION.split()
    assert not own.hits(prose(3) + " ".join(words[:12]) + " " + prose(4))  # twelve words are no run of thirteen
    assert not own.hits(" ".join(word if at % 12 else "otherwise" for at, word in enumerate(words)))
    assert not own.hits(SHORT.replace("temp", "archive"))  # a short item must be there whole
    assert own.hits(" ".join(words[:13]))[0].share == round(13 / len(words), 4)
    assert not own.hits("")
    assert not own.hits("a")


def test_chinese_counts_by_characters():
    question = "小明有十七只羊卖掉了八只以后还剩下多少只羊请写出计算过程"
    own = look(question)
    (hit,) = own.hits("以下是题目：" + "，".join(question) + "。请回答。")
    assert hit.share == 1.0
    assert not own.hits(question[:12])


def test_the_share_of_an_item_that_must_be_covered_follows_the_configuration():
    half = " ".join(QUESTION.split()[:18])
    assert look(QUESTION).hits(half)
    assert not look(QUESTION, share_min=0.7).hits(half)  # PaLM's share
    assert look(QUESTION, ngram=8, share_min=0.7).hits(QUESTION)


def test_items_too_short_are_not_looked_for_and_rows_of_numbers_say_nothing():
    own = look("Add two and three.", QUESTION)
    assert [item.text for item in own.items] == [QUESTION]
    assert not own.hits("Add two and three.")
    numbers = " ".join(str(number) for number in range(40))
    assert not look(numbers).hits(numbers)


def test_several_items_are_told_apart_the_most_covered_first():
    own = look(QUESTION, PROGRAM)
    hits = own.hits(PROGRAM + " ".join(QUESTION.split()[:20]))
    assert [(hit.item, hit.share == 1.0) for hit in hits] == [("q1", True), ("q0", False)]
    assert set(hits[0].row()) == set(HITS.names)


def test_a_collision_of_hashes_never_costs_a_document(monkeypatch):
    monkeypatch.setattr(decontamination, "rolling", lambda hashes, starts, n: (
        np.zeros(int(np.maximum(np.diff(starts) - n + 1, 0).sum()), np.uint64),
        np.concatenate([[0], np.cumsum(np.maximum(np.diff(starts) - n + 1, 0))]),
    ))  # fmt: skip
    own = look(QUESTION)
    assert not own.hits(prose(1))
    assert own.hits(QUESTION)[0].share == 1.0


@given(st.integers(0, 40), st.integers(0, 40), st.integers(0, 2))
def test_a_run_is_found_wherever_it_stands(before, after, item):
    texts = [QUESTION, PROGRAM, SHORT]
    text = prose(before, before) + "\n" + texts[item] + "\n" + prose(after, after)
    assert [hit.item for hit in look(*texts).hits(text)] == [f"q{item}"]


def test_a_passage_is_cut_out_and_the_rest_stays():
    own = look(QUESTION, action="remove", margin=20)
    cut, hits = own.cleaned(f"{prose(1)}\n\nExercise. {QUESTION} Answer soon.\n\n{prose(2)}")
    assert prose(1)[:1000] in cut
    assert prose(2)[100:] in cut
    assert "sheep" not in cut
    assert hits[0].item == "q0"
    assert own.cleaned(prose(1)) == (prose(1), [])
    assert own.cleaned(cut) == (cut, [])


def test_a_document_that_would_fall_to_pieces_is_dropped():
    own = look(QUESTION, action="remove", margin=0, pieces_max=3)
    text, hits = own.cleaned("\n\n".join(f"{prose(seed)}\n\n{QUESTION}" for seed in range(5)))
    assert text is None
    assert len(hits) == 1
    assert "exam q0" in hits[0].sentence()


def test_a_document_that_is_nothing_but_the_item_is_dropped():
    assert look(QUESTION, action="remove").cleaned(f"Exercise 7. {QUESTION}")[0] is None


def test_a_clean_document_is_read_in_linear_time():
    own = look(*(prose(seed, 60) for seed in range(1000, 1500)))
    draw = random.Random(0)
    words = [f"w{draw.randrange(10**6)}" for _ in range(200_000)]
    assert own.hits(" ".join(words)) == []
    assert_linear(lambda size: own.hits(" ".join(words[:size])), 50_000)


@pytest.mark.parametrize(
    ("config", "said"), [({"ngram": 7}, "ngram_min"), ({"ngram_min": 3}, "words_min"), ({"share_min": 2}, "share_min")]
)
def test_what_cannot_be_is_refused(config, said):
    with pytest.raises(ValidationError, match=said):
        DecontaminationConfig(**config)


# --- acquiring -----------------------------------------------------------------------------------------------------


def put_wheel(cache: Path) -> None:
    rows = [
        {"task_id": f"T/{number}", "prompt": f"def f{number}():", "solution": {"code": PROGRAM}} for number in range(3)
    ]
    (cache / "wheels").mkdir(parents=True)
    with zipfile.ZipFile(cache / "wheels" / "made_up_set-1.0-py3-none-any.whl", "w") as wheel:
        lines = "\n".join(json.dumps(row) for row in rows)
        wheel.writestr("made/data/Set.jsonl.gz", gzip.compress(lines.encode()))
        wheel.writestr("made/code.py", "raise SystemExit('nobody runs this')")


def source(**more) -> EvaluationSource:
    return EvaluationSource(**{"name": "exam", "item_field": "id", **more})


def test_a_wheel_is_read_without_being_installed(tmp_path):
    put_wheel(tmp_path)
    one = source(
        requirement="made-up-set==1.0", files="made/data/*.jsonl.gz", item_field="task_id",
        text_fields=["prompt", "solution.code"],
    )  # fmt: skip
    rows = list(evaluations.items(one, tmp_path, offline=True))
    assert rows[1] == {"set": "exam", "item": "T/1", "text": f"def f1():\n{PROGRAM}"}


def test_records_of_every_form_are_read(tmp_path):
    rows = [{"id": 5, "turns": [[{"role": "user", "content": QUESTION}], [{"role": "user", "content": SHORT}]]}]
    (tmp_path / "a.jsonl").write_text("\n" + json.dumps(rows[0]) + "\n")
    (tmp_path / "b.json").write_text(json.dumps(rows))
    (tmp_path / "c.jsonl.gz").write_bytes(gzip.compress(json.dumps(rows[0]).encode()))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "d.parquet")
    (tmp_path / "e.json").write_text(json.dumps(rows), encoding="utf-8-sig")
    for name in ("a.jsonl", "b.json", "c.jsonl.gz", "d.parquet", "e.json"):
        one = source(path=str(tmp_path / name), text_fields=["turns.content"])
        assert list(evaluations.items(one, tmp_path, True)) == [
            {"set": "exam", "item": "5", "text": f"{QUESTION}\n{SHORT}"}
        ], name
    everything = source(path=str(tmp_path / "*.json*"), text_fields=["turns.content"], item_field="nothing")
    assert [row["item"] for row in evaluations.items(everything, tmp_path, True)] == [
        "a.jsonl#0",
        "b.json#0",
        "c.jsonl.gz#0",
        "e.json#0",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{broken", "a.jsonl could not be read"),
        ('{"id": 1}', "record 0 of a.jsonl has no text under text"),
        ("", "holds no item"),
    ],
)
def test_a_file_that_is_not_what_it_is_said_to_be_is_one_sentence(tmp_path, content, said):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(EvaluationError, match=said):
        list(evaluations.items(source(path=str(tmp_path / "a.jsonl")), tmp_path, True))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_a_damaged_file_is_one_sentence(tmp_path, suffix):
    pack = {".gz": gzip.compress, ".xz": lzma.compress, ".bz2": bz2.compress}[suffix]
    data = bytearray(pack(json.dumps({"text": "".join(map(str, range(5000)))}).encode()))
    data[100:300] = bytes(200)
    (tmp_path / f"a.jsonl{suffix}").write_bytes(data)
    with pytest.raises(EvaluationError, match="could not be read"):
        list(evaluations.items(source(path=str(tmp_path / f"a.jsonl{suffix}")), tmp_path, True))


def test_half_a_character_of_an_item_is_replaced(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id": "\\ud800", "text": "half \\ud83d of it"}')
    one = source(path=str(tmp_path / "a.jsonl"))
    assert list(evaluations.items(one, tmp_path, True)) == [
        {"set": "exam", "item": "\ufffd", "text": "half \ufffd of it"}
    ]


def step(root: Path, folder: Path, *sets: dict) -> Step:
    own = {"name": "own", "kind": "folder", "path": str(folder), "domain": "web", "language": "en", "licence": "MIT"}
    return Step("sources", SourcesConfig(sources=[own], evaluations=sets), str(root), code="x", leaf=True)


def test_sets_become_parts_and_an_optional_one_that_is_missing_is_said_aloud(tmp_path, caplog):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("text")
    (tmp_path / "set.jsonl").write_text(json.dumps({"id": "1", "text": QUESTION}))
    there = {"name": "exam", "path": str(tmp_path / "set.jsonl")}
    gone = {"name": "gone", "requirement": "made-up-set==1.0", "files": "*.jsonl"}
    artifact = acquire(step(tmp_path / "a", tmp_path / "in", there, gone | {"optional": True}), tmp_path, offline=True)
    assert artifact.statistics["evaluations"] == {"exam": 1}
    assert artifact.statistics["evaluations_missing"] == ["gone"]
    assert "NOT checked against evaluation set 'gone'" in caplog.text
    found = Decontamination(DecontaminationConfig(), read_items(artifact.files("evaluations")))
    assert found.cleaned(QUESTION)[0] is None
    with pytest.raises(
        AcquireError, match=r"wheel made-up-set==1\.0 is not in .* offline; correct it, or leave it out"
    ):
        acquire(step(tmp_path / "b", tmp_path / "in", gone), tmp_path, offline=True)


def test_a_set_has_one_origin():
    with pytest.raises(ValidationError, match="either `requirement` or `path`"):
        source()
