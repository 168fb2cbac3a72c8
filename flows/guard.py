"""The process of a Prefect server that obeys its owner alone: `python -m flows.guard SOCKET`.

SOCKET is the number of an inherited socket that listens already. Prefect's own app asks for the key
(PREFECT_SERVER_API_AUTH_STRING) and for a CSRF token; what stands before it refuses requests that were addressed to
another host name (DNS rebinding) or that a page of another origin sent, and confines the UI's pages to this server.
"""

from __future__ import annotations

import base64
import faulthandler
import hmac
import os
import signal
import socket
import sys

from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from flows.form import Forms
from model.serve.guard import OwnOrigin

HOSTS = ("127.0.0.1", "localhost")
TICKET = "OPENK2_SIGN_IN"
"""The environment variable with the ticket that `/sign-in` takes once for the key; without it there is no such page."""
TICKET_BYTES = 1024
"""The most that `/sign-in` reads."""

POLICY = "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; form-action 'self'; frame-ancestors 'none'"
"""What a page of ours may load, and where it may be shown: Prefect's pages ask a company's analytics server for their
settings even where analytics are off, and an artifact's text may name any image."""

SIGN_IN = """<!doctype html>
<meta charset="utf-8">
<title>openk2: sign in</title>
<p id="told">Signing in ...</p>
<script>
  // The ticket stands after the #, so that no log or Referer ever holds it.
  const ticket = location.hash.slice(1);
  history.replaceState(null, "", "/sign-in");
  fetch("/sign-in", {method: "POST", body: ticket}).then(async answer => {
    const text = await answer.text();
    if (!answer.ok) { document.getElementById("told").textContent = text; return; }
    localStorage.setItem("prefect-password", text);  // where Prefect's pages keep what their own form is given
    location.replace("/deployments");
  });
</script>
"""
USED = (
    "This address has signed a browser in before, or is not the one that was printed. For another browser open / and "
    "paste the key from the file that was named. If it was not you who used the address, end the server and start it "
    "again: that makes a new key."
)


class SignIn:
    """The page `/sign-in`, which gives the key to the one browser that brings the ticket."""

    def __init__(self, app: ASGIApp, ticket: str, key: str) -> None:
        self.app, self.key = app, key
        self.ticket: bytes | None = ticket.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != "/sign-in":
            await self.app(scope, receive, send)
            return
        response: Response = HTMLResponse(SIGN_IN)
        if scope["method"] == "POST":
            response = await self._answer(Request(scope, receive))
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        ticket = b""
        async for chunk in request.stream():
            ticket += chunk
            if len(ticket) > TICKET_BYTES:  # whoever sends it needs no key
                return PlainTextResponse("This is no ticket: it is too long.", 413, headers={"Connection": "close"})
        return self._exchange(ticket)

    def _exchange(self, ticket: bytes) -> Response:
        if self.ticket is None or not hmac.compare_digest(ticket, self.ticket):
            return PlainTextResponse(USED, 403)
        self.ticket = None
        return PlainTextResponse(base64.b64encode(self.key.encode()), headers={"Cache-Control": "no-store"})


def app() -> ASGIApp:
    """Prefect's app behind the checks. They wrap it and are not added to it: Prefect's services call the app itself,
    under a host name of their own."""
    from prefect.server.api.server import create_app

    key = os.environ["PREFECT_SERVER_API_AUTH_STRING"]
    inner: ASGIApp = Forms(create_app(), key)
    if ticket := os.environ.pop(TICKET, None):
        inner = SignIn(inner, ticket, key)
    return TrustedHostMiddleware(OwnOrigin(inner, POLICY), allowed_hosts=HOSTS, www_redirect=False)


def main() -> None:
    """Serve until SIGTERM."""
    faulthandler.register(signal.SIGUSR1)  # `flows.server` asks where a start hangs
    listener = socket.socket(fileno=int(sys.argv[1]))
    import uvicorn

    uvicorn.Server(uvicorn.Config(app(), lifespan="on", log_level="info", access_log=False)).run(sockets=[listener])


if __name__ == "__main__":
    main()
