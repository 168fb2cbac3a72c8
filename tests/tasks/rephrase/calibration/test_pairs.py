"""Pairs: their formats, what is shipped, and what a file of one's own may hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tasks.rephrase.alignment.pair import Pair
from tasks.rephrase.alignment.stack import CHECKS
from tasks.rephrase.calibration.pairs import DEFECTS, FAITHFUL, NEUTRAL, SETS, SHIPPED, PairsError, half, load
from tasks.rephrase.config import AlignmentConfig

WRITTEN = {
    "id": "a",
    "language": "en",
    "domain": "law",
    "source": "The fee may rise in May.",
    "faithful": ["In May the fee may go up."],
    "defects": [{"kind": "hedge", "rewrite": "In May the fee goes up.", "wrong": "may lost"}],
}
EDITED = {
    "id": "b",
    "language": "en",
    "domain": "nature",
    "source": "Owls hunt at night. They eat mice.",
    "rewrites": ["At night owls hunt; mice are what they eat.", "Mice are hunted by owls at night and eaten."],
    "edits": [
        {"of": 1, "kind": "time", "find": "night", "put": "dawn", "source": "night"},
        {"of": 0, "kind": "omission", "find": "; mice are what they eat", "put": "", "source": "They eat mice."},
        {"of": 0, "kind": "neutral", "find": "what they eat", "put": "their food", "source": "They eat mice."},
    ],
}
STATED = {
    "id": "c",
    "language": "en",
    "domain": "nature",
    "statements": [
        {
            "of": [0],
            "says": ["Owls hunt at night.", "At night owls hunt."],
            "defects": [{"kind": "time", "text": "Owls hunt at dawn."}],
        },
        {"of": [1], "says": ["They eat mice.", "Mice are their food.", "It is mice they eat."]},
        {
            "of": [0, 1],
            "says": ["At night owls hunt mice to eat."],
            "defects": [{"kind": "role", "text": "Mice eat owls at night."}],
        },
    ],
}


def written(path: Path, *rows: object) -> str:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows), encoding="utf-8")
    return str(path)


def edit(**fields: object) -> dict[str, object]:
    return EDITED | {"edits": [EDITED["edits"][0] | fields]}  # type: ignore[index]


def test_both_formats_become_rows(tmp_path: Path):
    rows = load([written(tmp_path / "own.jsonl", WRITTEN, "", EDITED)])
    assert [(row.id, row.kind, row.rewrite, row.wrong) for row in rows] == [
        ("a/0", "faithful", "In May the fee may go up.", ""),
        ("a/1", "hedge", "In May the fee goes up.", "may lost"),
        ("b/0", "faithful", "At night owls hunt; mice are what they eat.", ""),
        ("b/1", "faithful", "Mice are hunted by owls at night and eaten.", ""),
        ("b/2", "time", "Mice are hunted by owls at dawn and eaten.", "'night' became 'dawn'"),
        ("b/3", "omission", "At night owls hunt.", "'; mice are what they eat' is left out"),
        ("b/4", "neutral", "At night owls hunt; mice are their food.", "'what they eat' became 'their food'"),
    ]
    assert [row.faithful for row in rows] == [True, False, True, True, False, False, True]
    assert {row.part for row in rows} == {"own"}
    assert {(row.domain, row.source) for row in rows[:2]} == {("law", "The fee may rise in May.")}


def test_statements_become_passages(tmp_path: Path):
    rows = load([written(tmp_path / "own.jsonl", STATED)])
    assert {row.source for row in rows} == {"Owls hunt at night. They eat mice."}
    assert [(row.id, row.kind, row.rewrite) for row in rows] == [
        ("c/0", "faithful", "At night owls hunt. Mice are their food."),
        ("c/1", "time", "Owls hunt at dawn. Mice are their food."),
        ("c/2", "role", "Mice eat owls at night."),
    ]
    assert rows[1].wrong == "Owls hunt at dawn."


def statement(place: int, **fields: object) -> dict[str, object]:
    said = list(STATED["statements"])
    said[place] = said[place] | fields  # type: ignore[operator]
    return STATED | {"statements": said}


def test_own_pairs_from_a_file_a_glob_and_a_url(tmp_path: Path):
    written(tmp_path / "one.jsonl", WRITTEN)
    written(tmp_path / "two.jsonl", EDITED)
    assert [row.id for row in load([str(tmp_path / "one.jsonl")])] == ["a/0", "a/1"]
    assert len(load([str(tmp_path / "*.jsonl")])) == 7
    assert len(load([f"file://{tmp_path}/two.jsonl"])) == 5
    assert len(load([f"file://{tmp_path}/*.jsonl"])) == 7
    assert {row.part for row in load(["dev", str(tmp_path / "one.jsonl")])} == {"dev", "own"}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("{no json", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[1]", "a record is an object"),
        ({key: value for key, value in WRITTEN.items() if key != "source"}, "`source`: Field required"),
        (WRITTEN | {"id": ""}, "`id`: must hold text"),
        (WRITTEN | {"source": 3}, "`source`"),
        (WRITTEN | {"colour": "red"}, "`colour`"),
        (WRITTEN | {"faithful": [" \n"]}, "`faithful.0`: must hold text"),
        (WRITTEN | {"faithful": [], "defects": []}, "has no rewrite"),
        (WRITTEN | {"defects": [{"kind": "typo", "rewrite": "x", "wrong": "y"}]}, "there is no kind 'typo'"),
        (WRITTEN | {"defects": [{"kind": "neutral", "rewrite": "x", "wrong": "y"}]}, "there is no kind 'neutral'"),
        (WRITTEN | {"faithful": ["\ud800"]}, "`faithful.0`"),
        (EDITED | {"rewrites": []}, "`rewrites`"),
        (edit(of=2), "edit 0: there is no rewrite 2"),
        (edit(find="noon"), "edit 0: 'noon' stands in rewrite 1 0 times, not once"),
        (edit(find="a"), "edit 0: 'a' stands in rewrite 1 4 times, not once"),
        (edit(source="day"), "edit 0: 'day' stands in the source 0 times, not once"),
        (edit(put="night"), "edit 0: `put` is what `find` is"),
        (edit(kind="colour"), "there is no kind 'colour'"),
        (WRITTEN | {"id": "z"}, "give it its own"),
        (STATED | {"statements": []}, "has the single ones []"),
        (statement(1, of=[0]), "has the single ones [0, 0]"),
        (statement(2, of=[0, 3]), "there is no statement for `of` [0, 3]"),
        (statement(2, of=[0, 1, 1]), "`statements.2.of`"),
        (statement(0, says=["Owls hunt."]), "statement 0 needs two wordings"),
        (statement(0, defects=[{"kind": "typo", "text": "x"}]), "there is no kind 'typo'"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path: Path, row: object, told: str):
    path = written(tmp_path / "pairs.jsonl", WRITTEN | {"id": "z"}, row)
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


def test_the_half_depends_on_the_id_alone():
    assert [half(f"pair-{number}") for number in (28, 29, 30, 38)] == ["train", "dev", "train", "dev"]
    assert 50 < [half(f"pair-{number}") for number in range(1000)].count("dev") < 150


def test_every_shipped_file_is_small_and_valid():
    files = sorted(SHIPPED.iterdir())
    assert {path.suffix for path in files} == {".jsonl"}
    assert all(path.stat().st_size < 1_000_000 for path in files)
    every = load([str(SHIPPED / "*.jsonl")])  # raises for a record that does not fit, and for an id that is there twice
    by_set = [load([name]) for name in SETS]
    assert sorted(row.id for row in every) == sorted(row.id for rows in by_set for row in rows)
    assert {row.part for rows in by_set for row in rows} == set(SETS)


@pytest.mark.parametrize("name", ["dev", "train"])
def test_what_was_written_for_training_has_every_kind_of_edit_in_both_languages(name: str):
    rows = load([name])
    for language in ("en", "zh"):
        kinds = {row.kind for row in rows if row.language == language}
        assert kinds == set(DEFECTS) - {"formula"} | {FAITHFUL, NEUTRAL}  # `identity` is its name there
    assert all(row.source != row.rewrite for row in rows)


def test_the_test_set_is_known_by_its_file_however_it_is_named():
    assert {row.part for row in load([str(SHIPPED / ".." / "pairs" / "test-zh.jsonl")])} == {"test"}
    assert {row.part for row in load([f"file://{SHIPPED}/test-zh.jsonl"])} == {"test"}


def test_the_exact_rules_refuse_what_small_models_got_wrong():
    rows = load(["rewriters"])
    assert {row.part for row in rows} == {"rewriters"}
    assert not {row.source for row in rows} - {row.source for row in load(["train", "dev"])}
    config = AlignmentConfig()
    for row in rows:
        verdicts = [check(Pair(row.source, row.rewrite), config) for check in CHECKS]
        reasons = {verdict.check for verdict in verdicts if not verdict.passed}
        assert reasons == {"copied"} if row.faithful else reasons, row.id
