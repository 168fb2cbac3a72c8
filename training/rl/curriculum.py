"""Which problems an iteration works on: prioritised sampling by success rate (Kimi K1.5 2.3.4)."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Mapping, Sequence
from itertools import islice

from training.rl.environments import Problem

FLOOR = 0.05  # a problem that is always solved is still looked at now and then


class Curriculum:
    """Success rates so far, and weighted draws without replacement.

    A problem never tried counts with its environment's rate, an environment never tried with 0.5.
    """

    def __init__(
        self,
        problems: Sequence[Problem],
        shares: Mapping[str, float],
        seen: dict[str, list[int]] | None = None,
    ) -> None:
        known = {problem.environment for problem in problems}
        unknown = set(shares) - known
        if unknown:
            raise ValueError(f"rl.environments names {sorted(unknown)}: the dialogues have {sorted(known)}")
        self.problems = [problem for problem in problems if not shares or shares.get(problem.environment, 0.0) > 0]
        self.seen: dict[str, list[int]] = {} if seen is None else seen
        """Right and tried responses by problem id: the state of a run."""
        sizes: dict[str, int] = {}
        for problem in self.problems:
            sizes[problem.environment] = sizes.get(problem.environment, 0) + 1
        self._base = {name: shares[name] / size if shares else 1.0 for name, size in sizes.items()}

    def weights(self) -> list[float]:
        """Each problem's weight: its environment's share, times 1 - success rate."""
        rates = self.rates()
        found = []
        for problem in self.problems:
            right, tried = self.seen.get(problem.id, (0, 0))
            # the environment's rate counts like four tries of the problem itself
            rate = (right + 4 * rates.get(problem.environment, 0.5)) / (tried + 4)
            found.append(self._base[problem.environment] * max(FLOOR, 1 - rate))
        return found

    def rates(self) -> dict[str, float]:
        """Success rate so far by environment."""
        sums: dict[str, list[int]] = {}
        for problem in self.problems:
            right, tried = self.seen.get(problem.id, (0, 0))
            entry = sums.setdefault(problem.environment, [0, 0])
            entry[0] += right
            entry[1] += tried
        return {name: right / tried for name, (right, tried) in sums.items() if tried}

    def draw(self, count: int, seed: str, without: Collection[str] = ()) -> list[Problem]:
        """`count` different prompts (Efraimidis and Spirakis: the largest of u^(1/w)).

        Args:
            without: ids of problems that are not drawn; where there are too few others, they are fewer than `count`.
        """
        if count > len(self.problems):
            raise ValueError(f"an iteration wants {count} prompts of {len(self.problems)}: lower rl.prompts")
        stream = random.Random(seed)
        keys = [(math.log(1.0 - stream.random()) / weight, place) for place, weight in enumerate(self.weights())]
        drawn = (self.problems[place] for _, place in sorted(keys, reverse=True))
        return list(islice((problem for problem in drawn if problem.id not in without), count))

    def record(self, problem: Problem, right: int, tried: int) -> None:
        """Count the responses to a problem."""
        before = self.seen.get(problem.id, [0, 0])
        self.seen[problem.id] = [before[0] + right, before[1] + tried]
