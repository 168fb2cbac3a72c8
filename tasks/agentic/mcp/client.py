"""Real tools: connect to the servers of a file, list what they offer and call it.

Names, descriptions, schemas and results are the servers' words: they are data for a model, and nothing here decides
anything by what they say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.abc
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, MCPError
from mcp_types import (
    INVALID_PARAMS,
    AudioContent,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ImageContent,
    InputRequiredResult,
    PaginatedRequestParams,
    TextContent,
)
from pydantic import TypeAdapter, ValidationError

from model.chat import compact
from model.visible import flat
from tasks.agentic.mcp.allowance import Allowance
from tasks.agentic.mcp.config import ServerConfig, ServerError
from tasks.agentic.mcp.http import UNANSWERED, HttpTransport
from tasks.agentic.mcp.process import ProcessTransport
from tasks.agentic.mcp.rows import Refused, ToolRow, cut, original_name, sort_out

ANSWER: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(CallToolResult | InputRequiredResult)
PATIENCE = 10.0
"""Seconds in which a session has to end."""
MOST_SAID = 400
"""Characters of a server's own error message that ours repeats."""


@dataclass(frozen=True)
class ToolResult:
    """The content of the tool's turn in a dialogue: what a tool answered, or why there is no answer."""

    text: str
    """The tool's text, bounded; what is no text is named in its place. An error as the worlds of
    `training.rl.worlds` write it: {"error": code, "message": sentence}."""
    error: str | None = None
    """The code of an error. `failed`: the tool says so. `invalid_arguments`, `refused`: the server did not run it.
    `timeout`: no answer in time; it may have been done. `unavailable`: the server is gone. `unknown_tool`."""


def failed(code: str, message: str) -> ToolResult:
    return ToolResult(compact({"error": code, "message": message}), code)


class Connection:
    """One server that runs, and its tools as they were when it was connected: what it lists later is not looked at."""

    def __init__(self, server: ServerConfig) -> None:
        self.server = server
        self.rows: list[ToolRow] = []
        self.refused: list[Refused] = []
        self._allowance = Allowance(server.limits.answer_bytes)
        transport = ProcessTransport if server.command else HttpTransport
        self._transport = transport(server, self._allowance)
        self._client: Client | None = None
        self._stopped = anyio.Event()
        self._over = ""

    async def serve(self, *, task_status: anyio.abc.TaskStatus[None]) -> None:
        """Run until `stop`. A task of its own, so that a server that breaks takes nothing else with it.

        Raises:
            ServerError: it cannot be used. Never after `task_status.started`: then `call` says it.
        """
        started = False
        seconds = self.server.limits.start_seconds
        try:
            with anyio.fail_after(seconds) as limit:
                client = Client(self._transport.open(), cache=None, read_timeout_seconds=seconds)
                async with client:
                    await self._list(client)
                    limit.deadline = float("inf")
                    self._client, started = client, True
                    task_status.started()
                    await self._stopped.wait()
                    limit.deadline = anyio.current_time() + PATIENCE
        except TimeoutError:
            spent = self._transport.spent
            self._over = f"it did not start and list its tools within limits.start_seconds ({seconds:g}){spent}"
        except Exception as error:
            self._over = self._reason(error)
        finally:
            self._client = None
        if not started:
            raise ServerError(f"tool server '{self.server.name}': {self._over}")

    def stop(self) -> None:
        self._stopped.set()

    async def _list(self, client: Client) -> None:
        limits = self.server.limits
        listed: list[tuple[str, str, Any]] = []
        cursors: set[str] = set()
        parameters = None
        for _ in range(limits.pages):
            self._allowance.renew()
            page = await client.session.list_tools(params=parameters)
            listed += [(tool.name, tool.description or "", tool.input_schema) for tool in page.tools]
            if len(listed) > limits.tools:
                raise ServerError(f"it lists more than limits.tools ({limits.tools:,}) tools")
            if not page.next_cursor:  # some servers write an empty one at the end
                break
            if page.next_cursor in cursors:
                raise ServerError("its list of tools goes round in a circle: a nextCursor came twice")
            cursors.add(page.next_cursor)
            parameters = PaginatedRequestParams(cursor=page.next_cursor)
        else:
            raise ServerError(f"its list of tools has more than limits.pages ({limits.pages:,}) pages")
        about = client.server_info
        announced = flat(f"{about.name} {about.version}", 200) if about else ""
        self.rows, self.refused = sort_out(self.server, listed, announced)

    async def call(self, tool: str, arguments: Any) -> ToolResult:
        """Call a tool by the server's own name for it. Whatever comes of it is a result."""
        if all(row.name != tool for row in self.rows):
            return failed("unknown_tool", f"there is no tool '{flat(tool, 80)}'")
        try:
            if not isinstance(arguments, Mapping):  # `dict` would make one of an empty list, and of a list of pairs
                raise TypeError
            compact(arguments)  # half a surrogate pair would only be found where it is sent, and NaN be sent as null
            request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=dict(arguments)))
            request.model_dump_json()
        except (ValueError, TypeError, RecursionError):
            return failed("invalid_arguments", "the arguments are no JSON object")
        if self._client is None:
            return failed("unavailable", self._over or "it has been stopped")
        limits = self.server.limits
        self._allowance.renew()
        try:
            with anyio.fail_after(limits.call_seconds):
                # not `call_tool`: that validates with the server's own output schema, which may never end
                answer = await self._client.session.send_request(request, ANSWER)
            text = "" if isinstance(answer, InputRequiredResult) else _text(answer)
        except TimeoutError:
            return failed("timeout", f"no answer within {limits.call_seconds:g} s; it may have been done")
        except MCPError as error:
            if error.error.code == UNANSWERED or self._transport.failure or self._client is None:
                return failed("unavailable", self._reason(error))
            code = "invalid_arguments" if error.error.code == INVALID_PARAMS else "refused"
            return failed(code, flat(error.error.message, limits.result_characters))
        except Exception as error:
            return failed("unavailable", self._reason(error))
        if isinstance(answer, InputRequiredResult):
            return failed("refused", "the tool asks for input from a person, which it cannot have here")
        text = cut(text, limits.result_characters, "the result has")
        return failed("failed", text) if answer.is_error else ToolResult(text)

    def _reason(self, error: BaseException) -> str:
        """Why it failed: what the transport saw counts before what the SDK made of that."""
        if self._transport.failure:
            return self._transport.failure
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ValidationError):
            return f"its answer is not what MCP asks for: {flat(error.errors()[0]['msg'], MOST_SAID)}"
        return flat(str(error), MOST_SAID) or type(error).__name__


def _text(answer: CallToolResult) -> str:
    """The texts of an answer, one a line; the structured content where there is no other."""
    pieces = []
    for part in answer.content:
        if isinstance(part, TextContent):
            pieces.append(part.text)
        elif isinstance(part, ImageContent | AudioContent):
            size = len(part.data.rstrip("=")) * 3 // 4
            pieces.append(f"[{part.type} left out: {flat(part.mime_type, 60)}, {size:,} bytes]")
        else:
            pieces.append(f"[{part.type} left out]")
    if not pieces and answer.structured_content is not None:
        pieces.append(compact(answer.structured_content))
    return "\n".join(pieces)


class Toolbox:
    """The tools of servers that run, as the back end of a chat: what a model is told of, and what answers its calls.

    For code that is not asynchronous; calls may come from several threads.
    """

    def __init__(self, portal: BlockingPortal, connections: Sequence[Connection]) -> None:
        self._portal = portal
        self._connections = {connection.server.name: connection for connection in connections}

    @property
    def rows(self) -> list[ToolRow]:
        """Every tool, with where it is from."""
        return [row for connection in self._connections.values() for row in connection.rows]

    @property
    def refused(self) -> list[Refused]:
        """What the servers list and what is not offered."""
        return [one for connection in self._connections.values() for one in connection.refused]

    def tools(self) -> list[dict[str, Any]]:
        """The tools in OpenAI's layout, as `model.chat` declares them to a model."""
        return [row.declaration for row in self.rows]

    def call(self, name: str, arguments: Any) -> ToolResult:
        """Answer a model's call of a declared function. Never raises for what the model asked or the server did: that
        is a result with a code, and other calls go on. Waits `limits.call_seconds` at most."""
        server, tool = original_name(name)
        if server not in self._connections:
            return failed("unknown_tool", f"there is no function '{flat(name, 80)}'")
        return self._portal.call(self._connections[server].call, tool, arguments)


@contextmanager
def toolbox(servers: Sequence[ServerConfig]) -> Iterator[Toolbox]:
    """The tools of some servers, which run as long as the block does.

    Raises:
        ServerError: one of them cannot be used.
    """
    with start_blocking_portal() as portal:
        opened: list[Connection] = []
        try:
            for server in servers:
                connection = Connection(server)
                portal.start_task(connection.serve, name=server.name)
                opened.append(connection)
            yield Toolbox(portal, opened)
        finally:
            for connection in opened:
                portal.call(connection.stop)
