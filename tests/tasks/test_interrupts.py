"""A process ends on SIGTERM and on Ctrl-C, also in the middle of a native call that holds Python's lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

HOUSE = Path(__file__).resolve().parents[2]
# Never returns, never looks for signals, never lets another thread run; that it is ready it says from within.
STUCK = "sum(itertools.chain(map(os.write, [1], [b'ready\\n']), itertools.repeat(1)))"
SLOW_TO_END = "end_slowly()"


@contextmanager
def started(work: str, patience: float = 1.0) -> Iterator[subprocess.Popen[str]]:
    script = textwrap.dedent(f"""
        import itertools, os, signal, time
        from tasks.interrupts import answered

        def interrupt(number, frame):
            raise KeyboardInterrupt

        def end_slowly():
            try:
                print("ready", flush=True)
                time.sleep(600)
            finally:
                time.sleep(3)
                print("ended", flush=True)

        signal.signal(signal.SIGTERM, interrupt)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
        with answered({patience}), answered({patience}):
            {work}
    """)
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()  # what is stuck would take a core from all that comes after


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_native_call_that_never_returns_is_ended(number):
    with started(STUCK) as process:
        process.send_signal(number)
        _, said = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert "what was finished is kept" in said


def test_who_heard_the_signal_may_take_its_time_to_end():
    with started(SLOW_TO_END, patience=2.5) as process:  # in which a busy machine too runs the handler
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=300)
    assert (said, process.returncode) == ("ended\n", -signal.SIGINT)


def test_nothing_is_left_behind():
    with started("print('ready', flush=True)") as process:
        said, _ = process.communicate(timeout=300)  # returns once nobody holds its output
    assert (said, process.returncode) == ("", 0)
