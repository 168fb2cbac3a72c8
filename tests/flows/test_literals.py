"""What PyYAML would read on, and a person did not mean, is refused with file and line."""

from __future__ import annotations

import pytest

from flows.literals import PresetError, read
from flows.preset import load_preset
from flows.request import PresetName, Request

ALIASES = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{one}: &{one} [{', '.join([f'*{other}'] * 9)}]\n" for other, one in zip("abcde", "bcdef", strict=True)
)
REFUSED = {
    "nothing": ("", r"holds nothing"),
    "a comment": ("# nothing\n", r"holds nothing"),
    "a list": ("- extends\n", r"holds a list"),
    "a word": ("hello\n", r"holds a single value"),
    "a key twice": ("extends: test\nrephrase:\n  documents: 3\n  documents: 4\n", r"line 4: 'documents'.*line 3"),
    "a group twice": ("mix: {}\nextends: test\nmix: {}\n", r"line 3: 'mix'.*line 1"),
    "no number": ("extends: test\npretrain:\n  seed: .nan\n", r"line 3: '\.nan' is no finite number"),
    "an infinity": ("extends: test\n\nmix: {epochs: -.inf}\n", r"line 3: '-\.inf' is no finite number"),
    "a number too large": ("mix: {epochs: 1e999}\n", r"line 1: '1e999' is no finite number"),
    "aliases that grow": (ALIASES, r"line \d: aliases grow"),
    "an alias of itself": ("a: &a [*a]\n", r"line 1: nested deeper"),
    "nesting": ("a: " + "[" * 100_000, r"line 1: nested deeper"),
    "a tag of Python's": ("mix:\n  a: !!python/object/apply:os.system [id]\n", r"line 2: the tag .*os\.system"),
    "a tag of nobody's": ("x: !foo 3\n", r"line 1: the tag '!foo'"),
    "a merge key": ("a: &a {b: 1}\nc:\n  <<: *a\n", r"line 3: `<<`"),
    "two documents": ("extends: test\n---\nextends: laptop\n", r"line 2 .*second document"),
    "a list for a key": ("? [a, b]\n: 1\n", r"line 1: a field's name"),
    "a control character": ("extends: test\nx: \x07\n", r"line 2 .*U\+0007"),
    "extends nothing": ("mix: {}\nextends:\n", r"line 2: `extends` takes the name"),
    "extends an empty name": ("extends: ''\n", r"line 1: `extends` takes the name"),
    "extends a list": ("extends: [laptop]\n", r"line 1: `extends` takes the name"),
    "extends a typo": ("extends: laptpo\n", r"line 1: .*did you mean 'laptop'"),
    "a boolean for a number": (
        "extends: test\npretrain:\n  seed: true\n",
        r"line 3: .*pretrain\.seed.*integer; got True",
    ),
    "a boolean for a share": ("extends: test\ngates: {corpus: {damaged: true}}\n", r"line 2: .*valid number; got True"),
    "a string for a number": ("extends: test\npretrain: {seed: '3'}\n", r"line 2: .*integer; got '3'"),
    "a string that is no number": (
        "extends: test\ngates: {corpus: {damaged: 'nan'}}\n",
        r"line 2: .*number; got 'nan'",
    ),
    "a number for a boolean": ("extends: test\npretrain: {separate_documents: 1}\n", r"line 2: .*boolean; got 1"),
    "a number for the sources": ("extends: test\nsources: 5\n", r"line 2: field 'sources'"),
    "a typo": ("extends: test\n\nrephrase:\n  documets: 3\n", r"line 4: .*no such field; did you mean 'documents'"),
    "an empty path": (
        "extends: test\nsources:\n  sources:\n"
        "    - {name: a, kind: folder, path: '', domain: web, language: en, licence: MIT}\n",
        r"line 4: .*path.*at least 1 character",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_is_refused_with_its_line(case, tmp_path):
    text, told = REFUSED[case]
    mine = tmp_path / "mine.yaml"
    mine.write_text(text)
    with pytest.raises(PresetError, match=rf"mine\.yaml.*{told}") as refused:
        load_preset(Request(preset_file=str(mine)))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pretrain.seed=true", "integer; got True"),
        ("pretrain.seed=.nan", "no finite number"),
        ("pretrain.seed=[", "not YAML"),
        ("mix={epochs: 2, epochs: 3}", "'epochs' was given already"),
        ("pretrain.seed=!!python/name:os.system x", "the tag"),
        ("pretrain..seed=1", r"stage\.field=value"),
        ("pretrain.sed=1", "did you mean 'seed'"),
        ("a=1\n--- \nb", "second document"),
        ("pretrain.stages=[{name: a}]", "sequence_length"),
        ("tools=[1]", "dictionary"),
    ],
)
def test_an_override_is_refused_by_its_text(text, told):
    with pytest.raises(PresetError, match=rf"--set '[^']*'.*{told}|--set 'a=1\n"):
        load_preset(Request(preset=PresetName.test, overrides=[text]))


def test_a_value_is_placed_where_it_was_written_and_not_where_it_was_replaced(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text(
        "extends: test\nsources:\n  sources:\n    - {name: a, kind: folder, domain: web, language: en, path: x}\n"
    )
    with pytest.raises(PresetError, match=r"mine\.yaml, line 4: .*licence.*missing"):
        load_preset(Request(preset_file=str(mine)))
    (tmp_path / "base.yaml").write_text("extends: test\npretrain:\n  seed: -1\n")
    mine.write_text("extends: base\npretrain: {evaluate_every: 3}\n")
    with pytest.raises(PresetError, match=r"base\.yaml, line 3: .*pretrain\.seed"):
        load_preset(Request(preset_file=str(mine)))


def test_an_override_lets_nothing_through_of_the_lines_that_it_replaces(tmp_path):
    base = tmp_path / "base.yaml"
    base.write_text("a:\n  - {b: 1}\n  - {c: 2}\nd: {e: 3}\n")
    changed = read(base).changed("a=[{x: 1}]")
    assert changed.place(["a", 1, "c"]) == "--set 'a=[{x: 1}]'"
    assert changed.place(["d", "e"]) == f"{base}, line 4"


def test_a_list_lets_nothing_through_of_the_lines_that_it_replaces(tmp_path):
    base, top = tmp_path / "base.yaml", tmp_path / "top.yaml"
    base.write_text("a:\n  - {b: 1}\n  - {c: 2}\nd: {e: 3}\n")
    top.write_text("a:\n  - {x: 1}\n")
    both = read(top).over(read(base))
    assert both.values == {"a": [{"x": 1}], "d": {"e": 3}}
    assert both.place(["a", 0, "b"]) == f"{top}, line 2"
    assert both.place(["d", "e"]) == f"{base}, line 4"


def test_numbers_are_read_as_people_write_them(tmp_path):
    mine = tmp_path / "mine.yaml"
    mine.write_text("rate: 1e-3\ntokens: 1.5e9\nname: '1e3'\nalso: [5.0e-3, 7]\nshared: &s {a: 1}\nagain: *s\n")
    assert read(mine).values == {
        "rate": 1e-3,
        "tokens": 1_500_000_000,
        "name": "1e3",
        "also": [5.0e-3, 7],
        "shared": {"a": 1},
        "again": {"a": 1},
    }
