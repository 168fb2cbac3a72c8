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
    help="Real tools: what servers of the Model Context Protocol offer.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
out = Terminal()


class ToolsError(ValueError):
    """What is missing for these commands."""


@tools.callback()
def group() -> None:
    """A group of commands, also while it has one."""


@tools.command(name="list")
def list_(
    servers: Annotated[Path, typer.Option("--servers", help="YAML that names the servers (docs/agentic/mcp.md).")],
    to: Annotated[
        Path | None, typer.Option("--to", help="Keep the tools there, as JSON lines; says what changed since.")
    ] = None,
) -> None:
    """Start the servers of a file, list their tools and stop them: names, descriptions, what is refused and why.

    Example: `openk2 tools list --servers servers.yaml --to tools.jsonl`
    """
    from tasks.agentic.mcp.config import read_servers
    from tasks.agentic.mcp.rows import changes, read_rows, write_rows

    named = read_servers(servers)
    try:
        from tasks.agentic.mcp.client import toolbox
    except ImportError as error:
        raise ToolsError(
            f"tool servers need the extra `mcp` (no module '{error.name}'): pip install 'openk2[mcp]'"
        ) from error
    with toolbox(named) as opened:
        rows, refused = opened.rows, opened.refused
    shown = table("function", "licence", "description")
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
