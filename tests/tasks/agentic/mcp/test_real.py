"""Servers that people use: those of PyPI, and those of npm where it exists; `make install` has installed them."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tasks.agentic.mcp.client import toolbox
from tasks.agentic.mcp.config import ServerConfig
from tasks.agentic.mcp.recording import called
from tasks.agentic.mcp.rows import read_rows, write_rows

pytestmark = pytest.mark.usefixtures("walls")


def server(name: str, module: str, *args: str, **fields: Any) -> ServerConfig:
    given = {"name": name, "command": sys.executable, "args": ("-m", module, *args), "licence": "MIT", **fields}
    return ServerConfig.model_validate({**given, "limits": {"start_seconds": 300, "call_seconds": 300}})


def of_npm(package: str, *args: str, **fields: Any) -> ServerConfig:
    """A server of npm, which `make install` puts into our environment; skips where it could not, or walls hide node."""
    command = shutil.which(f"mcp-server-{package}", path=str(Path(sys.executable).parent))
    if command is None or not (shutil.which("node") or "").startswith("/usr/"):
        pytest.skip("no tool servers of npm: `make install` has them where npm, its registry and a node in /usr are")
    given = {"name": package, "command": command, "args": args, "licence": "MIT", **fields}
    return ServerConfig.model_validate({**given, "limits": {"start_seconds": 300, "call_seconds": 300}})


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
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "secret").write_text("s3cret")
    (folder / "link").symlink_to(tmp_path / "secret")
    wide = of_npm("filesystem", str(tmp_path), name="wide", writes=(str(folder),))
    with toolbox([of_npm("filesystem", str(folder), name="files", writes=(str(folder),)), wide]) as tools:
        assert len(tools.rows) == 2 * 14
        assert tools.refused == []
        written = tools.call("files_write_file", {"path": str(folder / "a.txt"), "content": "hello"})
        assert written.error is None, written.text
        assert (folder / "a.txt").read_text() == "hello"
        assert tools.call("wide_read_text_file", {"path": str(folder / "a.txt")}).text == "hello"
        for outside in (tmp_path / "secret", folder / "link", "/etc/passwd"):
            assert tools.call("files_read_text_file", {"path": str(outside)}).error == "failed"
        # this one's own rule would let it out of that folder: it is the walls that hold
        for outside in (tmp_path / "secret", folder / "link"):
            assert tools.call("wide_read_text_file", {"path": str(outside)}).error == "failed"
        tools.call("wide_write_file", {"path": str(tmp_path / "b.txt"), "content": "hello"})
        assert not (tmp_path / "b.txt").exists()
        running = [one for one in psutil.Process().children(recursive=True) if one.name() == "node"]
        networks = {Path(f"/proc/{one.pid}/ns/net").readlink() for one in running}
        assert len(networks) == 2  # each has one of its own, in which there is nobody
        assert Path("/proc/self/ns/net").readlink() not in networks


def test_memory_really_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("MEMORY_FILE_PATH", str(tmp_path / "memory.jsonl"))
    server = of_npm("memory", writes=(str(tmp_path),), environment=("MEMORY_FILE_PATH",))
    entity = {"name": "Ada", "entityType": "person", "observations": ["writes programs"]}
    with toolbox([server]) as tools:
        assert len(tools.rows) == 9
        assert tools.refused == []
        assert tools.call("memory_create_entities", {"entities": [entity]}).error is None
    with toolbox([server]) as tools:  # another process: the state is the file
        assert "writes programs" in tools.call("memory_read_graph", {}).text
