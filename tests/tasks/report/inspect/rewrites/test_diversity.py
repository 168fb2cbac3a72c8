from __future__ import annotations

import polars as pl

from model.config import Config
from tasks.artifact import Step
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
            "scores": [{"cosine": 0.5}, {"cosine": None}, {"cosine": 0.0}],
        }
    )
    texts = ["a b c d e", "b c d e f g", "of a source with one rewrite"]
    rewrites = pl.DataFrame({"source_id": ["1", "1", "2"], "text": texts})
    for key, frame in (("segments/0", segments), ("rewrites/0", rewrites)):
        step.put(key, ".parquet", frame.write_parquet, rows=frame.height)
    found = diversity(step.publish({}))
    assert found.new == (1 / 2 + 1) / 2
    assert found.cosine == 0.5
    assert found.documents == 1
    assert found.own == (1 / 2 + 2 / 3) / 2
