"""Rollouts: groups of responses of a policy to problems, judged and priced; and pass rates from them.

Ranks share the problems, each with the whole model, and tell each other what came of them. `episodes.py` says
how a response goes on.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import torch

from model.chat import Chat
from model.generate import Batch
from model.transformer import Transformer
from training.intervals import mean
from training.parallel import World
from training.rl.config import MAX_ROWS, RewardConfig
from training.rl.endpoint import Endpoint, EndpointBatch
from training.rl.environments import Problem, Services
from training.rl.episodes import Episode, Limits, Stage
from training.rl.rewards import group_rewards

GREEDY = 0.0
CRITIQUE = "critique"
"""The verifier of problems whose replies a critic compares."""
T = TypeVar("T")


@dataclass(frozen=True)
class Ended:
    """What is kept of a response that has ended while others to its prompt are paused: they are compared with it."""

    score: float
    finished: bool
    length: int
    """Tokens that policies drew."""
    turn: list[int]
    """Its last turn, where a critic reads it; empty elsewhere."""

    @classmethod
    def of(cls, problem: Problem, episode: Episode) -> Ended:
        """What is kept of `episode`."""
        read = problem.verifier == CRITIQUE and episode.score == 1.0
        return cls(episode.score, episode.finished, episode.written, episode.turns()[-1] if read else [])


@dataclass(frozen=True)
class Group:
    """One problem, the responses to it that have ended, and what they are worth."""

    problem: Problem
    responses: list[Episode]
    rewards: list[float]
    earlier: tuple[float, ...] = ()
    """Rewards of other responses to it, which ended under earlier policies and were trained on then: what they are
    worth beside all that have ended by now."""
    before: tuple[Ended, ...] = ()
    """Those responses."""

    @property
    def prompt(self) -> list[int]:
        return self.responses[0].prompt

    @property
    def scores(self) -> list[float]:
        """The environment's: 1.0 for right, 0.0 for anything else; what was cut is never right."""
        return [response.score for response in self.responses]

    @property
    def baseline(self) -> float:
        """The mean reward of all its responses so far."""
        return statistics.fmean((*self.rewards, *self.earlier))

    @property
    def informative(self) -> bool:
        """Whether the rewards differ: a group of equal rewards has no advantage, and no gradient."""
        return len({*self.rewards, *self.earlier}) > 1


@dataclass(frozen=True)
class Open:
    """A problem with responses that are under way."""

    problem: Problem
    episodes: list[Episode]
    before: tuple[Ended, ...] = ()
    """Responses that have ended."""

    def record(self, place: int) -> dict[str, Any]:
        """It as JSON has it; `place` says which problem it is."""
        episodes = [episode.record() for episode in self.episodes]
        return {"problem": place, "episodes": episodes, "before": [asdict(one) for one in self.before]}

    @classmethod
    def of(cls, record: dict[str, Any], problems: Sequence[Problem]) -> Open:
        """What `record` gave."""
        episodes = [Episode(**episode) for episode in record["episodes"]]
        return cls(problems[record["problem"]], episodes, tuple(Ended(**one) for one in record["before"]))


def opened(problems: Sequence[Problem], samples: int, seed: str) -> list[Open]:
    """`samples` responses to each problem, not yet begun; response j to the i-th one has the stream (seed, i, j)."""
    return [
        Open(problem, [Episode(f"{seed}/{place}/{draw}") for draw in range(samples)])
        for place, problem in enumerate(problems)
    ]


@dataclass(frozen=True)
class Player:
    """What plays: a model, how it is sampled, and who shares the work."""

    model: Transformer
    chat: Chat
    temperature: float
    """0 takes the likeliest token at each position."""
    rewards: RewardConfig
    dtype: str
    services: Services
    version: int = 0
    """Of the policy."""
    segment: int | None = None
    """Tokens that it may draw of an episode, which is paused then; None lets every episode end."""
    world: World | None = None
    """The ranks that share the problems, each with the whole model; this one alone by default."""
    beat: Callable[[str], None] = lambda doing: None
    """Hears of every token."""
    routes: bool = False
    """Whether episodes keep the experts that each token is routed to."""
    endpoint: Endpoint | None = None
    """Servers that sample in place of the model, whose weights they have."""

    def roll_out(self, work: Sequence[Open]) -> tuple[list[Group], list[Open]]:
        """What has ended of each problem, and what is paused, in their order: the same on every rank."""
        world = self.world or World()
        mine = range(world.rank, len(work), world.size)  # in turn: neighbours are of one environment, alike in length
        self._play([(work[place].problem, episode) for place in mine for episode in work[place].episodes])
        self.beat("the other ranks' replies")
        ordered = self.share(work, lambda one: one)
        groups = [group for one in ordered if (group := self._judged(one)) is not None]
        return groups, [left for one in ordered if (left := self._left(one)).episodes]

    def sampled(self, problems: Sequence[Problem], samples: int, seed: str) -> list[Group]:
        """`samples` whole responses to each problem, one group a problem in their order; `seed` names the draw."""
        return replace(self, segment=None).roll_out(opened(problems, samples, seed))[0]

    def rest(self) -> None:
        """Nothing more is sampled until there are other weights: servers may sleep, before any rank takes the memory
        that they leave."""
        if self.endpoint is not None:
            self.beat("the rollouts' servers")
            world = self.world or World()
            if world.rank == 0:
                self.endpoint.sleep()
            world.barrier()

    def _play(self, pairs: Sequence[tuple[Problem, Episode]]) -> None:
        """Play each episode of the problem beside it to its end, or until it is paused."""
        problems, episodes = [problem for problem, _ in pairs], [episode for _, episode in pairs]
        limits = Limits(self.rewards, self.model.config.max_position_embeddings, self.segment)
        given = (self.chat, problems, episodes, self.temperature, limits, self.version, self.services, self.beat)
        device = self.model.embed_tokens.weight.device.type
        with (
            closing(Stage(*given)) as stage,
            torch.autocast(device, torch.bfloat16, enabled=self.dtype == "bfloat16"),
        ):
            batch: Batch | EndpointBatch = Batch(self.model, MAX_ROWS, self.routes)
            if self.endpoint is not None:
                batch = EndpointBatch(self.endpoint, self.model.config.vocab_size)
            while True:
                while batch.room and (place := stage.next()) is not None:
                    batch.add(place, stage.request(place))
                if not batch:
                    return
                for row in batch.step():
                    self.beat("a token of a reply")
                    if row.fault:
                        raise ValueError(f"problem {problems[row.index].id}: {row.fault}")
                    # a row that comes back whole is looked at as it would have been on its way
                    end = len(row.tokens)
                    ways = range(1 if self.endpoint else end, end + (row.finish != "stop"))
                    loop = next((n for n in ways if stage.repeats(row.index, row.tokens[:n])), None)
                    if loop and isinstance(batch, Batch):
                        batch.drop(row.index)
                    if row.finish or loop:
                        kept = slice(loop)
                        stage.hear(row.index, row.tokens[kept], row.tempered[kept], bool(loop), row.experts_TLA)

    def share(self, items: Sequence[T], work: Callable[[T], T]) -> list[T]:
        """What `work` makes of each item, in their order on every rank; each rank does its share."""
        world = self.world or World()
        done = {place: work(items[place]) for place in range(world.rank, len(items), world.size)}
        everyones = {place: one for each in world.gather(done) for place, one in each.items()}
        return [everyones[place] for place in range(len(items))]

    def _judged(self, work: Open) -> Group | None:
        ended = [episode for episode in work.episodes if episode.ended]
        if not ended:
            return None
        every = [*work.before, *(Ended.of(work.problem, episode) for episode in ended)]
        rewards = group_rewards(
            [one.score for one in every],
            [one.length for one in every],
            [one.finished for one in every],
            self.rewards,
        )
        first = len(work.before)
        return Group(work.problem, ended, rewards[first:], tuple(rewards[:first]), work.before)

    def _left(self, work: Open) -> Open:
        ended = [Ended.of(work.problem, episode) for episode in work.episodes if episode.ended]
        going_on = [episode for episode in work.episodes if not episode.ended]
        return replace(work, episodes=going_on, before=(*work.before, *ended))


def roll_out(
    model: Transformer,
    chat: Chat,
    problems: Sequence[Problem],
    samples: int,
    temperature: float,
    seed: str,
    config: RewardConfig,
    dtype: str,
) -> list[Group]:
    """`samples` whole responses to each problem, one group a problem in their order; `seed` names the draw."""
    with Services() as services:
        return Player(model, chat, temperature, config, dtype, services).sampled(problems, samples, seed)


@dataclass(frozen=True)
class Evaluation:
    """Pass rates on held-out problems, by problem, so that two evaluations can be paired."""

    environments: list[str]
    sampled: list[float]
    """Share of right samples at temperature 1."""
    greedy: list[float]
    """1.0 where the likeliest reply is right; empty where greedy decoding was left out."""
    finished: list[float]
    """Share of samples that ended by themselves."""

    def of(self, environment: str) -> Evaluation:
        """Its part."""
        kept = [place for place, name in enumerate(self.environments) if name == environment]
        return Evaluation(*([values[place] for place in kept if values] for values in vars(self).values()))

    def record(self) -> dict[str, Any]:
        """Means with 95 % intervals over problems, all together and by environment."""
        parts = {name: self.of(name) for name in sorted(set(self.environments))}
        by_environment = {name: {"problems": len(part.sampled), **part._rates()} for name, part in parts.items()}
        whole = {"problems": len(self.sampled), "finished": statistics.fmean(self.finished), **self._rates()}
        return whole | {"by_environment": by_environment}

    def _rates(self) -> dict[str, Any]:
        rates: dict[str, Any] = {}
        for name, values in (("sampled", self.sampled), ("greedy", self.greedy)):
            if values:
                found = mean(values)
                rates |= {name: found.value, f"{name}_interval": [found.low, found.high]}
        return rates


def evaluate(
    player: Player,
    problems: Sequence[Problem],
    samples: int,
    seed: str,
    greedy: bool = True,
    seen: Callable[[list[Group], list[Group]], None] = lambda sampled, greedy: None,
) -> Evaluation:
    """Pass@1 on `problems`, sampled at the player's temperature and greedy; the same seed gives the same draws of
    noise. `seen` hears of the replies."""
    player.model.eval()
    drawn = player.sampled(problems, samples, seed)
    likeliest = replace(player, temperature=GREEDY).sampled(problems, 1, seed) if greedy else []
    seen(drawn, likeliest)
    return Evaluation(
        [problem.environment for problem in problems],
        [statistics.fmean(group.scores) for group in drawn],
        [group.scores[0] for group in likeliest],
        [statistics.fmean(float(response.finished) for response in group.responses) for group in drawn],
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
