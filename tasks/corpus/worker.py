"""A worker process of `executor.Processes`: `python -m tasks.corpus.worker CONNECTION SLOT PARENT`.

Jobs come and results go over a connection. The process ends with its parent, by SIGTERM at once whatever it is doing,
and leaves Ctrl-C to its parent.
"""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import sys
import time
import traceback
from multiprocessing.connection import Connection

from tasks.corpus.watch import PLACE_BYTES
from tasks.logs import plain_logs
from tasks.process import die_with_parent

NO_MEMORY = 71
"""Exit code of a worker that a job left without memory."""


def main(connection_fd: int, slot_fd: int, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    die_with_parent()
    plain_logs()
    connection = Connection(connection_fd)
    slot = mmap.mmap(slot_fd, PLACE_BYTES)
    while os.getppid() == parent:
        try:
            function, arguments, watched = connection.recv()
        except EOFError:
            return
        began = time.process_time()
        try:
            succeeded, result = True, function(*arguments, slot=slot) if watched else function(*arguments)
        except Exception as error:
            if watched and isinstance(error, MemoryError):
                os._exit(NO_MEMORY)  # what is left of this process is not to be trusted
            error.add_note("".join(traceback.format_exception(error)))
            succeeded, result = False, _portable(error)
        connection.send((succeeded, result, time.process_time() - began))


def _portable(error: Exception) -> Exception:
    """The error itself where it survives the way to the parent, which an exception of odd arguments does not."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - what was just pickled here
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
