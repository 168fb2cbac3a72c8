"""Threads that a process which ends does not wait for."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from training.rl.threads import DaemonThreads

STUCK = """
import sys, threading
from tests.posttraining import byte_tokenizer
from model.chat import Chat, user
from training.rl import episodes
from training.rl.config import RewardConfig
from training.rl.environments import Environment, EnvironmentUnavailable, Problem, Services
from training.rl.environments.table import ENVIRONMENTS
from training.rl.episodes import Episode, Limits, Stage

class Stuck(Environment):
    waits = True
    def answer(self, problem, reply):
        threading.Event().wait()
    def corrupted(self, problem):
        return []

ENVIRONMENTS["stuck"] = Stuck
episodes.STALL_SECONDS = 0.1
chat, problem = Chat(byte_tokenizer()), Problem("p", "words", "stuck", (user("x"),), "x")
stage = Stage(chat, [problem], [Episode("s")], 1.0, Limits(RewardConfig(), 1000), 0, Services(), lambda doing: None)
assert stage.next() == 0
stage.hear(0, [chat.stop], [0.0])
try:
    stage.next()
except EnvironmentUnavailable as error:
    print(error)
    stage.close()
    sys.exit(1)
"""


def test_a_process_ends_while_an_environment_is_stuck():
    """The interpreter would wait for the threads of an executor."""
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=120)
    assert (ended.returncode, ended.stderr) == (1, "")
    assert "that of problem p (words)" in ended.stdout


def test_results_and_errors_come_back():
    threads = DaemonThreads(2, "of a test")
    assert [future.result(30) for future in [threads.submit(pow, 2, n) for n in range(20)]] == [2**n for n in range(20)]
    with pytest.raises(ZeroDivisionError):
        threads.submit(divmod, 1, 0).result(30)
    threads.close()


def test_closing_cancels_what_has_not_begun_and_ends_the_threads():
    threads, begun, go = DaemonThreads(1, "one of a test"), threading.Event(), threading.Event()
    first = threads.submit(lambda: (begun.set(), go.wait(30))[1])
    others = [threads.submit(pow, 2, 2) for _ in range(3)]
    (thread,) = [one for one in threading.enumerate() if one.name == "one of a test_0"]
    assert begun.wait(30)
    threads.close()
    assert all(other.cancelled() for other in others)
    go.set()
    assert first.result(30)
    thread.join(30)
    assert not thread.is_alive()
