"""`make ui`: a Prefect server on loopback with every flow deployed and a worker that runs them.

    python -m flows.ui --root data

Open the address it prints, which signs one browser in, choose `recipe / laptop`, then Run: the form is the `Request`.
The key to the server lies in `{root}/prefect.key` while it runs. Ctrl-C ends the worker and the server; the run history
stays in `{root}/prefect.db`. Where the root is a store, both lie in the user's cache.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import psutil
import typer

from flows.errors import sentence
from flows.server import QUIET, Server, ServerError, history
from flows.tables import styled
from flows.terminal import Terminal
from model.storage import is_local
from tasks import process
from tasks.launch import GRACE

HOUSE = Path(__file__).resolve().parent.parent
POOL = "openk2"
PREFECT = [sys.executable, "-m", "prefect", "--no-prompt"]
FIXED = ["--base-job-template", str(HOUSE / "infra" / "pool.json")]
"""What a run's process is, with nothing for a run or a deployment to set: no command, no folder, no environment."""
REFRESH = "refresh/refresh"
NIGHTLY = ["--cron", "0 3 * * *", "--timezone", "UTC", "--no-active", "--accept-yes"]
"""The schedule that waits to be switched on. It stands here, not in prefect.yaml, from where every deploy would switch
it off again and delete the others."""
out = Terminal()


def main(
    root: Annotated[str, typer.Option("--root", help="Where artifacts lie, and in a folder the run history.")] = "data",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="The server's port on 127.0.0.1.")] = 4200,
) -> None:
    """Serve, deploy, work; until Ctrl-C."""
    folder = history(root)
    for number in (signal.SIGINT, signal.SIGTERM):  # also where a shell's `&` had SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    children: list[subprocess.Popen[bytes]] = []
    server: Server | None = None
    try:
        # The pages ask the address that they came from, which a forwarded port may have changed.
        server = Server(folder, {"PREFECT_UI_API_URL": "/api"}, port)
        os.environ.update(
            {
                **QUIET,
                **server.access,
                "OPENK2_HOME": str(HOUSE),
                "OPENK2_ROOT": str(folder) if is_local(root) else root,
                "OPENK2_CPU_POOL": POOL,
                "OPENK2_GPU_POOL": POOL,
            }
        )
        out.print(f"Starting the Prefect server (its log: {server.log}) ...")
        server.start()
        with key_file(folder / "prefect.key", server.key) as file:
            out.print("Deploying the flows ...")
            _deploy()  # before the worker: no run of this server can live yet
            worker = process.start([*PREFECT, "worker", "start", "--pool", POOL, "--limit", "1"], server.log)
            children.append(worker)
            out.print(styled("Ready: ", (f"{server.address}/sign-in#{server.ticket}", "bold")), soft_wrap=True)
            out.print(
                f"It signs one browser in, once; another asks for the key in {file}. Then choose recipe / laptop, "
                "then Run. Ctrl-C ends it.",
                soft_wrap=True,
            )
            while server.running() and worker.poll() is None:
                time.sleep(0.5)
            raise ServerError(f"the server or its worker ended by itself; its log: {server.log}")
    except KeyboardInterrupt:
        out.print("Stopping; a running stage writes its checkpoint first.")
    except (ServerError, OSError) as error:
        out.print(styled(("openk2:", "bold red"), f" {sentence(error)}"), soft_wrap=True)
        raise SystemExit(1) from None
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # a second Ctrl-C would leave a run behind
            signal.signal(number, signal.SIG_IGN)
        for worker in children:
            _end_runs(worker)
            process.stop(worker, grace=30.0)
        if server is not None:
            server.stop(grace=30.0)


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


@contextmanager
def key_file(path: Path, key: str) -> Iterator[Path]:
    """The key in a file that nobody but its owner can read, for as long as the server runs. Raises ServerError where
    the file system knows no such files."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent)  # 0600 from its first moment on
    with os.fdopen(descriptor, "w") as file:
        file.write(key + "\n")
    if Path(draft).stat().st_mode & 0o077:
        Path(draft).unlink()
        raise ServerError(f"the file system of {path.parent} keeps no file to its owner: choose another --root")
    Path(draft).replace(path)
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


def _deploy() -> None:
    command = [sys.executable, "-m", "flows.deployment"]
    done = subprocess.run(command, cwd=HOUSE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise ServerError(f"the flows could not be deployed: {done.stdout.strip()[-800:]}")


if __name__ == "__main__":
    typer.run(main)
