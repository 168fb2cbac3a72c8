"""The rubric of a dialogue: explicit criteria that it must meet to be trained on (K2 report 3.1.1, by rule)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.agentic.catalogue import BY_NAME
from tasks.agentic.tools import Tool, ToolError
from training.rl.rewards import schema_error


@dataclass(frozen=True)
class Rubric:
    """What a good solution of a dialogue with small tools looks like."""

    tools: tuple[str, ...]
    """The expected tool-use pattern: exactly these calls, in this order."""
    final: str
    """What the last turn must say."""


def shown(
    criteria: Sequence[str], calls: Sequence[tuple[str, Mapping[str, Any], bool]], says: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """The rubric of a dialogue as it stands in the data, for people: success criteria in words, checkpoints, facts that
    the assistant must say. `calls`: (tool, arguments, whether it may be called), in the order of the expected pattern.
    `says`: each fact in all its forms."""
    checkpoints = [
        {"tool": tool, "arguments": dict(arguments), **({} if allowed else {"allowed": False})}
        for tool, arguments, allowed in calls
    ]
    return {"criteria": list(criteria), "checkpoints": checkpoints, "says": [list(forms) for forms in says]}


def broken_criterion(
    rubric: Rubric,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    toolbox: Mapping[str, Tool] = BY_NAME,
) -> str | None:
    """The first criterion that a dialogue breaks, in words to count it by; None where it meets all. `toolbox` has what
    says the truth behind each declared name."""
    pending: dict[str, tuple[str, dict[str, Any]]] = {}
    called: list[str] = []
    for message in messages:
        for call in message.get("tool_calls", ()):
            name = call["function"]["name"]
            try:
                arguments = json.loads(call["function"]["arguments"])
            except ValueError:
                return "arguments are not JSON"
            if schema_error(name, arguments, tools) is not None:
                return "a call does not fit its schema"
            if call["id"] != f"functions.{name}:{len(called)}":
                return "a call's id does not count on"
            called.append(name)
            pending[call["id"]] = (name, arguments)
        if message["role"] == "tool":
            made = pending.pop(message["tool_call_id"], None)
            if made is None:
                return "a result answers no call"
            try:
                truth = toolbox[made[0]].call(made[1])
            except ToolError:
                return "a tool failed"
            if message["content"] != truth:
                return "a result is not what the tool says"
        elif (pending and message["role"] != "assistant") or (pending and not message.get("tool_calls")):
            return "a call has no result"
    if tuple(called) != rubric.tools:
        return "another tool-use pattern than expected"
    last = messages[-1]
    if last["role"] != "assistant" or last.get("tool_calls") or rubric.final not in last["content"]:
        return "the last turn does not give the answer"
    return None
