"""`make ui` as it is: schedules fire and survive, and runs whose process died end as Crashed."""

from __future__ import annotations

import json
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from flows import watch
from tasks.lock import alone
from tests.flows import api

pytestmark = [pytest.mark.e2e, pytest.mark.prefect, pytest.mark.timeout(1200)]
HOUSE = Path(__file__).resolve().parents[2]
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")} | {
    "PYTHONPATH": str(HOUSE)
}


class Ui:
    """One start of `make ui`, and its API."""

    def __init__(self, root: Path, port: int) -> None:
        self.root, self.port = root, port
        self.said = root.parent / f"{time.monotonic_ns()}.txt"
        with self.said.open("wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "flows.ui", "--root", str(root), "--port", str(port)],
                stdout=file,
                stderr=file,
                cwd=HOUSE,
                env=ENVIRONMENT,
                start_new_session=True,
            )
        until(lambda: "Ready" in self.said.read_text() or self.process.poll() is not None)
        assert self.process.poll() is None, self.said.read_text()
        self.client = api.owner(f"http://127.0.0.1:{port}", (root / "prefect.key").read_text())

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self.client.request(method, f"/api{path}", json=body).raise_for_status()
        return answer.json() if answer.content else None

    def deployment(self, name: str) -> dict[str, Any]:
        return self.ask("GET", f"/deployments/name/{name}/{name}")

    def runs(self, name: str) -> list[dict[str, Any]]:
        """The runs of a flow that have started, newest first."""
        wanted = {"flow_runs": {"start_time": {"is_null_": False}}, "flows": {"name": {"any_": [name]}}}
        return self.ask("POST", "/flow_runs/filter", wanted | {"sort": "START_TIME_DESC"})

    def kill(self) -> None:
        """SIGKILL to everything at once: the runs, the worker, the server and what started them."""
        everything = [*psutil.Process(self.process.pid).children(recursive=True), psutil.Process(self.process.pid)]
        for process in everything:
            with suppress(psutil.NoSuchProcess):
                process.suspend()
        for process in everything:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


def until(met: Callable[[], Any]) -> Any:
    """What `met` returns once that is true; how long it takes says how busy the machine is."""
    while not (found := met()):
        time.sleep(0.5)
    return found


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Ui]]:
    root = tmp_path / "root"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started: list[Ui] = []

    def begin() -> Ui:
        started.append(Ui(root, port))
        return started[-1]

    yield begin
    for ui in started:
        if ui.process.poll() is None:
            ui.stop()
        sys.stdout.write(ui.said.read_text())  # shown where the test failed
    for file in root.glob("*.log"):
        sys.stdout.write(file.read_text()[-5000:])


def test_schedules_fire_and_survive_and_dead_runs_end(start):
    ui = start()
    refresh = ui.deployment("refresh")
    (nightly,) = refresh["schedules"]
    assert not nightly["active"]
    assert refresh["global_concurrency_limit"]["limit"] == 1
    assert refresh["concurrency_options"]["collision_strategy"] == "CANCEL_NEW"
    report = ui.deployment("report")
    every = f"/deployments/{report['id']}/schedules"
    soon = datetime.now(UTC) - timedelta(seconds=15)
    often = {"interval": 30, "anchor_date": soon.isoformat(), "timezone": "UTC"}
    # as the UI makes one: without a slug, switched off and then on
    made = ui.ask("POST", every, [{"schedule": often, "active": False}])[0]["id"]
    ui.ask("PATCH", f"{every}/{made}", {"active": True})
    until(lambda: [run for run in ui.runs("report") if run["auto_scheduled"] and run["state_type"] == "COMPLETED"])
    # so seldom that no run of it takes the worker's one place from those below
    ui.ask("PATCH", f"{every}/{made}", {"schedule": often | {"interval": 5 * 60 * 60}})

    # a form that no run could follow
    recipe = ui.ask("GET", "/deployments/name/recipe/laptop")["id"]
    submit = f"/deployments/{recipe}/create_flow_run"
    with pytest.raises(httpx.HTTPStatusError) as refused:
        ui.ask("POST", submit, {"parameters": {"request": {"preset": "test", "overrides": ["mix.epoks=2"]}}})
    assert "mix.epoks" in refused.value.response.json()["detail"]

    # a command that dies where it waits: it keeps its history in the same file
    with alone(str(ui.root), "the test"):
        command = [sys.executable, "-m", "flows.cli", "run", "refresh", "--preset", "test", "--root", str(ui.root)]
        said = ui.root.parent / "command.txt"
        with said.open("wb") as file:
            waiting = subprocess.Popen(command, stdout=file, stderr=file, cwd=HOUSE, env=ENVIRONMENT)
        until(lambda: "is in use by the test" in said.read_text() or waiting.poll() is not None)
        waiting.kill()
        waiting.wait()
    killed = ui.runs("refresh")[0]["id"]

    # a recipe whose first stage waits for the root, and then everything dies
    other = ui.root.parent / "another"
    form = {"request": {"preset": "test", "root": str(other)}}
    with alone(str(other), "the test"):
        run = ui.ask("POST", submit, {"parameters": form})["id"]
        lines = {"logs": {"flow_run_id": {"any_": [run]}}, "limit": 200}
        until(lambda: "is in use by the test" in json.dumps(ui.ask("POST", "/logs/filter", lines)))
        lives = {"filter": {"event": {"name": ["openk2.flow-run.lives"]}}}
        until(lambda: ui.ask("POST", "/events/filter", lives)["events"])
        ui.kill()
    with closing(sqlite3.connect(ui.root / "prefect.db")) as history:  # what a server does that is away for long
        history.execute("DELETE FROM automation_bucket")
        sooner = "UPDATE automation SET trigger = json_set(trigger, '$.within', 10.0) WHERE name = ?"
        assert history.execute(sooner, (watch.NAME,)).rowcount == 1
        history.commit()
    ui = start()
    assert [each["active"] for each in ui.deployment("refresh")["schedules"]] == [False]
    assert [each["active"] for each in ui.deployment("report")["schedules"]] == [True]
    for identity in (run, killed):
        ended = until(lambda it=identity: (r := ui.ask("GET", f"/flow_runs/{it}"))["state_type"] != "RUNNING" and r)
        assert ended["state_type"] == "CRASHED"
        assert "Run it again" in ended["state"]["message"]
