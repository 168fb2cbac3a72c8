"""Episodes of a policy with its environments: turn by turn, as token ids from end to end.

What the policy sampled stays as it was sampled and is never tokenised again; what tools and users say is rendered
between its turns and never trained on. Continuous batching over turns: an episode that waits for its environment leaves
its row to another. Every segment that is sampled has a stream of random numbers of its own, named by the episode and by
where the segment begins, so that no draw depends on the batch, nor on how many ranks share it.

An episode may be paused, at a number of tokens, and go on under a later policy: once its next turn has ended, its
environment is played again from the turns that are there. Each token knows the policy that drew it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from model.chat import Chat, ChatError, Reply
from model.generate import Request
from training.draw import seeded
from training.rl.config import RewardConfig
from training.rl.environments import Environment, EnvironmentUnavailable, Outcome, Problem, Services
from training.rl.environments.table import environment
from training.rl.threads import DaemonThreads

INSERTED = -1
"""The version of tokens that no policy drew."""
STALL_SECONDS = 900.0
"""Longest wait without a single verdict; what waits bounds its own time far below that."""
THREADS = 8
LOOK = 8
"""A loop is looked for after so many tokens."""
LEAST_LOOP, LONGEST_PERIOD = 64, 64
"""Tokens that a loop takes at least, and those of one round at most."""


def loops(ids: Sequence[int], times: int) -> bool:
    """Whether the ids end with the same few, `times` over."""
    for period in range(1, LONGEST_PERIOD + 1):
        span = max(LEAST_LOOP, period * times)
        if span > len(ids):
            return False
        if ids[-span:-period] == ids[len(ids) - span + period :]:
            return True
    return False


def answer_to(judge: Environment, replies: Sequence[Reply]) -> Outcome:
    """What the last of the replies leads to; a verdict on an earlier one, which was none when the episode was paused
    (a time limit, say, that a busy machine ran over), stands."""
    outcome = Outcome(False)
    for reply in replies:
        outcome = judge.step(reply)
        if outcome.done:
            break
    return outcome


@dataclass
class Episode:
    """One response to a problem: where it stands, and what it was worth in the end."""

    seed: str
    """Names its draws."""
    prompt: list[int] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    """Everything behind the prompt: turns of the policy, and what was said to it."""
    log_probs: list[float] = field(default_factory=list)
    """Of each token under the distribution it was drawn from; 0 where greedy, and where nothing was drawn."""
    versions: list[int] = field(default_factory=list)
    """The policy that drew each token; INSERTED for what no policy drew."""
    ended: bool = False
    finished: bool = False
    """Whether it came to its end, and was not cut at a budget or for a loop."""
    score: float = 0.0
    """The environment's: 1.0 for right. What was cut is never right."""
    reason: str = ""
    """Why it is not right."""
    experts: Tensor | None = field(default=None, compare=False, repr=False)
    """The experts that the generator chose, int16 (prompt and ids as far as it has read them, mixture layers, experts
    of a token), where the trainer is to choose the same."""

    def turns(self) -> list[list[int]]:
        """The turns of the policy so far, the last of them perhaps not whole."""
        pairs = zip(self.versions, self.ids, strict=True)
        return [[token for _, token in run] for drawn, run in groupby(pairs, lambda pair: pair[0] >= 0) if drawn]

    @property
    def speaking(self) -> int:
        """Tokens of the turn that is under way."""
        return len(self.turns()[-1]) if self.versions and self.versions[-1] >= 0 else 0

    @property
    def written(self) -> int:
        """Tokens that policies drew."""
        return len(self.versions) - self.versions.count(INSERTED)

    def drawn(self, version: int) -> int:
        """Tokens that one policy drew."""
        return self.versions.count(version)

    def record(self) -> dict[str, Any]:
        """It as JSON has it, without `experts`: whoever goes on with it runs its tokens through the network anew."""
        return asdict(replace(self, experts=None))


@dataclass(frozen=True)
class Limits:
    """How long episodes may become."""

    rewards: RewardConfig
    window: int
    """Tokens that the model takes."""
    segment: int | None = None
    """Tokens that one policy may draw of an episode, which is paused then; None lets every episode end."""

    def left(self, problem: Problem, episode: Episode) -> int:
        """Tokens that the present turn may still take, whatever policy draws them."""
        turn = self.rewards.budget_of(problem.environment) - episode.speaking
        return min(turn, self.room(episode))

    def room(self, episode: Episode) -> int:
        """Tokens that the episode may still take."""
        rest = self.window - len(episode.prompt) - len(episode.ids)
        whole = self.rewards.episode_budget
        return rest if whole is None else min(rest, whole - len(episode.ids))


class Stage:
    """Episodes under way: says what is sampled next, hears what came of it, and asks the environments."""

    def __init__(
        self,
        chat: Chat,
        problems: Sequence[Problem],
        episodes: Sequence[Episode],
        temperature: float,
        limits: Limits,
        version: int,
        services: Services,
        beat: Callable[[str], None],
    ) -> None:
        self.chat, self.problems, self.episodes, self.temperature = chat, problems, episodes, temperature
        self.limits, self.version, self.services, self.beat = limits, version, services, beat
        self.environments: list[Environment] = [environment(problem, services) for problem in problems]
        self.sampling = 0
        self.waiting: dict[Future[Outcome], int] = {}
        self.heard = [0] * len(episodes)
        """Turns of each episode that its environment has heard of."""
        self.pool = DaemonThreads(THREADS, "environment")
        for place in range(len(episodes)):
            self._begin(place)
            self.beat("the beginning of an episode")
        # Long prompts first: rows of like length share a prefill, and the longest responses begin early.
        places = sorted(range(len(episodes)), key=lambda place: (-len(episodes[place].prompt), place))
        self.ready = deque(place for place in places if self._goes_on(place))

    def close(self) -> None:
        self.pool.close()

    def next(self) -> int | None:
        """The place of an episode that is to be sampled; None where there is none now. Where nothing is being sampled
        and environments are at work, it waits: None then says that all have ended or are paused."""
        while True:
            self._collect(idle=not self.ready and not self.sampling)
            if self.ready:
                self.sampling += 1
                return self.ready.popleft()
            if self.sampling or not self.waiting:
                return None

    def request(self, place: int) -> Request:
        """The next segment of an episode."""
        episode, limits = self.episodes[place], self.limits
        count = limits.left(self.problems[place], episode)
        if limits.segment is not None:
            count = min(count, limits.segment - episode.drawn(self.version))
        seed = seeded(episode.seed, len(episode.ids)) if episode.ids else seeded(episode.seed)
        ids = [*episode.prompt, *episode.ids]
        return Request(ids, count, self.temperature, stop_ids=(self.chat.stop,), seed=seed)

    def repeats(self, place: int, tokens: Sequence[int]) -> bool:
        """Whether a turn says the same again and again, with these tokens of the segment that is being sampled."""
        times, episode = self.limits.rewards.repeats, self.episodes[place]
        before = episode.speaking
        if not times or (before + len(tokens)) % LOOK:
            return False
        return loops([*episode.ids[len(episode.ids) - before :], *tokens], times)

    def hear(
        self,
        place: int,
        tokens: Sequence[int],
        log_probs: Sequence[float],
        repeats: bool = False,
        experts: Tensor | None = None,
    ) -> None:
        """A segment was sampled; `experts` are of all that the network has seen of the episode in doing so."""
        self.sampling -= 1
        episode = self.episodes[place]
        if experts is not None:
            # what this policy drew before stays with the experts it was drawn by, which a prefill may choose otherwise
            drawn = episode.experts if episode.drawn(self.version) else None
            episode.experts = experts if drawn is None else torch.cat([drawn, experts[len(drawn) :]])
        episode.ids += tokens
        episode.log_probs += log_probs
        episode.versions += [self.version] * len(tokens)
        if tokens[-1] == self.chat.stop:
            self._ask(place)
        elif repeats:
            self._cut(place, "it repeats itself")
        else:
            self._goes_on(place)

    def _begin(self, place: int) -> None:
        """Reset the environment. What a paused episode has of turns it hears when it is next asked (`_ask`): an
        episode that is paused again within its turn needs no answer meanwhile."""
        episode, judge = self.episodes[place], self.environments[place]
        seen = judge.reset(self.problems[place])
        if not episode.prompt:
            episode.prompt = self.chat.prompt(seen.messages, seen.tools)
            if self.limits.left(self.problems[place], episode) < 1:
                problem = self.problems[place]
                raise EnvironmentUnavailable(
                    f"the prompt of problem {problem.id} ({problem.environment}) has {len(episode.prompt):,} tokens, "
                    f"and the model a window of {self.limits.window:,}: leave such problems out"
                )

    def _goes_on(self, place: int) -> bool:
        """Whether the policy may draw more of it now; cut where no policy may."""
        episode = self.episodes[place]
        if episode.ended:
            return False
        if self.limits.left(self.problems[place], episode) < 1:
            self._cut(place, "over its budget")
            return False
        return self.limits.segment is None or episode.drawn(self.version) < self.limits.segment

    def _ask(self, place: int) -> None:
        """Let the environment answer the turn that has ended, after those that it has not heard of either."""
        judge, turns = self.environments[place], self.episodes[place].turns()
        replies = [self.chat.parse(turn) for turn in turns[self.heard[place] :]]
        self.heard[place] = len(turns)
        if judge.waits:
            self.waiting[self.pool.submit(answer_to, judge, replies)] = place
        else:
            self._answered(place, answer_to(judge, replies))

    def _collect(self, idle: bool) -> None:
        """Take in what environments have answered; where nothing else is to be done, wait for one of them."""
        if not self.waiting:
            return
        began = time.monotonic()
        done = {future for future in self.waiting if future.done()}
        while idle and not done:
            done, _ = wait(self.waiting, timeout=1.0, return_when=FIRST_COMPLETED)
            self.beat("verdicts of environments")
            if not done and time.monotonic() - began > STALL_SECONDS:
                stuck = self.problems[next(iter(self.waiting.values()))]
                raise EnvironmentUnavailable(
                    f"no environment answered within {STALL_SECONDS:,.0f} s, that of problem {stuck.id} "
                    f"({stuck.environment}) among them: see what it waits for"
                )
        if idle:
            self.services.idle_seconds += time.monotonic() - began
        for future in [future for future in self.waiting if future in done]:
            self._answered(self.waiting.pop(future), future.result())

    def _answered(self, place: int, outcome: Outcome) -> None:
        episode = self.episodes[place]
        if outcome.done:
            episode.ended = episode.finished = True
            episode.score, episode.reason = outcome.reward, outcome.reason
            return
        try:
            said = self.chat.following(outcome.messages)
        except ChatError as error:
            episode.ended = episode.finished = True
            episode.reason = f"what it led to cannot be written: {error}"
            return
        if len(said) >= self.limits.room(episode):
            self._cut(place, "over its budget")
            return
        episode.ids += said
        episode.log_probs += [0.0] * len(said)
        episode.versions += [INSERTED] * len(said)
        if self._goes_on(place):
            self.ready.appendleft(place)  # those under way before those not begun: fewer are open at once

    def _cut(self, place: int, reason: str) -> None:
        episode = self.episodes[place]
        episode.ended, episode.reason = True, reason
