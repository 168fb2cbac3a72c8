"""A run that stands still ends by itself, and its log says where it stood."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.training.runs import job, start
from training.watchdog import Watchdog

HANGS = """
import ctypes, sys, time
from training.watchdog import Watchdog

def stuck():
    if sys.argv[1] == "held":
        ctypes.PyDLL(None).sleep(60)  # a call that keeps the interpreter's lock
    time.sleep(60)

watchdog = Watchdog(0.5)
with watchdog.watch():
    for _ in range(3):
        watchdog.beat("update 7")
    stuck()
"""


def hang(how: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", HANGS, how], capture_output=True, text=True, timeout=50, check=False)


def test_the_stacks_and_one_sentence() -> None:
    ended = hang("free")
    assert ended.returncode == 1
    assert "in stuck" in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("StallError: rank 0 made no progress for ")
    assert "in update 7 (run.stall_seconds)" in last


def test_a_call_that_holds_the_interpreter_ends_too() -> None:
    ended = hang("held")
    assert ended.returncode == 1
    assert "in stuck" in ended.stderr


def test_nothing_is_watched_before_the_first_beat_at_rest_or_after_the_block() -> None:
    watchdog = Watchdog(0.05)
    with watchdog.watch():
        time.sleep(0.2)
        watchdog.beat("update 1")
        watchdog.rest()
        time.sleep(0.2)
        watchdog.beat("update 2")
    time.sleep(0.2)
    with Watchdog(None).watch() as never:
        never.beat("update 1")


def test_every_rank_of_a_run_that_hangs_ends(shards: Path, tmp_path: Path) -> None:
    """One rank is stopped: the other waits for it in a collective, and each writes its stacks when it can."""
    values = job(shards, tmp_path / "work", run={"stall_seconds": 6, "collective_timeout_seconds": 120})
    processes = start(values, tmp_path, ranks=2)
    metrics = tmp_path / "work" / "metrics.jsonl"
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.002)
    processes[1].send_signal(signal.SIGSTOP)
    assert processes[0].wait(timeout=60) == 1
    log = (tmp_path / "rank0.log").read_text()
    assert log.splitlines()[-1].startswith("StallError: rank 0 made no progress")
    assert "in all_reduce" in log or "in wait" in log or "parallel.py" in log
    processes[1].send_signal(signal.SIGCONT)
    assert processes[1].wait(timeout=60) == 1
