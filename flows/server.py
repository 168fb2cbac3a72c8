"""The Prefect servers that we start, on loopback and for their owner alone, and the API behind a run: the one that
PREFECT_API_URL names, or a private server that keeps its history in `{root}/prefect.db` and ends with the command.
No account, no telemetry, nothing leaves the machine."""

from __future__ import annotations

import base64
import logging
import os
import secrets
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

import httpx
import psutil

from flows.guard import TICKET
from model.cache import cache_folder, locked
from model.storage import is_local, local_path
from tasks import process
from tasks.launch import last_words

log = logging.getLogger(__name__)

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY": "false",
    "DO_NOT_TRACK": "1",
    "GX_ANALYTICS_ENABLED": "false",
}
PRIVATE = {
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_SCHEDULER_ENABLED": "false",
    "PREFECT_SERVER_SERVICES_LATE_RUNS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "ERROR",
}
TERSE = {
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
}
"""A command tells errors itself, in a sentence; what else is logged stands in the run."""
HUNG = 60.0
"""Seconds in which a starting server neither computes, reads nor logs anything before it is given up. How long a start
takes says how busy the machine is, nothing else."""

STARTS = 3
"""Times that a private server that died is started again before the run is ended: something ends it on purpose."""


class ServerError(RuntimeError):
    """A server that did not come up or did not stay; the message says why and where its log lies."""


class Server:
    """A Prefect server in a child process.

    The parent owns the listening socket: nobody else can take the port between its choice and the server's start.
    """

    def __init__(self, folder: Path, settings: Mapping[str, str], port: int = 0) -> None:
        """Its history and log lie in `folder`; `settings` are Prefect's, as environment variables; port 0 takes any
        that is free. Raises ServerError where the port is taken."""
        folder.mkdir(parents=True, exist_ok=True)
        self.log = folder / "prefect.log"
        self._history = folder.resolve() / "prefect.db"
        try:
            self._listener = socket.create_server(("127.0.0.1", port))
        except OSError as error:
            why = os.strerror(error.errno or 0)
            raise ServerError(f"port {port} of 127.0.0.1 can't be opened ({why}): choose another") from None
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.key = f"openk2:{secrets.token_urlsafe(32)}"
        self.ticket = secrets.token_urlsafe(32)
        self._settings = {
            **QUIET,
            **settings,
            "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{self._history}",
            "PREFECT_SERVER_API_AUTH_STRING": self.key,
            "PREFECT_SERVER_CSRF_PROTECTION_ENABLED": "true",
            "PREFECT_SERVER_CORS_ALLOWED_ORIGINS": self.address,
            TICKET: self.ticket,
        }
        self._child: subprocess.Popen[bytes] | None = None
        self._stopping = threading.Event()

    @property
    def access(self) -> dict[str, str]:
        """The environment of what may use the server: never on a command line, which every user can read."""
        return {"PREFECT_API_URL": f"{self.address}/api", "PREFECT_API_AUTH_STRING": self.key}

    def start(self) -> None:
        """Start the process and wait until it answers. Raises ServerError where it ends or hangs instead."""
        descriptor = self._listener.fileno()
        command = [sys.executable, "-m", "flows.guard", str(descriptor)]
        with locked(self._history.with_suffix(".lock")):  # of two that make its tables at once one would fail
            first = not self._history.exists() and not copy_history(empty_history(), self._history)
            began = self.log.stat().st_size if self.log.exists() else 0
            self._child = process.start(command, self.log, self._settings, keep=[descriptor])
            with httpx.Client(base_url=self.address, timeout=2.0, trust_env=False) as client:
                self._await(client, self._child, began)
            if first:  # nobody has its address yet
                copy_history(self._history, empty_history())

    def _await(self, client: httpx.Client, child: subprocess.Popen[bytes], began: int) -> None:
        moved, last = time.monotonic(), None
        while not _healthy(client) and not self._stopping.is_set():
            if (code := child.poll()) is not None:
                raise ServerError(f"the Prefect server ended with code {code}: {self._told(began)}")
            if (now := self._activity()) != last:
                moved, last = time.monotonic(), now
            elif time.monotonic() - moved > HUNG:
                child.send_signal(signal.SIGUSR1)  # it writes to its log where every thread stands
                time.sleep(1.0)
                process.stop(child, grace=0.0)
                raise ServerError(f"the Prefect server does nothing for {HUNG:g} s: {self._told(began)}")
            time.sleep(0.1)

    def running(self) -> bool:
        """Whether the process lives."""
        return self._child is not None and self._child.poll() is None

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Start it again whenever it dies in the block. Nobody is refused meanwhile: requests wait in the socket, and
        Prefect's client asks again where one was cut off. Where that does not help, the block is interrupted by
        SIGTERM, so that a stage writes its checkpoint, and ServerError says why."""
        failures: list[ServerError] = []

        def keep() -> None:
            try:
                self._keep()
            except ServerError as error:
                failures.append(error)
                # Sent to that very thread, it also wakes it from a system call. Not SIGINT: a shell has its background
                # commands ignore that.
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
                self._refuse()

        # The kernel ends the server with the thread that started it: this one has to last as long as the block.
        keeper = threading.Thread(target=keep, name="prefect-server", daemon=True)
        keeper.start()
        try:
            yield
        except BaseException as error:
            if failures:
                told = f"{failures[0]}; what was finished is kept: the same command goes on from here"
                raise ServerError(told) from error
            raise
        finally:
            self._stopping.set()
            keeper.join()

    def _keep(self) -> None:
        left = STARTS
        while not self._stopping.wait(0.5):
            if self.running():
                continue
            assert self._child is not None
            code = self._child.returncode
            if not left:
                raise ServerError(f"the private Prefect server ended with code {code} again (its log: {self.log})")
            left -= 1
            log.warning("the private Prefect server ended (code %d) and is started again", code)
            try:
                self.start()
            except ServerError:
                if not left:
                    raise

    def _refuse(self) -> None:
        """Answer in the server's place that it is gone: Prefect's client would ask a silent one again for minutes."""
        self._listener.settimeout(0.5)
        while not self._stopping.is_set():
            with suppress(OSError):  # also nobody's asking for half a second
                connection, _ = self._listener.accept()
                with connection:
                    connection.settimeout(1.0)
                    connection.sendall(b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):  # an unread request would reset the connection
                        pass

    def stop(self, grace: float = 2.0) -> None:
        """End it and give the port back."""
        self._listener.close()
        if self._child is not None:
            process.stop(self._child, grace)

    def _activity(self) -> tuple[float, ...]:
        """Grows while the process computes, reads, writes or logs."""
        assert self._child is not None
        size = self.log.stat().st_size
        with suppress(psutil.Error):
            child = psutil.Process(self._child.pid)
            cpu = child.cpu_times()
            io = child.io_counters() if hasattr(child, "io_counters") else ()  # not on macOS
            return (size, cpu.user + cpu.system, *io)
        return (size,)

    def _told(self, began: int) -> str:
        return f"{last_words(self.log, began)} (its log: {self.log})"


def _healthy(client: httpx.Client) -> bool:
    try:
        return client.get("/api/health").status_code == 200
    except httpx.TransportError:
        return False


def empty_history() -> Path:
    """A history in which nothing has run, of this version of Prefect: to make one takes it as long as the rest of its
    start."""
    return cache_folder() / "prefect" / f"{version('prefect')}.db"


def copy_history(of: Path, to: Path) -> bool:
    """Copy one database of Prefect's, that of a server that runs too; False where it can't be had or kept."""
    scratch = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        with (
            closing(sqlite3.connect(f"{of.resolve().as_uri()}?mode=ro", uri=True)) as theirs,
            closing(sqlite3.connect(scratch)) as ours,
        ):
            theirs.backup(ours)
            ours.execute("PRAGMA journal_mode = DELETE")  # one file, nothing beside it
        scratch.replace(to)
    except (sqlite3.Error, OSError):
        return False
    finally:
        scratch.unlink(missing_ok=True)
    return True


def history(root: str) -> Path:
    """The folder of the run history: the root, or where that is a store the user's cache."""
    return local_path(root).resolve() if is_local(root) else cache_folder()


@contextmanager
def api(root: str) -> Iterator[str]:
    """A Prefect API for the block: its URL, with the environment set for flows started inside."""
    theirs = os.environ.get("PREFECT_API_URL")
    # At the end of every flow it warns of events that are still on their way: they arrive, and it has no other word.
    logging.getLogger("EventsWorker").setLevel(logging.ERROR)
    with _environment(QUIET), _environment(TERSE, keep=True):
        if theirs:
            _admitted(theirs)
            yield theirs
            return
        server = Server(history(root), PRIVATE)
        try:
            server.start()
            with _environment(server.access), server.kept():
                yield server.access["PREFECT_API_URL"]
        finally:
            server.stop()


def _admitted(url: str) -> None:
    """Raises ServerError where the server that PREFECT_API_URL names does not answer, or wants another key. The URL may
    hold a password: it is not repeated."""
    from prefect.settings import get_current_settings  # it reads the environment as it is now

    settings = get_current_settings().api
    key = settings.auth_string.get_secret_value() if settings.auth_string else ""
    if settings.key:
        return  # Prefect Cloud, which says itself what is wrong
    headers = {"Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"} if key else {}
    try:
        status = httpx.get(f"{url}/admin/version", headers=headers, timeout=60.0).status_code
    except (httpx.TransportError, httpx.InvalidURL) as error:
        raise ServerError(
            f"no server answers at PREFECT_API_URL ({type(error).__name__}): start it, or unset PREFECT_API_URL for a "
            "private one"
        ) from None
    if status == 401:
        raise ServerError(
            "the server at PREFECT_API_URL wants another key: set PREFECT_API_AUTH_STRING; that of `make ui` lies in "
            "prefect.key under its --root"
        )


@contextmanager
def _environment(values: Mapping[str, str], keep: bool = False) -> Iterator[None]:
    """Environment variables for the block; with `keep` those that are set stay as they are."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update({name: value for name, value in values.items() if not (keep and before[name] is not None)})
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = old
