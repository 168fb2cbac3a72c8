"""A simulated user and tools over a world with state (training/rl/worlds); the state and what was said decide.

`answer` is {"family", "seed", "split", "kind"}: the task is drawn again from it, and judged by its rubric. A family of
null is any. A synthetic domain stands in it with its tools: {"domain", "tools"} (training/rl/worlds/synthetic/spec.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from model.chat import Message, Reply, ToolCall
from training.rl.environments.protocol import Environment, Observation, Outcome, Problem, verdict
from training.rl.worlds.episode import TURNS_MAX, Episode
from training.rl.worlds.families.table import HAND_WRITTEN, Setting
from training.rl.worlds.filters import verify
from training.rl.worlds.policies import WRONG, play
from training.rl.worlds.synthetic.requests import setting_of
from training.rl.worlds.synthetic.spec import DomainSpec, ToolSpec
from training.rl.worlds.task import Kind, Task, draw_task


class InWorld(Environment):
    """Several turns: tool results and what the user says come back as messages."""

    turns = TURNS_MAX

    def begin(self, problem: Problem) -> Observation:
        self.episode = Episode(self._task(problem))
        return Observation(tuple(self.episode.messages), tuple(self.episode.task.tools))

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        first = len(self.episode.calls)
        if any(call.index != first + place for place, call in enumerate(reply.calls)):
            return Outcome(True, 0.0, "a call's id does not count on")
        messages = self.episode.step(reply.message())
        if not self.episode.done:
            return Outcome(False, messages=tuple(messages))
        found = verify(self.episode)
        return verdict(found.score == 1.0, f"{found.rule}: {found.reason}")

    def gold(self, problem: Problem) -> list[Reply]:
        return replies(self._play(problem, "right") or ())

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        played = [self._play(problem, policy) for policy in WRONG]
        return [replies(messages) for messages in played if messages is not None]

    def _play(self, problem: Problem, policy: str) -> tuple[dict[str, Any], ...] | None:
        trajectory = play(self._task(problem), policy, problem.answer["seed"])
        return None if trajectory is None else trajectory.messages

    def _task(self, problem: Problem) -> Task:
        answer = problem.answer
        return self.services.once(
            ("task", json.dumps(answer, sort_keys=True)),
            lambda: draw_task(
                answer["seed"], answer["split"], Kind(**answer["kind"]), answer["family"], _setting(answer)
            ),
        )


def _setting(answer: Mapping[str, Any]) -> Setting:
    if "domain" not in answer:
        return HAND_WRITTEN
    return setting_of(DomainSpec(**answer["domain"]), [ToolSpec(**tool) for tool in answer["tools"]])


def replies(messages: tuple[Message, ...] | tuple[dict[str, Any], ...]) -> list[Reply]:
    """The assistant's turns of a dialogue."""
    return [
        Reply(str(message.get("content") or ""), tuple(map(_call, message.get("tool_calls") or ())))
        for message in messages
        if message["role"] == "assistant"
    ]


def _call(call: dict[str, Any]) -> ToolCall:
    name, written = call["function"]["name"], call["function"]["arguments"]
    return ToolCall(name, json.loads(written), int(call["id"].rpartition(":")[2]), written)


def problem_of(
    task: Task, seed: int | str, kind: Kind, name: str = "world", drawn_from: Mapping[str, Any] | None = None
) -> Problem:
    """The problem that leads to `task` again, which `draw_task(seed, task.split, kind)` gave; `drawn_from`: the domain
    and the tools of a synthetic one."""
    answer = {"family": None, "seed": seed, "split": task.split, "kind": kind.model_dump(), **(drawn_from or {})}
    messages = Episode(task).messages
    return Problem(task.id, name, "world", tuple(messages), answer, tuple(task.tools))
