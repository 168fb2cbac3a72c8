from __future__ import annotations

from collections import Counter

import numpy as np
import polars as pl
import pytest

from model.config import Config
from tasks.artifact import Step
from tasks.report.inspect.rewrites import diversity as module
from tasks.report.inspect.rewrites.diversity import diversity


class Plain(Config):
    """Of rewrites that nobody configured."""


def test_what_is_new_is_counted_against_the_source_and_against_the_other_rewrites(tmp_path):
    step = Step("rewrites", Plain(), str(tmp_path))
    segments = pl.DataFrame(
        {
            "source_text": ["a b c d e", "a b c d e", "a b c d e"],
            "rewrite_text": ["a b c d f", "v w x y z", "never read"],
            "accepted": [True, True, False],
        }
    )
    texts = ["a b c d e", "b c d e f g", "of a source with one rewrite"]
    rewrites = pl.DataFrame({"source_id": ["1", "1", "2"], "text": texts})
    for key, frame in (("segments/0", segments), ("rewrites/0", rewrites)):
        step.put(key, ".parquet", frame.write_parquet, rows=frame.height)
    vectors = dict(zip(texts, np.eye(3), strict=True)) | {texts[1]: np.array([0.6, 0.8, 0.0])}
    found = diversity(step.publish({}), vectors.__getitem__)
    assert found.new == (1 / 2 + 1) / 2
    assert found.documents == 1
    assert found.overlap == (1 / 2 + 1 / 3) / 2
    assert found.spread == pytest.approx(0.4)


def test_no_more_texts_are_read_than_are_needed_and_those_from_all_files_alike(tmp_path, monkeypatch):
    read: list[int] = []
    grams = module._grams
    monkeypatch.setattr(module, "MOST", 24)
    monkeypatch.setattr(module, "FILES", 4)
    monkeypatch.setattr(module, "_grams", lambda text: read.append(int(text.split()[0])) or grams(text))
    step = Step("rewrites", Plain(), str(tmp_path))
    for number in range(8):
        rows = 2 if number == 0 else 50
        texts = [f"{number} {row} a b c" for row in range(rows)]
        segments = pl.DataFrame({"source_text": texts, "rewrite_text": texts, "accepted": [True] * rows})
        rewrites = pl.DataFrame({"source_id": [f"{number}:{row // 2}" for row in range(rows)], "text": texts})
        for name, frame in (("segments", segments), ("rewrites", rewrites)):
            step.put(f"{name}/{number}", ".parquet", frame.write_parquet, rows=rows)
    found = diversity(step.publish({}), lambda text: np.ones(1))
    assert Counter(read) == {0: 6, 2: 24, 4: 20, 6: 20}, "two texts a segment, one a document that has another"
    assert found.documents == 11


def test_texts_that_say_the_same_lie_nearer_than_others_and_chinese_ones_are_not_embedded(tmp_path):
    same = ["The mill by the river was built of stone in 1871.", "In 1871 a stone mill was raised on the river's bank."]
    other = ["The mill by the river was built of stone in 1871.", "Tigers hunt alone, at night, over wide territories."]
    found = []
    for number, texts in enumerate((same, other, ["磨坊建于河边，用石头砌成。", "河边的石头磨坊。"])):
        step = Step("rewrites", Plain(), str(tmp_path / str(number)))
        rewrites = pl.DataFrame({"source_id": ["1", "1"], "text": texts})
        step.put("rewrites/0", ".parquet", rewrites.write_parquet, rows=2)
        found.append(diversity(step.publish({})))
    assert found[2].spread is None
    assert found[2].overlap is not None
    assert 0 < found[0].spread < 0.4 < found[1].spread
