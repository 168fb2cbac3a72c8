"""A stage's form is refused while it is being submitted, not after its run has begun.

Prefect's server holds what is submitted against the JSON schema alone, and knows nothing of presets. The servers that
we start look first; with any other, the run ends before its first step.
"""

from __future__ import annotations

import base64
import hmac
import json
from typing import Any

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.requests import Request as Submission
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from flows.preset import load_preset
from flows.request import Request


class Forms:
    """Refuses a run of ours whose form no run could follow, with the sentence that says why. It looks into files that
    a form names, so it looks only for who has the key; Prefect's app refuses the others."""

    def __init__(self, app: ASGIApp, key: str) -> None:
        self.app = app
        self.owner = f"Basic {base64.b64encode(key.encode()).decode()}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].endswith("/create_flow_run"):
            await self.app(scope, receive, send)
            return
        given_key = Headers(scope=scope).get("authorization", "").encode()
        if not hmac.compare_digest(given_key, self.owner):
            await self.app(scope, receive, send)
            return
        body = await Submission(scope, receive).body()
        if told := await to_thread.run_sync(_refusal, body):
            await JSONResponse({"detail": told}, 422)(scope, receive, send)
            return
        given = False

        async def again() -> Message:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)


def _refusal(body: bytes) -> str:
    """Why a submitted form can't be followed, or nothing. What is no form of ours is Prefect's to judge."""
    try:
        parameters: Any = json.loads(body).get("parameters")
        request = Request.model_validate(parameters["request"])
    except (ValueError, AttributeError, TypeError, KeyError):
        return ""
    try:
        load_preset(request)
    except ValueError as error:
        return str(error)
    return ""
