"""A process that ends within seconds of Ctrl-C or SIGTERM, whatever it is doing.

Python hears a signal when its main thread runs Python again, which within a native call (a pattern, a kernel, a trainer
of another library) may be minutes away. A second process stands by: the signal is written to it by the C handler, and
where the main thread does not say soon that it heard it, it ends that process. What was finished is kept: every stage
can be killed at any moment.

    python -m tasks.interrupts FILE_DESCRIPTOR PROCESS PATIENCE      # the second process
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

PATIENCE = 5.0  # seconds for the main thread to hear a signal
SIGNALS = (signal.SIGINT, signal.SIGTERM)
HEARD = b"\0"


@contextmanager
def answered(patience: float = PATIENCE) -> Iterator[None]:
    """While the block runs, SIGINT and SIGTERM end this process at the latest `patience` seconds after they came,
    unless their handlers have been called by then. Does nothing outside the main thread and within another such
    block."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    woken = signal.set_wakeup_fd(-1)
    if woken != -1:
        signal.set_wakeup_fd(woken)
        yield
        return
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    house = str(Path(__file__).resolve().parent.parent)
    command = [sys.executable, "-P", "-m", "tasks.interrupts", str(reads), str(os.getpid()), str(patience)]
    second = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=(reads,),
        env={**os.environ, "PYTHONPATH": house},
        start_new_session=True,
    )
    os.close(reads)
    with ExitStack() as after:
        after.callback(second.wait)
        after.callback(os.close, writes)
        for number in SIGNALS:
            before = signal.getsignal(number)
            if callable(before):
                signal.signal(number, _telling(writes, before))
                after.callback(signal.signal, number, before)
        signal.set_wakeup_fd(writes, warn_on_full_buffer=False)
        after.callback(signal.set_wakeup_fd, -1)
        yield


def _telling(writes: int, handler: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
    def heard(number: int, frame: Any) -> Any:
        os.write(writes, HEARD)
        return handler(number, frame)

    return heard


def stand_by(reads: int, process: int, patience: float) -> None:
    """End `process` where it does not say that it heard a signal; until the other end is closed."""
    signals = {bytes([number]) for number in SIGNALS}
    waiting = False
    while True:
        ready, _, _ = select.select([reads], [], [], patience if waiting else None)
        if not ready:
            sys.stderr.write("\nEnded in the middle of a computation: what was finished is kept.\n")
            sys.stderr.flush()
            os.kill(process, signal.SIGKILL)
            return
        said = os.read(reads, 1)
        if not said:
            return
        waiting = said != HEARD and (waiting or said in signals)


if __name__ == "__main__":
    stand_by(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
