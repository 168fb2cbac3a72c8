"""The rules a dialogue must keep, in order: the first that it breaks is its reason, and is counted.

A dialogue that was read from somewhere is played again first: its tool results and its user's turns must be those that
the world and the user give, and its calls must be numbered as they were made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from model.dialogue import PREFIX
from training.rl.rewards import same
from training.rl.worlds.closing import fault_of_closing
from training.rl.worlds.episode import Episode, Made, Message
from training.rl.worlds.task import Checkpoint, Task
from training.rl.worlds.world import write

NUMBER = re.compile(r"(?<![A-Za-z0-9])[A-Za-z]?[0-9]+(?:[-:./][0-9]+)*")
"""Amounts, dates, times and ids in a sentence."""
GROUPED = re.compile(r"(?<![0-9A-Za-z,.])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9A-Za-z])")
"""1,269: a number, or a list of two."""
WHOLE = re.compile(r"(?<![0-9A-Za-z.:-])([0-9]+)\.0{1,2}(?![0-9])")
"""269.00."""
HALVES = re.compile(r"(?<![0-9A-Za-z:.])(1[0-2]|0?[1-9])(?:[:.]([0-5][0-9]))? ?([ap])\.? ?m\b\.?", re.IGNORECASE)
"""2:45 PM."""
OWN_CALLS = re.compile(
    r"(?<![0-9A-Za-z])([0-9]{1,2})(?= (?:tool |more )?(?:calls?|steps?|attempts?|tries)\b| ?次)", re.IGNORECASE
)
"""What an assistant counts of its own work."""
LISTED = re.compile(r"^\s*[0-9]{1,2}[.)]\s", re.MULTILINE)
"""The numbers of a list that the assistant makes: they say nothing of the world."""
ZEROS = re.compile(r"(?<![0-9A-Za-z])0+(?=[0-9])")
"""2026-03-05 may be said as March 5."""


@dataclass(frozen=True)
class Verdict:
    """What a dialogue is worth."""

    score: float
    """1.0 where it keeps every rule, else 0.0."""
    rule: str = ""
    """The first rule that it breaks."""
    reason: str = ""
    """How, in words to count it by."""


@dataclass(frozen=True)
class Trajectory:
    """A dialogue with the task that it was made for."""

    task: Task
    messages: tuple[Message, ...]
    policy: str
    """Who played the assistant."""


def fits(episode: Episode) -> str | None:
    """Every call is readable and fits the schema of its tool."""
    for made in episode.calls:
        behind = episode.task.toolbox.get(made.tool)
        if behind is not None and made.outcome.error == "invalid_arguments":
            return "a call does not fit its schema"
        if behind is not None and not isinstance(made.arguments, Mapping):
            return "a call's arguments are no JSON object"
    return None


def declared(episode: Episode) -> str | None:
    """Every tool that is called was offered."""
    if any(made.tool not in episode.task.toolbox for made in episode.calls):
        return "a tool was invented"
    return None


def grounded(episode: Episode) -> str | None:
    """What the assistant hands to tools and says to the user was said to it before."""
    for made in episode.calls:
        known = _heard(episode.messages[: made.before]).casefold()
        properties = episode.world.functions[episode.task.toolbox[made.tool]].properties
        for name, value in made.arguments.items():
            chosen = isinstance(value, bool) or "enum" in properties.get(name, {})  # the schema says what there is
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # 269.0 is an integer to the schema and to the world
            if not chosen and not says(known, str(value).casefold()):
                return "an argument comes from nowhere"
    for place, message in enumerate(episode.messages):
        if message["role"] == "assistant":
            known = _heard(episode.messages[:place])
            calls = sum(made.before < place for made in episode.calls)
            spoken = _without_own(LISTED.sub("", _content(message)), calls)
            spoken, known = ZEROS.sub("", as_written(spoken, known)), ZEROS.sub("", known)
            if any(not says(known, number) for number in NUMBER.findall(spoken)):
                return "the assistant says what nobody told it"
    return None


def ends(episode: Episode) -> str | None:
    """It comes to an end: the user has nothing more to say, and the assistant has the last word."""
    if len(episode.calls) > episode.task.rubric.most_calls:
        return "too many calls"
    if not episode.done or episode.user.place < len(episode.task.requests):
        return "it does not come to an end"
    if not _content(episode.messages[-1]).strip():
        return "it says nothing at the end"
    return None


def right_state(episode: Episode) -> str | None:
    """The world is as a right dialogue leaves it."""
    return None if episode.state == episode.task.rubric.final else "the final state is another"


def right_calls(episode: Episode) -> str | None:
    """The expected calls, each with its arguments and its success. Their order is not judged: where it matters, the
    final state and what an argument rests on decide."""
    calls = list(enumerate(episode.calls))
    for checkpoint in episode.task.rubric.checkpoints:
        if not any(_meets(made, checkpoint, episode.calls[:number]) for number, made in calls):
            return "an expected call was not made, or did not succeed"
    return None


def asked(episode: Episode) -> str | None:
    """What a user left out was asked for."""
    told = episode.user.answered
    if any(request.missing and place not in told for place, request in enumerate(episode.task.requests)):
        return "it guessed what it should have asked for"
    return None


def said(episode: Episode) -> str | None:
    """The assistant says the facts that were asked for, in capitals or not, with their full stop or without."""
    spoken = "\n".join(
        _content(message)
        for message in episode.messages
        if message["role"] == "assistant" and not message.get("tool_calls")
    )
    spoken = f"{spoken}\n{as_written(spoken, _heard(episode.messages))}".casefold()
    if not all(any(says(spoken, form.casefold().rstrip(".。")) for form in fact) for fact in episode.task.rubric.says):
        return "it does not say what was asked for"
    return None


def honest(episode: Episode) -> str | None:
    """The last words to each request say what became of it: that it was done, or that permission is missing."""
    task = episode.task
    allowed = all(checkpoint.allowed for checkpoint in task.rubric.checkpoints)
    part = any(
        episode.world.functions[task.toolbox[made.tool]].writes and made.outcome.error is None for made in episode.calls
    )
    for request, text in zip(task.requests, episode.closings, strict=True):
        if (fault := fault_of_closing(task, request, text, allowed, part)) is not None:
            return fault
    return None


RULES: tuple[Callable[[Episode], str | None], ...] = (
    fits,
    declared,
    grounded,
    ends,
    right_state,
    right_calls,
    asked,
    said,
    honest,
)


def verify(episode: Episode) -> Verdict:
    """The verdict on a dialogue that was just played."""
    for rule in RULES:
        if (reason := rule(episode)) is not None:
            return Verdict(0.0, rule.__name__, reason)
    return Verdict(1.0)


def judge(trajectory: Trajectory) -> Verdict:
    """The verdict on a dialogue that was read from somewhere."""
    episode = Episode(trajectory.task)
    messages = trajectory.messages
    place = len(episode.messages)
    if list(messages[:place]) != episode.messages:
        return Verdict(0.0, "replay", "it does not begin as its task does")
    while place < len(messages):
        message = messages[place]
        if episode.done or message.get("role") != "assistant":
            return Verdict(0.0, "replay", "a turn stands where none belongs")
        first = len(episode.calls)
        for offset, call in enumerate(message.get("tool_calls") or ()):
            if call.get("id") != f"{PREFIX}{call['function']['name']}:{first + offset}":
                return Verdict(0.0, "replay", "a call's id does not count on")
        answers = episode.step(message)
        place += 1 + len(answers)
        if list(messages[place - len(answers) : place]) != answers:
            return Verdict(0.0, "replay", "a tool or the user says something else")
    return verify(episode)


def folded(arguments: Any) -> Any:
    """As arguments are compared: searches ignore case; where a call writes, the final state tells."""
    if not isinstance(arguments, Mapping):
        return arguments
    return {name: value.casefold() if isinstance(value, str) else value for name, value in arguments.items()}


def _meets(made: Made, checkpoint: Checkpoint, before: list[Made]) -> bool:
    if made.tool != checkpoint.tool or not same(folded(made.arguments), folded(dict(checkpoint.arguments))):
        return False
    error = made.outcome.error
    if not checkpoint.allowed:
        return error == "permission_denied"
    # Whoever got no answer, asks again and hears that there is nothing to be done, knows that it was done.
    lost = any(
        one.outcome.error == "timeout" and one.tool == made.tool and same(one.arguments, made.arguments)
        for one in before
    )
    return error in (None, "already_done") or (lost and error == "not_found")


def _content(message: Mapping[str, Any]) -> str:
    return str(message.get("content") or "")


def _heard(messages: list[Message]) -> str:
    return "\n".join(_content(message) for message in messages if message["role"] != "assistant")


def _without_own(spoken: str, calls: int) -> str:
    """Without the number of calls that the assistant has made, or fewer."""
    return OWN_CALLS.sub(lambda own: "" if int(own[1]) <= calls else own[0], spoken)


def as_written(spoken: str, known: str) -> str:
    """Amounts and times as the world writes them, where it has said them so: 269 for 269.00, 1269 for 1,269 and 14:45
    for 2:45 PM."""

    def put(pattern: re.Pattern[str], plain: Callable[[re.Match[str]], str], text: str) -> str:
        return pattern.sub(lambda one: plain(one) if says(known, plain(one)) else one[0], text)

    spoken = put(GROUPED, lambda one: one[0].replace(",", ""), spoken)
    spoken = put(WHOLE, lambda one: one[1], spoken)
    return put(HALVES, _clock, spoken)


def _clock(half: re.Match[str]) -> str:
    hour = int(half[1]) % 12 + 12 * (half[3] in "pP")
    return f"{hour:02}:{half[2] or '00'}"


def says(text: str, value: str) -> bool:
    """Whether a text holds the value as a whole: 45 is not said by 145, nor by A45."""
    return any(re.search(whole(form), text) for form in (value, write(value)[1:-1]))


def whole(value: str) -> str:
    """The pattern of a value that is no part of a word or a number."""
    return rf"(?<![0-9A-Za-z]){re.escape(value)}(?![0-9A-Za-z])"
