"""A run that stands still ends by itself, and its log says where it stood."""

import math
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.training.ranks import stop_after, wait_stopped
from tests.training.runs import job, start, trainer_of
from training import checkpoint_writer
from training import watchdog as watching
from training.trainer import DONE, PREEMPTED
from training.watchdog import Watchdog

HANGS = """
import ctypes, sys, time
from training.watchdog import Watchdog

def stuck():
    if sys.argv[1] == "held":
        ctypes.PyDLL(None).sleep(600)  # a call that keeps the interpreter's lock
    time.sleep(600)

watchdog = Watchdog(float(sys.argv[2]))
with watchdog.watch():
    for _ in range(3):
        watchdog.beat("update 7")
    stuck()
"""


def hang(how: str, seconds: float) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", HANGS, how, str(seconds)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def test_the_stacks_and_one_sentence() -> None:
    ended = hang("free", 2.0)  # seconds, or a busy machine lets the thread in C end it first, without a sentence
    assert ended.returncode == 1
    assert "in stuck" in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("StallError: rank 0 made no progress for ")
    assert "in update 7 (run.stall_seconds)" in last


def test_a_call_that_holds_the_interpreter_ends_too() -> None:
    ended = hang("held", 0.5)
    assert ended.returncode == 1
    assert "in stuck" in ended.stderr


def test_nothing_is_watched_before_the_first_beat_at_rest_or_after_the_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock of the test's own: by the real one a busy machine could end the tests themselves."""
    now, looked, ended = [0.0], threading.Semaphore(0), list[float]()

    def clock() -> float:
        looked.release()
        return now[0]

    def hours_later() -> None:
        now[0] += 10_000
        while looked.acquire(blocking=False):
            pass
        for _ in range(3):  # the first may have begun before, and the last says that the second has ended
            assert looked.acquire(timeout=60)

    monkeypatch.setattr(watching, "time", SimpleNamespace(monotonic=clock))
    monkeypatch.setattr(watching, "LOOKS", 600_000)  # every millisecond
    watchdog = Watchdog(600)
    monkeypatch.setattr(watchdog, "_end", ended.append)
    with watchdog.watch():
        hours_later()
        watchdog.beat("update 1")
        now[0] += 599
        watchdog.prolong()
        now[0] += 599
        watchdog.rest()
        hours_later()
        watchdog.prolong()
        hours_later()
        watchdog.beat("update 2")
        assert not ended
        hours_later()
        assert ended, "it was watched between"
    ended.clear()
    now[0] += 10_000
    assert not [thread for thread in threading.enumerate() if thread.name == "watchdog"]
    assert not ended
    with Watchdog(None).watch() as never:
        never.beat("update 1")


def test_a_slow_disk_is_no_stall(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is watched while checkpoints and `final/` are written; each shard that is checked prolongs the watch."""
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))  # without notes of what was checked before
    watched, checks = dict[str, list[bool]](), list[bool]()

    class Listening(Watchdog):
        def prolong(self) -> None:
            checks.append(math.isfinite(self._since))

    def noting(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            watched.setdefault(name, []).append(math.isfinite(trainer.watchdog._since))
            return function(*given, **more)

        return called

    monkeypatch.setattr(checkpoint_writer, "save", noting("final", checkpoint_writer.save))
    for code in (PREEMPTED, DONE):
        trainer = trainer_of(job(shards, tmp_path / "work"), watchdog=Listening(None))
        monkeypatch.setattr(trainer.writer, "settle", noting("settle", trainer.writer.settle))
        trainer.preemption.signalled = code == PREEMPTED
        assert trainer.run() == code
    assert any(checks)
    assert set(watched) == {"settle", "final"}
    assert not any(map(any, watched.values()))


def test_every_rank_of_a_run_that_hangs_ends(shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank is stopped: the other waits for it in a collective, and each writes its stacks when it can."""
    values = job(shards, tmp_path / "work", run={"stall_seconds": 20, "collective_timeout_seconds": 400})
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        processes = start(values, tmp_path, ranks=2)
    wait_stopped(processes[0])
    processes[1].send_signal(signal.SIGSTOP)
    processes[0].send_signal(signal.SIGCONT)
    assert processes[0].wait() == 1
    log = (tmp_path / "rank0.log").read_text()
    assert log.splitlines()[-1].startswith("StallError: rank 0 made no progress")
    assert "in all_reduce" in log or "in wait" in log or "parallel.py" in log
    processes[1].send_signal(signal.SIGCONT)
    assert processes[1].wait() == 1
