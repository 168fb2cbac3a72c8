"""What every engine takes and gives: chat prompts in, completions out. Nothing here runs anything."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from pydantic import Field

from model.config import Config
from model.visible import encodable

Role = Literal["system", "user", "assistant", "tool"]
Finish = Literal["stop", "length", "filtered"]


class EngineError(RuntimeError):
    """An engine that cannot be used: it did not start, or it kept failing; the message says where and what to do."""


class PromptRefused(EngineError):
    """This one prompt will never be answered (longer than the context, refused by the server); others may be."""


class PromptTooLong(PromptRefused):
    """The context has no room for this prompt and its answer."""


class Sampling(Config):
    """How tokens are drawn. The same prompt, sampling and seed give the same text on a deterministic engine."""

    temperature: float = Field(default=0.7, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=0.95, gt=0, le=1)
    """Nucleus sampling."""
    top_k: int = Field(default=40, ge=0)
    """Candidates kept at each token; 0 keeps all. Endpoints that do not know it ignore it, or refuse it unless it is
    0."""


class RequestLimits(Config):
    """How long an engine is waited for and how often it is asked again. Execution, never identity."""

    connect_seconds: float = Field(default=10.0, gt=0)
    """Longest wait for a connection to an endpoint."""
    answer_seconds: float = Field(default=600.0, gt=0)
    """Longest time for one whole answer, sending and reading included; what takes longer is cut off."""
    attempts: int = Field(default=4, ge=1)
    """Failures of one request (a time-out counts twice) after which its prompt is given up, where the engine answers
    others. Lost connections and "too busy" do not count."""
    backoff_seconds: float = Field(default=1.0, gt=0)
    """Longest pause before the second attempt; doubled each time up to a minute, and drawn evenly below that."""
    patience_seconds: float = Field(default=300.0, gt=0)
    """How long nothing but failures is borne before the stage stops; `answer_seconds` where that is more and requests
    are still in flight."""


class Price(Config):
    """What an engine charges, in any currency, per million tokens. Execution, never identity."""

    prompt: float = Field(default=0.0, ge=0)
    """A prompt's tokens that no prefix cache had."""
    cached: float = Field(default=0.0, ge=0)
    """A prompt's tokens that the prefix cache had."""
    generated: float = Field(default=0.0, ge=0)
    """An answer's tokens."""

    def of(self, prompt: float, cached: float, generated: float) -> float:
        """What so many tokens cost, `cached` of those in `prompt` being the cache's."""
        return ((prompt - cached) * self.prompt + cached * self.cached + generated * self.generated) / 1e6


@dataclass(frozen=True)
class Message:
    """One chat message."""

    role: Role
    content: str
    calls: str = ""
    """Of an assistant: the tool calls that it made, as JSON in OpenAI's layout. Only endpoints take them."""
    answers: str = ""
    """Of a tool: the id of the call that this is the result of."""
    name: str = ""
    """Of a tool: the function's. K2's template, and so its training, heads the result with it."""

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Message:
        """A turn in OpenAI's layout."""
        calls, content = message.get("tool_calls"), str(message.get("content") or "")
        told = json.dumps(calls, ensure_ascii=False) if calls else ""
        name = str(message.get("name") or "") if message["role"] == "tool" else ""
        return cls(message["role"], content, told, str(message.get("tool_call_id", "")), name)

    def wire(self) -> dict[str, Any]:
        """In OpenAI's layout."""
        message: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.calls:
            message["tool_calls"] = json.loads(self.calls)
        told = {"tool_call_id": self.answers, "name": self.name}
        return message | {field: value for field, value in told.items() if value}


@dataclass(frozen=True)
class Prompt:
    """One request."""

    messages: tuple[Message, ...]
    sampling: Sampling
    max_tokens: int
    """Longest answer, in the engine's own tokens."""
    seed: int
    session: str = ""
    """Prompts of one session share a long beginning: an engine keeps them where its prefix cache is. Not content."""
    schema: str = ""
    """JSON schema that the answer must follow, as JSON; the engine then draws no token that breaks it."""
    tools: str = ""
    """Tools that the model may call, as JSON in OpenAI's layout. Only endpoints take them."""
    likeliest: int = 0
    """How many candidates of the answer's first token are wanted, with their chances."""

    def key(self, engine: str, model: str) -> str:
        """sha256 of everything that decides the answer: engine, model, messages, sampling, longest answer, seed,
        schema, tools, candidates."""
        record = {
            "engine": engine,
            "model": model,
            "messages": [message.wire() for message in self.messages],
            "sampling": self.sampling.model_dump(mode="json"),
            "max_tokens": self.max_tokens,
            "seed": self.seed,
            "schema": self.schema,
            # `calls_end`: answers that were kept without it tell a turn that ended with calls as one cut short
            **({"tools": self.tools, "calls_end": True} if self.tools else {}),
            **({"likeliest": self.likeliest} if self.likeliest else {}),
        }
        return hashlib.sha256(json.dumps(record, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


@dataclass(frozen=True)
class Completion:
    """One answer and what it cost."""

    text: str
    finish: Finish
    """`length` where `max_tokens` or the context ended it, `filtered` where the endpoint's content filter did."""
    prompt_tokens: int
    cached_tokens: int
    """How many of `prompt_tokens` the prefix cache had."""
    generated_tokens: int
    seconds: float
    """Wall seconds from request to answer, waiting for a free slot left out."""
    estimated: bool = False
    """Whether the engine told no usage, so that the tokens are estimates (`estimate`)."""
    calls: str = ""
    """The tool calls of the answer, as the endpoint gave them: JSON in OpenAI's layout, unchecked."""
    likeliest: Mapping[str, float] = field(default_factory=dict)
    """Candidates of the first token -> natural logarithm of their chance; none where none were asked for or told."""


def estimate(text: str) -> int:
    """About how many tokens `text` has, for an engine that does not say: four bytes to a token."""
    return -(-len(text.encode()) // 4)


def response_format(schema: str) -> dict[str, Any]:
    """The field of an OpenAI chat request that holds the answer to a JSON schema; empty where there is none."""
    if not schema:
        return {}
    named = {"name": "answer", "strict": True, "schema": json.loads(schema)}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def candidates(prompt: Prompt) -> dict[str, Any]:
    """The fields of an OpenAI chat request that ask for the first token's candidates; none where none are wanted."""
    return {"logprobs": True, "top_logprobs": prompt.likeliest} if prompt.likeliest else {}


def likeliest(choice: Mapping[str, Any]) -> dict[str, float]:
    """The first token's candidates in a choice of an OpenAI reply, which nobody vouches for; none where it tells
    none that can be read."""
    try:
        told = [(one["token"], float(one["logprob"])) for one in choice["logprobs"]["content"][0]["top_logprobs"]]
    except (KeyError, IndexError, TypeError, ValueError, OverflowError):
        return {}
    return {encodable(token): chance for token, chance in told if isinstance(token, str) and chance <= 0}


class Engine(Protocol):
    """A model that completes chats. Safe to call from several threads; used as a context manager."""

    name: str
    """What runs it; part of every request's identity."""
    model: str
    """Which model; part of every request's identity."""
    slots: int
    """Requests that are worth having in flight at once."""

    def complete(self, prompts: Sequence[Prompt]) -> list[Completion]:
        """Answer every prompt, in order. Raises PromptRefused for a prompt that can never be answered, EngineError
        where the engine itself failed."""
        ...

    def __enter__(self) -> Engine: ...

    def __exit__(self, *_: object) -> None: ...
