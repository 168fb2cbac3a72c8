"""Dialogues in OpenAI's layout: what a message must hold, and K2's numbers for its calls. No tokens here.

Messages are dictionaries, as datasets and servers have them. Keys that K2's released template does not read are passed
over, as it does. What it would print as nonsense (a call without a name, a picture) is refused by a `ChatError`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PREFIX = "functions."
ROLES = ("system", "user", "assistant", "tool")
TEXT_PART = '{"type": "text", "text": "..."}'
CALL = '{"id": "...", "type": "function", "function": {"name": "...", "arguments": "{...}"}}'
Message = Mapping[str, Any]


class ChatError(ValueError):
    """A dialogue that cannot be rendered; the message names the turn and what to change."""


def user(content: str | Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str, calls: Iterable[tuple[str, Mapping[str, Any]]] = ()) -> dict[str, Any]:
    """An assistant turn; `calls` are (name, arguments), written compactly and numbered when they are rendered."""
    message: dict[str, Any] = {"role": "assistant", "content": content}
    made = [
        {"type": "function", "function": {"name": name, "arguments": compact(arguments)}} for name, arguments in calls
    ]
    if made:
        message["tool_calls"] = made
    return message


def tool_result(name: str, call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "name": name, "tool_call_id": call_id, "content": content}


def compact(value: Any, what: str = "this value") -> str:
    """JSON without spaces, non-ASCII text as it is, keys in the order given: how K2 declares its tools.

    Raises:
        ChatError: `what` holds something that JSON has no form for, such as NaN, or half a surrogate pair.
    """
    return _json(value, what, (",", ":"))


def spaced(value: Any, what: str = "this value") -> str:
    """The same with a space behind every comma and colon: how K2's template writes arguments that are no text yet."""
    return _json(value, what, (", ", ": "))


def strict_json(text: str) -> Any:
    """What a text says in JSON. ValueError for what Python takes beyond it: NaN, Infinity, a key twice in an object."""
    return json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key is there twice")
    return found


def _json(value: Any, what: str, separators: tuple[str, str]) -> str:
    try:
        text = json.dumps(value, separators=separators, ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ChatError(f"{what} cannot be written as JSON: {error}") from None
    return text


def numbered(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The same dialogue, checked and in one form: content and arguments as texts, calls with K2's ids.

    An id is `functions.NAME:IDX`, IDX from 0 over the whole dialogue. Calls that come with other ids (`call_x1`, or a
    count that begins again in each turn) are renamed, and the results that answer them follow, in whatever order.

    Raises:
        ChatError: a message is not of OpenAI's layout, or a result answers no call made before it, or one twice.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise ChatError(f"a dialogue is a list of messages, not {shown(messages)}")
    calls = _Calls()
    result = []
    for turn, message in enumerate(messages):
        try:
            copy = _checked(message)
            copy["tool_calls"] = calls.number(copy["tool_calls"])
            if copy["role"] == "tool":
                copy["tool_call_id"] = calls.answer(copy["tool_call_id"])
        except ChatError as error:
            raise ChatError(f"turn {turn}: {error}") from None
        result.append(copy)
    return result


@dataclass
class _Calls:
    """The calls of a dialogue as they come, under K2's ids."""

    count: int = 0
    renamed: dict[str, str] = field(default_factory=dict)
    unanswered: set[str] = field(default_factory=set)

    def number(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        given = [call["id"] for call in calls if call["id"]]
        if len(set(given)) < len(given):
            raise ChatError("two of its calls have the same id, so that no result can say which it answers")
        result = []
        for call in calls:
            fresh = f"{PREFIX}{call['function']['name']}:{self.count}"
            self.count += 1
            self.renamed[call["id"] or fresh] = fresh
            self.unanswered.add(fresh)
            result.append({**call, "id": fresh})
        return result

    def answer(self, call_id: str) -> str:
        found = self.renamed.get(call_id, call_id)
        if found not in self.unanswered:
            raise ChatError(
                f"the result of {shown(call_id)} answers no open call: "
                "a result follows the assistant turn that made its call, once"
            )
        self.unanswered.remove(found)
        return found


def _checked(message: Any) -> dict[str, Any]:
    """A message with its name, content and calls in one form."""
    if not isinstance(message, Mapping):
        raise ChatError(f"a message is a dictionary with a role and a content, not {shown(message)}")
    role, name, calls = message.get("role"), message.get("name"), message.get("tool_calls")
    if not isinstance(role, str) or role not in ROLES:
        raise ChatError(f"role {shown(role)} is unknown: use system, user, assistant or tool")
    if name is not None and not isinstance(name, str):
        raise ChatError(f"a name is a text, not {shown(name)}")
    if calls is not None and not isinstance(calls, list | tuple):
        raise ChatError(f"tool_calls is a list of calls such as {CALL}, not {shown(calls)}")
    if calls and role != "assistant":
        raise ChatError(f"a message of role {role} makes calls: only the assistant does")
    if role == "tool" and not isinstance(message.get("tool_call_id"), str):
        raise ChatError("a tool's result has no tool_call_id: give it the id of the call that it answers")
    content = _text(message.get("content"))
    made = [_checked_call(place, call) for place, call in enumerate(calls or ())]
    return {**message, "name": name or role, "content": content, "tool_calls": made}


def _checked_call(place: int, call: Any) -> dict[str, Any]:
    """A call with its arguments as a text; without an id it has the empty one."""
    function = call.get("function") if isinstance(call, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(name, str) or not name:
        raise ChatError(f"call {place} names no function: a call is written as {CALL}")
    call_id, arguments = call.get("id"), function.get("arguments")
    if call_id is not None and not isinstance(call_id, str):
        raise ChatError(f"the id of call {place} is a text, not {shown(call_id)}")
    if isinstance(arguments, Mapping):
        arguments = spaced(arguments, f"the arguments of call {place}")
    if not isinstance(arguments, str):
        raise ChatError(f"the arguments of call {place} are a JSON object or its text, not {shown(arguments)}")
    return {"id": call_id or "", "type": "function", "function": {"name": name, "arguments": arguments}}


def _text(content: Any) -> str:
    """What a message says: a text, or the texts of its parts one behind the other, as K2's own template has them."""
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise ChatError(f"content is a text or a list of parts such as {TEXT_PART}, not {shown(content)}")
    for part in content:
        if not isinstance(part, Mapping):
            raise ChatError(f"content is a text or a list of parts such as {TEXT_PART}, none of them {shown(part)}")
        if part.get("type") != "text":
            raise ChatError(f"a part of type {shown(part.get('type'))} cannot be read: use parts of type text")
        if not isinstance(part.get("text"), str):
            raise ChatError(f"a part of type text has no text: write it as {TEXT_PART}")
    return "".join(part["text"] for part in content)


def shown(value: Any) -> str:
    """A value for the text of an error: short, and never an error itself, as the repr of a deep list would be."""
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else f"{value[:57]}...")
    plain = value is None or isinstance(value, float) or (isinstance(value, int) and value.bit_length() < 64)
    return repr(value) if plain else f"a value of type {type(value).__name__}"
