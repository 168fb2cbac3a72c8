"""Python modules: the program as it stands, or the prose of its docstrings."""

from __future__ import annotations

import ast
import inspect
import platform
import re
import warnings

from model.visible import encodable
from tasks.corpus.extract.passage import ExtractionError, Passage
from tasks.corpus.extract.rst import render

# A docstring of fewer bytes says no more than the name above it; a Han character is three. Ours.
DOCSTRING_BYTES_MIN = 24

_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_LABEL = re.compile(r"^\s*- (?:`[^`]*`|returns): ")


def program(text: str) -> list[Passage]:
    """The whole file as code."""
    return [Passage(text.strip("\n"), code=True)] if text.strip() else []


def docstrings(text: str) -> list[Passage]:
    """The module's docstrings as one text, each under its qualified name as heading; long string constants of modules
    that are data (`pydoc_data.topics`) count as text too. Raises ExtractionError where the file is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExtractionError(f"not Python that {_version()} reads: {error}") from error
    sections: list[str] = []
    seen: set[str] = set()
    stack: list[tuple[ast.AST, str]] = [(tree, "")]
    while stack:
        node, name = stack.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            prose = ast.get_docstring(node, clean=False)
            prose = encodable(prose or "")
            if len(prose.strip().encode()) >= DOCSTRING_BYTES_MIN:
                # A docstring's own headings (Parameters, Examples) stand below the names.
                body = _HEADING.sub(r"**\1**", render(inspect.cleandoc(prose)))
                lines = {_LABEL.sub("", line).strip() for line in body.splitlines()}
                # Properties like to repeat what their class has said.
                if not lines <= seen:
                    sections.append(f"{'#' * (min(name.count('.') + 2, 6))} {name}\n\n{body}" if name else body)
                seen |= lines
            inner = [
                child for child in node.body if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            stack += [(child, f"{name}.{child.name}".lstrip(".")) for child in reversed(inner)]
    sections += _topics(tree)
    return [Passage("\n\n".join(sections))] if sections else []


def _topics(tree: ast.Module) -> list[str]:
    """Long strings that a module-level dictionary holds, under their keys."""
    found = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                prose = _constant(value)
                if len(prose.encode()) >= DOCSTRING_BYTES_MIN and " " in prose:
                    found.append(f"# {_constant(key)}\n\n{render(prose)}")
    return found


def _constant(node: ast.expr | None) -> str:
    return encodable(node.value) if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _version() -> str:
    return f"Python {platform.python_version()}"
