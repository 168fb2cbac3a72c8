"""One dialogue with a simulated user and a world, turn by turn: reset, step, verify.

Whoever plays the assistant (a script, a model under training, an endpoint) gives its turns to `step` and gets what the
tools and the user say. Nothing that the assistant writes raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model.dialogue import PREFIX, tool_result, user
from training.rl.worlds.task import Task
from training.rl.worlds.world import Outcome, State, refused

TURNS_MAX = 60
"""Assistant turns after which a dialogue is over, whoever talks."""
Message = dict[str, Any]


@dataclass(frozen=True)
class Made:
    """A call that was made."""

    tool: str
    arguments: Any
    outcome: Outcome
    before: int
    """Messages that stood before the turn that made it."""


class User:
    """Says the requests one after the other, and what is missing only when asked."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.begin()

    def begin(self) -> None:
        self.place = 0
        self.answered: set[int] = set()
        """Requests of which what was missing was asked for, and told."""

    def opening(self) -> str:
        return self.task.requests[0].text

    def reply(self, text: str) -> str | None:
        """What the user says to an assistant's turn; None where there is nothing more to say."""
        request = self.task.requests[self.place]
        if request.missing and self.place not in self.answered and ("?" in text or "？" in text):
            self.answered.add(self.place)
            return request.reply
        self.place += 1
        return self.task.requests[self.place].text if self.place < len(self.task.requests) else None


class Episode:
    """A dialogue under way."""

    def __init__(self, task: Task, user: User | None = None) -> None:
        """`user`: who speaks for the user of the task; the script where none is given."""
        self.task, self.user = task, user or User(task)
        self.world = task.world
        self.reset()

    def reset(self) -> tuple[list[Message], list[dict[str, Any]]]:
        """Begin anew: the first messages and the tools."""
        self.user.begin()
        self.messages: list[Message] = [{"role": "system", "content": self.task.system}] if self.task.system else []
        self.messages.append(user(self.user.opening()))
        self.state: State = self.task.start
        self.calls: list[Made] = []
        self.turns = 0
        self.done = False
        return list(self.messages), self.task.tools

    def step(self, message: Mapping[str, Any]) -> list[Message]:
        """The assistant's turn, in OpenAI's layout; what the tools or the user say to it, nothing where it is over.

        Raises:
            ValueError: the dialogue is over.
        """
        if self.done:
            raise ValueError("this dialogue is over: reset it, or make another")
        before = len(self.messages)
        self.turns += 1
        self.messages.append({**message, "role": "assistant"})
        calls = message.get("tool_calls") or []
        if isinstance(calls, Sequence) and not isinstance(calls, str) and calls:
            answers = [self._call(call, before) for call in calls]
        else:
            said = self.user.reply(str(message.get("content") or ""))
            answers = [] if said is None else [user(said)]
        self.messages += answers
        over = len(self.calls) > self.task.rubric.most_calls or self.turns >= TURNS_MAX
        self.done = over or not answers
        return answers

    def _call(self, call: Any, before: int) -> Message:
        function = call.get("function") if isinstance(call, Mapping) else None
        function = function if isinstance(function, Mapping) else {}
        tool, given = str(function.get("name", "")), function.get("arguments")
        number = len(self.calls)
        behind = self.task.toolbox.get(tool)
        arguments: Any = None
        try:
            arguments = json.loads(given) if isinstance(given, str) else given
        except (ValueError, RecursionError):
            outcome = refused(self.state, "invalid_arguments", "the arguments are not JSON")
        else:
            if behind is None:
                outcome = refused(self.state, "unknown_tool", "there is no such tool")
            else:
                outcome = self.task.faults.call(self.world, self.state, behind, arguments, number)
        self.state = outcome.state
        self.calls.append(Made(tool, arguments, outcome, before))
        return tool_result(tool, f"{PREFIX}{tool}:{number}", outcome.text)
