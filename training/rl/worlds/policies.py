"""Scripted assistants of known verdict: a right one, which recovers from faults, and ones wrong in known ways."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from model.dialogue import PREFIX, spaced
from training.rl.worlds.episode import Episode
from training.rl.worlds.filters import Trajectory, says, whole
from training.rl.worlds.task import Task
from training.rl.worlds.wording import QUESTIONS, Language
from training.rl.worlds.world import State

ATTEMPTS = 3
GIVING_UP: Mapping[Language, str] = {"english": "I am sorry, I can not do that.", "chinese": "抱歉，我做不到。"}
DENIED: Mapping[Language, str] = {
    "english": "I can not do this: the permission is missing. Nothing more was done.",
    "chinese": "我无法完成：没有权限。此后没有做任何操作。",
}


@dataclass(frozen=True)
class Move:
    """What a script does next: a call."""

    tool: str
    arguments: Mapping[str, Any]
    reads: bool = False


@dataclass(frozen=True)
class Script:
    """What an assistant does about one request."""

    question: str
    """Asked first; "" asks nothing."""
    moves: tuple[Move, ...]
    answer: str
    recovers: bool = True
    """Whether a failed call is tried again."""
    admits: bool = True
    """Whether missing permission is admitted."""


Change = Callable[[Task, Script, int, random.Random], Script | None]
"""(task, a right script, the number of its request, draw) -> a wrong script; None where the way does not apply."""


def right(task: Task) -> list[Script]:
    """What a right assistant does, request by request."""
    functions = task.world.functions
    return [
        Script(
            QUESTIONS[request.missing][task.language] if request.missing else "",
            tuple(Move(task.tool(name), given, not functions[name].writes) for name, given in request.plan),
            request.answer,
        )
        for request in task.requests
    ]


def _wrong_tool(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    places = _places(task, script)
    if not places or len(task.toolbox) == 1:
        return None
    place = draw.choice(places)
    move = script.moves[place]
    functions = task.world.functions
    others = [tool for tool in task.toolbox if tool != move.tool]
    # The likeliest mistake is a tool that takes the same arguments.
    fitting = [tool for tool in others if functions[task.toolbox[tool]].validator.is_valid(dict(move.arguments))]
    other = draw.choice(fitting or others)
    known = functions[task.toolbox[other]].properties
    given = {name: value for name, value in move.arguments.items() if name in known}
    return _put(script, place, Move(other, given))


def _wrong_argument(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    places = [place for place in _places(task, script) if script.moves[place].arguments]
    if not places:
        return None
    place = draw.choice(places)
    move = script.moves[place]
    name = draw.choice(sorted(move.arguments))
    schema = task.world.functions[task.toolbox[move.tool]].properties[name]
    given = {**move.arguments, name: _other(move.arguments[name], schema, draw, task.start)}
    return _put(script, place, replace(move, arguments=given))


def _invented_tool(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    places = _places(task, script)
    if not places:
        return None
    place = draw.choice(places)
    move = script.moves[place]
    return _put(script, place, replace(move, tool=move.tool + draw.choice(("_now", "_all", "2", ".run"))))


def _missing_step(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    places = _places(task, script)
    if not places:
        return None
    place = draw.choice(places)
    return replace(script, moves=script.moves[:place] + script.moves[place + 1 :])


def _too_many_steps(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    if task.faults.denied:
        return None
    return replace(script, moves=script.moves[:1] * (task.rubric.most_calls + 1) + script.moves[1:])


def _giving_up(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    places = _places(task, script)
    if not places:
        return None
    return replace(script, question="", moves=script.moves[: draw.choice(places)], answer=GIVING_UP[task.language])


def _no_retry(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    return replace(script, recovers=False)


def _false_claim(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    return replace(script, admits=False) if task.faults.denied else None


def _no_question(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    missing = task.requests[number].missing
    return replace(script, question="") if missing else None


def _invented_answer(task: Task, script: Script, number: int, draw: random.Random) -> Script | None:
    others = "\n".join(one.answer for place, one in enumerate(right(task)) if place != number)
    facts = [fact[0] for fact in task.rubric.says if says(script.answer, fact[0]) and not says(others, fact[0])]
    if task.faults.denied or not facts:
        return None
    spoken = script.answer
    for fact in facts:
        spoken = re.sub(whole(fact), _another_fact(fact, draw), spoken)
    return replace(script, answer=spoken)


def _another_fact(fact: str, draw: random.Random) -> str:
    """What is no longer the fact: a word with something behind it would still say the word."""
    if not any(letter.isdigit() for letter in fact):
        return "something else"
    return str(_other(int(fact) if fact.isdigit() else fact, {}, draw))


WRONG: Mapping[str, Change] = {
    "wrong tool": _wrong_tool,
    "wrong argument": _wrong_argument,
    "invented tool": _invented_tool,
    "missing step": _missing_step,
    "too many steps": _too_many_steps,
    "giving up": _giving_up,
    "no retry": _no_retry,
    "false claim": _false_claim,
    "no question": _no_question,
    "invented answer": _invented_answer,
}

RIGHT = ("right", "recovering")
"""What the others' trajectories say: `recovering` where calls had failed."""


def play(task: Task, policy: str = "right", seed: int | str = 0) -> Trajectory | None:
    """A dialogue of a scripted assistant; None where its way of being wrong does not apply to the task.

    Args:
        policy: `right`, or a key of WRONG.
    """
    draw = random.Random(f"{policy}/{seed}/{task.id}")
    scripts = right(task)
    if policy != "right":
        number = draw.randrange(len(scripts))
        wrong = WRONG[policy](task, scripts[number], number, draw)
        if wrong is None:
            return None
        scripts[number] = wrong
    episode = Episode(task)
    for script in scripts:
        if not episode.done:
            _follow(episode, script, draw)
    failed = any(made.outcome.error in ("unavailable", "timeout") for made in episode.calls)
    if policy == "no retry" and not _unanswered(episode):
        return None
    name = "recovering" if policy == "right" and failed else policy
    return Trajectory(task, tuple(episode.messages), name)


def _follow(episode: Episode, script: Script, draw: random.Random) -> None:
    if script.question:
        episode.step({"role": "assistant", "content": script.question})
    for batch in _batches(script.moves, draw):
        waiting = batch
        for _ in range(ATTEMPTS if script.recovers else 1):
            first = len(episode.calls)
            episode.step(_turn(waiting, first))
            if episode.done:
                return
            errors = [made.outcome.error for made in episode.calls[first:]]
            if "permission_denied" in errors and script.admits:
                episode.step({"role": "assistant", "content": DENIED[episode.task.language]})
                return
            failed = zip(waiting, errors, strict=True)
            waiting = [move for move, error in failed if error in ("unavailable", "timeout")]
            if not waiting:
                break
    episode.step({"role": "assistant", "content": script.answer})


def _batches(moves: tuple[Move, ...], draw: random.Random) -> list[list[Move]]:
    """Moves by turns: what only reads, with the same tool, may be called at once."""
    batches: list[list[Move]] = []
    for move in moves:
        together = batches and move.reads and batches[-1][-1].tool == move.tool and move not in batches[-1]
        if together and draw.random() < 0.5:
            batches[-1].append(move)
        else:
            batches.append([move])
    return batches


def _turn(moves: list[Move], first: int) -> dict[str, Any]:
    calls = [
        {
            "id": f"{PREFIX}{move.tool}:{first + offset}",
            "type": "function",
            "function": {"name": move.tool, "arguments": spaced(move.arguments)},
        }
        for offset, move in enumerate(moves)
    ]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def _unanswered(episode: Episode) -> bool:
    """Whether an expected call failed and was not made again."""
    no_answer = ("unavailable", "timeout")
    answered = [(made.tool, made.arguments) for made in episode.calls if made.outcome.error not in no_answer]
    failed = [(made.tool, made.arguments) for made in episode.calls if made.outcome.error in no_answer]
    return any(one not in answered for one in failed)


def _places(task: Task, script: Script) -> list[int]:
    """Where a script can go wrong: at calls that are reached, and that the task needs once (a call of another request
    may stand for one that is left out)."""
    every = [move for one in right(task) for move in one.moves]
    denied = [place for place, move in enumerate(script.moves) if task.toolbox.get(move.tool) in task.faults.denied]
    reached = script.moves[: denied[0] + 1] if denied else script.moves
    return [place for place, move in enumerate(reached) if every.count(move) == 1]


def _put(script: Script, place: int, move: Move) -> Script:
    return replace(script, moves=(*script.moves[:place], move, *script.moves[place + 1 :]))


def _other(value: Any, schema: Mapping[str, Any], draw: random.Random, state: State = "") -> Any:
    """Another value of the same kind, often one of the same shape that the world has."""
    if "enum" in schema:
        return draw.choice([one for one in schema["enum"] if one != value])
    if isinstance(value, int):
        return value + draw.randint(1, 9)
    places = [place for place, letter in enumerate(value) if letter.isdigit()]
    if not places:
        return value + " 2"
    shape = "".join("[0-9]" if letter.isdigit() else re.escape(letter) for letter in value)
    others = sorted({*re.findall(f'"({shape})"', state)} - {value})
    if others and draw.random() < 0.7:
        return draw.choice(others)
    place = places[-1]
    return value[:place] + draw.choice([digit for digit in "0123456789" if digit != value[place]]) + value[place + 1 :]
