"""Tasks of the library `verifiers`: replies that call a task's tools, or that its user answers, until the library says
that the episode has ended. It is right if the library's rewards give it 1, or what `rl.library.full` says.

`answer` is {"row": the task's place in its set, "key": what the library knows it by, "gold", "wrong", "calls"}: replies
that `rl.library.gold` writes from the field of the task that `rl.library.answer` names, and from another answer, and
the right calls before them, where `rl.library.calls` names a field that holds them. The library has no rule that there
is a right reply; we have, and a task that breaks it is left out when the set is read.
"""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from model.chat import Message, Reply, ToolCall
from model.dialogue import ChatError, compact, numbered, tool_result
from training.draw import problem_id
from training.rl.config import LibraryConfig
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.protocol import Environment, Observation, Outcome, Problem, verdict
from training.rl.environments.services import Services
from training.rl.environments.verifiers_process import FAILED, LONGEST, Said, Turn

log = logging.getLogger(__name__)

HOPELESS = 50
"""Tasks in a row, from the first, of which none can be taken: the set is refused."""
ROUNDING = 1e-9
"""By which a sum of weighted rewards may be short."""
LOOKED = 10
"""Times as many tasks of a set without an end are looked at as are asked for."""


class OfLibrary(Environment):
    """Every step gives the library all replies so far: it keeps nothing in between."""

    turns = 32  # and no more than rl.library.turns
    waits = True

    def begin(self, problem: Problem) -> Observation:
        self.made: list[Turn] = []
        return super().begin(problem)

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        library, task = self.services.library, (problem.answer["row"], problem.answer["key"])
        if reply.calls and not problem.tools:
            return verdict(False, "a call where an answer is asked for")
        first = sum(len(turn["calls"]) for turn in self.made)
        if any(call.index != first + place for place, call in enumerate(reply.calls)):
            return verdict(False, "a call's id does not count on")
        calls = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in reply.calls]
        self.made.append({"content": reply.content, "calls": calls})
        if len(json.dumps(self.made)) > LONGEST:
            return verdict(False, "no answer but a long text")
        found = library.turn(*task, self.made)
        if found.fault:
            return verdict(False, found.fault)
        if found.reward is not None:
            right = found.reward >= library.config.full - ROUNDING
            return verdict(right, f"its reward is {found.reward:g}")
        if len(self.made) == library.config.turns:
            return verdict(False, f"not at an end after {library.config.turns} turns")
        return Outcome(False, messages=tuple(_message(one, reply.calls) for one in found.said))

    def gold(self, problem: Problem) -> list[Reply]:
        return _replies(problem.answer["calls"], problem.answer["gold"])

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        """Other last replies; where calls are due, the right one without them or without the last of them."""
        texts = (problem.answer["wrong"], "I do not know.", str(problem.messages[-1]["content"]))
        fewer = [[], problem.answer["calls"][:-1]] if problem.answer["calls"] else []
        return [*([Reply(text)] for text in texts), *(_replies(calls, problem.answer["gold"]) for calls in fewer)]


def _message(said: Said, calls: Sequence[ToolCall]) -> Message:
    if said.call is None:
        return {"role": "user", "content": said.text}
    return tool_result(calls[said.call].name, calls[said.call].id, said.text)


def _replies(calls: Sequence[Mapping[str, Any]], last: str) -> list[Reply]:
    """A reply for each call, and one with words."""
    made = [ToolCall(call["name"], call["arguments"], place) for place, call in enumerate(calls)]
    return [*(Reply("", (call,)) for call in made), Reply(last)]


def other(answer: str) -> str:
    """Another answer of the same kind."""
    try:
        return str(int(answer) + 1)
    except ValueError:
        return f"{answer[::-1]}x"


def problems(count: int, seed: str, config: LibraryConfig) -> list[Problem]:
    """At most `count` tasks of the set in an order of the seed, or in its own where it has no end. What breaks the law
    is left out, and the log says how many and why.

    Raises:
        EnvironmentUnavailable: the library or the set cannot be loaded, its rewards hang, or nothing can be taken.
    """
    found: list[Problem] = []
    refused: Counter[str] = Counter()
    first: dict[str, int] = {}
    with Services(library=config) as services:
        size = services.library.count()
        endless = range(LOOKED * count)
        for place in endless if size is None else random.Random(f"verifiers/{seed}").sample(range(size), size):
            if len(found) == count:
                break
            row = services.library.row(place)
            if "end" in row:
                break
            problem, reason = _problem(place, row, config)
            if problem is not None:
                reason = unlawful(OfLibrary(services), problem)
            if problem is not None and not reason:
                found.append(problem)
                continue
            refused[reason] += 1
            first.setdefault(reason, place)
            if not found and refused.total() == HOPELESS:
                break
    if not found and not refused:
        raise EnvironmentUnavailable(f"rl.library: {config.module} has no tasks with these arguments")
    if refused:
        ((reason, times),) = refused.most_common(1)
        told = (
            f"{refused.total():,} of {refused.total() + len(found):,} tasks of {config.module} are left out, "
            f"{times:,} of them (task {first[reason]} is the first) because {reason}"
        )
        if not found:
            raise EnvironmentUnavailable(f"rl.library: {told}")
        log.warning("rl.library: %s", told)
    return found


def _problem(place: int, row: dict[str, Any], config: LibraryConfig) -> tuple[Problem | None, str]:
    """The task as a problem, or why it is none."""
    if reason := row.get("refused") or row.get("raised"):
        return None, str(reason)
    right = row.get("answer")
    if right is None or right == "":
        return None, f"its {config.answer!r} (rl.library.answer) is empty or not there: it has no gold answer"
    calls = row.get("calls") if config.calls else []
    if not isinstance(calls, list) or not all(_callable(call) for call in calls):
        return None, f"its {config.calls!r} (rl.library.calls) is no list of calls: name and arguments"
    tools = tuple({"type": "function", "function": tool} for tool in row.get("tools", ()))
    text = right if isinstance(right, str) else json.dumps(right)
    gold, wrong = (config.gold.replace("{answer}", one) for one in (text, other(text)))
    answer = {"row": place, "key": row["key"], "gold": gold, "wrong": wrong, "calls": calls}
    messages = tuple(row["messages"])
    try:  # here: a prompt that cannot be rendered would end a run in the iteration that draws it
        compact([*numbered(messages), *tools], "it")
    except ChatError as error:
        return None, f"its prompt cannot be written: {error}"
    return Problem(problem_id("verifiers", row["key"]), "verifiers", "verifiers", messages, answer, tools), ""


def _callable(call: Any) -> bool:
    return isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)


def unlawful(judge: OfLibrary, problem: Problem) -> str:
    """How a problem breaks the law; empty where it does not. Raises EnvironmentUnavailable where rewards hang."""
    wrong = [("a wrong reply", one, 0.0) for one in ([Reply("")], *judge.corrupted(problem))]
    for what, replies, due in [("the gold reply", judge.gold(problem), 1.0), *wrong]:
        outcome = judge.play(problem, replies)
        if outcome.reason == FAILED:
            row, seconds = problem.answer["row"], judge.services.library.config.seconds
            raise EnvironmentUnavailable(
                f"rl.library: the reward of task {row} for {what} took more than {seconds:g} s (rl.library.seconds), "
                "or ended its process"
            )
        if outcome.reward != due:
            because = outcome.reason or "it is paid"
            return f"{what} scores {outcome.reward:g}: {because}"
    return ""
