"""Pairs: what is shipped, and what a file of one's own may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.rephrase.calibration.pairs import SEEN, PairsError, half, load

ROW = {"id": "a", "domain": "web", "language": "en", "style": "plain", "source": "One thing.", "rewrite": "A thing."}


def written(path: Path, *rows: object) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def test_the_shipped_pairs_are_enough_and_evenly_split():
    pairs = load()
    assert len(pairs) >= 500
    assert [pair.id for pair in pairs] == sorted(pair.id for pair in pairs)
    drawn = [pair.half for pair in pairs if not pair.id.startswith(SEEN)]
    assert 0.45 < drawn.count("tune") / len(drawn) < 0.55
    assert {pair.half for pair in pairs if pair.id.startswith(SEEN)} == {"tune"}
    assert {pair.language for pair in pairs} == {"en", "zh"}
    assert len({pair.style for pair in pairs}) >= 10


def test_the_half_depends_on_the_id_alone():
    assert {half(f"pair-{number}") for number in range(20)} == {"tune", "test"}
    assert half("humanities-001") == half("humanities-001")


def test_own_pairs_from_a_file_a_glob_and_a_url(tmp_path: Path):
    written(tmp_path / "one.jsonl", ROW | {"id": "b"}, "", ROW | {"id": "c"})
    written(tmp_path / "two.jsonl", ROW)
    assert [pair.id for pair in load([str(tmp_path / "one.jsonl")])] == ["b", "c"]
    assert [pair.id for pair in load([str(tmp_path / "*.jsonl")])] == ["a", "b", "c"]
    assert [pair.id for pair in load([f"file://{tmp_path}/two.jsonl"])] == ["a"]
    assert [pair.id for pair in load([f"file://{tmp_path}/*.jsonl"])] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{no json", "no JSON"),
        ("[1]", "a pair is an object"),
        ({key: value for key, value in ROW.items() if key != "rewrite"}, "`rewrite`"),
        (ROW | {"id": ""}, "`id`"),
        (ROW | {"source": 3}, "`source`"),
        (ROW | {"colour": "red"}, "`colour`"),
        (ROW | {"style": "limerick"}, "no style 'limerick'"),
        (ROW | {"rewrite": " \n"}, "must hold text"),
        (ROW | {"id": "z"}, "give it its own"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path: Path, row: object, told: str):
    path = written(tmp_path / "pairs.jsonl", ROW | {"id": "z"}, row)
    with pytest.raises(PairsError, match=r"pairs\.jsonl, line 2: ") as error:
        load([path])
    assert told in str(error.value)


def test_a_file_that_is_not_there_or_is_no_text(tmp_path: Path):
    with pytest.raises(PairsError, match="cannot be read"):
        load([str(tmp_path / "none.jsonl")])
    (tmp_path / "latin.jsonl").write_bytes("é".encode("latin-1"))
    with pytest.raises(PairsError, match="no UTF-8"):
        load([str(tmp_path / "latin.jsonl")])
    with pytest.raises(PairsError, match="no pairs in"):
        load([str(tmp_path / "*.nothing")])
