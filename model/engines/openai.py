"""Any OpenAI-compatible endpoint (vLLM, SGLang, llama-server, a cloud) as an engine, through httpx.

One event loop in a thread of its own carries every request, so that some hundreds in flight cost little and closing the
engine ends them at once. Bounded: `slots` requests in flight over all replicas, fewer where a replica says it is busy
(replicas.py); each answer in time and in bytes. Patient: what may pass is tried again after a jittered pause. A prompt
that fails while others are answered is given up; an endpoint that answers none ends the stage in one sentence.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NoReturn, TypeVar

import httpx

from model.engines.engine import (
    Completion,
    EngineError,
    Message,
    Prompt,
    PromptRefused,
    PromptTooLong,
    RequestLimits,
    Sampling,
    candidates,
    response_format,
)
from model.engines.replicas import Replica, Replicas
from model.engines.reply import KEY_VARIABLE, Busy, Failed, endpoint_key, read

log = logging.getLogger(__name__)

MOST_BYTES = 8 << 20
"""Longest reply read: an answer of some 100,000 tokens with room for what servers add."""
LONGEST_PAUSE = 60.0
TELL = 30.0
"""Seconds between two warnings in the log."""
REFUSALS_IN_A_ROW = 20
"""Prompts refused or given up, with no answer between them, after which the set-up may be at fault and not they."""
PROBE = Prompt((Message("user", "Say yes."),), Sampling(temperature=0.0), 1, 0)
"""What tells an endpoint that answers nobody from a prompt that nobody can answer."""


T = TypeVar("T")
CLOSED = "the engine was closed while a request was in flight"


class OpenAI:
    """A model behind one or several replicas of an OpenAI-compatible endpoint."""

    name = "openai"

    def __init__(
        self, urls: str | Sequence[str], model: str, *, slots: int = 64, limits: RequestLimits | None = None
    ) -> None:
        """`urls`: one base URL such as http://host:8000/v1, or several replicas (a list, or separated by commas).
        Raises EngineError for what is no URL, and for a key that is none."""
        several = urls.split(",") if isinstance(urls, str) else urls
        self.urls = [url.strip().rstrip("/") for url in several if url.strip()]
        if not self.urls or not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise EngineError(f"an endpoint begins with http:// or https://, as in http://host:8000/v1; got {urls!r}")
        for url in self.urls:
            try:
                httpx.URL(url)
            except httpx.InvalidURL as error:
                raise EngineError(f"{url} is no URL ({error}): write it as http://host:8000/v1") from None
        self.key = endpoint_key()
        self.model, self.slots, self.limits = model, slots, limits or RequestLimits()
        self._line: _Line | None = None

    def __enter__(self) -> OpenAI:
        self._line = _Line(self)
        return self

    def __exit__(self, *_: object) -> None:
        """Ends what is in flight: whoever waits for it gets an EngineError."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return self._all(prompts, lambda future: future.result())

    def fitting(self, prompts: Sequence[Prompt]) -> list[Completion | None]:
        """As `complete`, with None for a prompt that is too long: for prompts that were made for no certain context,
        whose refusal says nothing against the endpoint."""
        return self._all(prompts, partial(_unless, PromptTooLong), made=False)

    def answered(self, prompts: Sequence[Prompt]) -> list[Completion | None]:
        """As `complete`, with None for a prompt that will never be answered: for what others wrote."""
        return self._all(prompts, partial(_unless, PromptRefused))

    def _all(self, prompts: Sequence[Prompt], result: Callable[[Future[Completion]], T], made: bool = True) -> list[T]:
        line = self._line
        if line is None:
            raise EngineError("the engine is not open: use it as `with OpenAI(...) as engine:`")
        futures = [line.submit(prompt, self._body(prompt), made) for prompt in prompts]
        try:
            return [result(future) for future in futures]
        except CancelledError:  # before it had begun, so that it could not say itself what ended it
            raise line.broken or EngineError(CLOSED) from None
        finally:
            for future in futures:
                future.cancel()

    def _body(self, prompt: Prompt) -> bytes:
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [message.wire() for message in prompt.messages],
            "max_tokens": prompt.max_tokens,
            "seed": prompt.seed,
            "temperature": prompt.sampling.temperature,
            "top_p": prompt.sampling.top_p,
            **response_format(prompt.schema),
            **candidates(prompt),
        }
        if prompt.sampling.top_k:
            body["top_k"] = prompt.sampling.top_k
        if prompt.tools:
            body["tools"] = json.loads(prompt.tools)
        return json.dumps(body).encode()


def _unless(refused: type[PromptRefused], future: Future[Completion]) -> Completion | None:
    try:
        return future.result()
    except refused:
        return None


class _Line:
    """The open connection: an event loop, its client, and what is known of the replicas."""

    def __init__(self, engine: OpenAI) -> None:
        self.engine, self.limits = engine, engine.limits
        self._lock = threading.Lock()
        self.broken: EngineError | None = None  # what ended every request, those to come too
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="endpoint", daemon=True)
        self._thread.start()
        self._refused = 0  # prompts since the last answer
        self._last: tuple[Prompt, bytes] | None = None  # what was answered last
        self._told = float("-inf")
        self._troubled: float | None = None  # since when there have been nothing but failures
        self._run(self._open()).result()

    def submit(self, prompt: Prompt, body: bytes, made: bool) -> Future[Completion]:
        """`made`: for the context that the endpoint should have."""
        return self._run(self._answer(prompt, body, made))

    def close(self) -> None:
        # What was submitted before is ended by `_close`; what came later would wait for a loop that has stopped.
        with self._lock:
            # Said first: the loop may cancel a request, which asks what ended it, before this thread goes on.
            self.broken = self.broken or EngineError(CLOSED)
            ended = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        ended.result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        with self._lock:
            if self.broken is None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise self.broken

    async def _open(self) -> None:
        # One client for each request in flight: a pool of some hundred connections is searched at every request.
        self._idle: list[httpx.AsyncClient] = []
        secure = any(url.startswith("https://") for url in self.engine.urls)
        self._trust = httpx.create_ssl_context() if secure else False  # made once: it takes a while
        self._replicas = Replicas(self.engine.urls, self.engine.slots, self.limits.backoff_seconds, self._loop.time)
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[httpx.AsyncClient]:
        """A client nobody else uses; kept for the next request unless this one fails."""
        client = self._idle.pop() if self._idle else self._new_client()
        try:
            yield client
        except BaseException:
            await asyncio.shield(client.aclose())
            raise
        self._idle.append(client)

    def _new_client(self) -> httpx.AsyncClient:
        key = self.engine.key
        # What a server compresses could be gigabytes once read: it is asked not to, and not believed if it does.
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        return httpx.AsyncClient(
            headers=headers | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=httpx.Timeout(None, connect=self.limits.connect_seconds),
            verify=self._trust,
        )

    async def _close(self) -> None:
        await asyncio.gather(*self._cancel(), return_exceptions=True)
        closing = asyncio.all_tasks() - {asyncio.current_task()}  # of connections, which nobody waits for any more
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        await asyncio.gather(*(client.aclose() for client in self._idle), return_exceptions=True)

    def _cancel(self) -> list[asyncio.Task[Any]]:
        """Cancel every request but the one that this is. Tasks that the client began for a request end with it: one
        that is cancelled before its first step leaves a coroutine that was never awaited."""
        mine, request = asyncio.current_task(), _Line._answer.__code__
        tasks = [
            task
            for task in asyncio.all_tasks()
            if task is not mine and getattr(task.get_coro(), "cr_code", None) is request
        ]
        for task in tasks:
            task.cancel()
        return tasks

    async def _answer(self, prompt: Prompt, body: bytes, made: bool) -> Completion:
        """The answer to one prompt, after as many attempts as it takes."""
        try:
            return await self._counted(prompt, body, made)
        except asyncio.CancelledError:
            raise self.broken or EngineError("the request was cancelled") from None

    async def _counted(self, prompt: Prompt, body: bytes, made: bool) -> Completion:
        try:
            answer = await self._insist(prompt, body)
        except PromptRefused as refusal:
            if made or not isinstance(refusal, PromptTooLong):
                await self._suspect(refusal)
            raise
        self._refused, self._last = 0, (prompt, body)
        return answer

    async def _suspect(self, refusal: PromptRefused) -> None:
        """Count a refused prompt; end it for everybody where it is not the prompts that are at fault."""
        self._refused += 1
        refused = self._refused
        # Refusals are quick, and whatever else is in flight may be about to be answered.
        if refused < REFUSALS_IN_A_ROW + self._replicas.flying:
            return
        told = f"{self._where()} answered none of {refused} prompts in a row"
        if self._last is not None:
            # Bad prompts may come in a crowd (one source, one topic): the one that was answered before tells.
            self._refused = 0
            try:
                await self._insist(*self._last)
                return
            except PromptRefused:
                told += " and refuses the one that it answered before"
        self._break(f"{told}, the last time with {refusal}")

    async def _insist(self, prompt: Prompt, body: bytes) -> Completion:
        weight, turned, last = 0, 0, False
        while True:
            try:
                return await self._attempt(prompt, body)
            except Busy as busy:
                trouble, turned = str(busy), turned + 1
                self._trouble(trouble, busy.asked)
            except Failed as failure:
                trouble, weight, turned = str(failure), weight + failure.weight, turned + 1
                self._trouble(trouble)
            if weight >= self.limits.attempts:
                # Is it the prompt or the endpoint? One that answers a plain prompt gets a last chance with this one.
                alive = await self._alive()
                if alive and last:
                    raise PromptRefused(f"a prompt failed {weight} times, the last time with {trouble}")
                weight, last = (weight, True) if alive else (0, False)
                if alive:
                    continue
            pause = random.random() * min(self.limits.backoff_seconds * 2.0 ** min(turned - 1, 16), LONGEST_PAUSE)
            log.debug("%s: another attempt in %.1f s", trouble, pause)
            await asyncio.sleep(pause)

    async def _attempt(self, prompt: Prompt, body: bytes) -> Completion:
        replica, replicas = await self._take(prompt.session), self._replicas
        sent = self._loop.time()
        landed: Callable[[Replica], None] = replicas.left
        try:
            status, headers, content = await self._send("POST", f"{replica.url}/chat/completions", body)
            answer = read(replica.url, status, headers, content, prompt, self._loop.time() - sent)
            landed, self._troubled = replicas.succeeded, None
            return answer
        except PromptRefused:
            landed, self._troubled = replicas.succeeded, None
            raise
        except Busy as busy:
            landed = partial(replicas.overloaded, sent=sent, asked=busy.asked)
            raise
        except Failed as failure:
            landed = partial(replicas.failed, sent=sent, lost=failure.weight == 0)
            raise
        except EngineError as error:
            self._stop(self.broken or await self._named(replica, error))
        finally:
            landed(replica)
            async with self._changed:
                self._changed.notify_all()

    async def _take(self, session: str) -> Replica:
        """The replica for a request of `session`, waiting until one has room."""
        async with self._changed:
            while True:
                if self.broken:
                    raise self.broken
                if (replica := self._replicas.take(session)) is not None:
                    return replica
                try:
                    async with asyncio.timeout(self._replicas.wait()):
                        await self._changed.wait()
                except TimeoutError:
                    pass  # a rest is over

    async def _send(self, method: str, url: str, body: bytes | None = None) -> tuple[int, httpx.Headers, bytes]:
        """One request, as a whole within `answer_seconds` and `MOST_BYTES`. Raises Failed, and EngineError for one
        that cannot be made."""
        try:
            async with asyncio.timeout(self.limits.answer_seconds):
                async with (
                    self._client() as client,
                    client.stream(method, url, content=body) as response,
                ):
                    if (coding := response.headers.get("content-encoding", "identity")) != "identity":
                        raise Failed(f"the answer is compressed ({coding}), which was not asked for")
                    content = bytearray()
                    async for chunk in response.aiter_raw():
                        content += chunk
                        if len(content) > MOST_BYTES:
                            raise Failed(f"the answer has over {MOST_BYTES:,} bytes")
                    return response.status_code, response.headers, bytes(content)
        except TimeoutError:
            raise Failed(f"no whole answer within {self.limits.answer_seconds:g} s", weight=2) from None
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise Failed(f"no connection ({error or type(error).__name__})", weight=0) from None
        except (httpx.InvalidURL, httpx.LocalProtocolError) as error:
            # Of our own making, so that no other attempt does better; and what it says may quote the key.
            raise EngineError(
                f"no request can be made of the URL {url} and ${KEY_VARIABLE} ({type(error).__name__}): check both"
            ) from None
        except (httpx.HTTPError, httpx.StreamError) as error:
            raise Failed(f"{type(error).__name__}: {error}") from None

    def _trouble(self, trouble: str, asked: float = 0.0) -> None:
        """Note a failure; where nothing has been answered for too long, end it for everybody."""
        now, patience = self._loop.time(), self.limits.patience_seconds
        self._troubled = now if self._troubled is None else self._troubled
        if now - self._told > TELL:
            self._told = now
            log.warning("%s: %s; trying again", self._where(), trouble)
        if asked > patience and self._replicas.resting(patience):
            self._break(f"{self._where()} wants to be left alone for {asked:,.0f} s ({trouble})")
        if self._replicas.flying:
            patience = max(patience, self.limits.answer_seconds)
        if now - self._troubled > patience:
            self._break(f"{self._where()} answered nothing for {now - self._troubled:,.0f} s, the last time: {trouble}")

    def _break(self, what: str) -> NoReturn:
        self._stop(
            EngineError(
                f"{what}: see that the server runs and that URL, model and ${KEY_VARIABLE} are right, then run the "
                "same command again; finished requests are kept"
            )
        )

    def _stop(self, error: EngineError) -> NoReturn:
        """End every request with the first such error."""
        if self.broken is None:
            self.broken = error
            self._cancel()
        raise self.broken

    def _where(self) -> str:
        return ", ".join(self.engine.urls)

    async def _alive(self) -> bool:
        """Whether the endpoint answers anything at all."""
        try:
            await self._attempt(PROBE, self.engine._body(PROBE))
        except (Busy, Failed):
            return False
        except PromptRefused:
            return True
        return True

    async def _named(self, replica: Replica, error: EngineError) -> EngineError:
        """`error`, saying which models the endpoint serves where the one asked for is not among them."""
        try:
            async with asyncio.timeout(self.limits.connect_seconds):
                _, _, content = await self._send("GET", f"{replica.url}/models")
            served = sorted(str(model["id"]) for model in json.loads(content)["data"])
        except (TimeoutError, EngineError, Failed, ValueError, KeyError, TypeError, RecursionError):
            return error
        if not served or self.engine.model in served:
            return error
        names = ", ".join(name[:80] for name in served[:8]) + (" ..." if len(served) > 8 else "")
        return EngineError(f"{replica.url} serves {names} and no '{self.engine.model}': set the model to one of those")
