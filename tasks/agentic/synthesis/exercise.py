"""What a tool must pass, in order: its declaration is legal, and it does what its schema says when it is called.

Every rule answers a reason in words to count it by, or nothing. The calls are scripted: valid ones drawn from the
schema and the state, then each way of being invalid.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from model.dialogue import compact
from training.rl.worlds.synthetic.arguments import ID, NOBODY, valid
from training.rl.worlds.world import BrokenWorldError, Function, State, World, write

LEGAL = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
"""Names that serving engines and OpenAI's API take, dots as K2's own tools have them."""


@dataclass(frozen=True)
class Exercised:
    """How a tool did."""

    reason: str = ""
    """The first rule that it broke, in words to count it by; empty where it passed all."""
    detail: str = ""
    """What was seen."""
    arguments: str = ""
    """JSON: those of a call that succeeded."""
    result: str = ""
    """JSON: what that call gave, in the domain's start state or one that calls lead to from there."""
    calls: int = 0


def lawful(declaration: Mapping[str, Any], longest: int) -> str | None:
    """Why a declaration cannot stand; None where it can. OpenAI's layout, as K2's template declares it."""
    function = declaration["function"]
    if not LEGAL.fullmatch(function["name"]):
        return "its name is not legal"
    if len(compact([declaration])) > longest:
        return "its declaration is too long"
    parameters = function["parameters"]
    try:
        Draft202012Validator.check_schema(parameters)
    except SchemaError:
        return "its parameters are no JSON schema"
    if parameters.get("type") != "object" or parameters.get("additionalProperties") is not False:
        return "its parameters are no closed object"
    if not all("description" in one and ("type" in one or "enum" in one) for one in parameters["properties"].values()):
        return "an argument has no type or description"
    return None


def exercise(world: World, function: Function, seed: str, most: int) -> Exercised:
    """Call a tool as one should and as one should not."""
    draw = random.Random(seed)
    try:
        start = world.start(seed)
        return _exercise(world, function, start, draw, most)
    except BrokenWorldError as error:
        return Exercised("an invariant breaks", str(error))


def _exercise(world: World, function: Function, start: State, draw: random.Random, most: int) -> Exercised:
    state, good, changed = start, None, not function.writes
    for number in range(1, most + 1):
        arguments = valid(function.parameters, state, draw)
        outcome = world.call(state, function.name, arguments)
        if world.call(state, function.name, arguments) != outcome:
            return Exercised("the same call gives two results", write(arguments))
        if outcome.error in ("invalid_arguments", "unknown_tool"):
            return Exercised("a valid call is refused as invalid", f"{write(arguments)}: {outcome.text}")
        if outcome.error is None and good is None:
            good = (write(arguments), outcome.text)
        changed = changed or (outcome.error is None and outcome.state != state)
        state = outcome.state
        if good is not None and changed and number > 1:
            break
    if good is None:
        return Exercised("no valid call succeeds", f"{write(arguments)}: {outcome.text}")
    if not changed:
        return Exercised("it should write and changes nothing", good[0])
    for what, arguments in invalid(function.parameters, json.loads(good[0])):
        number += 1
        outcome = world.call(state, function.name, arguments)
        if outcome.error != "invalid_arguments" or outcome.state != state:
            return Exercised(f"an invalid call is accepted: {what}", write(arguments))
    for arguments in unknown(function.parameters, json.loads(good[0])):
        number += 1
        if world.call(state, function.name, arguments).error != "not_found":
            return Exercised("a record that does not exist is found", write(arguments))
    return Exercised("", "", *good, number)


def invalid(parameters: Mapping[str, Any], good: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Every way in which a call may not fit its schema, with arguments that are wrong in that way alone."""
    yield "no object", [good]
    yield "an argument too many", {**good, "nonsense": 1}
    for name in parameters["required"]:
        yield "an argument is missing", {key: value for key, value in good.items() if key != name}
    for name, schema in parameters["properties"].items():
        yield "another type", {**good, name: None}
        if "enum" in schema:
            yield "a value that is none of the choices", {**good, name: "something else"}
        elif schema["type"] == "integer":
            yield "too small a number", {**good, name: schema["minimum"] - 1}
            yield "too large a number", {**good, name: schema["maximum"] + 1}
        elif schema["type"] == "string":
            yield "too long a text", {**good, name: "x" * (schema["maxLength"] + 1)}


def unknown(parameters: Mapping[str, Any], good: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Calls that name a record which does not exist, in each place where one is named."""
    for name, schema in parameters["properties"].items():
        if name in good and (prefix := ID.match(schema.get("pattern", ""))):
            yield {**good, name: f"{prefix[1]}-{NOBODY}"}
