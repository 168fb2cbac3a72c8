"""A drawn dialogue, before it is judged and tokenised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from expectations.config import NOT_CHOSEN
from model.dialogue import compact
from training.rl.environments import Problem

SCRIPT = "script"
"""A program played the assistant."""
BY_JUDGE = "the judge: it does not meet its rubric"
TOO_LONG = "too many tokens"
BY_PEOPLE = "people refused it"
FILTERS: Mapping[str, str] = {
    "rules": "rules",
    "judge": "the judge",
    "length": "length",
    "people": "people",
    "choice": "another play was better",
}
"""The filters, in their order, as they are called in tables."""
_REASONS = {BY_JUDGE: "judge", TOO_LONG: "length", BY_PEOPLE: "people", NOT_CHOSEN: "choice"}


def filter_of(reason: str) -> str:
    """The filter that refuses for this reason."""
    return _REASONS.get(reason, "rules")


@dataclass(frozen=True)
class Dialogue:
    """What a maker of dialogues gives."""

    problem: Problem
    """What the first request asks, for RL and for the measures."""
    messages: list[dict[str, Any]]
    broken: str | None = None
    """The criterion that it breaks, in words to count it by; None where it meets all."""
    work: tuple[str, ...] = ()
    """Every problem that is solved in it, for the split."""
    unseen: tuple[str, ...] = ()
    """What in it no training dialogue has."""
    player: str = SCRIPT
    """Who played the assistant, and how: `script`, `script: recovering`, `model: NAME`."""
    persona: str = ""
    """Who the user is (training/rl/worlds/personas.py); empty where nobody in particular asks."""
    topic: str = ""
    """What results are told apart by within an environment: the function of the first call, the family of a world."""
    licence: str = ""
    """Of what in it others wrote: the declarations and results of real tools."""
    rubric: Mapping[str, Any] = field(default_factory=dict)
    """What a right dialogue meets, as `tasks.agentic.rubric.shown` gives it."""
    verdicts: Mapping[str, str] = field(default_factory=lambda: {"rules": "passed"})
    """What each filter said of one that is kept."""
    others: tuple[Dialogue, ...] = ()
    """Other plays of its task, the better first: the first of all that every filter passes is kept."""

    @property
    def columns(self) -> dict[str, Any]:
        """What every table of dialogues has of it, kept or refused."""
        return {
            "environment": self.problem.environment,
            "topic": self.topic,
            "player": self.player,
            "persona": self.persona,
            "rubric": compact(dict(self.rubric)),
            "messages": compact(self.messages),
            "tools": compact(list(self.problem.tools)),
        }
