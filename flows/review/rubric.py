"""A dialogue's rubric beside its turns: where each expected call was made, and where each fact was said."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from training.rl.rewards import same
from training.rl.worlds.filters import folded, says

Messages = Sequence[Mapping[str, Any]]


@dataclass
class _Call:
    """A call of the dialogue."""

    turn: int
    tool: str
    arguments: Any
    error: str
    """What it came to; empty where it succeeded."""
    taken: bool = False
    """Whether it stands for a checkpoint: of two that expect the same call, each has its own."""


def marked(rubric: Mapping[str, Any], messages: Messages) -> dict[str, Any]:
    """The rubric (`tasks.agentic.rubric.shown`), to every checkpoint the place of the message that makes its call
    (`turn`, None where none does), its `error`, and whether it is `met`; to every fact the last `turn` that says it."""
    calls = _calls(messages)
    return {
        "criteria": list(rubric.get("criteria", ())),
        "checkpoints": [{**one, **_made(one, calls)} for one in rubric.get("checkpoints", ())],
        "says": [{"forms": list(forms), "turn": _said(forms, messages)} for forms in rubric.get("says", ())],
    }


def _calls(messages: Messages) -> list[_Call]:
    errors = {message["tool_call_id"]: _error(message["content"]) for message in messages if message["role"] == "tool"}
    return [
        _Call(
            turn,
            call["function"]["name"],
            _read(call["function"]["arguments"]),
            errors.get(call["id"], "it has no result"),
        )
        for turn, message in enumerate(messages)
        for call in message.get("tool_calls") or ()
    ]


def _made(checkpoint: Mapping[str, Any], calls: Sequence[_Call]) -> dict[str, Any]:
    wanted = folded(checkpoint["arguments"])
    due = {""} if checkpoint.get("allowed", True) else {"permission_denied"}
    found = [one for one in calls if one.tool == checkpoint["tool"] and same(folded(one.arguments), wanted)]
    if not found:
        return {"turn": None, "error": "", "met": False}
    if any(one.error == "timeout" for one in found):
        due |= {"not_found"}  # it took effect, and there is nothing left to do: the rules take it for done
    best = min(found, key=lambda one: (one.error not in due, one.taken))
    best.taken = True
    met = best.error in due
    return {"turn": best.turn, "error": "" if met else best.error, "met": met}


def _said(forms: Sequence[str], messages: Messages) -> int | None:
    spoken = [
        turn
        for turn, message in enumerate(messages)
        if message["role"] == "assistant"
        and any(says(str(message.get("content") or "").casefold(), form.casefold()) for form in forms)
    ]
    return max(spoken, default=None)


def _error(result: Any) -> str:
    """The error of a result; a repeated call that has taken effect before is none."""
    told = _read(result)
    error = str(told.get("error") or "") if isinstance(told, dict) else ""
    return "" if error == "already_done" else error


def _read(text: Any) -> Any:
    """JSON as data; what is none stays a text."""
    with suppress(ValueError, TypeError, RecursionError):
        return json.loads(text)
    return text
