"""Real tools for whoever talks with a model: `openk2 chat --mcp FILE` and `openk2 tools`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.agentic.mcp.config import ServerConfig, ServerError, read_servers

if TYPE_CHECKING:
    from tasks.agentic.mcp.client import Toolbox


@contextmanager
def tools_of(path: str | Path) -> Iterator[Toolbox]:
    """The tools of the servers that a file names (docs/agentic/mcp.md); they run as long as the block does:

        with tools_of("servers.yaml") as box:
            prompt = chat.prompt(messages, box.tools())
            ...
            for call in reply.calls:
                result = box.call(call.name, call.arguments)
                messages.append(tool_result(call.name, call.id, result.text))

    `box.tools()` does not change. `box.call` waits `limits.call_seconds` of the server at most and never raises for
    what the model asked or the server did: `result.error` is a code then, and `result.text` says it to the model. The
    text is bounded, and it is a stranger's: data for the model and, by `model.visible`, for a terminal.

    Raises:
        ServerError: the file or one of its servers cannot be used, or the extra `mcp` is not installed.
    """
    with opened(read_servers(path)) as box:
        yield box


@contextmanager
def opened(servers: Sequence[ServerConfig]) -> Iterator[Toolbox]:
    """The tools of some servers. Raises ServerError as `tools_of` does."""
    try:
        from tasks.agentic.mcp.client import toolbox  # Imported here: an extra.
    except ImportError as error:
        raise ServerError(
            f"tool servers need the extra `mcp` (no module '{error.name}'): run `pip install 'openk2[mcp]'`"
        ) from None
    with toolbox(servers) as box:
        yield box
