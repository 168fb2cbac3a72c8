"""reStructuredText to Markdown-like text, line by line: headings, code, formulas; targets and navigation dropped.

Docstrings are read by it too, so it never fails: a directive that is not listed goes with its content, and all else
that it does not know stays as it was written.
"""

from __future__ import annotations

import re
from textwrap import dedent

from tasks.corpus.extract.passage import Passage
from tasks.corpus.wordlist import words

_UNDERLINE = re.compile(r"""^([=\-~^"'`#*+.:_<>!$%&(),/;?@\[\]{|}\\])\1{2,}\s*$""")
_DIRECTIVE = re.compile(r"^(\s*)\.\.\s+([\w:.+-]+)::\s?(.*)$")
_COMMENT = re.compile(r"^(\s*)\.\.(\s|$)")
_OPTION = re.compile(r"^\s*:[\w -]+:( |$)")
# Sphinx's field lists: what a parameter means stays, its type does not.
_TYPE_FIELD = re.compile(r"^\s*:(?:type|rtype|vartype)\b[^:]*:.*$")
_FIELD = re.compile(r"^(\s*):(?:param|parameter|arg|ivar|var|cvar|keyword|raises?|returns?)\b([^:]*):\s*")
_MATH_ROLE = re.compile(r":math:`([^`]+)`")
_ROLE = re.compile(r":[\w.:+-]{1,100}:`([^`]+)`")  # bounded: colons are within it too
_REFERENCE = re.compile(r"`([^`<]+)<[^`>]+>`_{1,2}")
_PLAIN_REFERENCE = re.compile(r"`([^`]+)`__?\b")
_LITERAL = re.compile(r"``([^`]+)``")
CODE = {"code-block", "code", "sourcecode", "doctest", "testcode", "parsed-literal", "highlight", "plot", "ipython"}
SHOWN = words(
    "note warning tip important caution danger hint seealso versionadded versionchanged deprecated admonition "
    "rubric topic attention error deprecated-removed glossary quote epigraph centered"
)
MATH = {"math"}
OBJECTS = re.compile(r"^(\w+:)?(function|class|method|attribute|data|exception|module|classmethod|staticmethod|"
                     r"decorator|macro|type|member|var|cmdoption|option|opcode|describe|envvar|property)$")  # fmt: skip


def extract(text: str) -> list[Passage]:
    """The text of one file; the first heading is its title."""
    body = render(text)
    title = next((line.lstrip("# ") for line in body.splitlines() if line.startswith("#")), "")
    return [Passage(body, title)] if body else []


def render(text: str) -> str:
    """Markdown-like text of a reStructuredText document or docstring."""
    lines = text.expandtabs(8).splitlines()
    levels: dict[str, int] = {}
    out: list[str] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        follows = lines[at + 1] if at + 1 < len(lines) else ""
        if _overlined(lines, at):
            level = levels.setdefault(line.strip()[0] * 2, len(levels) + 1)
            out += ["", f"{'#' * min(level, 6)} {_inline(lines[at + 1].strip())}", ""]
            at += 3
        elif line.strip() and _UNDERLINE.match(follows) and len(follows.rstrip()) >= min(len(line.rstrip()), 4):
            level = levels.setdefault(follows[0], len(levels) + 1)
            out += ["", f"{'#' * min(level, 6)} {_inline(line.strip())}", ""]
            at += 2
        elif found := _DIRECTIVE.match(line):
            at = _directive(lines, at, found, out)
        elif _COMMENT.match(line):
            _, at = _indented(lines, at + 1, _margin(line))
        elif line.rstrip().endswith("::") and not line.lstrip().startswith(">>>"):
            before = line.rstrip()[:-2]
            if before.strip():
                out.append(_inline(before if before.endswith(" ") else f"{before}:").rstrip())
            block, after = _indented(lines, at + 1, _margin(line))
            at = after
            _fence(block, out)
        elif line.lstrip().startswith(">>>"):
            end = at
            while end < len(lines) and lines[end].strip():
                end += 1
            _fence(lines[at:end], out)
            at = end
        elif _TYPE_FIELD.match(line):
            at += 1
        else:
            out.append(_inline(_FIELD.sub(_field, line).rstrip()))
            at += 1
    return re.sub(r"\n{3,}", "\n\n", "\n".join(out)).strip("\n")


def _field(found: re.Match[str]) -> str:
    """`:param int x: meaning` as a list item, `:return: meaning` as prose."""
    name = found.group(2).split()[-1:] if found.group(2).strip() else []
    return f"{found.group(1)}- " + (f"`{name[0].lstrip('_')}`: " if name else "returns: ")


def _overlined(lines: list[str], at: int) -> bool:
    return (
        at + 2 < len(lines)
        and bool(_UNDERLINE.match(lines[at]))
        and bool(lines[at + 1].strip())
        and lines[at].strip() == lines[at + 2].strip()
    )


def _directive(lines: list[str], at: int, found: re.Match[str], out: list[str]) -> int:
    """Write what a directive shows; returns the line after it."""
    margin, name, argument = len(found.group(1)), found.group(2), found.group(3).strip()
    block, after = _indented(lines, at + 1, margin)
    options = 0
    while options < len(block) and (_OPTION.match(block[options]) or not block[options].strip()):
        options += 1
    content = block[options:]
    if name in CODE:
        _fence(content, out)
    elif name in MATH:
        formula = "\n".join(part for part in (argument, dedent("\n".join(content)).strip()) if part)
        out += ["", "$$", formula, "$$", ""]
    elif name in SHOWN:
        out += ["", *render("\n".join([argument, "", dedent("\n".join(content))])).splitlines(), ""]
    elif OBJECTS.match(name):
        # An object's signatures stand above its description.
        signatures = [argument, *(line.strip() for line in _leading(block, argument))]
        out += ["", *(f"`{signature}`" for signature in signatures if signature), ""]
        out += [*render(dedent("\n".join(content[len(_leading(block, argument)) :]))).splitlines(), ""]
    return after


def _leading(block: list[str], argument: str) -> list[str]:
    """Further signatures that continue a directive's argument line by line."""
    if not argument:
        return []
    found = []
    for line in block:
        if not line.strip() or _OPTION.match(line):
            break
        found.append(line)
    return found


def _fence(block: list[str], out: list[str]) -> None:
    code = dedent("\n".join(block)).strip("\n").rstrip()
    if code:
        out += ["", "```", *code.splitlines(), "```", ""]


def _indented(lines: list[str], at: int, margin: int) -> tuple[list[str], int]:
    """The lines from `at` that are blank or indented past `margin`, and the index after them."""
    end = at
    while end < len(lines) and (not lines[end].strip() or _margin(lines[end]) > margin):
        end += 1
    return lines[at:end], end


def _margin(line: str) -> int:
    return len(line) - len(line.lstrip())


def _inline(line: str) -> str:
    if "`" not in line:
        return line
    line = _LITERAL.sub(lambda found: f"\0{found.group(1)}\0", line)
    line = _MATH_ROLE.sub(r"$\1$", line)
    line = _ROLE.sub(lambda found: f"\0{_target(found.group(1))}\0", line)
    line = _REFERENCE.sub(lambda found: found.group(1).rstrip(), line)
    line = _PLAIN_REFERENCE.sub(r"\1", line)
    return line.replace("\0", "`")


def _target(text: str) -> str:
    """What a role shows: `title <target>` gives the title, `~a.b.c` gives c."""
    shown = text.partition(" <")[0]
    return shown.rpartition(".")[2] if shown.startswith("~") else shown.lstrip("!")
