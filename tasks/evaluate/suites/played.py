"""Suites that play an environment of reinforcement learning: its own problems, or BFCL's multi-turn dialogues.

What a policy would be rewarded for is what is counted, by the same code.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from model.cache import cache_folder
from model.chat import Reply
from tasks.corpus import evaluations
from tasks.corpus.unavailable import UnavailableError
from tasks.evaluate.suites.config import MultiTurn, Played
from tasks.evaluate.suites.item import Item, Measured, Scored, Unmeasurable, rate, rates
from tasks.evaluate.suites.subject import Ask, Subject, shown
from training.rl.environments import EnvironmentUnavailable, Outcome, Problem, Services
from training.rl.environments.apis import PACKAGE, problem_of
from training.rl.environments.services import CODE_SECONDS
from training.rl.environments.table import SETS, environment
from training.rl.sandbox.config import SandboxConfig


def made(suite: Played, seed: int) -> list[Item]:
    """A suite's problems. They are made from a seed, so that there is no text that a corpus could hold. Raises
    UnavailableError where what makes them is missing."""
    try:
        found = SETS[suite.set](suite.items, f"suite/{seed}")
    except EnvironmentUnavailable as error:
        raise UnavailableError(f"suite '{suite.name}': {error}") from error
    return [Item(problem.id, "", vars(problem)) for problem in {one.id: one for one in found}.values()]


def measure(suite: Played, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """Every problem once, greedily; by environment, and by level where there are levels."""
    problems = [Problem(**item.row) for item in items]
    problems = [replace(one, messages=tuple(one.messages), tools=tuple(one.tools)) for one in problems]
    with Services(SandboxConfig(wall_seconds=CODE_SECONDS)) as services:
        scored = _scored(subject, problems, items, suite.max_new_tokens, services)
    names = [problem.environment.removeprefix(f"{suite.set}.") for problem in problems]
    levels = [f"level {problem.answer['level']}" for problem in problems if "level" in problem.answer]
    by = rates(names, scored) | (rates(levels, scored) if len(levels) == len(problems) else {})
    return Measured("right answers", scored, rate(scored), {"by": by})


def measure_dialogues(suite: MultiTurn, subject: Subject, items: Sequence[Item], seed: int) -> Measured:
    """Every dialogue once, greedily, with the APIs of the wheel that the questions come in."""
    try:
        apis = package(suite)
    except UnavailableError as error:
        raise Unmeasurable(str(error)) from error
    problems = [problem_of(item.row, item.row["ground_truth"], apis) for item in items]
    with Services(SandboxConfig(wall_seconds=CODE_SECONDS), apis=apis) as services:
        scored = _scored(subject, problems, items, suite.max_new_tokens, services)
    # a dialogue counts for each of its APIs
    pairs = [(name, one) for one, problem in zip(scored, problems, strict=True) for name in problem.answer["apis"]]
    pairs.sort(key=lambda pair: pair[0])
    by = rates([name for name, _ in pairs], [one for _, one in pairs])
    return Measured("right dialogues", scored, rate(scored), {"by": by})


def package(suite: MultiTurn) -> zipfile.Path:
    """The wheel's folder with questions and APIs, which is read and never installed. Raises UnavailableError."""
    return zipfile.Path(evaluations.wheel(suite, cache_folder(), False)) / PACKAGE


def _scored(
    subject: Subject, problems: Sequence[Problem], items: Sequence[Item], max_new_tokens: int, services: Services
) -> list[Scored]:
    try:
        ends = play(subject, problems, max_new_tokens, services)
    except EnvironmentUnavailable as error:
        raise Unmeasurable(str(error)) from error
    return [
        Scored(item.id, outcome.reward, said, outcome.reason) for item, (outcome, said) in zip(items, ends, strict=True)
    ]


class Episode:
    """A problem under way."""

    def __init__(self, problem: Problem, services: Services) -> None:
        self.judge = environment(problem, services)
        seen = self.judge.reset(problem)
        self.messages = [dict(message) for message in seen.messages]
        self.tools = seen.tools
        self.said: list[str] = []
        self.calls = 0
        self.end: Outcome | None = None

    def hear(self, replies: Sequence[Reply] | None) -> None:
        """What the model says next; None where its window has no room for it."""
        if replies is None:
            self.end = Outcome(True, 0.0, "the window has no room for it")
            return
        # counted on, whatever the model called them: the turn has to be rendered again
        calls = tuple(replace(call, index=self.calls + place) for place, call in enumerate(replies[0].calls))
        reply = replace(replies[0], calls=calls)
        self.calls += len(calls)
        self.said.append(shown(reply))
        outcome = self.judge.step(reply)
        if outcome.done:
            self.end = outcome
            return
        self.messages += [reply.message(), *map(dict, outcome.messages)]
        self.tools = self.tools if outcome.tools is None else outcome.tools


def play(
    subject: Subject, problems: Sequence[Problem], max_new_tokens: int, services: Services
) -> list[tuple[Outcome, str]]:
    """How every problem's episode ended, and what the model said in it. All that are under way are asked at once."""
    episodes = [Episode(problem, services) for problem in problems]
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="environment") as pool:
        while going := [episode for episode in episodes if episode.end is None]:
            asks = [Ask(one.messages, tools=one.tools, max_new_tokens=max_new_tokens) for one in going]
            for _ in pool.map(Episode.hear, going, subject.replies(asks)):
                pass  # what it raised is raised here
    return [(one.end, "\n".join(one.said)) for one in episodes if one.end is not None]
