"""What is kept of a server's tools: a row each, with where it is from; what is refused, and why."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from model.schema import undescribed
from tasks.agentic.mcp.config import ServerConfig, ServerError
from tasks.agentic.mcp.schema import canonical, refused_schema

NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
"""Names that the specification asks of tools."""
MOST_NAME = 64
"""Characters of a function's name that OpenAI-compatible servers take."""
MOST_DESCRIPTION = 4000


@dataclass(frozen=True)
class ToolRow:
    """One tool of one server."""

    server: str
    """The server's name in the file."""
    name: str
    """What the server calls it."""
    description: str
    """What the server says of it; cut where it is endless, empty where `descriptions` is off."""
    schema: str
    """The JSON schema of its arguments, as canonical JSON."""
    sha256: str
    """Of `schema`."""
    licence: str
    """What the server's file says (SPDX)."""
    package: str
    """Where the server's code is from, by the file."""
    version: str
    """The package's version, by the file."""
    announced: str
    """What the server calls itself, name and version: its word only."""
    retrieved: str
    """When it was listed: ISO 8601, UTC."""

    @property
    def function(self) -> str:
        """The name under which a model calls it."""
        return function_name(self.server, self.name)

    @property
    def declaration(self) -> dict[str, Any]:
        """The tool in OpenAI's layout."""
        parameters = json.loads(self.schema)
        described = {"description": self.description} if self.description else {}
        return {"type": "function", "function": {"name": self.function, **described, "parameters": parameters}}


@dataclass(frozen=True)
class Refused:
    """A tool that a server lists and that is not taken."""

    server: str
    name: str
    reason: str


def function_name(server: str, tool: str) -> str:
    """`SERVER_TOOL` of letters, digits and underscores alone, which K2's template and every parser of its calls take.
    Other characters become `_x` and two hexadecimal digits; `original_name` has them back."""
    return f"{server}_" + re.sub(r"[^A-Za-z0-9_]|_(?=x)", lambda found: f"_x{ord(found[0]):02x}", tool)


def original_name(function: str) -> tuple[str, str]:
    """The server and the tool that a function's name stands for."""
    server, _, tool = function.partition("_")
    return server, re.sub(r"_x([0-9a-f]{2})", lambda found: chr(int(found[1], 16)), tool)


def sort_out(
    server: ServerConfig, listed: Sequence[tuple[str, str, Any]], announced: str
) -> tuple[list[ToolRow], list[Refused]]:
    """Rows of what a server lists as (name, description, schema), and what of it is refused.

    Raises:
        ServerError: the file allows a tool that the server does not list.
    """
    allowed = None if server.tools is None else set(server.tools)
    names = Counter(name for name, _, _ in listed)
    if allowed is not None and (missing := sorted(allowed - set(names))):
        raise ServerError(f"it lists no tool '{missing[0]}', which `tools` allows: correct the file")
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    rows, refused = [], []
    for name, description, schema in listed:
        if allowed is not None and name not in allowed:
            continue
        if not server.descriptions:
            description, schema = "", undescribed(schema)
        reason = _refusal(server.name, name, schema, names)
        if reason is not None:
            refused.append(Refused(server.name, name[:MOST_NAME], reason))
            continue
        text = canonical(schema)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        shown = cut(description, MOST_DESCRIPTION, "the description has")
        origin = (server.licence, server.package, server.version, announced, now)
        rows.append(ToolRow(server.name, name, shown, text, sha256, *origin))
    return rows, refused


def _refusal(server: str, name: str, schema: Any, names: Mapping[str, int]) -> str | None:
    if not NAME.fullmatch(name):
        return "its name is not made of letters, digits, _, -, . and /"
    if names[name] > 1:
        return "the server lists several tools of this name"
    if len(function_name(server, name)) > MOST_NAME:
        return f"its name is too long: {function_name(server, name)[:20]}... has more than {MOST_NAME} characters"
    return refused_schema(schema)


def cut(text: str, most: int, subject: str) -> str:
    """`text`, or its beginning with a note of how much there was."""
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[cut: {subject} {len(text):,} characters, of which these are the first {most:,}]"


def write_rows(path: str | Path, rows: Iterable[ToolRow]) -> None:
    """Rows as JSON lines, sorted by server and name."""
    lines = [json.dumps(asdict(row), ensure_ascii=False) for row in sorted(rows, key=lambda row: row.function)]
    Path(path).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_rows(path: str | Path) -> list[ToolRow]:
    """What `write_rows` wrote.

    Raises:
        ServerError: a line is no row, or its schema is not the one whose sha256 it has.
    """
    rows = []
    *lines, rest = Path(path).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate([*lines, rest] if rest else lines, 1):
        try:
            row = ToolRow(**json.loads(line))
            intact = hashlib.sha256(row.schema.encode()).hexdigest() == row.sha256
        except (ValueError, TypeError, AttributeError):
            raise ServerError(f"{path}, line {number}: no tool's row: remove the file and list again") from None
        if not intact:
            raise ServerError(
                f"{path}, line {number}: the schema does not have its sha256: remove the file and list again"
            )
        rows.append(row)
    return rows


def changes(before: Iterable[ToolRow], after: Iterable[ToolRow]) -> list[str]:
    """What a later list has otherwise, a sentence for each tool: a server may show one thing and mean another later."""
    old, new = ({row.function: row for row in rows} for rows in (before, after))
    told = [f"{name} is gone" for name in sorted(old.keys() - new.keys())]
    told += [f"{name} is new" for name in sorted(new.keys() - old.keys())]
    for name in sorted(old.keys() & new.keys()):
        fields = ("description", "schema", "licence", "package", "version", "announced")
        if changed := [field for field in fields if getattr(old[name], field) != getattr(new[name], field)]:
            told.append(f"{name}: another {' and '.join(changed)}")
    return told
