"""Servers for the tests, as a server file would name them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.agentic.mcp.config import ServerConfig


@pytest.fixture
def hostile():
    """A misbehaving server by its kind; the rest are fields of `ServerConfig`."""

    def made(kind: str, **fields: Any) -> ServerConfig:
        script = str(Path(__file__).parent / "hostile.py")
        given = {"name": "bad", "command": sys.executable, "args": (script, kind), "licence": "MIT", **fields}
        return ServerConfig.model_validate(given)

    return made
