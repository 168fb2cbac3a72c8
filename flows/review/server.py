"""The page of `openk2 review`: on loopback, for whoever has the key in its address, and nothing from elsewhere.

The page itself holds no data, so it needs no key; whatever it asks for does. A dialogue is hostile text: it travels as
JSON, the page puts it down as text, and its policy lets no script run but its own file.
"""

from __future__ import annotations

import hmac
import json
import secrets
from pathlib import Path

from starlette.applications import Starlette
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from flows.guard import HOSTS
from flows.review.queue import Item
from model.serve.guard import OwnOrigin
from tasks.agentic.verdicts import VERDICTS, append_verdict, read_verdicts

HERE = Path(__file__).parent
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
BODY_MAX = 1024
"""Bytes of a verdict."""
FILES = {
    "": ("page.html", "text/html"),
    "page.js": ("page.js", "text/javascript"),
    "page.css": ("page.css", "text/css"),
}


class Review:
    """The dialogues that one person looks at, and the file that the verdicts go to."""

    def __init__(self, items: list[Item], file: Path, recipe: str) -> None:
        self.items, self.file, self.recipe = items, file, recipe
        self.key = secrets.token_urlsafe(24)
        self.verdicts: dict[str, str] = {**read_verdicts(file, recipe)}

    def app(self) -> ASGIApp:
        """Everything behind its checks."""
        routes = [Route(f"/{name}", self._static, methods=["GET"]) for name in FILES]
        routes += [
            Route("/api/dialogues", self._list, methods=["GET"]),
            Route("/api/dialogues/{number:int}", self._one, methods=["GET"]),
            Route("/api/verdicts", self._judge, methods=["POST"]),
        ]
        return TrustedHostMiddleware(
            OwnOrigin(Starlette(routes=routes), POLICY), allowed_hosts=HOSTS, www_redirect=False
        )

    async def _static(self, request: Request) -> Response:
        name, kind = FILES[request.url.path.removeprefix("/")]
        return Response((HERE / name).read_bytes(), media_type=kind, headers=HEADERS)

    async def _list(self, request: Request) -> Response:
        if refusal := self._stranger(request):
            return refusal
        listed = [
            {"id": item.id, "environment": item.environment, "verdict": self.verdicts.get(item.id, "")}
            for item in self.items
        ]
        return JSONResponse(listed, headers=HEADERS)

    async def _one(self, request: Request) -> Response:
        if refusal := self._stranger(request):
            return refusal
        number = request.path_params["number"]
        if number >= len(self.items):
            return PlainTextResponse("There is no such dialogue.", 404, HEADERS)
        return JSONResponse(self.items[number].record(), headers=HEADERS)

    async def _judge(self, request: Request) -> Response:
        if refusal := self._stranger(request):
            return refusal
        body = b""
        async for piece in request.stream():
            body += piece
            if len(body) > BODY_MAX:
                return PlainTextResponse("A verdict is shorter than that.", 413, HEADERS)
        try:
            given = json.loads(body)
            name, verdict = given["id"], given["verdict"]
            item = next(item for item in self.items if item.id and item.id == name)
        except (ValueError, KeyError, TypeError, RecursionError, StopIteration):
            return PlainTextResponse("That is no verdict on one of these dialogues.", 400, HEADERS)
        if verdict not in VERDICTS:
            return PlainTextResponse(f"A verdict is one of {', '.join(VERDICTS)}.", 400, HEADERS)
        try:
            append_verdict(self.file, item.id, verdict, item.environment, self.recipe)
        except OSError as error:
            return PlainTextResponse(f"{self.file} can't be written: {error.strerror}.", 507, HEADERS)
        self.verdicts[item.id] = "" if verdict == "undo" else verdict
        return JSONResponse({"id": item.id, "verdict": self.verdicts[item.id]}, headers=HEADERS)

    def _stranger(self, request: Request) -> Response | None:
        given = request.headers.get("authorization", "").encode()
        if hmac.compare_digest(given, f"Bearer {self.key}".encode()):
            return None
        return PlainTextResponse("Open the address that `openk2 review` printed: it holds the key.", 403, HEADERS)
