"""What the text of a stage's code tells: its VERSION, the data files that it reads, and a hash of all of it.

A stage is named by its module. VERSION stands there, raised by whoever changes what the same inputs give; it and the
data files (prompts, word lists) are identity. The hash over the syntax trees of the module and of every module of ours
that it imports is a record: it says whether the code has changed, not whether that matters.

Static: nothing is imported, so that `openk2 status` answers at once. For the same reason what has been read of a file
is kept in the user's cache, by its content: to parse the 400 files of a recipe takes four CPU-seconds, in every process
that wants to know what it consists of.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from model.cache import cache_folder
from model.config import contents

HOUSE = Path(__file__).resolve().parent.parent
PACKAGES = ("flows", "tasks", "model", "training", "expectations")
WEIGHTS = ".safetensors"
DATA_SUFFIXES = (".yaml", ".json", ".txt", WEIGHTS)
# Who runs a stage, and how that is shown, is no part of its code.
EXECUTION = {
    "tasks.artifact", "tasks.code", "tasks.corpus.cluster", "tasks.corpus.executor", "tasks.corpus.workers",
    "tasks.launch", "tasks.manifest", "tasks.process", "tasks.progress",
}  # fmt: skip
KEPT = 2000
"""Files of which more than these are not kept: then those go that this process has not read."""
# Where statements hold statements; `handlers` and `cases` are no statements and hold some.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


@cache
def code_hash(*entries: str) -> str:
    """sha256 over the import closure of `entries` (dotted module names), sorted by module; 16 hex digits. Comments,
    docstrings and formatting do not count; C sources and templates that a module names do."""
    total = hashlib.sha256()
    for name in sorted(closure(*entries)):
        total.update(f"{name}\0{_module_hash(name)}\n".encode())
    _keep()
    return total.hexdigest()[:16]


@cache
def version_of(entry: str) -> int:
    """The `VERSION` at the top of a stage's module; ValueError where it has none."""
    if _file(entry) is None:
        raise ValueError(f"{entry} is no module of this project: a stage names its own module")
    if (version := _read(entry).version) is not None:
        return version
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


class _Text(NamedTuple):
    """What the text of one module says."""

    hash: str
    """sha256 of its syntax without comments and docstrings."""
    version: int | None
    imports: list[tuple[int, str, list[str]]]
    """Every import, as `ast.ImportFrom` has it: level, module, names; `import a` is (0, "a", [])."""
    words: list[str]
    """The strings in it that could be the name of a file."""
    by_name: bool
    """Whether it imports by names that it has in a table."""


_fresh: set[str] = set()
"""The contents that this process has read: _Text by the sha256 of a file's bytes, as in `_kept`."""


@cache
def _kept() -> dict[str, _Text]:
    """What has been read of files, here or by earlier processes, by the sha256 of their bytes."""
    with suppress(OSError, ValueError, TypeError, AttributeError):  # none, or not what we wrote: it is read anew
        return {sha256: _Text(*fields) for sha256, fields in json.loads(_place().read_bytes()).items()}
    return {}


def _place() -> Path:
    """Where that lies: another Python writes syntax otherwise, and another text of this module reads it otherwise."""
    reader = hashlib.sha256(sys.version.encode() + Path(__file__).read_bytes()).hexdigest()[:16]
    return cache_folder() / "code" / f"{reader}.json"


def _keep() -> None:
    """Write down what this process was the first to read. Of two at once the last one stays: it is read again."""
    found, place = _kept(), _place()
    if not _fresh:
        return
    if len(found) > KEPT:
        found = {sha256: found[sha256] for sha256 in _fresh}
    _fresh.clear()
    with suppress(OSError):  # a cache that can't be written is none
        place.parent.mkdir(parents=True, exist_ok=True)
        scratch = place.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps(found))
        scratch.replace(place)


@cache
def _read(name: str) -> _Text:
    file = _file(name)
    assert file is not None
    data = file.read_bytes()
    sha256, found = hashlib.sha256(data).hexdigest(), _kept()
    if sha256 not in found:
        found[sha256] = _parse(data, file)
        _fresh.add(sha256)
    return found[sha256]


def _tree(data: bytes, file: Path) -> ast.Module:
    """The syntax tree of a module's text without its docstrings."""
    tree = ast.parse(data, filename=str(file))
    _bare(tree)
    return tree


def _parse(data: bytes, file: Path) -> _Text:
    tree = _tree(data, file)
    versions = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["VERSION"]
    ]
    imports: list[tuple[int, str, list[str]]] = []
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            imports += [(0, alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            imports.append((node.level, node.module or "", [alias.name for alias in node.names]))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    words = sorted(text for text in texts if len(text) < 256 and text.isprintable() and "/" not in text)
    by_name = any(isinstance(node, ast.Name) and node.id == "import_module" for node in ast.walk(tree))
    syntax = hashlib.sha256(ast.unparse(tree).encode()).hexdigest()
    return _Text(syntax, int(versions[0]) if versions else None, imports, words, by_name)


@cache
def _imports(name: str) -> tuple[str, ...]:
    file = _file(name)
    assert file is not None
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    names: list[str] = []
    for level, module, imported in _read(name).imports:
        base = module
        if level:
            parent = package.split(".")[: len(package.split(".")) - level + 1]
            base = ".".join([*parent, *([module] if module else [])])
        names += [base, *(f"{base}.{each}" for each in imported)]
    if _read(name).by_name:
        # It imports by names that it has in a table: any module beside it may be one.
        names += [f"{package}.{path.stem}" for path in file.parent.glob("*.py") if path.stem != "__init__"]
    ours = {found for found in names if found.split(".")[0] in PACKAGES}
    parents = {found.rpartition(".")[0] for found in ours if "." in found}
    return tuple(sorted(found for found in ours | parents if _file(found) is not None))


@cache
def _module_hash(name: str) -> str:
    sources = _named(name, (".c", ".h", ".jinja"))
    if not sources:
        return _read(name).hash
    file = _file(name)
    assert file is not None
    total = hashlib.sha256(ast.unparse(_tree(file.read_bytes(), file)).encode())
    for source in sources:
        total.update(source.name.encode() + b"\0" + source.read_bytes())
    return total.hexdigest()


@cache
def _named(name: str, suffixes: tuple[str, ...]) -> list[Path]:
    """The files of these kinds beside a module whose names stand in it, and the weights in folders of which that is
    so: what was learned is in parts."""
    file = _file(name)
    assert file is not None
    words = set(_read(name).words)
    beside = [] if file.parent == HOUSE else [path for path in sorted(file.parent.iterdir()) if path.name in words]
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
