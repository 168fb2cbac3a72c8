"""`openk2 tools`: what a file's servers offer, and one sentence for what cannot be used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from flows.cli import app
from tasks.agentic.mcp.config import ServerError

HOSTILE = Path(__file__).parents[1] / "tasks" / "agentic" / "mcp" / "hostile.py"


def listed(folder: Path, kind: str) -> str:
    """What listing a server of this kind prints; keeps the tools in `folder`."""
    row = {"name": "bad", "command": sys.executable, "args": [str(HOSTILE), kind], "licence": "MIT", "walls": False}
    file = folder / "servers.yaml"
    file.write_text(yaml.safe_dump({"servers": [row]}))
    words = ["tools", "list", "--servers", str(file), "--to", str(folder / "tools.jsonl")]
    result = CliRunner(env={"COLUMNS": "160"}).invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tools_are_listed_kept_and_compared(tmp_path):
    told = listed(tmp_path, "honest")
    assert "bad_echo" in told
    assert "2 tools in " in told
    told = listed(tmp_path, "names")
    assert "refused: bad, tool 'a⟨U+202E⟩b': its name is not made of letters" in told
    assert "changed: bad_echo is gone" in told


def test_a_missing_extra_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tasks.agentic.mcp.client", None)
    with pytest.raises(ServerError, match=r"run `pip install 'openk2\[mcp\]'`"):
        listed(tmp_path, "honest")
