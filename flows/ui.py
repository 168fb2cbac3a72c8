"""`make ui`: a Prefect server on loopback with every flow deployed and a worker that runs them.

    python -m flows.ui --root data

Open the address it prints, choose Deployments, then `recipe / laptop`, then Run: the form is the `Request`. Ctrl-C ends
the worker and the server; the run history stays in `{root}/prefect.db`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import httpx
import psutil
import typer
from rich.console import Console

from flows.server import QUIET, STARTUP, ServerError, database
from tasks import process
from tasks.launch import GRACE

HOUSE = Path(__file__).resolve().parent.parent
POOL = "openk2"
REFRESH = "refresh/refresh"
NIGHTLY = ["--cron", "0 3 * * *", "--timezone", "UTC", "--no-active", "--accept-yes"]
"""The schedule that waits to be switched on. It stands here, not in prefect.yaml, from where every deploy would switch
it off again and delete the others."""
out = Console(highlight=False)


def main(
    root: Annotated[str, typer.Option("--root", help="Where artifacts and the run history lie.")] = "data",
    port: Annotated[int, typer.Option("--port", help="The server's port on 127.0.0.1.")] = 4200,
) -> None:
    """Serve, deploy, work; until Ctrl-C."""
    folder = Path(root).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    journal = folder / "prefect.log"
    address = f"http://127.0.0.1:{port}"
    environment = {
        **QUIET,
        "PREFECT_API_URL": f"{address}/api",
        "PREFECT_UI_API_URL": f"{address}/api",
        "PREFECT_API_DATABASE_CONNECTION_URL": database(folder),
        "OPENK2_HOME": str(HOUSE),
        "OPENK2_ROOT": str(folder),
        "OPENK2_CPU_POOL": POOL,
        "OPENK2_GPU_POOL": POOL,
    }
    os.environ.update(environment)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's `&` had SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    prefect = [sys.executable, "-m", "prefect", "--no-prompt"]
    children: list[subprocess.Popen[bytes]] = []
    try:
        out.print(f"Starting the Prefect server (its log: {journal}) ...")
        where = ["--host", "127.0.0.1", "--port", str(port), "--no-access-log", "--lifespan", "on"]
        server = process.start([sys.executable, "-m", "uvicorn", "--factory", "flows.form:app", *where], journal)
        children.append(server)
        _wait(f"{address}/api/health", server, journal)
        out.print("Deploying the flows ...")
        _call([*prefect, "work-pool", "create", "--type", "process", "--overwrite", POOL])
        first = not _succeeds([*prefect, "deployment", "inspect", REFRESH])
        _call([*prefect, "deploy", "--all"])
        if first:  # later starts leave schedules as their owner has them
            _call([*prefect, "deployment", "schedule", "create", REFRESH, *NIGHTLY])
        _call([sys.executable, "-m", "flows.watch"])  # before the worker: no run of this server can live yet
        worker = process.start([*prefect, "worker", "start", "--pool", POOL, "--limit", "1"], journal)
        children.append(worker)
        out.print(f"Ready: [bold]{address}/deployments[/bold]  (choose recipe / laptop, then Run). Ctrl-C ends it.")
        while all(child.poll() is None for child in children):
            time.sleep(0.5)
        raise ServerError(f"the server or its worker ended by itself; its log: {journal}")
    except KeyboardInterrupt:
        out.print("Stopping; a running stage writes its checkpoint first.")
    except ServerError as error:
        out.print(f"[bold red]openk2:[/bold red] {error}", soft_wrap=True)
        raise SystemExit(1) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C would leave a run behind
            signal.signal(number, signal.SIG_IGN)
        for worker in children[1:]:
            _end_runs(worker)
        for child in reversed(children):
            process.stop(child, grace=30.0)


def _end_runs(worker: subprocess.Popen[bytes]) -> None:
    """End the worker's flow runs: each is a session of its own, which the worker waits for and never ends. The worker
    hears it first and so takes no other run. Prefect hears of no end and shows such a run as running until it is
    deleted or started again, which resumes it."""
    try:
        runs = psutil.Process(worker.pid).children()
    except psutil.NoSuchProcess:
        return
    worker.terminate()
    for run in runs:
        with suppress(psutil.NoSuchProcess):
            run.terminate()
    psutil.wait_procs(runs, timeout=GRACE + 30.0)
    for run in runs:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)  # also whatever of the run outlived its leader


def _wait(url: str, server: subprocess.Popen[bytes], journal: Path) -> None:
    deadline = time.monotonic() + STARTUP
    while True:
        if server.poll() is not None or time.monotonic() > deadline:
            raise ServerError(f"the Prefect server did not come up (is the port taken?); its log: {journal}")
        try:
            if httpx.get(url, timeout=2.0, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.2)


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, cwd=HOUSE, capture_output=True).returncode == 0


def _call(command: list[str]) -> None:
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True)
    if done.returncode != 0:
        raise ServerError(f"`{' '.join(command[2:])}` failed: {(done.stderr or done.stdout).strip()[-800:]}")


if __name__ == "__main__":
    typer.run(main)
