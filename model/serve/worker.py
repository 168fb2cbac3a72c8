"""The thread that owns the model, and what the event loop sees of it.

The loop counts what is open and refuses what is too much; the thread steps one batch, which requests join and leave
between two tokens. All tokens of a step come over in one call, whoever they belong to.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from model.generate import Batch, Finish, Request, Row
from model.serve.protocol import ApiError
from model.transformer import Transformer

log = logging.getLogger(__name__)

STOPPED = "the model has stopped: start the server again"
RETRY_SECONDS = 1
"""What a client that came at a busy time is told to wait."""


@dataclass(frozen=True)
class Event:
    """One token of one choice, or why there are no more."""

    token: int = 0
    log_prob: float = 0.0
    likeliest: tuple[tuple[int, float], ...] = ()
    finish: Finish | None = None
    fault: Exception | None = None


class Job:
    """The choices of one request under way. Leaving the `with` frees the rows of those that have not finished."""

    def __init__(self, worker: Worker, numbers: range) -> None:
        self._worker, self.numbers = worker, numbers
        self.events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        """(place of the choice, its next event)."""

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for number in self.numbers:
            self._worker.cancel(number)

    def end(self, place: int) -> None:
        """This choice has said enough."""
        self._worker.cancel(self.numbers[place])


class Worker:
    """At most `rows` choices under way at once and `waiting` more behind them. All but `_run` is of the event loop."""

    def __init__(self, model: Transformer, rows: int, waiting: int) -> None:
        self.model, self.rows, self.waiting = model, rows, waiting
        self._open: dict[int, Job] = {}  # by the number of the choice
        self._next = 0
        self._inbox: queue.SimpleQueue[tuple[int, Request | None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)
        self._lost = False  # it ended, and nobody had told it to

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self) -> None:
        """Ends what is under way: whoever waits for it is told."""
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)
        self._fail(tuple(self._open), ApiError(503, "the server is ending: ask again later"))

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._lost

    @property
    def open(self) -> int:
        """Choices under way and waiting."""
        return len(self._open)

    def submit(self, requests: Sequence[Request]) -> Job:
        """Raises ApiError 429 where there is no room, 503 where the thread has ended."""
        most = self.rows + self.waiting
        if not self.alive:
            raise ApiError(503, STOPPED)
        if len(requests) > most:
            raise ApiError(400, f"{len(requests)} choices at once, and this server takes {most}: ask for fewer", "n")
        if self.open + len(requests) > most:
            told = f"the server is busy with {self.open} answers: ask again in {RETRY_SECONDS} s"
            raise ApiError(429, told, code="server_busy", retry=RETRY_SECONDS)
        numbers = range(self._next, self._next + len(requests))
        self._next = numbers.stop
        job = Job(self, numbers)
        for number, request in zip(numbers, requests, strict=True):
            self._open[number] = job
            self._inbox.put((number, request))
        return job

    def cancel(self, number: int) -> None:
        """Free a choice's row, or its place in the line."""
        if self._open.pop(number, None):
            self._inbox.put((number, None))

    def _deliver(self, events: Iterable[tuple[int, Event]]) -> None:
        for number, event in events:
            if job := self._open.get(number):  # else it was cancelled meanwhile
                if event.finish or event.fault:
                    del self._open[number]
                job.events.put_nowait((number - job.numbers.start, event))

    def _fail(self, numbers: Iterable[int], error: Exception) -> None:
        self._deliver([(number, Event(fault=error)) for number in numbers])

    def _lose(self) -> None:
        self._lost = True
        self._fail(tuple(self._open), ApiError(503, STOPPED))

    def _run(self) -> None:
        """What the thread does. Whoever waits is told where it ends by a fault of the program: none may hang."""
        try:
            self._serve()
        except BaseException:  # a panic of a library in Rust is no Exception
            log.exception("the model's thread has ended")
            self._loop.call_soon_threadsafe(self._lose)

    def _serve(self) -> None:
        line: dict[int, Request] = {}  # in the order in which they came
        batch = Batch(self.model, self.rows)
        while self._take(batch, line):
            added: list[int] = []
            try:
                while line and batch.room:
                    added.append(next(iter(line)))
                    batch.add(added[-1], line.pop(added[-1]))
                rows = batch.step() if batch else []
            except (RuntimeError, MemoryError, ValueError) as error:
                # Out of memory, say: what is under way is lost, what comes need not be.
                log.exception("a step of the model failed")
                lost, batch = {*batch.indices, *added}, Batch(self.model, self.rows)
                fault = ApiError(500, f"the model failed ({type(error).__name__}): the server's log says more")
                self._loop.call_soon_threadsafe(self._fail, lost, fault)
                continue
            if rows:
                self._loop.call_soon_threadsafe(self._deliver, [_event(row) for row in rows])

    def _take(self, batch: Batch, line: dict[int, Request]) -> bool:
        """Take in what came, waiting where there is nothing to do; False at the end."""
        wait = not batch and not line
        while wait or not self._inbox.empty():
            wait, message = False, self._inbox.get()
            if message is None:
                return False
            number, request = message
            if request is not None:
                line[number] = request
            elif line.pop(number, None) is None:
                batch.drop(number)
        return True


def _event(row: Row) -> tuple[int, Event]:
    return row.index, Event(row.tokens[-1], row.log_probs[-1], tuple(row.likeliest), row.finish, row.fault)
