"""A server behind an address: the SDK's transport on a client that counts what comes and follows nobody elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from mcp.client.streamable_http import streamable_http_client

from tasks.agentic.mcp.allowance import Allowance
from tasks.agentic.mcp.config import ServerConfig, ServerError

UNANSWERED = 503
"""Code of the JSON-RPC error that a request gets which the address did not answer; no server's own has it by rule."""


class HttpTransport:
    """What `mcp.Client` takes as a transport. The SDK refuses redirects to another origin; here answers are bounded."""

    def __init__(self, server: ServerConfig, allowance: Allowance) -> None:
        self.server = server
        self.bounded = _Bounded(allowance)
        self.spent = ""

    @property
    def failure(self) -> str:
        return self.bounded.failure

    @asynccontextmanager
    async def open(self) -> AsyncIterator[tuple[Any, Any]]:
        """Yield the streams of messages from the server and to it."""
        server = self.server
        values = server.variables(tuple(server.headers.values()))
        headers = {name: values[variable] for name, variable in server.headers.items()}
        # packed answers could unpack to any size; proxies and .netrc of the environment are not the server file's
        headers["accept-encoding"] = "identity"
        timeout = httpx2.Timeout(server.limits.call_seconds)
        client = httpx2.AsyncClient(headers=headers, timeout=timeout, transport=self.bounded, trust_env=False)
        async with (
            client,
            streamable_http_client(
                server.url, http_client=client, max_sse_event_size=server.limits.answer_bytes
            ) as streams,
        ):
            yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """What goes wrong is the answer to its one request: an exception here would end the SDK's session with the server,
    which a slow answer or a lost connection need not do."""

    def __init__(self, allowance: Allowance) -> None:
        self.allowance = allowance
        self.inner = httpx2.AsyncHTTPTransport()
        self.failure = ""
        """What went wrong in the body of the latest answer."""

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET":
            # The stream on which a server speaks unasked, for as long as it likes: MCP lets either side do without.
            return httpx2.Response(405, request=request)
        if self.allowance.left >= 0:  # else this is about a question of the answer that was too long
            self.failure = ""
        try:
            response = await self.inner.handle_async_request(request)
        except httpx2.TransportError as error:
            return _unanswered(request, _lost(error))
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            return _unanswered(request, "its answer is packed, though it was asked not to pack it")
        response.stream = _Counted(response.stream, self)
        return response

    async def aclose(self) -> None:
        await self.inner.aclose()


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, inner: Any, bounded: _Bounded) -> None:
        self.inner = inner
        self.bounded = bounded

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self.inner:
                self.bounded.allowance.take(len(chunk), messages=1 + chunk.count(b"\ndata:"))
                yield chunk
        except (ServerError, httpx2.TransportError) as error:
            self.bounded.failure = str(error) if isinstance(error, ServerError) else _lost(error)
            raise httpx2.StreamError(self.bounded.failure) from None

    async def aclose(self) -> None:
        await self.inner.aclose()


def _lost(error: httpx2.TransportError) -> str:
    return f"no answer from its address: {type(error).__name__} {error}".rstrip()


def _unanswered(request: httpx2.Request, why: str) -> httpx2.Response:
    error = {"jsonrpc": "2.0", "id": None, "error": {"code": UNANSWERED, "message": why}}
    return httpx2.Response(503, json=error, request=request)
