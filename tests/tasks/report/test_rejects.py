from __future__ import annotations

import random
from collections import Counter
from operator import itemgetter
from pathlib import Path

import polars as pl

from tasks.artifact import Artifact, Step
from tasks.report import rejects
from tasks.report.book import Book
from tasks.report.chapters import corpus, dropped
from tasks.report.page import build_report
from tests.tasks.report import data


def published(root: Path, rejected: pl.DataFrame, documents: pl.DataFrame | None = None, parts: int = 3) -> Artifact:
    """A corpus of these rows in several parts."""
    step = Step("corpus", data.Settings(), str(root))
    for number in range(parts):
        rows = rejected.gather_every(parts, number)
        step.put(f"rejected/{number}", ".parquet", rows.write_parquet, rows=rows.height)
    for number, rows in enumerate([documents.head(5), documents.tail(-5)] if documents is not None else []):
        step.put(f"documents/{number}", ".parquet", rows.write_parquet, rows=rows.height)
    return step.publish({"documents": 0})


def duplicates(seed: int = 1) -> pl.DataFrame:
    """Rows of 400 survivors, survivor n standing for n % 40 + 1 others."""
    rows = [
        {"source": "web", "stage": "dedup", "reason": "near_duplicate", "value": f"{survivor:032x} 0.9", "url": ""}
        for survivor in range(400)
        for _ in range(survivor % 40 + 1)
    ]
    rows += [{"source": "web", "stage": "quality", "reason": "too_short", "value": "12", "url": ""}] * 50
    random.Random(seed).shuffle(rows)
    return pl.DataFrame(rows)


def test_drops_are_counted_by_source_stage_and_reason_in_the_order_of_the_stages(tmp_path):
    found = rejects.drops(published(tmp_path, duplicates()))
    assert [(drop.stage, drop.documents) for drop in found] == [("quality", 50), ("dedup", 8200)]


def test_largest_clusters_are_exact_whatever_the_partition(tmp_path):
    want = Counter({f"{survivor:032x}": survivor % 40 + 1 for survivor in range(400)})
    best = sorted(want.items(), key=lambda item: (-item[1], item[0]))[:7]
    for parts, seed in ((1, 1), (5, 2)):
        assert rejects.clusters(published(tmp_path / str(parts), duplicates(seed), parts=parts), 7) == best


def test_lengths_are_in_doublings_and_a_sample_is_bounded(tmp_path):
    documents = pl.DataFrame({"text": ["x" * 100, "x" * 128, "x" * 255, "x" * 256, "x" * 3000] * 20})
    artifact = published(tmp_path, duplicates(), documents)
    bins, seen = rejects.lengths(artifact, 10_000)
    assert seen == 100
    assert {low: count for low, _, count in bins} == {0: 20, 128: 40, 256: 20, 512: 0, 1024: 0, 2048: 20}
    assert rejects.lengths(artifact, 10)[1] <= 12


def test_samples_are_taken_of_one_row_group_after_the_other(tmp_path, monkeypatch):
    draw = random.Random(3)
    rows = [
        {"stage": "quality", "reason": draw.choice("abc"), "value": str(number), "source": draw.choice("xy")}
        | {"text_head": draw.choice(["", f"text {draw.random()}"])}
        for number in range(300)
    ]
    texts = [
        {"domain": draw.choice(["web", "code"]), "source": "s", "id": f"{number:032x}", "text": f"{number} " * 99}
        for number in range(300)
    ]
    step = Step("corpus", data.Settings(), str(tmp_path))
    for number in range(3):
        for key, table in (("rejected", rows), ("documents", texts)):
            frame = pl.DataFrame(table[100 * number : 100 * number + 100])
            step.put(f"{key}/{number}", ".parquet", lambda path, f=frame: f.write_parquet(path, row_group_size=7))
    step.publish({})
    monkeypatch.setattr(Book, "rows", None)  # a frame of a whole table
    order = ("reason", "source", "text_head", "value")
    wanted = [
        [row["value"] for row in sorted((r for r in rows if r["reason"] == reason), key=itemgetter(*order))[:2]]
        for reason in "abc"
    ]
    assert [row[2] for row in dropped._samples(Book([step])).rows] == [value for two in wanted for value in two]
    (fold,) = corpus._documents(Book([step]))
    shown = [row[3] for row in fold.blocks[0].rows]
    first = [[one["text"] for one in texts if one["domain"] == domain][:2] for domain in ("code", "web")]
    assert shown == [" ".join(text[:160].split())[:120] for two in first for text in two]


def test_the_chapter_names_what_could_not_be_read_and_what_was_contaminated(tmp_path):
    page, text = build_report(data.publish(tmp_path, "corpus"))
    for shown in (page, text):
        assert "sympy:cut-2.gz" in shown
        assert "gzip ends too early" in shown
        assert "HumanEval/12" in shown
        assert "412" in shown
    assert "by it alone" in page
    assert "<b>or the first</b>" not in page
