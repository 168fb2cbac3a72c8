"""Any OpenAI-compatible endpoint (vLLM, SGLang, llama-server, a cloud) as an engine, through httpx.

Bounded: at most `slots` requests in flight, each with a time limit. Patient: 408, 409, 425, 429 and 5xx, lost
connections and answers that are no JSON are tried again after a growing pause with jitter, or after the pause the
server asked for. Then it gives up with one clear sentence.
"""

from __future__ import annotations

import json
import logging
import os
import random
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from model.engines.engine import Completion, EngineError, Prompt, PromptRefused, response_format

log = logging.getLogger(__name__)

PASSING = {408, 409, 425, 429}
LONGEST_PAUSE = 60.0
KEY_VARIABLE = "OPENK2_ENGINE_KEY"
"""Environment variable with the endpoint's key; a key is no configuration and is never recorded."""


class OpenAI:
    """A model behind one or several replicas of an OpenAI-compatible endpoint."""

    def __init__(
        self,
        urls: str | Sequence[str],
        model: str,
        *,
        slots: int = 64,
        timeout: float = 300.0,
        attempts: int = 6,
        backoff: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`urls`: one base URL such as http://host:8000/v1, or several (a list, or separated by commas): a session
        keeps to its replica. `timeout`: seconds one request may take as a whole. `backoff`: seconds before the second
        attempt; doubled each time, up to a minute."""
        self.urls = [url.strip().rstrip("/") for url in (urls.split(",") if isinstance(urls, str) else urls)]
        if not all(url.startswith(("http://", "https://")) for url in self.urls):
            raise EngineError(f"an endpoint begins with http:// or https://, as in http://host:8000/v1; got {urls!r}")
        self.model, self.slots = model, slots
        self.name = "openai"
        self.timeout, self.attempts, self.backoff, self._sleep = timeout, attempts, backoff, sleep
        self._gate = threading.BoundedSemaphore(slots)
        self._client: httpx.Client | None = None

    def __enter__(self) -> OpenAI:
        key = os.environ.get(KEY_VARIABLE, "")
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            limits=httpx.Limits(max_connections=self.slots, max_keepalive_connections=self.slots),
            timeout=httpx.Timeout(self.timeout, connect=min(10.0, self.timeout), pool=None),
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        if self._client is None:
            raise EngineError("the engine is not open: use it as `with OpenAI(...) as engine:`")
        if len(prompts) == 1:
            return [self._one(prompts[0])]
        with ThreadPoolExecutor(min(self.slots, max(len(prompts), 1))) as pool:
            return list(pool.map(self._one, prompts))

    def _one(self, prompt: Prompt) -> Completion:
        url = f"{self.urls[zlib.crc32(prompt.session.encode()) % len(self.urls)]}/chat/completions"
        body = {
            "model": self.model,
            "messages": [{"role": message.role, "content": message.content} for message in prompt.messages],
            "max_tokens": prompt.max_tokens,
            "seed": prompt.seed,
            "temperature": prompt.sampling.temperature,
            "top_p": prompt.sampling.top_p,
            **response_format(prompt.schema),
        }
        if prompt.sampling.top_k:
            body["top_k"] = prompt.sampling.top_k
        trouble, asked = "", 0.0
        for attempt in range(self.attempts):
            if attempt:
                pause = self._pause(asked, attempt)
                log.warning("%s: %s; attempt %d of %d in %.1f s", url, trouble, attempt + 1, self.attempts, pause)
                self._sleep(pause)
            with self._gate:
                began = time.monotonic()
                try:
                    status, headers, content = self._post(url, body)
                    if status == 200:
                        return _completion(_json(content), time.monotonic() - began)
                    trouble, asked = f"status {status}: {content[:200]!r}", _asked_pause(headers)
                except (httpx.TransportError, _Garbage) as error:
                    trouble, asked, status = f"{type(error).__name__}: {error}", 0.0, 500
            if status < 500 and status not in PASSING:
                if status in (400, 413, 422):
                    raise PromptRefused(f"{url} refused a prompt with {trouble}")
                raise EngineError(f"{url} answered {trouble}: check the URL, the model's name and ${KEY_VARIABLE}")
        raise EngineError(
            f"{url} failed {self.attempts} times, the last time with {trouble}: see that the server runs, then run the "
            "same command again; finished requests are kept"
        )

    def _post(self, url: str, body: dict[str, Any]) -> tuple[int, httpx.Headers, bytes]:
        """One request within `timeout` as a whole: a server that drips bytes for ever is cut off too."""
        assert self._client is not None
        deadline = time.monotonic() + self.timeout
        with self._client.stream("POST", url, json=body) as response:
            chunks = []
            for chunk in response.iter_bytes():
                chunks.append(chunk)
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout(f"no whole answer within {self.timeout:g} s")
            return response.status_code, response.headers, b"".join(chunks)

    def _pause(self, asked: float, attempt: int) -> float:
        if asked:
            return min(asked, LONGEST_PAUSE)
        longest = min(self.backoff * 2 ** (attempt - 1), LONGEST_PAUSE)
        return longest * (0.5 + random.random() / 2)  # jitter: a crowd that failed together must not return together


class _Garbage(ValueError):
    """An answer that is not a chat completion."""


def _json(content: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except ValueError as error:
        raise _Garbage(f"the answer is no JSON ({error}): {content[:80]!r}") from error
    if not isinstance(answer, dict):
        raise _Garbage(f"the answer is no object: {content[:80]!r}")
    return answer


def _completion(answer: dict[str, Any], seconds: float) -> Completion:
    try:
        choice, usage = answer["choices"][0], answer.get("usage") or {}
        text = choice["message"]["content"] or ""
        if not isinstance(text, str):
            raise TypeError("content is no string")
        return Completion(
            text=text,
            finish="stop" if choice.get("finish_reason") == "stop" else "length",
            prompt_tokens=int(usage.get("prompt_tokens", 0)),
            cached_tokens=int((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0),
            generated_tokens=int(usage.get("completion_tokens", 0)),
            seconds=seconds,
        )
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise _Garbage(f"the answer is no chat completion ({type(error).__name__}: {error})") from error


def _asked_pause(headers: httpx.Headers) -> float:
    """Seconds of a Retry-After header (a number or a date), 0 without one."""
    value = headers.get("retry-after", "")
    try:
        return max(0.0, float(value))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError):
        return 0.0
