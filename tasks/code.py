"""The hash of a stage's code: the syntax trees of its entry modules and of every first-party module they import.

Comments, docstrings and formatting do not count; data files (prompts, word lists) beside a hashed module do, and so
does the C source that a module names. Static: nothing is imported, so that `openk2 status` answers at once.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
PACKAGES = ("flows", "tasks", "model", "training", "expectations")
DATA_SUFFIXES = {".yaml", ".json", ".txt"}
# Who runs a stage, and how that is shown, does not change what it computes.
EXECUTION = {
    "tasks.artifact", "tasks.code", "tasks.corpus.cluster", "tasks.corpus.executor", "tasks.launch", "tasks.process",
    "tasks.progress",
}  # fmt: skip
# Where statements hold statements; `handlers` and `cases` are no statements and hold some.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def code_hash(*entries: str) -> str:
    """sha256 over the import closure of `entries` (dotted module names), sorted by module."""
    total = hashlib.sha256()
    for name in sorted(closure(*entries)):
        total.update(f"{name}\0{_module_hash(name)}\n".encode())
    return total.hexdigest()


def closure(*entries: str) -> set[str]:
    """The first-party modules that `entries` reach by import statements, themselves included."""
    found: set[str] = set()
    queue = list(entries)
    while queue:
        name = queue.pop()
        if name in found or name in EXECUTION:
            continue
        if _file(name) is None:
            raise ValueError(f"{name} is no module of this project: a stage names its own modules")
        found.add(name)
        queue += _imports(name)
    return found


@cache
def _file(name: str) -> Path | None:
    path = HOUSE.joinpath(*name.split("."))
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _tree(name: str) -> ast.Module:
    """The module's syntax tree without its docstrings."""
    file = _file(name)
    assert file is not None
    tree = ast.parse(file.read_text(encoding="utf-8"), filename=str(file))
    _bare(tree)
    return tree


@cache
def _imports(name: str) -> tuple[str, ...]:
    file = _file(name)
    assert file is not None
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    names: list[str] = []
    for node in _statements(_tree(name)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, *([node.module] if node.module else [])])
            names += [base, *(f"{base}.{alias.name}" for alias in node.names)]
    ours = {found for found in names if found.split(".")[0] in PACKAGES}
    parents = {found.rpartition(".")[0] for found in ours if "." in found}
    return tuple(sorted(found for found in ours | parents if _file(found) is not None))


@cache
def _module_hash(name: str) -> str:
    file = _file(name)
    assert file is not None
    text = ast.unparse(_tree(name))
    total = hashlib.sha256(text.encode())
    if file.parent != HOUSE:
        for data in sorted(file.parent.iterdir()):
            if data.suffix in DATA_SUFFIXES or (data.suffix == ".c" and repr(data.name) in text):
                total.update(data.name.encode() + b"\0" + data.read_bytes())
    return total.hexdigest()


def _bare(node: ast.AST) -> None:
    """Drop bare string statements in place: docstrings of modules, classes, functions and fields. Expressions hold no
    statements, so they are not looked into: a status reads hundreds of modules."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        if isinstance(block, list):
            block[:] = [child for child in block if not _is_string(child)]
            for child in block:
                _bare(child)
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.body:
        node.body = [ast.Pass()]


def _is_string(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Every statement within, however deep."""
    for name in _BLOCKS:
        block = getattr(node, name, None)
        for child in block if isinstance(block, list) else ():
            yield child
            yield from _statements(child)
