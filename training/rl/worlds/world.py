"""The shape of a synthetic world: a state, functions that a model may call on it, and what always holds.

A state is one canonical JSON text: nothing can change it, two are equal where their texts are, and it can be kept in
any table. `World.call` never raises on what a model sent: whatever is wrong with a call is its result.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jsonschema import Draft202012Validator

State = str
ARGUMENTS_MAX = 8192
"""Characters of a call's arguments: more are refused before anything reads them."""


class RefusalError(Exception):
    """Raised inside a function that can't do what it was asked; outside it is a result with this code and sentence."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class BrokenWorldError(AssertionError):
    """A function left a state that breaks an invariant: the world's fault, never that of whoever called."""


@dataclass(frozen=True)
class Outcome:
    """What one call came to."""

    state: State
    """The state afterwards; after an error the one before, unless the error is `timeout`."""
    value: Any
    """JSON: the result, or {"error": code, "message": sentence}."""
    error: str | None = None
    """The code of the error."""

    @property
    def text(self) -> str:
        """The content of the tool's turn."""
        return write(self.value)


@dataclass(frozen=True)
class Function:
    """One thing that can be done in a world."""

    names: tuple[str, ...]
    """What tools that do this may be called; by the first of them the world knows it."""
    description: str
    properties: Mapping[str, Any]
    """JSON schema of each argument; no other is allowed. Numbers and texts have bounds."""
    run: Callable[..., Any]
    """(the state's data, which it may change, **arguments) -> a JSON object. It raises RefusalError, or returns."""
    writes: bool = False
    optional: frozenset[str] = frozenset()
    repeatable: bool = True
    """Whether a call that is made twice does its work once, and answers so: its answer may then get lost."""
    validator: Draft202012Validator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "validator", Draft202012Validator(self.parameters))

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def parameters(self) -> dict[str, Any]:
        required = [name for name in self.properties if name not in self.optional]
        return {
            "type": "object",
            "properties": dict(self.properties),
            "required": required,
            "additionalProperties": False,
        }

    def declaration(self, name: str) -> dict[str, Any]:
        """The function as a tool called `name`, in OpenAI's layout."""
        described = {"name": name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": described}


@dataclass(frozen=True)
class World:
    """A kind of world. It holds no state of its own."""

    name: str
    spaces: tuple[str, ...]
    """What may stand before the dot of its tools' names."""
    functions: Mapping[str, Function]
    draw: Callable[[random.Random], dict[str, Any]]
    """The data of a start state."""
    invariants: Mapping[str, Callable[[Mapping[str, Any]], bool]]
    """A sentence that always holds, and how it is checked."""

    def start(self, seed: int | str) -> State:
        """A start state; the same for the same seed.

        Raises:
            BrokenWorldError: it breaks an invariant.
        """
        return self._checked(self.draw(random.Random(f"{self.name}/{seed}")), "the start")

    def call(self, state: State, name: str, arguments: Any) -> Outcome:
        """Do what a model asked.

        Raises:
            BrokenWorldError: an invariant does not hold afterwards: a mistake in this program.
        """
        function = self.functions.get(name) if isinstance(name, str) else None
        if function is None:
            return refused(state, "unknown_tool", "there is no such tool")
        try:
            given = _read(arguments, function)
            data = json.loads(state)
            value = function.run(data, **given)
        except RefusalError as error:
            return refused(state, error.code, error.message)
        return Outcome(self._checked(data, name) if function.writes else state, value)

    def _checked(self, data: dict[str, Any], after: str) -> State:
        for sentence, holds in self.invariants.items():
            if not holds(data):
                raise BrokenWorldError(f"{self.name}, after {after}: it no longer holds that {sentence}")
        return json.dumps(data, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def function(
    names: tuple[str, ...], description: str, properties: Mapping[str, Any], writes: bool = False
) -> Callable[[Callable[..., Any]], Function]:
    """What it stands above, as a function of a world."""
    return lambda run: Function(names, description, properties, run, writes)


def functions(*rows: Function) -> dict[str, Function]:
    """In the order in which tasks draw from them."""
    return {row.name: row for row in rows}


def refused(state: State, code: str, message: str) -> Outcome:
    return Outcome(state, {"error": code, "message": message}, code)


def write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _read(arguments: Any, function: Function) -> dict[str, Any]:
    """The arguments as plain JSON that fits the function's schema.

    Raises:
        RefusalError: they do not.
    """
    try:
        text = json.dumps(arguments, allow_nan=False, ensure_ascii=False)
        text.encode()  # half a surrogate pair can be written in no file
    except (TypeError, ValueError, RecursionError):
        raise RefusalError("invalid_arguments", "the arguments are not JSON") from None
    if len(text) > ARGUMENTS_MAX:
        raise RefusalError("invalid_arguments", f"the arguments are longer than {ARGUMENTS_MAX} characters")
    given = json.loads(text)
    for error in function.validator.iter_errors(given):
        where = ".".join(map(str, error.absolute_path)) or "arguments"
        # Not the library's message, which repeats what was sent.
        raise RefusalError("invalid_arguments", f"{where[:80]}: {_rule(str(error.validator), error.validator_value)}")
    # JSON schema takes 2.0 for an integer.
    return {name: int(value) if isinstance(value, float) else value for name, value in given.items()}


def _rule(keyword: str, value: Any) -> str:
    if keyword == "additionalProperties":
        return "an argument that the tool does not have"
    return f"{keyword} must be {write(value)}"


def integer(low: int, high: int, description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": low, "maximum": high, "description": description}


def text(description: str, most: int = 80, pattern: str | None = None) -> dict[str, Any]:
    bounds = {"type": "string", "minLength": 1, "maxLength": most, "description": description}
    return bounds | ({"pattern": pattern} if pattern else {})


def one_of(values: Sequence[str], description: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "description": description}


def found(table: Mapping[str, Any], key: str, kind: str) -> Any:
    """The entry of `table`.

    Raises:
        RefusalError: there is none.
    """
    if key not in table:
        raise RefusalError("not_found", f"there is no {kind} {key}")
    return table[key]


def already(message: str) -> RefusalError:
    """What a call says that was made before: nothing was done twice."""
    return RefusalError("already_done", message)


def conflict(message: str) -> RefusalError:
    return RefusalError("conflict", message)
