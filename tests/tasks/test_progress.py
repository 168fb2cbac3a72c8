"""Ticks, rates and the listeners that must never fail a stage."""

from __future__ import annotations

import logging

import pytest

from tasks.progress import Progress, Tick, clock, listen


def tick(**fields) -> Tick:
    return Tick(**{"label": "x", "done": 0, "total": 10, "unit": "docs", "note": "", "elapsed": 0, "first": 0} | fields)


def test_the_rate_counts_this_attempt_only():
    resumed = tick(done=60, total=100, first=50, elapsed=5)
    assert resumed.rate == 2
    assert resumed.eta == 20
    assert "60 of 100 docs (60 %), 2.0/s, 0:20 left" in resumed.sentence()


def test_nothing_done_yet_has_no_eta():
    assert tick(elapsed=3).eta is None
    assert "left" not in tick(elapsed=3).sentence()


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0:00"), (59.6, "1:00"), (125, "2:05"), (3600, "1:00:00"), (7325, "2:02:05")]
)
def test_clock(seconds, shown):
    assert clock(seconds) == shown


def test_amounts_are_added_while_no_other_thread_can_add():
    progress, held = Progress("x", 10, "docs"), []

    class Amount(float):
        def __radd__(self, done):
            held.append(progress._lock.locked())
            return done + float(self)

    progress.advance(Amount(2))
    assert progress.done == 2
    assert held == [True]


def test_listeners_hear_the_first_the_last_and_not_every_one_between():
    heard: list[float] = []
    with listen(lambda tick: heard.append(tick.done)), Progress("x", 1000, "docs") as progress:
        for _ in range(1000):
            progress.advance()
    assert heard[0] == 0
    assert heard[-1] == 1000
    assert len(heard) < 20


def test_a_broken_listener_is_dropped_and_the_work_goes_on(caplog):
    heard: list[float] = []

    def broken(_: Tick) -> None:
        raise RuntimeError("no server")

    with caplog.at_level(logging.ERROR), listen(lambda tick: heard.append(tick.done)):
        with listen(broken), Progress("x", 2, "docs", every=0) as progress:
            progress.advance()
            progress.advance()
    assert heard[-1] == 2
    assert "dropped" in caplog.text
