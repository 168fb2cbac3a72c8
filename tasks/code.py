"""What the text of a stage's code tells: its VERSION, the data files that it reads, and a hash of all of it.

A stage is named by its module. VERSION stands there, raised by whoever changes what the same inputs give; it and the
data files (prompts, word lists) are identity. The hash over the syntax trees of the module and of every module of ours
that it imports is a record: it says whether the code has changed, not whether that matters.

Static: nothing is imported, so that `openk2 status` answers at once.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from model.config import contents

HOUSE = Path(__file__).resolve().parent.parent
PACKAGES = ("flows", "tasks", "model", "training", "expectations")
WEIGHTS = ".safetensors"
DATA_SUFFIXES = (".yaml", ".json", ".txt", WEIGHTS)
# Who runs a stage, and how that is shown, is no part of its code.
EXECUTION = {
    "tasks.artifact", "tasks.code", "tasks.corpus.cluster", "tasks.corpus.executor", "tasks.corpus.workers",
    "tasks.launch", "tasks.process", "tasks.progress",
}  # fmt: skip
# Where statements hold statements; `handlers` and `cases` are no statements and hold some.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def code_hash(*entries: str) -> str:
    """sha256 over the import closure of `entries` (dotted module names), sorted by module; 16 hex digits. Comments,
    docstrings and formatting do not count; C sources and templates that a module names do."""
    total = hashlib.sha256()
    for name in sorted(closure(*entries)):
        total.update(f"{name}\0{_module_hash(name)}\n".encode())
    return total.hexdigest()[:16]


@cache
def version_of(entry: str) -> int:
    """The `VERSION` at the top of a stage's module; ValueError where it has none."""
    if _file(entry) is None:
        raise ValueError(f"{entry} is no module of this project: a stage names its own module")
    for node in _tree(entry).body:
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["VERSION"]:
            return int(ast.literal_eval(node.value))
    raise ValueError(f"{entry} has no VERSION: a stage's module says which version of its bytes it makes")


@cache
def data_hash(entry: str) -> str:
    """16 hex digits over the data files that a stage's modules name and that lie beside them; empty where it reads
    none. Their folders do not count: code may be moved."""
    return contents({path for name in closure(entry) for path in _named(name, DATA_SUFFIXES)})


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
    if "import_module" in _words(name)[1]:
        # It imports by names that it has in a table: any module beside it may be one.
        names += [f"{package}.{path.stem}" for path in file.parent.glob("*.py") if path.stem != "__init__"]
    ours = {found for found in names if found.split(".")[0] in PACKAGES}
    parents = {found.rpartition(".")[0] for found in ours if "." in found}
    return tuple(sorted(found for found in ours | parents if _file(found) is not None))


@cache
def _module_hash(name: str) -> str:
    total = hashlib.sha256(ast.unparse(_tree(name)).encode())
    for source in _named(name, (".c", ".h", ".jinja")):
        total.update(source.name.encode() + b"\0" + source.read_bytes())
    return total.hexdigest()


@cache
def _words(name: str) -> tuple[set[str], set[str]]:
    """The strings and the names that stand in a module."""
    texts: set[str] = set()
    names: set[str] = set()
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                texts.add(node.value)
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return texts, names


@cache
def _named(name: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of these kinds beside a module whose names stand in it, and the weights in folders of which that is
    so: what was learned is in parts."""
    file = _file(name)
    assert file is not None
    texts, _ = _words(name)
    beside = [] if file.parent == HOUSE else [path for path in sorted(file.parent.iterdir()) if path.name in texts]
    parts = [part for path in beside if WEIGHTS in suffixes for part in sorted(path.glob(f"*{WEIGHTS}"))]
    return [path for path in beside if path.suffix in suffixes] + parts


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
