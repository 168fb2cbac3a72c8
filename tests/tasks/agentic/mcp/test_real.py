"""Servers that people use: those of PyPI come with the extra `mcp`, those of npm run where they are installed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tasks.agentic.mcp.client import toolbox
from tasks.agentic.mcp.config import ServerConfig
from tasks.agentic.mcp.recording import called
from tasks.agentic.mcp.rows import read_rows, write_rows

pytestmark = pytest.mark.usefixtures("walls")


def server(name: str, module: str, *args: str, **fields: Any) -> ServerConfig:
    given = {"name": name, "command": sys.executable, "args": ("-m", module, *args), "licence": "MIT", **fields}
    return ServerConfig.model_validate({**given, "limits": {"start_seconds": 300, "call_seconds": 300}})


def of_npm(name: str) -> tuple[str, str]:
    """The program of an npm package and where it is installed; skips where it is not."""
    command = shutil.which(f"mcp-server-{name}")
    if command is None:
        pytest.skip(f"the npm package is not installed: npm install --global @modelcontextprotocol/server-{name}")
    return command, str(Path(command).parent.parent)


def test_time_and_git_really_run(tmp_path):
    git = shutil.which("git")
    if git is None:
        pytest.skip("git is not installed")
    repository = tmp_path / "repository"
    subprocess.run([git, "init", "--quiet", "--initial-branch=trunk", str(repository)], check=True)
    (repository / "new.txt").write_text("hello")
    servers = [
        server("time", "mcp_server_time", "--local-timezone", "UTC"),
        server("git", "mcp_server_git", reads=(str(repository),)),
    ]
    with toolbox(servers) as tools:
        assert tools.refused == []
        assert {"time_convert_time", "git_git_status"} <= {row.function for row in tools.rows}
        arguments = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
        converted = json.loads(tools.call("time_convert_time", arguments).text)
        assert "T21:00:00+09:00" in converted["target"]["datetime"]
        assert tools.call("time_convert_time", {**arguments, "time": "late"}).error == "failed"
        for row in tools.rows[:2]:  # drawn from their schemas alone
            assert [call["error"] for call in called(tools, row, servers[0], 4, random.Random(0))] == [""] * 4
        assert "new.txt" in tools.call("git_git_status", {"repo_path": str(repository)}).text
        assert tools.call("git_git_status", {"repo_path": str(Path.cwd())}).error == "failed"  # not in its row
        branch = {"repo_path": str(repository), "branch_name": "new"}
        assert tools.call("git_git_create_branch", branch).error == "failed"  # it may only read
        write_rows(tmp_path / "tools.jsonl", tools.rows)
        assert sorted(read_rows(tmp_path / "tools.jsonl"), key=str) == sorted(tools.rows, key=str)


def test_files_really_run(tmp_path):
    command, installed = of_npm("filesystem")
    folder = tmp_path / "files"
    folder.mkdir()
    openings = {"reads": (installed,), "writes": (str(folder),)}
    given = ServerConfig(name="files", command=command, args=(str(folder),), licence="MIT", **openings)
    with toolbox([given]) as tools:
        written = tools.call("files_write_file", {"path": str(folder / "a.txt"), "content": "hello"})
        assert written.error is None, written.text
        assert (folder / "a.txt").read_text() == "hello"
        outside = tools.call("files_read_text_file", {"path": str(Path(tmp_path) / "secret")})
        assert outside.error == "failed"
        assert "outside" in outside.text


def test_memory_really_runs(tmp_path, monkeypatch):
    command, installed = of_npm("memory")
    monkeypatch.setenv("MEMORY_FILE_PATH", str(tmp_path / "memory.jsonl"))
    openings = {"reads": (installed,), "writes": (str(tmp_path),), "environment": ("MEMORY_FILE_PATH",)}
    given = ServerConfig(name="memory", command=command, licence="MIT", **openings)
    entity = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    with toolbox([given]) as tools:
        assert tools.call("memory_create_entities", {"entities": [entity]}).error is None
    with toolbox([given]) as tools:  # another process: the state is the file
        assert "writes programs" in tools.call("memory_read_graph", {}).text
