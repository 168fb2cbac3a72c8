"""Which problems an iteration works on: each environment has its share of the prompts, and of its own problems those
that are less often right come more often (prioritised sampling by success rate, Kimi K1.5 2.3.4)."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, pairwise

from training.job import JobError
from training.rl.environments import Problem

FLOOR = 0.05  # a problem that is always solved is still looked at now and then


def key(problem: Problem) -> str:
    """What its successes are counted under: an id is that of a task, which several environments may ask for."""
    return f"{problem.environment}/{problem.id}"


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
        """`shares`: of the prompts, by environment; where there are none, each environment has as many as problems."""
        sizes = Counter(problem.environment for problem in problems)
        unknown = set(shares) - set(sizes)
        if unknown:
            raise JobError(f"rl.environments names {sorted(unknown)}: the dialogues have {sorted(sizes)}")
        self.shares = {name: share for name, share in (shares or sizes).items() if share > 0}
        self.problems = [problem for problem in problems if problem.environment in self.shares]
        self._places: dict[str, list[int]] = {}
        for place, problem in enumerate(self.problems):
            self._places.setdefault(problem.id, []).append(place)
        self.seen: dict[str, list[int]] = {} if seen is None else seen
        """Right and tried responses by `key`: the state of a run."""

    def place(self, problem: Problem) -> int:
        """Where it, or one equal to it, stands among `problems`: phrasings share an id. Looked for among hundreds of
        thousands, the paused prompts of an iteration would take longer than a minute."""
        return next(place for place in self._places[problem.id] if self.problems[place] == problem)

    def weights(self) -> list[float]:
        """Each problem's weight among those of its environment: 1 - success rate."""
        rates = self.rates()
        found = []
        for problem in self.problems:
            right, tried = self.seen.get(key(problem), (0, 0))
            # the environment's rate counts like four tries of the problem itself
            rate = (right + 4 * rates.get(problem.environment, 0.5)) / (tried + 4)
            found.append(max(FLOOR, 1 - rate))
        return found

    def rates(self) -> dict[str, float]:
        """Success rate so far by environment."""
        sums: dict[str, list[int]] = {}
        # the phrasings of a problem have one record
        for each, environment in {key(problem): problem.environment for problem in self.problems}.items():
            right, tried = self.seen.get(each, (0, 0))
            entry = sums.setdefault(environment, [0, 0])
            entry[0] += right
            entry[1] += tried
        return {name: right / tried for name, (right, tried) in sums.items() if tried}

    def draw(self, count: int, seed: str, without: Collection[str] = (), among: Collection[str] = ()) -> list[Problem]:
        """`count` different prompts: each environment's share of them, to within one, and what is right on the mean of
        many draws. Where an environment has too few problems, the others give the rest.

        Args:
            without: keys of problems that are not drawn; where there are too few others, they are fewer than `count`.
            among: environments that are drawn from; of all where there are none.
        """
        stream = random.Random(seed)
        pools: dict[str, list[Problem]] = {name: [] for name in self.shares if not among or name in among}
        # Efraimidis and Spirakis: the largest of u^(1/w)
        order = [(math.log(1.0 - stream.random()) / weight, place) for place, weight in enumerate(self.weights())]
        for _, place in sorted(order):  # the first to be drawn comes last
            problem = self.problems[place]
            if problem.environment in pools and key(problem) not in without:
                pools[problem.environment].append(problem)
        drawn: list[Problem] = []
        while (missing := count - len(drawn)) and (pools := {name: pool for name, pool in pools.items() if pool}):
            bounds = list(accumulate(self.shares[name] for name in pools))
            offset = stream.random()
            places = [0, *(math.floor(bound / bounds[-1] * missing + offset) for bound in bounds)]
            for pool, (first, last) in zip(pools.values(), pairwise(places), strict=True):
                drawn += [pool.pop() for _ in range(min(last - first, len(pool)))]
        stream.shuffle(drawn)  # ranks, and the steps of an iteration, take them in order
        return drawn

    def record(self, problem: Problem, right: int, tried: int) -> None:
        """Count the responses to a problem."""
        before = self.seen.get(key(problem), [0, 0])
        self.seen[key(problem)] = [before[0] + right, before[1] + tried]
