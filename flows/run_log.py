"""What our code logs stands in the log of the Prefect run that it was done for, and of the runs around that one."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from uuid import UUID

from prefect.context import FlowRunContext
from prefect.logging.handlers import APILogHandler

from tasks.logs import plain
from tasks.progress import Tick, listen

PACKAGES = ("flows", "tasks", "training", "model", "expectations")
EVERY = 10.0  # seconds between two lines on the progress of one piece of work


class RunLog(APILogHandler):
    """Sends records to one flow run, from whichever thread they come."""

    def __init__(self, run: UUID) -> None:
        super().__init__(logging.INFO)
        self.run = str(run)
        self.context = copy_context()

    def emit(self, record: logging.LogRecord) -> None:
        mine = copy.copy(record)
        mine.flow_run_id = self.run
        # Threads that a library started know neither the run nor its server.
        self.context.copy().run(super().emit, mine)


@contextmanager
def logged() -> Iterator[None]:
    """Send what our packages log from INFO on to the current flow run while the block runs, and how far it is."""
    context = FlowRunContext.get()
    if context is None or context.flow_run is None:
        yield
        return
    handler = RunLog(context.flow_run.id)
    loggers = [logging.getLogger(name) for name in PACKAGES]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    last: dict[str, tuple[float, bool]] = {}

    def hear(tick: Tick) -> None:
        now = time.monotonic()
        then, finished = last.get(tick.label, (-EVERY, False))
        if now - then >= EVERY or tick.finished > finished:
            last[tick.label] = (now, tick.finished)
            # Past the loggers: every run around this one hears the tick itself.
            handler.handle(logging.LogRecord("progress", logging.INFO, __file__, 0, plain(tick.sentence()), (), None))

    try:
        with listen(hear):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.removeHandler(handler)
            logger.setLevel(level)
        handler.flush()  # while there is a server: a private one ends with the run
