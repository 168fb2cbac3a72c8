"""What clients send, checked, and how they are refused: OpenAI's names and layouts.

A field that is unknown is refused, as is one that asks for what this server does not do: an answer that took no notice
of it would be worse. What only labels a request is let pass.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar

from pydantic import BeforeValidator, FailFast, Field, ValidationError, field_validator, model_validator

from model.config import Config, refused
from model.dialogue import Message, shown

LABELS = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"
}  # fmt: skip
"""Fields that change nothing about an answer."""
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "echo": (False,),
    "suffix": ("",),
    "best_of": (1,),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
}
"""Fields that are taken only with a value that asks for nothing (or null)."""
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MOST_TOOLS, MOST_STOPS, LONGEST_STOP, MOST_CHOICES, MOST_LIKELIEST = 128, 16, 256, 128, 20
MOST_FIELDS = 64
T = TypeVar("T")
# A megabyte may hold half a million things that are wrong: one is told, and the others cost seconds of the event loop.
Several = Annotated[tuple[T, ...], FailFast()]


def _schema(given: Any) -> Any:
    """A schema looked at before its kinds are tried: pydantic would name the kind where a client looks for a field."""
    if not isinstance(given, dict | bool):
        raise ValueError("a schema is an object, true or false")
    return given


Schema = Annotated[dict[str, Any] | bool, BeforeValidator(_schema)]


class ApiError(Exception):
    """What a client is told instead of an answer."""

    def __init__(
        self, status: int, message: str, param: str | None = None, code: str | None = None, retry: int = 0
    ) -> None:
        """`param`: the field at fault; `code`: OpenAI's name of the fault; `retry`: seconds until another try."""
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.retry = status, message, param, code, retry

    def body(self) -> dict[str, Any]:
        kinds = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
        kind = kinds.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


class StreamOptions(Config):
    """How a stream ends."""

    include_usage: bool = False
    include_obfuscation: Literal[False] = False
    """OpenAI's: chunks padded to one length. It is not done."""


class _Name(Config):
    name: str


class NamedTool(Config):
    """The one tool that is to be called."""

    type: Literal["function"]
    function: _Name


class JsonSchema(Config):
    """A schema that the answer keeps to."""

    name: str = ""
    description: str | None = None
    schema_: Schema = Field(alias="schema")
    strict: bool | None = None


class ResponseFormat(Config):
    """What the answer is: any text, any JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_where_named(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("`json_schema` is given with type json_schema, and with no other")
        return self


class Function(Config):
    """A tool's function. The model is told of it as the client wrote it."""

    name: str
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not NAME.fullmatch(name):
            raise ValueError("a function's name has 1 to 64 letters, digits, _, . and -")
        return name


class Tool(Config):
    """One tool that the model may call."""

    type: Literal["function"]
    function: Function


class Sampled(Config):
    """What both endpoints take."""

    said_in: ClassVar[str] = "messages"
    """The field that holds what is answered."""

    model: str | None = None
    n: int = Field(default=1, ge=1, le=MOST_CHOICES)
    temperature: float = Field(default=1.0, ge=0, le=2)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=0, ge=-1)
    """vLLM's and ours: samples among so many of the likeliest tokens, 0 and -1 among all."""
    max_tokens: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=-(2**63), lt=2**63)
    stop: Several[str] = Field(default=(), max_length=MOST_STOPS)
    stream: bool = False
    stream_options: StreamOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            raise ValueError("the request is a JSON object")
        if len(given) > MOST_FIELDS:
            raise ValueError(f"a request has at most {MOST_FIELDS} fields")
        taken = {}
        for name, value in given.items():
            if name in NEUTRAL and name not in cls.model_fields:
                if value is not None and value not in NEUTRAL[name]:
                    raise ValueError(f"`{name}` is not supported: leave it out, or give {NEUTRAL[name][0]!r}")
            elif value is not None and name not in LABELS:  # null is OpenAI's way to say nothing
                taken[name] = value
        return taken

    @field_validator("stop", mode="before")
    @classmethod
    def _several(cls, stop: Any) -> Any:
        return (stop,) if isinstance(stop, str) else stop

    @field_validator("stop")
    @classmethod
    def _short(cls, stop: tuple[str, ...]) -> tuple[str, ...]:
        if not all(1 <= len(one) <= LONGEST_STOP for one in stop):
            raise ValueError(f"a stop has 1 to {LONGEST_STOP} characters")
        return stop

    @property
    def usage_in_stream(self) -> bool:
        return self.stream_options is not None and self.stream_options.include_usage


class ChatRequest(Sampled):
    """`/v1/chat/completions`."""

    messages: Several[dict[str, Any]] = Field(min_length=1)
    tools: Several[dict[str, Any]] = Field(default=(), max_length=MOST_TOOLS)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """The newer name of `max_tokens`."""
    tool_choice: Literal["none", "auto", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=MOST_LIKELIEST)
    response_format: ResponseFormat = ResponseFormat(type="text")

    @field_validator("tools")
    @classmethod
    def _are_tools(cls, tools: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
        for place, tool in enumerate(tools):
            try:
                Tool.model_validate(tool)
            except ValidationError as error:
                raise ValueError(f"tool {place}: {_sentence(error, Tool)}") from None
        return tools

    @field_validator("tool_choice", mode="before")
    @classmethod
    def _is_choice(cls, choice: Any) -> Any:
        if choice in ("none", "auto", "required"):
            return choice
        try:
            return NamedTool.model_validate(choice)
        except ValidationError:
            given = '{"type": "function", "function": {"name": "..."}}'
            raise ValueError(f'give "none", "auto", "required" or {given}') from None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.max_tokens and self.max_completion_tokens and self.max_tokens != self.max_completion_tokens:
            raise ValueError("max_tokens and max_completion_tokens differ: give one of them")
        names = [function.name for function in self.functions]
        if len(set(names)) < len(names):
            raise ValueError("two tools have the same name")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool_choice names {shown(self.tool_choice.function.name)}, which is none of the tools")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice is required and there are no tools")
        if self.response_format.type != "text" and names and self.tool_choice != "none":
            raise ValueError("response_format and tools exclude each other: give tool_choice none, or no format")
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs wants logprobs to be true")
        return self

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(Tool.model_validate(tool).function for tool in self.tools)

    @property
    def offered(self) -> tuple[dict[str, Any], ...]:
        """The tools that the model is told of."""
        return () if self.tool_choice == "none" else self.tools

    @property
    def dialogue(self) -> list[Message]:
        """The messages, with the name that newer clients give the system's turn."""
        return [{**one, "role": "system"} if one.get("role") == "developer" else one for one in self.messages]

    @property
    def likeliest(self) -> int:
        return self.top_logprobs


class CompletionRequest(Sampled):
    """`/v1/completions`."""

    said_in: ClassVar[str] = "prompt"

    prompt: str | tuple[str, ...] | tuple[int, ...] | tuple[tuple[int, ...], ...]
    max_tokens: int | None = Field(default=16, ge=1)
    logprobs: int | None = Field(default=None, ge=0, le=MOST_LIKELIEST)
    stop_token_ids: tuple[int, ...] = Field(default=(), max_length=MOST_STOPS)
    """vLLM's and ours, as the next two: tokens that end the text, beside the model's own."""
    ignore_eos: bool = False
    """Let the tokens by which the model ends its texts pass."""
    return_token_ids: bool = False
    """Tell each choice's `token_ids`, and log-probabilities, with the token that ended it."""

    @model_validator(mode="after")
    def _ids_of_whole_answers(self) -> Self:
        if self.return_token_ids and self.stream:
            raise ValueError("`return_token_ids` is of whole answers: leave `stream` out")
        return self

    @field_validator("prompt", mode="before")
    @classmethod
    def _says_something(cls, prompt: Any) -> Any:
        """Lists are looked through here: pydantic would tell of every item that it is none of each kind."""
        if isinstance(prompt, str):
            return prompt
        if not isinstance(prompt, list):
            raise ValueError("a prompt is a text, or a list of texts or tokens")
        kinds = {type(one) for one in prompt}
        tokens = prompt if kinds == {int} else [token for one in prompt if isinstance(one, list) for token in one]
        alike = len(kinds) == 1 and kinds <= {str, int, list} and {type(token) for token in tokens} <= {int}
        if not alike or [] in prompt:
            raise ValueError("a prompt is a text, or a list of texts or tokens with something in it")
        if kinds != {int} and len(prompt) > MOST_CHOICES:
            raise ValueError(f"{len(prompt)} prompts at once: ask for at most {MOST_CHOICES}")
        return prompt

    @property
    def prompts(self) -> list[str | tuple[int, ...]]:
        if isinstance(self.prompt, str):
            return [self.prompt]
        numbers = tuple(one for one in self.prompt if isinstance(one, int))
        if numbers:
            return [numbers]
        return [one for one in self.prompt if not isinstance(one, int)]

    @property
    def likeliest(self) -> int:
        return self.logprobs or 0


R = TypeVar("R", bound=Config)


def read(kind: type[R], body: bytes) -> R:
    """The request in a body. Raises ApiError, one sentence about the first thing that is wrong."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        where, _ = refused(error)
        raise ApiError(400, _sentence(error, kind), where[:100] or None) from None


def _sentence(error: ValidationError, kind: type[Config]) -> str:
    """The first thing that is wrong; nothing of a value is repeated."""
    where, said = refused(error)
    first = error.errors(include_input=False, include_url=False)[0]
    match first["type"]:
        case "json_invalid":
            return f"the body is no JSON: {said}"
        case "extra_forbidden":
            close = get_close_matches(str(first["loc"][-1]), list(kind.model_fields), 1)
            said = f"there is no such field{f'; did you mean `{close[0]}`?' if close else ''}"
        case "missing":
            said = "it is missing"
        case "too_short":
            said = "it is empty"
    return f"{shown(where)}: {said}" if where else said
