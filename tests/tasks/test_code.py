"""What a stage's text tells: its VERSION, its data files, and a hash of its code in which comments do not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks import code

NAMED = (code._named, code._read, code._module_hash)


@pytest.fixture
def house(tmp_path, monkeypatch):
    """A small project of two packages, with the hash's caches cleared."""

    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        for cached in (code.code_hash, code.version_of, code.data_hash, code._file, code._imports, *NAMED):
            cached.cache_clear()

    for package in ("tasks", "tasks/stage", "model"):
        write(f"{package}/__init__.py", "")
    write(
        "tasks/stage/work.py",
        '"""Doc."""\nfrom model import net\nfrom . import helper\n\ndef run():\n    """D."""\n    return net.f()\n',
    )
    write("tasks/stage/helper.py", "import json\nX = 1\n")
    write("model/net.py", "def f():\n    # why\n    return 1\n")
    write("model/other.py", "Y = 1\n")
    monkeypatch.setattr(code, "HOUSE", tmp_path)
    yield write
    write("done.txt", "")


ENTRY = "tasks.stage.work"


def test_the_closure_follows_imports_of_the_house_only(house):
    found = code.closure(ENTRY)
    assert {"tasks.stage.work", "tasks.stage.helper", "model.net", "tasks.stage"} <= found
    assert "model.other" not in found
    assert "json" not in found


def test_comments_docstrings_and_formatting_do_not_count(house):
    before = code.code_hash(ENTRY)
    house(
        "tasks/stage/work.py",
        '"""Other."""\n\n# said\nfrom model import net\nfrom . import helper\n\n\ndef run():\n    return (net.f())\n',
    )
    house("model/net.py", 'def f():\n    """Now documented."""\n    return 1  # because\n')
    assert code.code_hash(ENTRY) == before


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("model/net.py", "def f():\n    return 2\n"),
        ("tasks/stage/helper.py", "import json\nX = 2\n"),
        ("tasks/stage/__init__.py", "Z = 3\n"),
    ],
)
def test_behaviour_and_imports_count(house, file, text):
    before = code.code_hash(ENTRY)
    house(file, text)
    assert code.code_hash(ENTRY) != before


def test_a_c_source_counts_for_the_module_that_names_it_alone(house):
    house("model/net.c", "int f;\n")
    before = code.code_hash(ENTRY)
    house("model/net.c", "int g;\n")
    assert code.code_hash(ENTRY) == before
    house("model/net.py", "def f():\n    return 'net.c'\n")
    before = code.code_hash(ENTRY)
    house("model/net.c", "int h;\n")
    assert code.code_hash(ENTRY) != before


def test_data_files_that_a_module_names_are_identity_and_code_is_not(house):
    assert code.data_hash(ENTRY) == ""
    house("tasks/stage/words.yaml", "- a\n")
    assert code.data_hash(ENTRY) == "", "nobody reads it"
    house("tasks/stage/helper.py", "WORDS = 'words.yaml'\n")
    before = code.data_hash(ENTRY)
    assert before
    house("tasks/stage/helper.py", "WORDS = 'words.yaml'  # read once\nX = 3\n")
    assert code.data_hash(ENTRY) == before
    house("tasks/stage/words.yaml", "- b\n")
    assert code.data_hash(ENTRY) != before


def test_weights_in_a_folder_that_a_module_names_are_identity(house):
    house("tasks/stage/learned/one.safetensors", "1")
    house("tasks/stage/learned/notes.txt", "of nobody's interest")
    assert code.data_hash(ENTRY) == "", "nobody reads them"
    house("tasks/stage/helper.py", "WEIGHTS = 'learned'\n")
    before = code.data_hash(ENTRY)
    assert before
    house("tasks/stage/learned/two.safetensors", "2")
    assert code.data_hash(ENTRY) != before


def test_a_stage_says_its_version_and_one_without_is_refused(house):
    with pytest.raises(ValueError, match=r"tasks\.stage\.work has no VERSION"):
        code.version_of(ENTRY)
    house("tasks/stage/work.py", "VERSION = 3\n")
    assert code.version_of(ENTRY) == 3


def test_a_module_that_imports_by_names_reaches_all_beside_it(house):
    assert "model.other" not in code.closure(ENTRY)
    house(
        "model/net.py",
        "from importlib import import_module\n\ndef f():\n    return import_module('model.' + 'other')\n",
    )
    assert "model.other" in code.closure(ENTRY)


def test_what_is_not_imported_does_not_count(house):
    before = code.code_hash(ENTRY)
    house("model/other.py", "Y = 2\n")
    assert code.code_hash(ENTRY) == before


def test_an_unknown_module_is_refused_by_name(house):
    with pytest.raises(ValueError, match=r"tasks\.nowhere"):
        code.code_hash("tasks.nowhere")


def test_no_stage_of_the_real_house_reaches_its_flows_or_prefect():
    """Arrows point one way: what computes never imports what orders."""
    house = Path(code.__file__).resolve().parent.parent
    for folder, forbidden in {
        "model": ("tasks", "flows", "training", "expectations", "prefect", "great_expectations"),
        "training": ("tasks", "flows", "expectations", "prefect", "great_expectations"),
        "expectations": ("flows",),
        "tasks": ("flows",),
    }.items():
        for file in (house / folder).rglob("*.py"):
            for line in file.read_text().splitlines():
                words = line.split()
                if words[:1] in (["import"], ["from"]) and len(words) > 1:
                    assert words[1].split(".")[0] not in forbidden, f"{file}: {line.strip()}"


def test_what_judges_replies_in_rl_is_no_identity_of_rewrites_and_tools():
    """Whoever mends RL's programs would have hours of rewriting done again."""
    for entry in ("tasks.rephrase.rewriting", "tasks.agentic.synthesis.tools", "tasks.agentic.mcp.recording"):
        assert "training.rl.environments.table" not in code.closure(entry)


def test_what_was_read_is_kept_by_content_and_rubbish_in_the_cache_is_none(house, tmp_path, monkeypatch):
    """A process that finds it kept parses nothing and comes to the same; one that finds something else reads anew."""
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    house("tasks/stage/work.py", "from . import helper\n\nVERSION = 3\n")

    def anew() -> tuple[str, int]:
        code._kept.cache_clear()
        house("done.txt", "")  # clears the other caches
        return code.code_hash(ENTRY), code.version_of(ENTRY)

    first = anew()
    (kept,) = (tmp_path / "cache" / "code").iterdir()
    with monkeypatch.context() as patch:
        patch.setattr(code, "_parse", None)
        assert anew() == first
    for rubbish in ("[1]", '{"a": 1}', "{", ""):
        kept.write_text(rubbish)
        assert anew() == first
    house("tasks/stage/helper.py", "X = 2\n")
    assert anew() != first
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "file"))
    assert anew() != first
