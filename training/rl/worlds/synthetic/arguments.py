"""Valid arguments for a synthetic tool, drawn from its schema and the records of a state."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from training.rl.worlds.synthetic.bound import DATE
from training.rl.worlds.synthetic.service import PEOPLE, TAGS, TEXTS, record_date
from training.rl.worlds.world import State

ID = re.compile(r"\^([A-Z0-9]{1,4})-\[0-9\]")
"""The pattern of an argument that names a record begins so."""
NOBODY = "999"
"""A record's number that no state reaches in a few calls."""


def valid(parameters: Mapping[str, Any], state: State, draw: random.Random) -> dict[str, Any]:
    """Arguments that fit a schema, with ids that a state has; what may be left out is, half of the time."""
    keys = [key for table in json.loads(state)["records"].values() for key in table]
    required = set(parameters["required"])
    return {
        name: _value(schema, keys, draw)
        for name, schema in parameters["properties"].items()
        if name in required or draw.random() < 0.5
    }


def _value(schema: Mapping[str, Any], keys: list[str], draw: random.Random) -> Any:
    if "enum" in schema:
        return draw.choice(schema["enum"])
    if schema["type"] == "integer":
        low, high = schema["minimum"], schema["maximum"]
        # People ask for small amounts; those fit more often, too.
        return draw.choice((low, draw.randint(low, min(high, low + 9)), draw.randint(low, high)))
    if schema["type"] == "boolean":
        return draw.random() < 0.5
    if schema["type"] == "array":
        return [_value(schema["items"], keys, draw) for _ in range(draw.randint(schema["minItems"], 2))]
    if schema["type"] == "object":
        return {name: _value(schema["properties"][name], keys, draw) for name in schema["required"]}
    pattern = schema.get("pattern", "")
    if prefix := ID.match(pattern):
        return draw.choice([key for key in keys if key.startswith(f"{prefix[1]}-")] or [f"{prefix[1]}-{NOBODY}"])
    if pattern == DATE:
        return record_date(draw)
    if pattern:
        return draw.choice(TAGS)
    return draw.choice(PEOPLE if schema["maxLength"] <= 40 else TEXTS)
