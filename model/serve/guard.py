"""Who may ask a server of ours: pages of its own origin and programs, with a key, under its own name; and in time."""

from __future__ import annotations

import asyncio
import hmac
import re
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
"""In which a request's line and headers have to come."""
STALLED_SECONDS = 30.0
"""After which a client that reads nothing of its answer is cut off."""
READ_BYTES = 16 << 10
"""Read of a connection at a time. asyncio's 256 KiB may be 50,000 chunks of a body, of which each costs the loop 20
microseconds or more before anybody else has a turn, and before the key is looked at."""


class OwnName:
    """Refuses what was sent under another name than the server's, as by a page whose own name was made to lead here."""

    def __init__(self, app: ASGIApp, names: Collection[str], refusal: Response) -> None:
        """`names`: in lower case; one that begins with `*` is any that ends as it does."""
        self.app, self.names, self.refusal = app, names, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = re.sub(r":\d*$", "", Headers(scope=scope).get("host", "")).strip("[]").lower()  # `[::1]:8000`
            if not any(asked == name or (name[:1] == "*" and asked.endswith(name[1:])) for name in self.names):
                await self.refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


class OwnOrigin:
    """Refuses what a page of another origin sent. A request without Origin comes from a program, or is a plain
    navigation, and needs the key all the same. The Host header must have been checked before. Pages that it passes on
    are held to `policy`."""

    def __init__(self, app: ASGIApp, policy: str, refusal: Response | None = None) -> None:
        self.app, self.policy = app, policy
        self.refusal = refusal or PlainTextResponse("A page of another origin may not ask this server.", 403)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origins = headers.getlist("origin")
        # The port is the one that the browser used, which a forwarded port may have changed; so is the scheme where
        # what ends TLS on this machine says so in X-Forwarded-Proto.
        own = f"{scope.get('scheme', 'http').replace('ws', 'http')}://{headers.get('host')}"
        if any(origin != own for origin in origins):
            await self.refusal(scope, receive, send)
            return

        async def confined(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Content-Security-Policy"] = self.policy
            await send(message)

        await self.app(scope, receive, confined)


class Key:
    """Asks for `Authorization: Bearer KEY`, but on the `open` paths, which tell nothing."""

    def __init__(self, app: ASGIApp, key: str, open: frozenset[str], refusal: Response) -> None:
        self.app, self.key, self.open, self.refusal = app, key.encode(), open, refusal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] not in self.open:
            kind, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
            # headers are latin-1 by name: these are the bytes that came
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), self.key):
                await self.refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


class Impatient(H11Protocol):
    """A connection that ends where its client sends no whole head, or reads nothing, for too long: uvicorn would keep
    it for ever."""

    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        with suppress(AttributeError):  # uvloop's has none
            transport.max_size = READ_BYTES
        self._wait(HEAD_SECONDS)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.flow.write_paused:
            return  # what it sends buys no time to a client that reads nothing
        if self.cycle is not None and not self.cycle.response_complete:
            self._stop_waiting()
        elif self._patience is None:  # more bytes of the same head do not buy more time
            self._wait(HEAD_SECONDS)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._wait(STALLED_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_waiting()

    def on_response_complete(self) -> None:
        if not self.flow.write_paused:  # else it is complete here alone
            self._stop_waiting()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait(self, seconds: float) -> None:
        self._stop_waiting()
        # `abort`, not `close`: that would wait until what was written is read
        end: Callable[[], None] = self.transport.abort
        self._patience = self.loop.call_later(seconds, end)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
