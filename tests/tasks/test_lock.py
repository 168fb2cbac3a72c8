"""The lock of a root: one run at a time, on a disk and on a store, whoever comes second and however the first ends."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest

from model import storage
from tasks import lock
from tasks.lock import LockLost, alone

HOLDER = """
import sys, time
from tasks.lock import alone
with alone(sys.argv[1], "another run"):
    print("held", flush=True)
    time.sleep(600)
"""


def holder(root: str) -> subprocess.Popen[str]:
    """A process that holds `root` until it is ended."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, root], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_root_in_the_home_is_locked_there(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with alone("~/data", "a run"):
        assert (tmp_path / "data" / ".lock").exists()


@pytest.fixture
def soon(monkeypatch):
    """A store's lock is renewed, and given up, in less time than a test may take."""
    monkeypatch.setattr(lock, "RENEWED", 0.2)
    monkeypatch.setattr(lock, "ABANDONED", 2.0)


def waits(root: str, other: subprocess.Popen[str], end: signal.Signals, caplog) -> None:
    """Whoever comes second waits, says for whom, and enters when the first is ended."""
    entered = threading.Event()

    def second() -> None:
        with alone(root, "the second"):
            entered.set()

    def said() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.name == "tasks.lock"]

    with caplog.at_level(logging.WARNING, logger="tasks.lock"):
        thread = threading.Thread(target=second)
        thread.start()
        while not said():
            assert not entered.wait(0.05) or said(), "it entered while another held the root"
        other.send_signal(end)
        thread.join()
    other.wait()
    assert entered.is_set()
    assert f"in use by another run (process {other.pid} on " in said()[0]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_the_second_run_of_a_folder_waits_however_the_first_ends(tmp_path: Path, caplog, end):
    waits(str(tmp_path / "root"), holder(str(tmp_path / "root")), end, caplog)


def test_one_folder_by_several_names_is_one_root(tmp_path: Path, caplog):
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    waits(f"file://{tmp_path}/link/", holder(os.path.relpath(tmp_path / "root")), signal.SIGTERM, caplog)


def test_a_stage_within_a_run_that_holds_the_root_enters_at_once(tmp_path: Path):
    with alone(str(tmp_path), "recipe"), alone(f"{tmp_path}/", "corpus"):
        pass
    with alone(f"memory://{tmp_path.name}", "recipe"), alone(f"memory://{tmp_path.name}/", "corpus"):
        pass


def test_a_root_that_was_copied_from_a_store_is_locked_like_any(tmp_path: Path):
    (tmp_path / ".lock").mkdir()
    (tmp_path / ".lock" / "00000001").write_text("{}")
    with alone(str(tmp_path), "recipe"):
        assert "recipe" in (tmp_path / ".lock" / "disk").read_text()


def test_two_threads_of_one_process_are_two_runs(tmp_path: Path):
    inside, most = [], []

    def work() -> None:
        with alone(str(tmp_path), "one of two"):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1, 1, 1, 1]


def test_a_store_is_held_released_and_taken_again(bucket):
    for number in (1, 2, 3):
        with alone(bucket, f"run {number}"):
            fs, path = fsspec.core.url_to_fs(f"{bucket}/.lock", use_listings_cache=False)
            (held,) = fs.ls(path, detail=False)
            assert held.endswith(f"{number:08}"), "older ones are removed"
            record = json.loads(fs.cat_file(held))
            assert record["holder"].startswith(f"run {number} (process {os.getpid()} on ")
            assert not record["over"]
    assert json.loads(fs.cat_file(held))["over"]


def test_a_store_that_a_dead_run_holds_is_passed_on_when_nobody_renews_it(bucket, soon, caplog):
    waits(bucket, holder(bucket), signal.SIGKILL, caplog)


def test_a_store_that_a_live_run_holds_is_not_passed_on(bucket, soon, monkeypatch):
    """By a clock that the renewals turn: by the real one a busy machine could keep the first from renewing in time."""
    entered, renewed, write = threading.Event(), threading.Semaphore(0), lock._write
    renewals = 0

    def writing(fs, folder, number, record, mode="overwrite") -> None:
        nonlocal renewals
        write(fs, folder, number, record, mode)
        if record["renewals"]:
            renewals += 1
            renewed.release()

    clock = SimpleNamespace(monotonic=lambda: renewals * lock.RENEWED, sleep=time.sleep, strftime=time.strftime)
    monkeypatch.setattr(lock, "_write", writing)
    monkeypatch.setattr(lock, "time", clock)

    def second() -> None:
        with alone(bucket, "the second"):
            entered.set()

    thread = threading.Thread(target=second)
    with alone(bucket, "the first"):
        thread.start()
        for _ in range(round(3 * lock.ABANDONED / lock.RENEWED)):
            assert renewed.acquire(timeout=60)
            assert not entered.is_set()
    thread.join()


class EndpointConnectionError(Exception):
    """As botocore has it: no OSError."""


@pytest.mark.parametrize("lost", ["before", "after"])
def test_a_store_that_is_away_for_a_moment_costs_no_run_its_lock(tmp_path, soon, monkeypatch, lost):
    root = f"memory://{tmp_path.name}"
    fs, path = fsspec.core.url_to_fs(f"{root}/.lock/00000001")
    pipe, failed = type(fs).pipe_file, set()

    def pipe_file(self, path, value, mode="overwrite"):
        record = json.loads(value)
        state = (record["renewals"] > 0, record["over"])
        if lost == "after":
            pipe(self, path, value, mode=mode)
        if state not in failed:
            failed.add(state)
            raise EndpointConnectionError("Could not connect to the endpoint URL")
        if lost == "before":
            pipe(self, path, value, mode=mode)

    monkeypatch.setattr(type(fs), "pipe_file", pipe_file)
    monkeypatch.setattr(storage, "WAITS", (0.01,))
    with alone(root, "a run"):
        for _ in range(2000):  # two minutes at most
            if json.loads(fs.cat_file(path))["renewals"] > 2:
                break
            time.sleep(0.05)
    record = json.loads(fs.cat_file(path))
    assert record["renewals"] > 2, "it went on renewing"
    assert record["over"]


def test_a_store_that_refuses_is_said_in_a_sentence(tmp_path, monkeypatch):
    class NoCredentialsError(Exception):
        pass

    def refuse(self, *args, **kwargs):
        raise NoCredentialsError("Unable to locate credentials")

    root = f"memory://{tmp_path.name}"
    monkeypatch.setattr(type(fsspec.core.url_to_fs(root)[0]), "ls", refuse)
    with pytest.raises(storage.StorageError, match="check the credentials"), alone(root, "a run"):
        pass


def test_of_many_that_come_at_once_one_at_a_time_holds_a_store(bucket, soon, monkeypatch):
    monkeypatch.setattr(lock, "ABANDONED", 600.0)  # one that a busy machine holds up has not gone
    inside, most = [], []

    def work() -> None:
        with alone(bucket, "one of many"):
            inside.append(1)
            most.append(len(inside))
            inside.pop()

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1] * 5


def test_a_write_that_came_late_does_not_enter_beside_another(tmp_path, monkeypatch):
    """A conditional write that is tried again for seconds: others come and go, and its number is free again."""
    root, write = f"memory://{tmp_path.name}", lock._write
    asked, told, entered, leave = (threading.Event() for _ in range(4))

    def writing(fs, folder, number, record, mode="overwrite") -> None:
        if mode == "create" and record["holder"].startswith("late") and not asked.is_set():
            asked.set()
            assert told.wait(60)
        write(fs, folder, number, record, mode)

    def come_late() -> None:
        with alone(root, "late"):
            entered.set()
            leave.wait(60)

    monkeypatch.setattr(lock, "_write", writing)
    monkeypatch.setattr(lock, "RENEWED", 0.2)
    with alone(root, "the first"):
        pass
    late = threading.Thread(target=come_late)
    late.start()
    assert asked.wait(60)  # it wants the second number
    with alone(root, "the second"):
        pass
    waits = threading.Event()
    monkeypatch.setattr(lock._Wait, "tell", lambda wait, holder: waits.set())
    with alone(root, "the third"):
        told.set()
        while not waits.wait(0.05):
            assert not entered.is_set(), "it entered beside the third"
    leave.set()
    late.join()
    assert entered.is_set()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGTERM as a command has it."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    yield
    signal.signal(signal.SIGTERM, before)


def test_a_run_whose_root_another_took_is_ended_in_a_sentence(tmp_path, soon, interrupts):
    """It did not renew its lock: its machine slept, or the store was away."""
    root = f"memory://{tmp_path.name}"
    fs, folder = fsspec.core.url_to_fs(f"{root}/.lock")

    def held() -> None:
        with alone(root, "the first"):
            lock._write(fs, folder, 2, {"holder": "the second", "over": False}, "create")
            time.sleep(60)

    with pytest.raises(LockLost, match=r"another run took 'memory://.*run the same command again"):
        held()
    assert json.loads(fs.cat_file(f"{folder}/00000002"))["holder"] == "the second"
