"""What the server answers: OpenAI's paths under `/v1`, `/health`, `/metrics`, and a page to chat at `/`."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from model.chat import Chat, ChatError
from model.dialogue import numbered, shown
from model.generate import Constraint, refused, requests_for
from model.generate import Request as Continuation
from model.serve.answer import Answer, Asked
from model.serve.grammar import Free, Grammars, Matching
from model.serve.guard import Key, OwnName, OwnOrigin
from model.serve.metrics import Metrics
from model.serve.protocol import ApiError, ChatRequest, CompletionRequest, NamedTool, Sampled, read
from model.serve.trial import Untried
from model.serve.worker import RETRY_SECONDS, Job, Worker
from model.transformer import Transformer

log = logging.getLogger(__name__)

OPEN = frozenset({"/", "/health"})
"""Paths that need no key."""
BODY_BYTES, BYTES_OF_TOKEN = 1 << 20, 16
"""How long a body may be: so much, and so much for each token of the model's window."""
ANSWER_SECONDS, BODY_SECONDS = 600.0, 30.0
"""In which an answer has to be whole, its wait included; and in which a request's body has to be there."""
LINE_ENDS = tuple((one, f"\\u{ord(one):04x}") for one in "\x85\u2028\u2029")
"""No ends of a line in a stream of events, and yet many clients (httpx's `iter_lines`) end one there."""
PREPARING = 4
"""Requests whose prompts and schemas are made ready at a time."""
TRIAL_SECONDS = 30.0
"""In which a schema that is new here has to have its turn to be tried: strangers' may each take seconds."""
T = TypeVar("T")


@dataclass(frozen=True)
class Service:
    """A model, and what answers for it."""

    name: str
    chat: Chat
    worker: Worker
    grammars: Grammars
    metrics: Metrics
    began: int
    ready: asyncio.Semaphore
    trying: asyncio.Lock

    @property
    def window(self) -> int:
        return self.worker.model.config.max_position_embeddings

    async def models(self, request: Request) -> Response:
        """All of them, of which there is one; or the one that the path names."""
        self._is_served(name := request.path_params.get("name") or None)
        card = {
            "id": self.name,
            "object": "model",
            "created": self.began,
            "owned_by": "openk2",
            "max_model_len": self.window,
        }
        return JSONResponse(card if name else {"object": "list", "data": [card]})

    async def health(self, request: Request) -> Response:
        alive = self.worker.alive
        return JSONResponse({"status": "ok" if alive else "the model has stopped"}, 200 if alive else 503)

    async def measured(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4")

    async def chat_completions(self, request: Request) -> Response:
        asked = read(ChatRequest, await self._body(request))
        self._is_served(asked.model)
        continuations, told = await self._prepared(self._of_chat, asked)
        return await self._answered(request, asked, continuations, told)

    async def completions(self, request: Request) -> Response:
        asked = read(CompletionRequest, await self._body(request))
        self._is_served(asked.model)
        continuations, told = await self._prepared(self._of_text, asked)
        return await self._answered(request, asked, continuations, told)

    def _is_served(self, name: str | None) -> None:
        if name is not None and name != self.name:
            raise ApiError(404, f"there is no model {shown(name)}: this is `{self.name}`", "model", "model_not_found")

    async def _body(self, request: Request) -> bytes:
        most, body = BODY_BYTES + BYTES_OF_TOKEN * self.window, bytearray()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                async for part in request.stream():
                    body += part
                    if len(body) > most:
                        raise ApiError(413, f"the body has over {most:,} bytes")
        except TimeoutError:
            raise ApiError(408, f"the body did not come within {BODY_SECONDS:g} s") from None
        return bytes(body)

    async def _prepared(self, make: Callable[[Any], T], asked: Sampled) -> T:
        """Long prompts and schemas take a while: the loop goes on meanwhile, and only who brings a new schema waits for
        others' new schemas."""
        while True:
            try:
                async with self.ready:
                    return await asyncio.to_thread(make, asked)
            except Untried as new:
                try:
                    async with asyncio.timeout(TRIAL_SECONDS):
                        await self.trying.acquire()
                except TimeoutError:
                    told = "too many new schemas at once: ask again"
                    raise ApiError(429, told, code="server_busy", retry=RETRY_SECONDS) from None
                try:
                    await asyncio.to_thread(self.grammars.trial.run, new.grammar)
                finally:
                    self.trying.release()

    def _of_chat(self, asked: ChatRequest) -> tuple[list[Continuation], Asked]:
        functions = asked.functions
        try:
            prompt = self.chat.prompt(asked.dialogue, asked.offered)
            before = sum(len(turn["tool_calls"]) for turn in numbered(asked.dialogue))
        except ChatError as error:
            raise ApiError(400, str(error), "messages") from None
        matching: Matching | Free
        if isinstance(asked.tool_choice, NamedTool):
            wanted = [one for one in functions if one.name == asked.tool_choice.function.name]
            matching = self.grammars.calls(wanted, before, several=False)
        elif asked.tool_choice == "required":
            matching = self.grammars.calls(functions, before, asked.parallel_tool_calls)
        elif asked.response_format.type != "text":
            form = asked.response_format.json_schema
            matching = self.grammars.json(form.schema_ if form else {"type": "object"}, "response_format")
        else:
            offered = functions if asked.offered else ()
            matching = self.grammars.free(offered, before, asked.parallel_tool_calls)
        told = Asked(True, self.name, len(prompt), asked.n, asked.stop, before, asked.logprobs, ends=self.hidden)
        most = asked.max_completion_tokens or asked.max_tokens
        return self._continuations([prompt], asked, most, asked.likeliest, told.ends, matching), told

    def _of_text(self, asked: CompletionRequest) -> tuple[list[Continuation], Asked]:
        bos = self.worker.model.config.bos_token_id
        try:
            prompts = [self.chat.beginning(one, bos) if isinstance(one, str) else one for one in asked.prompts]
        except ChatError as error:
            raise ApiError(400, str(error), "prompt") from None
        wanted, own = asked.logprobs is not None, () if asked.ignore_eos else self.hidden
        told = Asked(
            False, self.name, sum(map(len, prompts)), len(prompts) * asked.n, asked.stop,
            log_probs=wanted, token_ids=asked.return_token_ids, ends=(*asked.stop_token_ids, *own),
        )  # fmt: skip
        return self._continuations(prompts, asked, asked.max_tokens, asked.likeliest, ends=told.ends), told

    def _continuations(
        self,
        prompts: Sequence[Sequence[int]],
        asked: Sampled,
        max_tokens: int | None,
        likeliest: int,
        ends: Sequence[int],
        matching: Matching | Free | None = None,
    ) -> list[Continuation]:
        for prompt in prompts:
            left = self.window - len(prompt)
            if left < (max_tokens or 1):
                asks = f"{max_tokens} more" if max_tokens else "an answer"
                told = f"the prompt has {len(prompt)} tokens, with {asks} over the {self.window} of the model's window"
                raise ApiError(
                    400, f"{told}: shorten it, or lower max_tokens", asked.said_in, "context_length_exceeded"
                )
        choices = requests_for(
            [prompt for prompt in prompts for _ in range(asked.n)],
            max_new_tokens=max_tokens or self.window,
            temperature=asked.temperature,
            top_p=asked.top_p,
            stop_ids=ends,
            # a request's own seed, or one that nobody can guess; each choice draws its own from it
            seed=secrets.randbits(63) if asked.seed is None else asked.seed,
        )
        constraints: list[Constraint | None] = [matching.copy() if matching else None for _ in choices]
        made: list[Continuation] = [
            replace(
                one,
                max_new_tokens=max_tokens or self.window - len(one.prompt),
                constraint=own,
                likeliest=likeliest,
                top_k=max(asked.top_k, 0),
            )
            for one, own in zip(choices, constraints, strict=True)
        ]
        for one in made:
            if fault := refused(one, self.worker.model.config):
                raise ApiError(400, fault, asked.said_in if "prompt holds" in fault else None)
        return made

    @property
    def hidden(self) -> tuple[int, ...]:
        """Tokens that end an answer."""
        return (self.chat.stop, self.worker.model.config.eos_token_id)

    async def _answered(
        self, request: Request, asked: Sampled, continuations: list[Continuation], told: Asked
    ) -> Response:
        began = time.monotonic()
        told = replace(told, first=lambda: self.metrics.first.observe(time.monotonic() - began))
        job = self.worker.submit(continuations)
        answer = Answer(told, self.chat, job, self.grammars.bytes_of)
        if asked.stream:
            return _Stream(job, self._events(answer, asked.usage_in_stream, began))
        with job, self._counted(answer, began):
            async with self._in_time():
                return await _whole(await _while_there(request, answer.whole()))

    async def _events(self, answer: Answer, usage: bool, began: float) -> AsyncIterator[str]:
        """Server-sent events; what goes wrong after the head is the last of them."""
        held = ""
        with self._counted(answer, began):
            try:
                async with self._in_time():
                    async for chunk in answer.chunks(usage):
                        held += _event(chunk)
                        if answer.job.events.empty():  # else the loop is behind: what came meanwhile goes in one write
                            yield held
                            held = ""
            except ApiError as error:
                held += _event(error.body())
            yield held + "data: [DONE]\n\n"

    @contextlib.asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                yield
        except TimeoutError:
            told = f"no whole answer within {ANSWER_SECONDS:g} s: ask for less"
            raise ApiError(504, told, code="timeout") from None

    @contextlib.contextmanager
    def _counted(self, answer: Answer, began: float):
        self.metrics.prompt_tokens.inc(answer.asked.prompt_tokens)
        try:
            yield
        except (asyncio.CancelledError, ClientDisconnect, GeneratorExit):
            self.metrics.cancelled.inc()
            raise
        finally:
            self.metrics.new_tokens.inc(answer.new)
            self.metrics.whole.observe(time.monotonic() - began)


class _Stream(StreamingResponse):
    """Server-sent events of a job, whose rows are freed however the response ends, or does not begin."""

    def __init__(self, job: Job, events: AsyncIterator[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._job:
            await super().__call__(scope, receive, send)


def application(
    model: Transformer, chat: Chat, name: str, key: str, hosts: Sequence[str], rows: int, waiting: int
) -> Starlette:
    """The server of one model.

    Args:
        model: must not change any more.
        chat: its format.
        name: what clients call it.
        key: what they show for it.
        hosts: the names under which it may be asked.
        rows: choices that are generated at once; each holds a cache of up to the model's window.
        waiting: choices that may wait for a row; who comes then is told to come again (429).
    """
    worker = Worker(model, rows, waiting)
    grammars = Grammars(chat, model.config.vocab_size, (chat.stop, model.config.eos_token_id))
    ready = asyncio.Semaphore(PREPARING)
    metrics = Metrics(worker)
    service = Service(name, chat, worker, grammars, metrics, int(time.time()), ready, asyncio.Lock())
    page, policy = _page()

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        worker.start()
        yield
        await worker.stop()
        grammars.trial.close()

    async def home(request: Request) -> Response:
        return HTMLResponse(page, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"})

    post, paths = (
        {
            "/v1/chat/completions": service.chat_completions,
            "/v1/completions": service.completions,
        },
        {
            "/": home,
            "/health": service.health,
            "/metrics": service.measured,
            "/v1/models": service.models,
            "/v1/models/{name:path}": service.models,
        },
    )
    routes = [Route(path, _counting(metrics, path, end), methods=["POST"]) for path, end in post.items()]
    routes += [Route(path, _counting(metrics, path, end), methods=["GET"]) for path, end in paths.items()]
    nameless = ApiError(400, "this server has another name: start it with `--allow-host NAME` for every such name")
    strange = ApiError(403, "a page of another origin may not ask this server")
    keyless = ApiError(401, "wrong or missing key: send `Authorization: Bearer KEY`", code="invalid_api_key")
    guards = [
        Middleware(OwnName, names=[host.lower() for host in hosts], refusal=_refusal(nameless)),
        Middleware(OwnOrigin, policy=policy, refusal=_refusal(strange)),
        Middleware(Key, key=key, open=OPEN, refusal=_refusal(keyless)),
    ]
    told = {HTTPException: _unrouted, Exception: _broken}
    return Starlette(routes=routes, middleware=guards, lifespan=lifespan, exception_handlers=told)


def _counting(
    metrics: Metrics, path: str, end: Callable[[Request], Awaitable[Response]]
) -> Callable[[Request], Awaitable[Response]]:
    """The endpoint, with refusals as responses and every answer counted."""

    async def counted(request: Request) -> Response:
        try:
            response = await end(request)
        except ApiError as error:
            response = _refusal(error)
        except ClientDisconnect:
            response = Response(status_code=499)  # nobody reads it
        metrics.requests.labels(path, response.status_code).inc()
        return response

    return counted


def _refusal(error: ApiError) -> Response:
    return JSONResponse(error.body(), error.status, {"Retry-After": str(error.retry)} if error.retry else None)


async def _unrouted(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    paths = "there are /v1/chat/completions, /v1/completions and /v1/models"
    told = {404: f"there is no such path: {paths}", 405: "this path takes another method"}
    return _refusal(ApiError(error.status_code, told.get(error.status_code, str(error.detail))))


async def _broken(request: Request, error: Exception) -> Response:
    """A fault of ours, which is logged when it has been told."""
    return _refusal(ApiError(500, f"the server failed ({type(error).__name__}): its log says more"))


async def _while_there(request: Request, work: Awaitable[T]) -> T:
    """The work's result; raises ClientDisconnect as soon as the client goes away."""

    async def left() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise ClientDisconnect
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()


async def _whole(body: dict[str, Any]) -> Response:
    """A whole answer, written choice by choice: with log-probabilities they are megabytes, and others have their turn
    between them."""
    choices = []
    for choice in body.pop("choices"):
        choices.append(_text(choice))
        await asyncio.sleep(0)
    return Response(f'{_text(body)[:-1]},"choices":[{",".join(choices)}]}}', media_type="application/json")


def _text(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


def _event(content: dict[str, Any]) -> str:
    data = _text(content)
    if not data.isascii():
        for one, escaped in LINE_ENDS:
            data = data.replace(one, escaped)
    return f"data: {data}\n\n"


def _page() -> tuple[str, str]:
    """The chat page, and the policy that lets nothing but its own script and style run."""
    page = files("model.serve").joinpath("page.html").read_text(encoding="utf-8")

    def hashed(tag: str) -> str:
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()

    policy = (
        f"default-src 'none'; script-src 'sha256-{hashed('script')}'; style-src 'sha256-{hashed('style')}'; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return page, policy
