"""The order of the house: arrows between its folders point one way, and no files need each other in a circle."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

HOUSE = Path(__file__).parent.parent
MAY_IMPORT = {
    "flows": {"flows", "tasks", "training", "expectations", "model"},
    "tasks": {"tasks", "training", "expectations", "model"},
    "training": {"training", "model"},
    # the gate reads token shards as the trainer will: with its own reader
    "expectations": {"expectations", "training", "model"},
    "model": {"model"},
}
"""Which of our folders the files of one may import."""
UNKNOWN_TO = {"model": {"prefect", "great_expectations"}, "training": {"prefect", "great_expectations"}}
"""Libraries that the files of a folder may not import."""


@cache
def modules() -> dict[str, ast.Module]:
    """Every file of the house, by its name as a module."""
    found = {}
    for folder in MAY_IMPORT:
        for path in sorted((HOUSE / folder).rglob("*.py")):
            parts = path.relative_to(HOUSE).with_suffix("").parts
            found[".".join(parts).removesuffix(".__init__")] = ast.parse(path.read_text(encoding="utf-8"))
    return found


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """What runs: nothing of `if TYPE_CHECKING`, whose imports only a type checker follows."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        yield node
        yield from nodes(node)


def imports(name: str) -> set[str]:
    """Everything that a module imports, at its top or within a function, by full name."""
    found = set()
    for node in nodes(modules()[name]):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {one if one in modules() else node.module for one in whole}
    return found


@pytest.mark.parametrize("folder", MAY_IMPORT)
def test_arrows_point_one_way(folder: str) -> None:
    for name in modules():
        if name.partition(".")[0] == folder:
            roots = {one.partition(".")[0] for one in imports(name)}
            wrong = (roots & set(MAY_IMPORT)) - MAY_IMPORT[folder] | roots & UNKNOWN_TO.get(folder, set())
            assert not wrong, f"{name} imports {sorted(wrong)}"


def test_no_files_need_each_other() -> None:
    """An import within a function counts: one that is there to hide a circle does not open it."""
    left = {name: imports(name) & set(modules()) - {name} for name in modules()}
    while leaves := {name for name, wanted in left.items() if not wanted & left.keys()}:
        left = {name: wanted for name, wanted in left.items() if name not in leaves}
    # what is left is on a circle or leads to one: files that nothing of it imports only lead there
    while heads := {name for name in left if not any(name in wanted for wanted in left.values())}:
        left = {name: wanted for name, wanted in left.items() if name not in heads}
    assert not left, {name: sorted(wanted & left.keys()) for name, wanted in left.items()}


def test_the_loop_of_reinforcement_learning_is_read_at_once() -> None:
    """What an iteration is, from top to bottom; its parts are in other files."""
    assert len((HOUSE / "training/rl/train.py").read_text(encoding="utf-8").splitlines()) < 120


def test_every_row_of_a_table_in_the_documents_has_the_cells_of_its_head() -> None:
    for page in [*HOUSE.glob("*.md"), *HOUSE.glob("docs/**/*.md")]:
        cells = 0
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
            # in code, too: GitHub splits cells before it reads anything else
            own = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
            assert own == (cells or own) or not own, f"{page.name}:{number} has another number of cells"
            cells = own
