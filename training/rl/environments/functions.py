"""Functions as BFCL declares them, in OpenAI's layout with JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

TYPES = {"dict": "object", "float": "number", "double": "number", "tuple": "array", "list": "array", "bool": "boolean"}
"""BFCL's names of types that JSON schema has others for; `any` stands for no type at all."""
NOTHING: Mapping[str, Any] = {"type": "object", "properties": {}}
"""What a function takes that declares no parameters."""


def name_of(function: str) -> str:
    """Endpoints take no dots in a function's name."""
    return function.replace(".", "_")


def declared(functions: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools in OpenAI's layout with JSON schemas."""
    return [
        {
            "type": "function",
            "function": {
                "name": name_of(one["name"]),
                "description": one.get("description", ""),
                "parameters": _schema(one.get("parameters", NOTHING)),
            },
        }
        for one in functions
    ]


def _schema(declaration: Any) -> Any:
    if isinstance(declaration, list):
        return [_schema(one) for one in declaration]
    if not isinstance(declaration, Mapping):
        return declaration
    found = {key: value if key in ("default", "enum") else _schema(value) for key, value in declaration.items()}
    kind = found.get("type")
    if isinstance(kind, str):
        found["type"] = TYPES.get(kind, kind)
        if kind == "any":
            del found["type"]
    return found
