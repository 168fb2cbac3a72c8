"""Small tools with short JSON schemas that really run: what a tool is, and how people ask for it.

Every tool is deterministic and pure: no clock, no network, no state. A tool that cannot answer (an unknown country, the
30th of February) raises `ToolError`; its dialogue is then rejected, and counted. tasks/agentic/catalogue.py lists them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for

from training.rl.worlds.wording import Language, Split, expand, split_of

NUMBER = {"type": "integer"}
TEXT = {"type": "string"}


class ToolError(ValueError):
    """A call that fits the schema and still has no answer."""


@dataclass(frozen=True)
class Tool:
    """One function that a model may call."""

    names: tuple[str, ...]
    """What declarations may call it, so that they must be read; the first is the function's own."""
    description: str
    properties: Mapping[str, Any]
    """JSON schema of each argument; all are required."""
    run: Callable[..., str]
    """The function itself: keyword arguments in, the result's text out."""
    draw: Callable[[random.Random], dict[str, Any]]
    """Arguments as users want them; now and then impossible ones, as users do."""
    requests: Mapping[Language, tuple[str, ...]]
    """Grammars of ways to ask, with the arguments as fields: imperatives, so that every frame takes them."""
    answer: Mapping[Language, str]
    """How the final turn says it; `{result}` is the tool's, arguments are fields too."""
    split: Split = "train"
    """The first split that may know the function: one of `test` is unseen by training and by development."""

    validator: Validator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        schema = self.parameters  # a server's may name an older draft
        object.__setattr__(self, "validator", validator_for(schema, default=jsonschema.Draft202012Validator)(schema))

    @property
    def parameters(self) -> dict[str, Any]:
        """The schema of the arguments."""
        return {"type": "object", "properties": dict(self.properties), "required": list(self.properties)}

    @property
    def name(self) -> str:
        """The function's own name."""
        return self.names[0]

    def declaration(self, name: str, described: bool) -> dict[str, Any]:
        """The tool in OpenAI's layout, under one of its names."""
        said = {"description": self.description} if described else {}
        return {"type": "function", "function": {"name": name, **said, "parameters": self.parameters}}

    def wordings(self, language: Language) -> list[str]:
        """Every way to ask for it."""
        return [wording for grammar in self.requests[language] for wording in expand(grammar)]

    def clauses(self, language: Language, split: Split, arguments: Mapping[str, Any]) -> list[str]:
        """Ways of a split to ask for it, with the arguments."""
        return [text.format(**arguments) for text in self.wordings(language) if split_of("wording", text) == split]

    def reply(self, language: Language, arguments: Mapping[str, Any], result: str) -> str:
        """What the assistant says of a result."""
        return self.answer[language].format(**{**arguments, "result": result})

    def call(self, arguments: Mapping[str, Any]) -> str:
        """Check the arguments against the schema and run.

        Raises:
            ToolError: the arguments do not fit the schema, or have no answer.
        """
        if unknown := set(arguments) - set(self.properties):
            raise ToolError(f"{self.name}: it takes no {min(unknown)}")
        try:
            self.validator.validate(dict(arguments))
        except jsonschema.ValidationError as error:
            raise ToolError(f"{self.name}: {error.message}") from error
        given = {
            # JSON schema takes 3.0 for an integer; a tool of a server may take 36.6
            name: int(value) if isinstance(value, float) and self.properties[name] == NUMBER else value
            for name, value in arguments.items()
        }
        try:
            return self.run(**given)
        except ToolError:
            raise
        except (OverflowError, ValueError) as error:  # of a date, or of a text that has no room for the digits
            raise ToolError(f"{self.name}: a number is too large") from error
