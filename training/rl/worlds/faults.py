"""What goes wrong with calls, by seed: a world's answers as a real service gives them.

A fault depends on the seed and the number of the call in its dialogue alone, so that a dialogue can be replayed. Two
calls in a row never fail: whoever tries again gets through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from training.draw import draw
from training.rl.worlds.world import Outcome, State, World, refused

TIMEOUT = 30
"""Seconds after which a caller stops waiting, as it is told."""


@dataclass(frozen=True)
class Faults:
    """Which calls fail, and how."""

    seed: int = 0
    transient: float = 0.0
    """Share of calls that are refused for the moment; nothing was done."""
    lost: float = 0.0
    """Share of calls that are done, and whose answer never comes: a partial failure."""
    denied: frozenset[str] = frozenset()
    """Functions for which permission is missing, in the whole dialogue."""

    def call(self, world: World, state: State, name: str, arguments: Any, number: int) -> Outcome:
        """`world.call`, as call `number` of a dialogue, with the faults that are due."""
        if name in self.denied:
            return refused(state, "permission_denied", "permission is missing for this tool")
        due = self._due(number) if self.fails(number) else None
        if due == "transient":
            return refused(state, "unavailable", "the service is busy for a moment")
        outcome = world.call(state, name, arguments)
        if due == "lost" and outcome.error is None:
            return refused(outcome.state, "timeout", f"no answer within {TIMEOUT} s; it may have been done")
        return outcome

    def fails(self, number: int) -> bool:
        """Whether call `number` may fail."""
        return number >= 0 and self._due(number) is not None and not self.fails(number - 1)

    def _due(self, number: int) -> str | None:
        chance = draw("agentic-fault", self.seed, str(number))
        if number >= 0 and chance < self.transient:
            return "transient"
        return "lost" if number >= 0 and chance < self.transient + self.lost else None
