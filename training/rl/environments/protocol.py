"""What an environment is: reset, step, and the law that its problems are held to.

An episode begins with `reset`, which gives the messages that the policy sees. Each reply of the policy goes to `step`,
which gives what the tools or the user say to it, or the verdict that ends the episode. Nothing that a policy writes
raises. The same replies to the same problem get the same answers: a paused episode is played again from its replies.

The law of every environment: the gold replies score exactly 1.0, an empty reply 0.0 (`validate`, before a problem is
used), and so does every way of being wrong that it knows (`corrupted`, in the tests).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from model.chat import Message, Reply
from training.rl.environments.services import Services


class EnvironmentLawBroken(RuntimeError):
    """A problem whose gold replies do not score 1.0, or whose empty reply scores anything."""


@dataclass(frozen=True)
class Problem:
    """A prompt with an answer that a rule can check."""

    id: str
    """Hash of the problem itself, the same for every phrasing: the held-out split goes by it."""
    environment: str
    """What it is counted under, such as `addition`."""
    verifier: str
    """Key into `ENVIRONMENTS`."""
    messages: tuple[Message, ...]
    """The dialogue up to the turn that is asked for, OpenAI's layout."""
    answer: Any
    """What the verifier compares with (JSON)."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Declared tools."""


@dataclass(frozen=True)
class Observation:
    """What the policy sees at first."""

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a step gives back."""

    done: bool
    reward: float = 0.0
    """Of the whole episode, once it is done: 1.0 or 0.0."""
    reason: str = ""
    """Why the reward is not 1.0, in words to count by."""
    messages: tuple[Message, ...] = ()
    """What the tools or the user say, where it goes on."""
    tools: tuple[Mapping[str, Any], ...] | None = None
    """What is declared from now on, where that changes; only suites follow it (`apis`)."""


def verdict(right: bool, reason: str) -> Outcome:
    """The end of an episode; `reason` says why it is wrong."""
    return Outcome(True, float(right), "" if right else reason)


class Environment(ABC):
    """One episode at a time."""

    turns: ClassVar[int] = 1
    """Most replies of an episode."""
    waits: bool = False
    """Whether a step waits for another process: it then runs in a thread beside the rollout. It bounds its own time,
    and what took too long is a wrong answer."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._problem: Problem | None = None
        self._taken = 0

    def reset(self, problem: Problem) -> Observation:
        """Begin an episode."""
        self._problem, self._taken = problem, 0
        return self.begin(problem)

    def step(self, reply: Reply) -> Outcome:
        """Answer or judge a reply; RuntimeError before `reset` or after the episode's end."""
        if self._problem is None:
            raise RuntimeError("the episode is over or never began: call reset first")
        self._taken += 1
        if reply.errors:
            outcome = Outcome(True, 0.0, f"unreadable: {reply.errors[0].reason}")
        else:
            outcome = self.answer(self._problem, reply)
            if not outcome.done and self._taken >= self.turns:
                outcome = Outcome(True, 0.0, f"not at an end after {self.turns} turns")
        if outcome.done:
            self._problem = None
        return outcome

    def begin(self, problem: Problem) -> Observation:
        """The first observation."""
        return Observation(problem.messages, problem.tools)

    @abstractmethod
    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        """What a readable reply leads to."""

    def gold(self, problem: Problem) -> Sequence[Reply]:
        """Replies that score 1.0: one with the text that the answer keeps for it, where nothing else is said."""
        return [Reply(problem.answer["gold"])]

    @abstractmethod
    def corrupted(self, problem: Problem) -> Sequence[Sequence[Reply]]:
        """Replies that are wrong in ways that are likely, or that pay a policy which looks for holes."""

    def play(self, problem: Problem, replies: Sequence[Reply]) -> Outcome:
        """One episode with the replies that are given; one that does not come to an end scores 0."""
        self.reset(problem)
        for reply in replies:
            outcome = self.step(reply)
            if outcome.done:
                return outcome
        return Outcome(True, 0.0, "it does not come to an end")

    def validate(self, problem: Problem) -> None:
        """Hold a problem to the law; EnvironmentLawBroken names it otherwise."""
        right, wrong = self.play(problem, self.gold(problem)), self.play(problem, [Reply("")])
        if right.reward != 1.0 or wrong.reward != 0.0:
            raise EnvironmentLawBroken(
                f"problem {problem.id} of {problem.environment}: the gold reply scores {right.reward} (must be 1.0"
                f"{'; ' + right.reason if right.reason else ''}), an empty one {wrong.reward} (must be 0.0); its "
                f"answer is {problem.answer!r}"
            )
