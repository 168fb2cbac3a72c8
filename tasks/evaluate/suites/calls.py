"""Function calls held against lists of allowed values (BFCL's AST check), or against calling nothing at all.

A record has `question` (dialogues, of which the first is asked), `function` (declarations with BFCL's names of types)
and, in the file of answers, `ground_truth`: calls, each parameter with the values allowed, `""` where it may be left
out. Calls may come in any order. Texts are compared without case, spaces and the marks , . / - _ * ^, as BFCL does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from model.reply import Reply, ToolCall
from tasks.evaluate.suites.config import Calls
from tasks.evaluate.suites.item import Item, Measured, Scored, rate
from tasks.evaluate.suites.subject import Ask, Subject, shown
from training.rl.environments.functions import NOTHING, TYPES, declared, name_of

OMITTED = ""
IGNORED = re.compile(r"[ ,./\-_*^]")
NATIVE = {"integer": int, "number": float, "boolean": bool, "string": str, "array": list, "object": dict}


def measure(suite: Calls, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """One greedy turn for every item."""
    asks = [
        Ask(_dialogue(item.row), tools=declared(item.row["function"]), max_new_tokens=suite.max_new_tokens)
        for item in items
    ]
    scored = []
    for item, replies in zip(items, subject.replies(asks), strict=True):
        if replies is None:
            scored.append(Scored(item.id, 0.0, "", "the window has no room for it"))
            continue
        fault = wrong(replies[0], item.row["function"], item.row.get("ground_truth"))
        scored.append(Scored(item.id, float(not fault), shown(replies[0]), fault))
    return Measured("right calls" if suite.answers else "no call", scored, rate(scored))


def wrong(reply: Reply, functions: Sequence[Mapping[str, Any]], due: Sequence[Mapping[str, Any]] | None) -> str:
    """What is wrong with the calls of a reply, in a few words; empty where they are right."""
    if not due:
        return "it calls a function where none fits" if reply.calls or reply.errors else ""
    if reply.errors:
        return reply.errors[0].reason
    if len(reply.calls) != len(due):
        return f"{len(reply.calls)} calls where {len(due)} are due"
    declarations = {name_of(one["name"]): one.get("parameters", NOTHING) for one in functions}
    faults = [[_fault(call, wanted, declarations) for call in reply.calls] for wanted in due]
    if _matched(faults):
        return ""
    return next((fault for row in faults for fault in row if fault), "a call is made twice in place of another")


def _matched(faults: Sequence[Sequence[str]]) -> bool:
    """Whether every call that is due can have a call of its own that fits it (augmenting paths)."""
    of_call: dict[int, int] = {}

    def take(due: int, seen: set[int]) -> bool:
        for call, fault in enumerate(faults[due]):
            if fault or call in seen:
                continue
            seen.add(call)
            if call not in of_call or take(of_call[call], seen):
                of_call[call] = due
                return True
        return False

    return all(take(due, set()) for due in range(len(faults)))


def _fault(call: ToolCall, due: Mapping[str, Any], declarations: Mapping[str, Any]) -> str:
    """What is wrong with one call that should be `due`: {function: {parameter: allowed values}}."""
    ((function, allowed),) = due.items()
    name = name_of(function)
    if name_of(call.name) != name:
        return f"{call.name} is called where {name} is due"
    declaration = declarations.get(name, NOTHING)
    properties = declaration.get("properties", {})
    if missing := [key for key in declaration.get("required", ()) if key not in call.arguments]:
        return f"{name} lacks {missing[0]}"
    for key, value in call.arguments.items():
        if key not in properties or key not in allowed:
            return f"{name} has no {key}"
        if not _typed(value, properties[key], allowed[key]):
            return f"{key} of {name} is of the wrong type"
        if not any(_equal(value, one) for one in allowed[key]):
            return f"{key} of {name} has another value"
    left = [key for key, values in allowed.items() if key not in call.arguments and OMITTED not in values]
    return f"{name} lacks {left[0]}" if left else ""


def _typed(value: Any, declaration: Mapping[str, Any], allowed: Sequence[Any]) -> bool:
    """Whether a value has the declared type, or that of an allowed value: a variable's name may stand for anything."""
    kind = _type(declaration)
    if kind is None:
        return True
    if type(value) is not kind and not (kind is float and type(value) is int):
        return any(type(value) is type(one) for one in allowed if one != OMITTED)
    inner = _type(declaration.get("items") or {})
    if inner is None or not isinstance(value, list):
        return True
    # within a list BFCL takes types as they are: neither is 2.0 an integer there nor 2 a float
    return any(
        not isinstance(listed, list) or all(type(one) in (inner, *map(type, listed[:1])) for one in value)
        for listed in allowed
    )


def _type(declaration: Mapping[str, Any]) -> type | None:
    """The Python type of a declaration's values; None where they may have any."""
    kind = declaration.get("type")
    return NATIVE.get(TYPES.get(kind, kind)) if isinstance(kind, str) else None


def _equal(value: Any, allowed: Any) -> bool:
    """Whether a value is an allowed one; objects allow several values for each of their keys."""
    if isinstance(allowed, str) and isinstance(value, str):
        return _plain(value) == _plain(allowed)
    if isinstance(allowed, list) and isinstance(value, list):
        return len(value) == len(allowed) and all(map(_equal, value, allowed))
    if isinstance(allowed, Mapping) and isinstance(value, dict):
        # within an object in an object some records have the values themselves in place of lists of allowed ones
        of = {key: others if isinstance(others, list) else [others] for key, others in allowed.items()}
        given = all(key in of and any(_equal(one, other) for other in of[key]) for key, one in value.items())
        return given and all(key in value or OMITTED in others for key, others in of.items())
    return value == allowed and isinstance(value, bool) == isinstance(allowed, bool)


def _plain(text: str) -> str:
    return IGNORED.sub("", text).lower().replace("'", '"')


def _dialogue(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"role": turn["role"], "content": turn["content"]} for turn in row["question"][0]]
