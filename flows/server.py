"""The Prefect API behind a run: the one PREFECT_API_URL names, or a private server on loopback that keeps its history
in `{root}/prefect.db` and dies with the command. No account, no telemetry, nothing leaves the machine."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tasks import process

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
}
STARTUP = 120.0  # seconds; 6 to 15 on two cores


class ServerError(RuntimeError):
    """The private server did not come up; the message says where its log lies."""


def database(root: Path) -> str:
    """The connection URL of the run history under `root`."""
    return f"sqlite+aiosqlite:///{root.resolve() / 'prefect.db'}"


@contextmanager
def api(root: str) -> Iterator[str]:
    """A Prefect API for the block: its URL, with the environment set for flows started inside."""
    changed = (*QUIET, "PREFECT_API_URL", "PREFECT_LOGGING_LEVEL", "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL")
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(QUIET)
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")  # the command tells errors itself, in a sentence
    os.environ.setdefault("PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL", "WARNING")  # what it logs else stands in the run
    try:
        if before["PREFECT_API_URL"]:
            yield before["PREFECT_API_URL"]
        else:
            with _private(Path(root) if "://" not in root else Path.home() / ".cache" / "openk2") as url:
                os.environ["PREFECT_API_URL"] = url
                yield url
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _private(folder: Path) -> Iterator[str]:
    folder.mkdir(parents=True, exist_ok=True)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    journal = folder / "prefect.log"
    where = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error", "--lifespan", "on"]
    child = process.start(
        [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app", *where],
        journal,
        {
            **QUIET,
            "PREFECT_API_DATABASE_CONNECTION_URL": database(folder),
            "PREFECT_SERVER_UI_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
            "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
            "PREFECT_LOGGING_LEVEL": "ERROR",
        },
    )
    url = f"http://127.0.0.1:{port}/api"
    try:
        deadline = time.monotonic() + STARTUP
        while not _healthy(url):
            if child.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"the private Prefect server did not come up; its log: {journal}")
            time.sleep(0.1)
        yield url
    finally:
        process.stop(child, grace=2.0)


def _healthy(url: str) -> bool:
    try:
        return httpx.get(f"{url}/health", timeout=2.0, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
