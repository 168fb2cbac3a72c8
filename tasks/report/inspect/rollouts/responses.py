"""The responses that a run of reinforcement learning recorded (`training/rl/records.py`), as they are looked at."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from model.reply import END

GROUP = "rollouts"
"""Of the artifact's parts."""
PRACTICE, SAMPLED, GREEDY = "practice", "sampled", "greedy"
RIGHT = 1.0


@dataclass(frozen=True)
class Response:
    """One response to a prompt."""

    iteration: int
    """Of practice from 1; of a measurement how many came before it."""
    kind: str
    """practice; on held-out prompts sampled or greedy."""
    problem: str
    environment: str
    answer: str
    """What the verifier compares with, JSON."""
    place: int
    """Among the responses to its prompt."""
    prompt: str
    pieces: tuple[str, ...]
    """The text of each token."""
    versions: tuple[int, ...]
    """The policy that drew each; -1 for what tools and users said."""
    log_probs: tuple[float, ...]
    score: float
    reason: str
    finished: bool
    reward: float
    rewards: Mapping[str, float | None]
    """By source."""

    @cached_property
    def turns(self) -> list[tuple[bool, list[tuple[str, float]]]]:
        """The episode behind its prompt, run by run: whether the policy wrote it, and its tokens with their
        log-probabilities."""
        triples = zip(self.versions, self.pieces, self.log_probs, strict=True)
        return [
            (wrote, [(piece, log_prob) for _, piece, log_prob in run])
            for wrote, run in groupby(triples, lambda triple: triple[0] >= 0)
        ]

    @cached_property
    def reply(self) -> str:
        """Everything that the policy wrote, without the ends of its turns."""
        turns = ("".join(piece for piece, _ in run) for wrote, run in self.turns if wrote)
        return "\n".join(turn.removesuffix(END).strip() for turn in turns)

    @property
    def tokens(self) -> int:
        """Tokens that policies drew."""
        return sum(version >= 0 for version in self.versions)

    @property
    def right(self) -> bool:
        return self.score == RIGHT

    @property
    def policies(self) -> list[int]:
        """The policies that drew it: several where it was paused."""
        return sorted({version for version in self.versions if version >= 0})

    @property
    def confidence(self) -> float:
        """Mean log-probability of what the policy drew; 0 where it drew greedily."""
        drawn = zip(self.versions, self.log_probs, strict=True)
        return mean(log_prob for version, log_prob in drawn if version >= 0)


def read(files: Iterable[Path], environment: str = "", problem: str = "") -> list[Response]:
    """All responses of these files, or those of one environment or to one prompt (the start of its id)."""
    return [
        response
        for path in files
        for response in _rows(path)
        if environment in ("", response.environment) and response.problem.startswith(problem)
    ]


def _rows(path: Path) -> Iterator[Response]:
    """Row by row: a file is one iteration."""
    for row in pq.read_table(path, columns=[field.name for field in fields(Response)]).to_pylist():
        values: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in row.items()}
        yield Response(**values)


def environments(responses: Sequence[Response]) -> list[str]:
    return sorted({response.environment for response in responses})


def of(responses: Iterable[Response], **wanted: Any) -> list[Response]:
    """Those whose fields have these values."""
    return [one for one in responses if all(getattr(one, name) == value for name, value in wanted.items())]


def by_problem(responses: Iterable[Response]) -> dict[tuple[str, str], list[Response]]:
    """The responses to each prompt, by environment (several may ask for one problem) and problem, in the order in which
    those come."""
    found: dict[tuple[str, str], list[Response]] = {}
    for one in responses:
        found.setdefault((one.environment, one.problem), []).append(one)
    return found


def ends(responses: Sequence[Response]) -> tuple[list[Response], list[Response]]:
    """Practice in the first and in the last recorded iteration."""
    practice = of(responses, kind=PRACTICE)
    numbers = [one.iteration for one in practice]
    return of(practice, iteration=min(numbers, default=0)), of(practice, iteration=max(numbers, default=0))


def mean(values: Iterable[float]) -> float:
    """0 of nothing."""
    found = list(values)
    return statistics.fmean(found) if found else 0.0
