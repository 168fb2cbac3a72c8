"""Which replica of an endpoint a request goes to, and how many may be in flight there.

A session keeps to its replica, where its prefix is cached, while that one is healthy and has room; all else goes to the
least loaded. A replica that says it is busy gets half as many requests, and one more for each round of successes
(additive increase, multiplicative decrease). One that fails rests, longer each time, and comes back with one request at
a time until that succeeds. Nothing here waits or sends: the state belongs to one event loop.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

SICK = 3
"""Rounds of failures in a row that make a replica rest; a connection that cannot be had makes it rest at once."""
LONGEST_REST = 30.0
SESSIONS = 4096
"""Sessions whose replica is remembered."""


@dataclass
class Replica:
    """One base URL and how it has behaved."""

    url: str
    limit: float
    """Requests that it may have in flight."""
    flying: int = 0
    taken: int = 0
    failures: int = 0
    """Rounds of failures in a row."""
    fell: float = float("-inf")
    """When the last of them was counted."""
    down: bool = False
    """Resting, or on probation after it."""
    until: float = 0.0
    """End of its rest."""
    cut: float = float("-inf")
    """When its limit was last halved."""
    busy: int = 0
    """Rounds in a row in which it was too busy."""

    def room(self, now: float) -> bool:
        """Whether a request may go there now."""
        return now >= self.until and self.flying < (1 if self.down else max(1, int(self.limit)))


class Replicas:
    """All replicas of one endpoint."""

    def __init__(self, urls: Sequence[str], slots: int, backoff: float, clock: Callable[[], float]) -> None:
        self.all = [Replica(url, float(slots)) for url in urls]
        self.slots, self.backoff, self._clock = slots, backoff, clock
        self._homes: OrderedDict[str, Replica] = OrderedDict()

    @property
    def flying(self) -> int:
        return sum(replica.flying for replica in self.all)

    def take(self, session: str) -> Replica | None:
        """The replica for a request of `session`, now one more in flight there; None where none has room."""
        now = self._clock()
        free = [replica for replica in self.all if replica.room(now)] if self.flying < self.slots else []
        if not free:
            return None
        home = self._homes.get(session) if session else None
        found = home if home in free else min(free, key=lambda replica: (replica.flying, replica.taken))
        assert found is not None
        if session:
            self._homes[session] = found
            self._homes.move_to_end(session)
            if len(self._homes) > SESSIONS:
                self._homes.popitem(last=False)
        found.flying += 1
        found.taken += 1
        return found

    def resting(self, seconds: float) -> bool:
        """Whether every replica rests for longer than `seconds`."""
        now = self._clock()
        return all(replica.until - now > seconds for replica in self.all)

    def wait(self) -> float | None:
        """Seconds until a resting replica comes back; None where none rests."""
        now = self._clock()
        resting = [replica.until - now for replica in self.all if replica.until > now]
        return min(resting) if resting else None

    def succeeded(self, replica: Replica) -> None:
        """A request was answered, were it with a refusal of the prompt: the replica is well."""
        self._land(replica)
        replica.failures = replica.busy = 0
        replica.down = False
        replica.limit = min(float(self.slots), replica.limit + 1 / replica.limit)

    def overloaded(self, replica: Replica, sent: float, asked: float) -> None:
        """A request sent at `sent` was turned away; `asked`: seconds that the replica wants to be left alone, or 0."""
        flying = replica.flying
        self._land(replica)
        now = self._clock()
        if sent >= replica.cut:  # one cut a round: what was sent before it says nothing new
            replica.limit = max(1.0, min(replica.limit, float(flying)) / 2)
            replica.cut = now
            replica.busy += 1
        rest = asked or (self._pause(replica.busy - 1) if replica.busy > 1 else 0.0)
        replica.until = max(replica.until, now + rest)

    def failed(self, replica: Replica, sent: float, lost: bool) -> None:
        """A request sent at `sent` failed; `lost`: no connection could be had."""
        self._land(replica)
        now = self._clock()
        if sent >= replica.fell:  # a crowd that fails together is one failure
            replica.failures += 1
            replica.fell = now
        if lost or replica.down or replica.failures >= SICK:
            replica.down = True
            replica.until = max(replica.until, now + self._pause(replica.failures))

    def left(self, replica: Replica) -> None:
        """A request was cancelled: nothing was learnt."""
        self._land(replica)

    def _land(self, replica: Replica) -> None:
        replica.flying -= 1

    def _pause(self, times: int) -> float:
        """Half to the whole of a pause that doubles each time: replicas must not all come back at once."""
        return min(self.backoff * 2.0 ** min(times - 1, 16), LONGEST_REST) * (0.5 + random.random() / 2)
