"""What an endpoint's reply means: a completion, a refusal of this prompt, a wrong set-up, or something to try again.

A reply is untrusted: any status, any bytes. Nothing here raises anything but `Busy`, `Failed` and the engine's errors.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from model.engines.engine import (
    Completion,
    EngineError,
    Finish,
    Prompt,
    PromptRefused,
    PromptTooLong,
    estimate,
    likeliest,
)
from model.visible import encodable

KEY_VARIABLE = "OPENK2_ENGINE_KEY"
"""Environment variable with the endpoint's key; a key is no configuration and is never recorded."""
BUSY = {429, 503}
REFUSED = {400, 413, 422}
PASSING = {408, 409, 425}
TOO_LONG = re.compile(
    r"context (?:length|size|window)|(?:prompt|input) is too long|longer than the (?:maximum )?model|model's window",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp and `model.serve` say that a prompt exceeds the context: the status is the one of
any other fault."""
FINISHES: dict[str, Finish] = {
    "stop": "stop", "tool_calls": "stop", "function_call": "stop", "content_filter": "filtered"
}  # fmt: skip
"""What a server calls the end of an answer that is whole, or filtered; any other name, and none, is one cut short."""
MOST_TOKENS = 1 << 30
SHOWN = 200


def endpoint_key() -> str:
    """The endpoint's key from the environment, without the blanks and the line break that files end in; empty where
    there is none. Raises EngineError for one that no header can hold: the header's own error would quote it."""
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not (key.isascii() and key.isprintable()):
        raise EngineError(f"${KEY_VARIABLE} has characters that no key has: set it to the key alone, on one line")
    return key


class Busy(Exception):
    """The endpoint turned the request away; `asked`: seconds it wants to be left alone, 0 where it does not say."""

    def __init__(self, trouble: str, asked: float) -> None:
        super().__init__(trouble)
        self.asked = asked


class Failed(Exception):
    """No answer came of this request, another attempt may bring one. `weight`: how many attempts it counts for, 0
    where no connection could be had."""

    def __init__(self, trouble: str, weight: int = 1) -> None:
        super().__init__(trouble)
        self.weight = weight


def read(
    url: str, status: int, headers: Mapping[str, str], content: bytes, prompt: Prompt, seconds: float
) -> Completion:
    """The completion in a reply. Raises Busy, Failed, PromptRefused (this prompt never) or EngineError (wrong URL, key,
    model)."""
    if status == 200:
        return _completion(_object(content, headers), prompt, seconds, url)
    raise problem(url, status, headers, shown(content))


def problem(url: str, status: int, headers: Mapping[str, str], words: str) -> Exception:
    """What a status other than 200 means, `words` being what came with it."""
    trouble = f"status {status}: {words}" if words else f"status {status}"
    if status in BUSY:
        return Busy(trouble, _asked(headers.get("retry-after", "")))
    if status >= 500 or status in PASSING:
        return Failed(trouble)
    if status in REFUSED:
        refused = PromptTooLong if TOO_LONG.search(words) else PromptRefused
        return refused(f"{url} refused a prompt with {trouble}")
    if status in (401, 403):
        return EngineError(f"{url} wants another key ({trouble}): set ${KEY_VARIABLE} to one that it accepts")
    if 300 <= status < 400:
        place = headers.get("location", "elsewhere")[:SHOWN]
        return EngineError(f"{url} redirects to {place}: give that address as the URL, without /chat/completions")
    if status == 404:
        return EngineError(f"{url} answered {trouble}: check the URL (it usually ends in /v1) and the model's name")
    return EngineError(f"{url} answered {trouble}: check the URL, the model's name and ${KEY_VARIABLE}")


def shown(content: bytes) -> str:
    """The message of an error's body, or the beginning of whatever it is, on one line."""
    try:
        answer = json.loads(content)
        error = answer.get("error", answer)
        text = str(error.get("message") or error) if isinstance(error, dict) else str(error)
    except (ValueError, AttributeError, RecursionError):
        text = content[: 4 * SHOWN].decode(errors="replace")
    text = " ".join(encodable(text).split())
    return text if len(text) <= SHOWN else text[:SHOWN] + "..."


def _object(content: bytes, headers: Mapping[str, str]) -> dict[str, Any]:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        kind = headers.get("content-type", "no content type").split(";")[0]
        hint = "; is the URL that of the API? it usually ends in /v1" if "html" in kind else ""
        raise Failed(f"the answer is no JSON ({kind}): {shown(content)!r}{hint}") from None
    if not isinstance(answer, dict):
        raise Failed(f"the answer is no object: {shown(content)!r}")
    return answer


def _completion(answer: dict[str, Any], prompt: Prompt, seconds: float, url: str) -> Completion:
    if answer.get("error") and not answer.get("choices"):
        error = answer["error"]
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and not isinstance(code, bool) and 400 <= code < 600 else 500
        raise problem(url, status, {}, shown(json.dumps(answer).encode()))
    try:
        choice = answer["choices"][0]
        text = choice["message"].get("content") or ""
        calls = choice["message"].get("tool_calls") or ""
        finish = FINISHES.get(choice.get("finish_reason"), "length")
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Failed(f"the answer is no chat completion ({type(error).__name__}: {error})") from None
    if not isinstance(text, str):
        raise Failed(f"the answer is no chat completion (its content is a {type(text).__name__}, not a text)")
    text = encodable(text)
    found = answer.get("usage")
    usage: dict[str, Any] = found if isinstance(found, dict) else {}
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else usage.get("prompt_cache_hit_tokens")
    asked, said = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    whole = sum(estimate(message.content) + 4 for message in prompt.messages) if asked is None else asked
    return Completion(
        text=text,
        finish=finish,
        prompt_tokens=whole,
        cached_tokens=min(_count(cached) or 0, whole),
        generated_tokens=estimate(text) if said is None else said,
        seconds=seconds,
        estimated=asked is None or said is None,
        calls=calls and json.dumps(calls),
        likeliest=likeliest(choice),
    )


def _count(value: object) -> int | None:
    """A number of tokens, None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MOST_TOKENS else None


def _asked(value: str) -> float:
    """Seconds of a Retry-After header (a number or a date), 0 without one."""
    try:
        seconds = float(value)
        return seconds if seconds > 0 and math.isfinite(seconds) else 0.0
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return 0.0
