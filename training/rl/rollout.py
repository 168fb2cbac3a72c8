"""Rollouts: responses of a policy to problems, as token ids with their log-probabilities, judged and priced.

Token ids are kept from end to end: a response is trained on as it was sampled, never tokenised again. Every response
has a seed of its own, so that no draw depends on how the batch was cut, nor on how many ranks share it.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from model.chat import Chat
from model.transformer import Transformer
from training.parallel import World
from training.rl.config import RewardConfig
from training.rl.environments import Problem, scores
from training.rl.rewards import group_rewards
from training.rl.sampling import Response, sample, seeded

GREEDY = 0.0


@dataclass(frozen=True)
class Group:
    """One problem, K responses to it and what they are worth."""

    problem: Problem
    prompt: list[int]
    responses: list[Response]
    scores: list[float]
    """The verifier's: 1.0 for right, 0.0 for anything else; what was cut at its budget is never right."""
    rewards: list[float]

    @property
    def informative(self) -> bool:
        """Whether the rewards differ: a group of equal rewards has no advantage, and no gradient."""
        return len(set(self.rewards)) > 1


def roll_out(
    model: Transformer,
    chat: Chat,
    problems: Sequence[Problem],
    samples: int,
    temperature: float,
    seed: str,
    config: RewardConfig,
    dtype: str,
    world: World | None = None,
    beat: Callable[[str], None] = lambda doing: None,
) -> list[Group]:
    """`samples` responses to each problem, one group a problem in their order: the same on every rank.

    Args:
        temperature: 0 takes the likeliest token at each position.
        seed: names the draw; response j to the i-th problem has the stream (seed, i, j).
        world: the ranks that share the problems, each with the whole model; this one alone by default.
        beat: hears of every token.
    """
    world = world or World()
    mine = range(world.rank, len(problems), world.size)  # in turn: neighbours are of one environment, alike in length
    prompts = [chat.prompt(problems[place].messages, problems[place].tools) for place in mine]
    budgets = [config.budget_of(problems[place].environment) for place in mine]
    seeds = [[seeded(seed, place, draw) for draw in range(samples)] for place in mine]
    drawn = sample(model, prompts, budgets, seeds, temperature, chat.stop, dtype, beat)
    groups = {
        place: _judged(problems[place], chat, prompt, responses, config)
        for place, prompt, responses in zip(mine, prompts, drawn, strict=True)
    }
    beat("the other ranks' replies")
    everyones = {place: group for each in world.gather(groups) for place, group in each.items()}
    return [everyones[place] for place in range(len(problems))]


def _judged(problem: Problem, chat: Chat, prompt: list[int], responses: list[Response], config: RewardConfig) -> Group:
    judged = scores(problem, [chat.parse(response.ids) for response in responses])
    right = [score if response.finished else 0.0 for score, response in zip(judged, responses, strict=True)]
    lengths = [len(response.ids) for response in responses]
    finished = [response.finished for response in responses]
    return Group(problem, prompt, responses, right, group_rewards(right, lengths, finished, config))


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high): a 95 % interval of the mean of independent values, by the normal approximation."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, mean, mean
    half = 1.96 * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


@dataclass(frozen=True)
class Evaluation:
    """Pass rates on held-out problems. Rates of single problems are kept, so that two evaluations can be paired."""

    environments: list[str]
    """Of each problem."""
    sampled: list[float]
    """Share of right samples at temperature 1, by problem."""
    greedy: list[float]
    """1.0 where the likeliest reply is right, by problem; empty where greedy decoding was left out."""
    finished: float
    """Share of sampled replies that ended by themselves."""

    def of(self, gate: Sequence[str] = ()) -> Evaluation:
        """The part of some environments; none given means all but `tool_call`, or all where there is nothing else."""
        chosen = set(gate) or set(self.environments) - {"tool_call"} or set(self.environments)
        kept = [place for place, name in enumerate(self.environments) if name in chosen]
        if not kept:
            raise ValueError(f"no held-out problem belongs to {', '.join(sorted(chosen))}")
        return Evaluation(
            [self.environments[place] for place in kept],
            [self.sampled[place] for place in kept],
            [self.greedy[place] for place in kept] if self.greedy else [],
            self.finished,
        )

    def record(self) -> dict[str, Any]:
        """Means with 95 % intervals over problems, all together and by environment."""
        result: dict[str, Any] = {"problems": len(self.sampled), "finished": self.finished, **self._rates()}
        names = sorted(set(self.environments))
        result["by_environment"] = {name: {"problems": self.environments.count(name)} for name in names}
        for name in names:
            result["by_environment"][name].update(self.of([name])._rates())
        return result

    def _rates(self) -> dict[str, Any]:
        rates: dict[str, Any] = {}
        for name, values in (("sampled", self.sampled), ("greedy", self.greedy)):
            if values:
                mean, low, high = interval(values)
                rates |= {name: mean, f"{name}_interval": [max(0.0, low), min(1.0, high)]}
        return rates


def evaluate(
    model: Transformer,
    chat: Chat,
    problems: Sequence[Problem],
    samples: int,
    seed: str,
    config: RewardConfig,
    dtype: str,
    greedy: bool = True,
    world: World | None = None,
    beat: Callable[[str], None] = lambda doing: None,
) -> Evaluation:
    """Pass@1 on `problems`, sampled at temperature 1 and greedy; the same seed gives the same draws of noise."""
    model.eval()
    drawn = roll_out(model, chat, problems, samples, 1.0, seed, config, dtype, world, beat)
    likeliest = roll_out(model, chat, problems, 1, GREEDY, seed, config, dtype, world, beat) if greedy else []
    done = [response.finished for group in drawn for response in group.responses]
    return Evaluation(
        [problem.environment for problem in problems],
        [statistics.fmean(group.scores) for group in drawn],
        [group.scores[0] for group in likeliest],
        statistics.fmean(map(float, done)),
    )


def first_of_each(problems: Sequence[Problem], count: int) -> list[Problem]:
    """The first `count` problems of every environment, in their order."""
    taken: dict[str, int] = {}
    kept = []
    for problem in problems:
        if taken.get(problem.environment, 0) < count:
            taken[problem.environment] = taken.get(problem.environment, 0) + 1
            kept.append(problem)
    return kept
