"""What a right dialogue meets, said before it begins (K2 report 3.1.1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from training.rl.worlds.world import State


@dataclass(frozen=True)
class Checkpoint:
    """A call that must be made."""

    tool: str
    arguments: Mapping[str, Any]
    allowed: bool = True
    """False where permission is missing: then it must have been tried."""


@dataclass(frozen=True)
class Rubric:
    """Criteria in words, for people and judges, and what of them a program can check."""

    criteria: tuple[str, ...]
    pattern: tuple[str, ...]
    """Tools in the order in which a script calls them, for judges; other calls may stand between."""
    checkpoints: tuple[Checkpoint, ...]
    """The calls of the pattern, with their arguments."""
    final: State
    """The state in which a right dialogue leaves the world."""
    says: tuple[tuple[str, ...], ...]
    """Facts that the assistant must say, each in one of its forms."""

    @property
    def most_calls(self) -> int:
        """More calls than these are a dialogue that does not get on: every call twice, and some looking around."""
        return 2 * len(self.checkpoints) + 4
