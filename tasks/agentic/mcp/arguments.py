"""Arguments for a tool that nobody here knows: drawn from its schema, as its users might give them."""

from __future__ import annotations

import math
import random
import zoneinfo
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for

from tasks.agentic.catalogue import CAPITALS, PEOPLE, WORDS
from tasks.agentic.mcp.config import Kind
from tasks.agentic.mcp.schema import resolved

TRIES = 20
OPTIONAL = 0.3
"""Chance that an argument is given which need not be."""
MOST_ITEMS = 3


@cache
def zones() -> tuple[str, ...]:
    """Places whose time this machine's database knows."""
    return tuple(sorted(name for name in zoneinfo.available_timezones() if "/" in name and not name.startswith("Etc")))


def _date(draw: random.Random) -> str:
    return f"2026-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"


def _time(draw: random.Random) -> str:
    return f"{draw.randint(0, 23):02}:{draw.randint(0, 59):02}"


KINDS: Mapping[Kind, Callable[[random.Random], Any]] = {
    "timezone": lambda draw: draw.choice(zones()),
    "time": _time,
    "date": _date,
    "date-time": lambda draw: f"{_date(draw)}T{_time(draw)}:00Z",
    "city": lambda draw: draw.choice(sorted(CAPITALS.values())),
    "country": lambda draw: draw.choice(sorted(CAPITALS)),
    "person": lambda draw: draw.choice(PEOPLE),
    "email": lambda draw: f"{draw.choice(PEOPLE).lower()}@example.org",
    "uri": lambda draw: f"https://example.org/{draw.choice(WORDS)}",
    "url": lambda draw: f"https://example.org/{draw.choice(WORDS)}",
    "word": lambda draw: draw.choice(WORDS),
}
"""What a text may be: named by a server's row (`values`), by a schema's `format`, or by the last word of an argument's
name (`source_timezone`)."""


def draw_arguments(
    schema: Mapping[str, Any], values: Mapping[str, Kind | tuple[Any, ...]], draw: random.Random
) -> dict[str, Any] | None:
    """Arguments that fit a tool's schema; None where none are found. `values`: what an argument is drawn from, by its
    name: a kind or a list."""
    validator = validator_for(schema, default=Draft202012Validator)(schema)
    for _ in range(TRIES):
        try:
            found = _value(schema, "", schema, values, draw)
            if validator.is_valid(found):
                return dict(found)
        except (ValueError, TypeError, LookupError, OverflowError, AttributeError):
            return None  # a stranger's schema: bounds that cross, properties that are none, an older draft's `items`
    return None


def _value(
    schema: Any, name: str, root: Mapping[str, Any], values: Mapping[str, Kind | tuple[Any, ...]], draw: random.Random
) -> Any:
    if name in values:
        given = values[name]
        return KINDS[given](draw) if isinstance(given, str) else draw.choice(given)
    if not isinstance(schema, Mapping):
        return draw.choice(WORDS)
    if "$ref" in schema:
        return _value(resolved(schema["$ref"], root), name, root, values, draw)
    if "const" in schema:
        return schema["const"]
    if known := schema.get("enum") or schema.get("examples"):
        return draw.choice(known)
    for key in ("anyOf", "oneOf", "allOf"):
        if branches := [branch for branch in schema.get(key, ()) if branch.get("type") != "null"]:
            return _value(draw.choice(branches), name, root, values, draw)
    kind = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in kind if one != "null"), None)
    match kind:
        case "object":
            needed = schema.get("required", ())
            return {
                key: _value(inner, key, root, values, draw)
                for key, inner in schema.get("properties", {}).items()
                if key in needed or draw.random() < OPTIONAL
            }
        case "array":
            # only so many: a schema may ask for a billion
            count = min(max(draw.randint(1, MOST_ITEMS), schema.get("minItems", 0)), schema.get("maxItems", MOST_ITEMS))
            items = schema.get("items", {})
            return [_value(items, name, root, values, draw) for _ in range(min(count, 2 * MOST_ITEMS))]
        case "integer" | "number":
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 100))
            if kind == "number":
                return round(draw.uniform(low, high), 2)
            step = schema.get("multipleOf", 1)
            return draw.randint(math.ceil(low / step), math.floor(high / step)) * step
        case "boolean":
            return draw.random() < 0.5
    last = name.replace("-", "_").lower().rpartition("_")[2]
    kinds = dict[Any, Callable[[random.Random], Any]](KINDS)
    return next((kinds[one] for one in (schema.get("format"), last) if one in kinds), KINDS["word"])(draw)
