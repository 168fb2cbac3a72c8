"""What a tool says of its arguments, before anything validates with it: a schema can be a program that never ends."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.validators import validator_for

MOST_CHARACTERS = 1 << 16
MOST_NODES = 10_000
"""Nodes of a schema with every reference written out: references to references double at each step."""


def canonical(schema: Any) -> str:
    """The JSON text of which the sha256 is taken: keys sorted, no spaces. ValueError for numbers that JSON lacks."""
    return json.dumps(schema, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def refused_schema(schema: Any) -> str | None:
    """Why a schema cannot be validated with, safely and without a network; None where it can."""
    try:
        if len(canonical(schema)) > MOST_CHARACTERS:
            return f"its schema is longer than {MOST_CHARACTERS:,} characters"
        if not isinstance(schema, Mapping) or schema.get("type") != "object":
            return "its schema is not that of an object"
        for key, value in _entries(schema):
            if key in ("$dynamicRef", "$recursiveRef", "$id") or (key == "$ref" and not str(value).startswith("#/")):
                return f"its schema holds {key}, which may lead out of it"
            patterns: Iterable[str] = ()
            if key == "patternProperties" and isinstance(value, Mapping):
                patterns = value
            elif key == "pattern" and isinstance(value, str):
                patterns = (value,)
            if slow := next((pattern for pattern in patterns if _may_be_slow(pattern)), None):
                return f"its schema holds the pattern {slow!r:.60}, which may take for ever"
        validator, referred = validator_for(schema, default=Draft202012Validator), dict[str, int | None]()
        validator.check_schema(schema)
        _size(schema, schema, referred)
        for target in referred:  # it may stand under a key that is no keyword, where nothing was checked
            validator.check_schema(resolved(target, schema))
    except SchemaError as error:
        return f"its schema is none: {error.message:.120}"
    except (RecursionError, _TooLarge):
        return "its schema refers to itself, or grows without end"
    except (LookupError, TypeError, ValueError, AttributeError):  # the last of a $schema that is no text
        return "its schema refers to something that is not in it, or holds a number that JSON lacks"
    return None


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield key, inner
            yield from _entries(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _entries(inner)


def _may_be_slow(pattern: str) -> bool:
    """Whether backtracking could go on and on: a repeated group, a back reference, or three open repetitions."""
    if len(pattern) > 500:  # first: to look for repetitions in a long one takes long itself
        return True
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError):
        return True
    plain = re.sub(r"\[\^?\]?(?:\\.|[^\]\\])*\]", "C", re.sub(r"\\[^1-9]", "E", pattern))
    open_ends = re.findall(r"[*+]|\{\d*,\d*\}", plain)
    return len(open_ends) > 2 or re.search(r"\)[*+{]|\\[1-9]|\(\?P=", plain) is not None


class _TooLarge(Exception):
    pass


def _size(value: Any, root: Any, known: dict[str, int | None]) -> int:
    """Nodes of a schema with its references written out; `known` has those of references, None while one is open."""
    count = 1
    if isinstance(value, Mapping):
        target = value.get("$ref")
        if isinstance(target, str):
            if target not in known:
                known[target] = None
                known[target] = _size(resolved(target, root), root, known)
            inner = known[target]
            if inner is None:
                raise _TooLarge
            count += inner
        count += sum(_size(inner, root, known) for inner in value.values())
    elif isinstance(value, list):
        count += sum(_size(inner, root, known) for inner in value)
    if count > MOST_NODES:
        raise _TooLarge
    return count


def resolved(target: str, root: Any) -> Any:
    """What a reference within a schema leads to."""
    for step in target.removeprefix("#/").split("/"):
        root = root[int(step) if isinstance(root, list) else step.replace("~1", "/").replace("~0", "~")]
    return root
