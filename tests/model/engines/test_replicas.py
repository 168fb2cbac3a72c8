"""Routing, health and back-pressure as a state machine, on a clock that the tests turn."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from model.engines.replicas import LONGEST_REST, SICK, Replica, Replicas


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def replicas(count: int = 2, slots: int = 8) -> tuple[Replicas, Clock]:
    clock = Clock()
    return Replicas([f"http://{number}" for number in range(count)], slots, 1.0, clock), clock


def take(some: Replicas, session: str = "") -> Replica:
    found = some.take(session)
    assert found is not None
    return found


def test_the_least_loaded_replica_is_taken_and_a_session_stays_where_it_was() -> None:
    some, _ = replicas(3)
    homes = {session: take(some, session) for session in "abc"}
    assert len({replica.url for replica in homes.values()}) == 3
    some.succeeded(homes["b"])
    assert take(some) is homes["b"]
    assert take(some, "a") is homes["a"]  # though it has more in flight


def test_no_more_fly_than_there_are_slots() -> None:
    some, _ = replicas(2, slots=3)
    assert [some.take("") is not None for _ in range(4)] == [True, True, True, False]


def test_a_busy_replica_is_halved_once_a_round_and_grows_again() -> None:
    some, clock = replicas(1, slots=64)
    flying = [take(some) for _ in range(64)]
    clock.now = 1.0
    for replica in flying:
        some.overloaded(replica, sent=0.0, asked=0.0)
    (one,) = some.all
    assert one.limit == 32
    for _ in range(200):
        clock.now += 1
        some.succeeded(take(some))
    assert 32 < one.limit <= 64
    some.overloaded(take(some), sent=clock.now, asked=7.0)
    assert some.take("") is None
    assert some.wait() == 7.0
    assert some.resting(6.9)
    assert not some.resting(7.1)
    clock.now += 7.0
    assert some.take("") is one


def test_a_dead_replica_rests_longer_each_time_and_returns_with_one_request() -> None:
    some, clock = replicas(2)
    dead, well = take(some, "x"), take(some, "y")
    some.failed(dead, sent=0.0, lost=True)
    rests = []
    for _ in range(8):
        assert take(some, "x") is well  # its session moved
        some.left(well)
        rest = some.wait()
        assert rest is not None
        rests.append(rest)
        clock.now = max(clock.now + rest, dead.until)  # the sum may be rounded to just before it
        while (found := take(some)) is not dead:
            pass
        assert not dead.room(clock.now)  # on probation
        for replica in some.all:
            while replica is not dead and replica.flying:
                some.succeeded(replica)
        some.failed(found, sent=clock.now, lost=True)
        clock.now += 0.001
    assert rests[0] <= 1 < rests[3]
    assert max(rests) <= LONGEST_REST
    clock.now += LONGEST_REST
    while take(some) is not dead:
        pass
    some.succeeded(dead)
    assert dead.room(clock.now)
    assert not dead.down


def test_a_crowd_that_fails_together_is_one_failure() -> None:
    some, clock = replicas(1, slots=16)
    for round_ in range(SICK):
        assert not some.all[0].down
        flying = [take(some) for _ in range(16)]
        clock.now += 1
        for replica in flying:
            some.failed(replica, sent=clock.now - 1, lost=False)
        assert some.all[0].failures == round_ + 1
    assert some.all[0].down


@given(st.lists(st.tuples(st.sampled_from("tsbfol"), st.integers(0, 5), st.floats(0, 40)), max_size=120))
def test_whatever_happens_the_counts_hold_and_nothing_is_stuck_for_ever(steps: list[tuple[str, int, float]]) -> None:
    some, clock = replicas(3, slots=5)
    flying: list[Replica] = []
    for what, which, seconds in steps:
        clock.now += seconds
        if what == "t" or not flying:
            if (found := some.take(f"s{which}")) is not None:
                flying.append(found)
        else:
            replica = flying.pop(which % len(flying))
            if what == "s":
                some.succeeded(replica)
            elif what == "b":
                some.overloaded(replica, clock.now - seconds, asked=which)
            elif what == "l":
                some.left(replica)
            else:
                some.failed(replica, clock.now - seconds, lost=what == "o")
        assert some.flying == len(flying) <= 5
        assert all(1 <= replica.limit <= 5 for replica in some.all)
    for replica in flying:
        some.left(replica)
    clock.now += LONGEST_REST + 5
    assert some.take("") is not None
