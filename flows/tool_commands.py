"""`openk2 tools`: real tools, of servers that a file names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.tables import table
from flows.terminal import Terminal
from model.visible import flat

tools = typer.Typer(
    name="tools",
    help="Real tools of servers that speak the Model Context Protocol (MCP).",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
out = Terminal()


@tools.callback()
def group() -> None:
    """A group of commands, also while it has one."""


@tools.command(name="list")
def list_(
    servers: Annotated[Path, typer.Option("--servers", help="YAML of the servers (docs/agentic/mcp.md).")],
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="Write the tools to this file, as JSON lines, and report what changed since the last time."
        ),
    ] = None,
) -> None:
    """Start the servers of a file, list their tools (names, descriptions, refused ones with the reason), and stop them.

    The file is YAML. A local server is a command that speaks the protocol on its standard input and output. It runs in
    a sandbox (bubblewrap, without network or your files) that its row can open:

        servers:
          - name: git
            command: mcp-server-git        # pip install mcp-server-git
            reads: [/home/me/project]      # writes: [...] and network: true open more
            licence: MIT
          - name: search
            url: https://tools.example.org/mcp
            headers: {Authorization: SEARCH_TOKEN}   # the environment variable that holds the value
            licence: CC0-1.0

    A model sees a tool as the function SERVER_TOOL (`git_git_status`). docs/agentic/mcp.md documents every field, and
    what a misbehaving server can do.

    Examples:

    - `openk2 tools list --servers servers.yaml`: list the tools.

    - `openk2 tools list --servers servers.yaml --to tools.jsonl`: also write the schemas and their origin; when run
      again, report what changed.
    """
    from tasks.agentic.mcp.backend import tools_of
    from tasks.agentic.mcp.rows import changes, read_rows, write_rows

    with tools_of(servers) as opened:
        rows, refused = opened.rows, opened.refused
    shown = table("function", "", "")  # licence and description
    for row in rows:
        shown.add_row(row.function, flat(row.licence, 20), flat(row.description, 100))
    out.print(shown)
    for one in refused:
        out.print(f"refused: {one.server}, tool '{flat(one.name, 64)}': {flat(one.reason, 200)}")
    if to is not None:
        for change in changes(read_rows(to), rows) if to.exists() else ():
            out.print(f"changed: {change}")
        write_rows(to, rows)
        out.print(f"{len(rows):,} tools in {to}")
