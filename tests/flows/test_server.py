"""The Prefect servers that we start: their ports, their key, and what a run sees when one dies or does not come up."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from flows import server as module
from flows.server import PRIVATE, Server, ServerError, api, history
from flows.ui import key_file
from tests.flows.api import started

HOUSE = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.prefect
RUN = """
import sys
from flows import cli, server
from flows.server import api

server.STARTS = 1

def run():
    with api(sys.argv[1]):
        from prefect import flow, task

        @task
        def double(number):
            print("task", number, flush=True)
            sys.stdin.readline()
            return 2 * number

        @flow
        def doubles():
            return [double(number) for number in range(2)]

        print("result", doubles())

cli.app = run
cli.main()
"""
"""A run as the command line makes it; each task waits for a line."""


@pytest.fixture
def server(root: Path) -> Iterator[Server]:
    server = Server(root, PRIVATE)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One that began with nothing."""
    with started(tmp_path_factory.mktemp("running"), PRIVATE) as server:
        yield server


@pytest.fixture
def root(running: Server, tmp_path: Path) -> Path:
    """Where a server finds an empty history ready: one has begun with nothing."""
    return tmp_path


def spoil(folder: Path) -> None:
    """No server can start on what is left of the history."""
    for file in folder.glob("prefect.db*"):
        file.unlink()
    (folder / "prefect.db").mkdir()


def begin(root: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(root)],
        cwd=HOUSE,
        env={**environment, "PYTHONPATH": str(HOUSE), **variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def start(root: Path) -> subprocess.Popen[str]:
    """The run, its first task under way."""
    run = begin(root)
    assert run.stdout is not None
    assert run.stdout.readline() == "task 0\n"
    return run


def kill_server(run: subprocess.Popen[str]) -> None:
    (child,) = [child for child in psutil.Process(run.pid).children() if "flows.guard" in child.cmdline()]
    child.kill()


def test_a_run_goes_on_when_its_server_is_killed(root):
    run = start(root)
    kill_server(run)
    told, _ = run.communicate("\n\n\n\n", timeout=300)
    assert run.returncode == 0, told
    assert "result [0, 2]" in told
    assert told.count("is started again") == 1
    assert "Traceback" not in told


def test_a_server_that_can_not_be_started_again_ends_the_run_in_a_sentence(root):
    run = start(root)
    spoil(root)
    kill_server(run)
    told = run.stdout.read()  # the task waits for its line all the while
    assert run.wait() == 1
    assert "unable to open database file" in told
    assert "what was finished is kept: the same command goes on from here" in told
    assert str(root / "prefect.log") in told
    assert "Traceback" not in told
    assert len(told.splitlines()) == 2, told  # that it is started again, and how that ended


def test_a_server_that_dies_again_and_again_ends_the_block(server, monkeypatch):
    monkeypatch.setattr(module, "STARTS", 1)
    server.start()
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as a command has it

    def disturbed() -> None:
        with server.kept():
            while True:
                if server.running():
                    os.kill(server._child.pid, signal.SIGKILL)
                time.sleep(0.1)

    try:
        with pytest.raises(ServerError, match="what was finished is kept"):
            disturbed()
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_server_that_does_not_come_up_says_why(root, server):
    spoil(root)
    with pytest.raises(ServerError, match=r"ended with code \d+: .*unable to open database file.*prefect\.log"):
        server.start()


def test_a_start_that_hangs_is_given_up_and_its_log_says_where(tmp_path, monkeypatch):
    """The time that a start takes is no reason: that nothing moves is."""
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "__init__.py").write_text("import time\ntime.sleep(3600)\n")
    server = Server(tmp_path, {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(HOUSE)])})
    monkeypatch.setattr(module, "HUNG", 4.0)
    try:
        with pytest.raises(ServerError, match=r"does nothing for 4 s.*prefect\.log"):
            server.start()
    finally:
        server.stop()
    assert 'prefect/__init__.py", line 2' in server.log.read_text()


def test_a_taken_port_is_told_before_anything_starts(tmp_path, server):
    with pytest.raises(ServerError, match=r"port \d+ of 127.0.0.1 can't be opened \(Address already in use\)"):
        Server(tmp_path, PRIVATE, int(server.address.rpartition(":")[2]))


def test_a_private_server_asks_for_its_key_and_has_no_pages(root, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "another:servers")
    monkeypatch.setenv("PREFECT_API_DATABASE_MIGRATE_ON_START", "false")  # the history that it finds needs none
    with api(str(root)) as url:
        key = os.environ["PREFECT_API_AUTH_STRING"]
        assert os.environ["PREFECT_API_URL"] == url
        assert httpx.get(f"{url}/admin/version", trust_env=False).status_code == 401
        user, password = key.split(":")
        assert httpx.get(f"{url}/admin/version", auth=(user, password), trust_env=False).status_code == 200
        assert httpx.get(url.removesuffix("/api"), trust_env=False).status_code == 404
    assert os.environ["PREFECT_API_AUTH_STRING"] == "another:servers"
    assert "PREFECT_API_URL" not in os.environ
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health", trust_env=False)


def test_a_run_against_another_server_needs_its_key(tmp_path, running, monkeypatch):
    url, key = running.access["PREFECT_API_URL"], running.access["PREFECT_API_AUTH_STRING"]
    told, _ = begin(tmp_path, PREFECT_API_URL=url, PREFECT_API_AUTH_STRING=key).communicate("\n\n", timeout=300)
    assert "result [0, 2]" in told
    refused = begin(tmp_path, PREFECT_API_URL=url, PREFECT_API_AUTH_STRING="openk2:secret")
    told, _ = refused.communicate(timeout=300)
    assert refused.returncode == 1
    assert "PREFECT_API_URL wants another key: set PREFECT_API_AUTH_STRING" in told
    assert "secret" not in told
    assert len(told.splitlines()) == 1, told
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.delenv("PREFECT_API_AUTH_STRING", raising=False)
    with pytest.raises(ServerError, match="wants another key"), api(str(tmp_path)):
        pass
    gone = Server(tmp_path, PRIVATE)
    gone.stop()
    monkeypatch.setenv("PREFECT_API_URL", gone.access["PREFECT_API_URL"].replace("http://", "http://user:secret@"))
    with pytest.raises(ServerError, match=r"no server answers at PREFECT_API_URL \(ConnectError\)") as met, api(""):
        pass
    assert "secret" not in str(met.value)


def test_a_history_begins_as_one_in_which_nothing_has_run(running, tmp_path):
    empty, mine = module.empty_history(), tmp_path / "prefect.db"
    with closing(sqlite3.connect(empty)) as history:
        for table in ("flow", "flow_run", "task_run", "log", "events", "csrf_token", "configuration"):
            assert history.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), table
    for secret in (running.key, running.ticket, running.key.partition(":")[2]):
        assert secret.encode() not in empty.read_bytes()
    (tmp_path / "rubbish").write_text("no database" * 1000)
    assert not module.copy_history(tmp_path / "rubbish", mine)
    assert not module.copy_history(tmp_path / "nothing", mine)
    assert [file.name for file in tmp_path.iterdir()] == ["rubbish"]
    assert module.copy_history(empty, mine)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["prefect.db", "rubbish"]


def test_two_first_starts_in_one_root_make_its_history_one_after_the_other(tmp_path, monkeypatch):
    """Otherwise both make the tables, and one fails."""
    servers, begun, copied = [Server(tmp_path, PRIVATE) for _ in range(2)], [], []
    later: list[Future[None]] = []
    second = threading.Event()

    def start(self, client, child, began) -> None:
        begun.append(self)
        if self is servers[0]:
            later.append(pool.submit(servers[1].start))
            assert not second.wait(0.5)
            (tmp_path / "prefect.db").touch()
        else:
            second.set()

    monkeypatch.setattr(module.process, "start", lambda *command, **options: None)
    monkeypatch.setattr(module, "copy_history", lambda of, to: copied.append(of))
    monkeypatch.setattr(Server, "_await", start)
    with ThreadPoolExecutor(1) as pool:
        servers[0].start()
    later[0].result()
    assert begun == servers
    assert copied == [module.empty_history(), tmp_path / "prefect.db"], "the second finds a history"
    for server in servers:
        server.stop()


def test_the_history_of_a_store_lies_in_the_cache_and_not_in_a_folder_called_like_it(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    assert history("s3://bucket/openk2") == tmp_path / "cache"
    assert history(f"file://{tmp_path}/root") == history(f"{tmp_path}/root") == tmp_path / "root"


def test_the_ui_says_in_a_sentence_that_nothing_can_lie_at_its_root():
    command = [sys.executable, "-m", "flows.ui", "--root", "/dev/null/x", "--port", "0"]
    told = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, timeout=300)
    assert told.returncode == 1
    assert "a file stands where a folder is needed" in told.stdout
    assert "Traceback" not in told.stderr


def test_every_start_has_a_key_of_its_own(tmp_path):
    servers = [Server(tmp_path, PRIVATE) for _ in range(3)]
    try:
        assert len({server.key for server in servers} | {server.ticket for server in servers}) == 6
        assert all(len(server.key) > 40 for server in servers)
    finally:
        for server in servers:
            server.stop()


def test_the_key_file_is_its_owners_alone_from_its_first_moment(tmp_path):
    path = tmp_path / "prefect.key"
    path.write_text("an older one")
    path.chmod(0o666)
    before = os.umask(0)
    try:
        with path.open() as old, key_file(path, "openk2:secret") as file:
            assert file.read_text() == "openk2:secret\n"
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert old.read() == "an older one"  # whoever had it open reads nothing new
            assert [entry.name for entry in tmp_path.iterdir()] == ["prefect.key"]
    finally:
        os.umask(before)
    assert not path.exists()
