"""Servers for the tests, as a server file would name them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.agentic.mcp.config import ServerConfig
from training.rl.sandbox.bubble import requirements
from training.rl.sandbox.config import SandboxUnavailable


@pytest.fixture(scope="session")
def walls():
    """Where servers cannot be shut in, their tests are skipped with a sentence; in CI they fail."""
    try:
        requirements()
    except SandboxUnavailable as error:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(str(error))


@pytest.fixture
def hostile(walls):
    """A misbehaving server by its kind; the rest are fields of `ServerConfig`."""

    def made(kind: str, **fields: Any) -> ServerConfig:
        script = str(Path(__file__).parent / "hostile.py")
        given = {"name": "bad", "command": sys.executable, "args": (script, kind), "licence": "MIT", **fields}
        return ServerConfig.model_validate(given if given.get("walls") is False else {"reads": (script,), **given})

    return made
