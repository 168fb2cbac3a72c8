"""JSON schemas rewritten, schema by schema: what they call names and values may look like keywords."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

BY_NAME = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
"""Keywords whose keys are names, which may be those of keywords."""
VALUES = ("const", "enum", "default", "examples", "required", "dependentRequired")
"""Keywords of values, which are no schemas."""


def rewritten(schema: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> Any:
    """The schema with every schema within it, the innermost first, as `change` gives it."""
    if isinstance(schema, list):
        return [rewritten(inner, change) for inner in schema]
    if not isinstance(schema, Mapping):
        return schema
    found = {}
    for key, value in schema.items():
        if key in BY_NAME and isinstance(value, Mapping):
            found[key] = {name: rewritten(inner, change) for name, inner in value.items()}
        else:
            found[key] = value if key in VALUES else rewritten(value, change)
    return change(found)


def undescribed(schema: Any) -> Any:
    """The schema without its titles and descriptions: it takes the same values. Properties may be called so."""
    return rewritten(schema, lambda one: {key: one[key] for key in one if key not in ("title", "description")})
