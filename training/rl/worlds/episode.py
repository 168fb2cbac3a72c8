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
    """Says the requests one after the other, what is missing only when asked, and once a request that it shall be
    done."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.begin()

    def begin(self) -> None:
        self.place = 0
        self.answered: set[int] = set()
        """Requests of which what was missing was asked for, and told."""
        self.urged: set[int] = set()
        """Requests of which the user has said that they shall be done."""

    def opening(self) -> str:
        return self.task.requests[0].text

    def reply(self, text: str, pending: bool = False) -> str | None:
        """What the user says to an assistant's turn; None where there is nothing more to say. `pending`: calls that the
        request takes were not made yet."""
        request, asks = self.task.requests[self.place], "?" in text or "？" in text
        if asks and request.missing and self.place not in self.answered:
            self.answered.add(self.place)
            return request.reply
        if asks and pending and self.place not in self.urged:
            self.urged.add(self.place)
            return self.task.persona.go_ahead[self.task.language]
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
        self.closings: list[str] = []
        """What the assistant said to each request when it had made its calls."""
        self._said: list[str] = []
        self._first = 0  # call of the request under way
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
            self._said = []
        else:
            answers = self._answered(str(message.get("content") or ""))
        self.messages += answers
        over = len(self.calls) > self.task.rubric.most_calls or self.turns >= TURNS_MAX
        self.done = over or not answers
        return answers

    def _answered(self, text: str) -> list[Message]:
        """What the user says to a turn without calls."""
        place = self.user.place
        called = {self.task.toolbox.get(made.tool) for made in self.calls[self._first :]}
        said = self.user.reply(text, any(name not in called for name, _ in self.task.requests[place].plan))
        self._said.append(text)
        if self.user.place > place:
            self.closings.append("\n".join(self._said))
            self._said, self._first = [], len(self.calls)
        return [] if said is None else [user(said)]

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
