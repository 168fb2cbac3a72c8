"""One row of what people ask for: its arguments, the calls that do it, the clauses that ask for it, how it is answered.

Clauses are imperatives, so that every frame (wording.py) takes them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from training.rl.worlds.wording import Language, expand

Data = Mapping[str, Any]
Call = tuple[str, dict[str, Any]]
"""A function's name and its arguments."""
Facts = Callable[[list[Any]], Mapping[str, Any]]


def nothing(results: list[Any]) -> Mapping[str, Any]:
    return {}


def last(*names: str) -> Facts:
    """What the last result of a plan says under these names."""
    return lambda results: {name: results[-1][name] for name in names}


@dataclass(frozen=True)
class Family:
    """One kind of task."""

    name: str
    world: str
    draw: Callable[[Data, random.Random], dict[str, Any] | None]
    """Arguments as a user wants them; None where this state has none."""
    plan: Callable[[Data, dict[str, Any]], list[Call]]
    """The calls that do it, each of whose arguments is said by the user or by a result before it."""
    english: tuple[str, ...]
    """Grammars, with the arguments as fields."""
    chinese: tuple[str, ...]
    """The same; empty where nobody asks in it."""
    answer: Mapping[Language, str]
    """The last turn, with arguments and facts as fields."""
    facts: Facts = nothing
    """What the last turn must say, from the results of the plan."""
    withheld: Mapping[str, Mapping[Language, str]] = field(default_factory=dict)
    """Arguments that a forgetful user leaves out, each with the clauses that lack it."""

    def wordings(self, language: Language) -> list[str]:
        grammars = self.english if language == "english" else self.chinese
        return [clause for grammar in grammars for clause in expand(grammar)]


def both(english: tuple[str, ...], chinese: tuple[str, ...]) -> Mapping[Language, tuple[str, ...]]:
    return {"english": english, "chinese": chinese}


def pair(english: str, chinese: str) -> Mapping[Language, str]:
    return {"english": english, "chinese": chinese}
