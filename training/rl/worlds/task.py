"""A task: a start state, some tools, what a user wants in one or two requests, and the rubric that judges it.

Everything follows from the seed. A tool's name is one of several that its function may have, so that a model reads the
declarations; names and functions, wordings and arguments are held out by hash (wording.py). A task of the training
split holds nothing of the other two, one of the development split nothing of the test split.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from model.config import Config
from training.draw import problem_id
from training.rl.worlds.families.family import Call, Family
from training.rl.worlds.families.table import HAND_WRITTEN, Setting
from training.rl.worlds.faults import Faults
from training.rl.worlds.personas import PERSONAS, Persona
from training.rl.worlds.wording import (
    FRAMES,
    SPLITS,
    Language,
    Split,
    expand,
    hardest,
    say,
    split_of,
)
from training.rl.worlds.world import State, World, write

TRIES = 2000


class Kind(Config):
    """What kinds of tasks are drawn, as shares."""

    follow_ups: float = Field(default=0.25, ge=0, le=1)
    """Tasks with a second request."""
    forgetful: float = Field(default=0.3, ge=0, le=1)
    """Requests that leave an argument out, where the family has such."""
    faulty: float = Field(default=0.3, ge=0, le=1)
    """Tasks in which calls fail now and then."""
    denied: float = Field(default=0.08, ge=0, le=1)
    """Tasks in which permission is missing for a function that is needed."""
    offered: int = Field(default=5, ge=1)
    """Most tools that are offered; those that are needed always are."""


@dataclass(frozen=True)
class Request:
    """One thing that the user wants."""

    family: str
    arguments: Mapping[str, Any]
    text: str
    """What the user says first."""
    missing: str | None
    """The argument that the user has left out."""
    reply: str
    """How the user gives it when asked."""
    plan: tuple[Call, ...]
    """Calls of functions that do it."""
    answer: str
    """How a right dialogue ends."""


@dataclass(frozen=True)
class Checkpoint:
    """A call that must be made."""

    tool: str
    arguments: Mapping[str, Any]
    allowed: bool = True
    """False where permission is missing: then it must have been tried."""


@dataclass(frozen=True)
class Rubric:
    """What a right dialogue meets, said before it begins (K2 report 3.1.1): criteria in words, for people and judges,
    and what of them a program can check."""

    criteria: tuple[str, ...]
    pattern: tuple[str, ...]
    """Tools in the order in which a script calls them, for judges; other calls may stand between."""
    checkpoints: tuple[Checkpoint, ...]
    """The calls of the pattern, with their arguments."""
    final: State
    """The state in which a right dialogue leaves the world."""
    says: tuple[tuple[str, ...], ...]
    """Facts that the assistant must say, each in one of its forms."""

    @property
    def most_calls(self) -> int:
        """More calls than these are a dialogue that does not get on: every call twice, and some looking around."""
        return 2 * len(self.checkpoints) + 4


@dataclass(frozen=True)
class Task:
    """Everything that a dialogue needs, and everything that judges it."""

    id: str
    """Hash of what is asked for, without its wording: the same problem has the same id."""
    seed: str
    split: Split
    unseen: tuple[str, ...]
    """What in it is held out: wording, arguments, tool (a new name of a known function), function."""
    language: Language
    persona: Persona
    """Who the user is."""
    world: World
    start: State
    toolbox: Mapping[str, str]
    """The function behind each tool that is offered."""
    faults: Faults
    system: str
    requests: tuple[Request, ...]
    rubric: Rubric

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The declarations, in OpenAI's layout."""
        return [self.world.functions[function].declaration(name) for name, function in self.toolbox.items()]

    def tool(self, function: str) -> str:
        """What the function is called here."""
        return next(name for name, behind in self.toolbox.items() if behind == function)


def draw_task(
    seed: int | str,
    split: Split,
    kind: Kind | None = None,
    family: str | None = None,
    setting: Setting = HAND_WRITTEN,
    tries: int = TRIES,
) -> Task:
    """A task of a split: the same for the same seed.

    Raises:
        ValueError: no such task was found in many draws.
    """
    kind = kind or Kind()
    for attempt in range(tries):
        name = f"{seed}/{split}/{attempt}"
        task = _try(random.Random(name), name, split, kind, family, setting)
        if task is not None and task.split == split:
            return task
    raise ValueError(f"no task of {family or 'any family'} was found for {split} in {tries} draws: hold out less")


def _try(draw: random.Random, seed: str, split: Split, kind: Kind, name: str | None, setting: Setting) -> Task | None:
    family = setting.families[name or draw.choice(list(setting.families))]
    world = setting.worlds[family.world]
    language = draw.choice(setting.languages)
    persona = draw.choice(PERSONAS)
    start = state = world.start(seed)
    requests: list[Request] = []
    sides: dict[str, list[Split]] = {"wording": [], "arguments": [], "tool": [], "function": []}
    families = [family] + ([_another(world, draw, setting)] if draw.random() < kind.follow_ups else [])
    for one in families:
        made = _request(one, world, state, language, persona, split, kind.forgetful, draw)
        if made is None:
            return None
        request, state, wording = made
        if requests:
            request = replace(request, text=persona.next[language] + request.text)
        requests.append(request)
        sides["wording"].append(split_of("wording", wording))
        sides["arguments"].append(split_of("arguments", problem_id(one.name, write(dict(request.arguments)))))
    if len({one.reply for one in requests if one.missing} | {one.text for one in requests}) < len(requests):
        return None
    needed = list(dict.fromkeys(call[0] for request in requests for call in request.plan))
    toolbox = _toolbox(world, needed, split, kind.offered, draw)
    if toolbox is None:
        return None
    # Known by its name is a tool whose function is known, too.
    sides["function"] = [split_of("function", f"{world.name}.{function}") for function in toolbox.values()]
    sides["tool"] = [split_of("tool", tool) for tool in toolbox]
    unseen = tuple(part for part, found in sides.items() if hardest(found) != "train")
    problem = problem_id(start, *(f"{one.family} {write(dict(one.arguments))}" for one in requests))
    faults, denied = _faults(draw, kind, needed, world)
    if denied and len(requests) > 1:
        return None  # the second request could rest on what was never done
    task = Task(
        id=problem,
        seed=seed,
        split=hardest([hardest(found) for found in sides.values()]),
        unseen=unseen,
        language=language,
        persona=persona,
        world=world,
        start=start,
        toolbox=toolbox,
        faults=faults,
        system=draw.choice(setting.prompts[language]),
        requests=tuple(requests),
        rubric=Rubric((), (), (), start, ()),
    )
    return replace(task, rubric=_rubric(task, families, denied))


def _another(world: World, draw: random.Random, setting: Setting) -> Family:
    names = [name for name, family in setting.families.items() if family.world == world.name]
    return setting.families[draw.choice(names)]


def _request(
    family: Family,
    world: World,
    state: State,
    language: Language,
    persona: Persona,
    split: Split,
    forgetful: float,
    draw: random.Random,
) -> tuple[Request, State, str] | None:
    """A request, the state after its plan, and the clause that asks for it."""
    data = json.loads(state)
    arguments = family.draw(data, draw)
    if arguments is None:
        return None
    missing = None
    wordings = family.wordings(language)
    if family.withheld and draw.random() < forgetful:
        missing = draw.choice(sorted(family.withheld))
        wordings = list(expand(family.withheld[missing][language]))
    allowed = [wording for wording in wordings if SPLITS.index(split_of("wording", wording)) <= SPLITS.index(split)]
    if not allowed:
        return None
    wording = draw.choice(allowed)
    plan = tuple(family.plan(data, dict(arguments)))
    results = []
    for name, given in plan:
        outcome = world.call(state, name, given)
        assert outcome.error is None, f"{family.name}: its own plan fails: {name} {given}: {outcome.text}"
        state = outcome.state
        results.append(outcome.value)
    said = {**family.facts(results), **arguments}
    comma = ", " if language == "english" else "、"
    spoken = {key: comma.join(map(str, value)) if isinstance(value, list) else value for key, value in said.items()}
    request = Request(
        family.name,
        arguments,
        say(draw.choice(FRAMES[persona.style][language]), wording.format(**arguments)),
        missing,
        draw.choice(persona.replies[language]).format(value=arguments[missing]) if missing else "",
        plan,
        family.answer[language].format(**spoken),
    )
    return request, state, wording


def _toolbox(world: World, needed: list[str], split: Split, offered: int, draw: random.Random) -> dict[str, str] | None:
    """Tools for the functions that are needed and some others, under names that the split may know."""
    most = SPLITS.index(split)
    others = [name for name in world.functions if name not in needed]
    chosen = needed + draw.sample(others, min(len(others), max(0, draw.randint(1, offered) - len(needed))))
    draw.shuffle(chosen)
    toolbox: dict[str, str] = {}
    space = draw.choice(world.spaces)
    for function in chosen:
        names = [f"{space}.{name}" for name in world.functions[function].names]
        names = [name for name in names if name not in toolbox and SPLITS.index(split_of("tool", name)) <= most]
        known = SPLITS.index(split_of("function", f"{world.name}.{function}")) <= most
        if known and names:
            toolbox[draw.choice(names)] = function
        elif function in needed:
            return None
    return toolbox


def _faults(draw: random.Random, kind: Kind, needed: list[str], world: World) -> tuple[Faults, str | None]:
    number = draw.randrange(2**32)
    if draw.random() < kind.denied:
        denied = draw.choice([name for name in needed if world.functions[name].writes] or needed)
        return Faults(number, denied=frozenset({denied})), denied
    if draw.random() < kind.faulty:
        lost = 0.15 if all(world.functions[name].repeatable for name in needed) else 0.0
        return Faults(number, transient=0.25, lost=lost), None
    return Faults(number), None


def _rubric(task: Task, families: Sequence[Family], denied: str | None) -> Rubric:
    """What a right dialogue must meet: the plans, up to where permission is missing."""
    world, state = task.world, task.start
    checkpoints: list[Checkpoint] = []
    facts: list[tuple[str, ...]] = []
    criteria: list[str] = []
    for request, family in zip(task.requests, families, strict=True):
        results = []
        criteria.append(f"does what was asked: {request.text}")
        for name, given in request.plan:
            checkpoints.append(Checkpoint(task.tool(name), given, allowed=name != denied))
            if name == denied:
                break
            outcome = world.call(state, name, given)
            state = outcome.state
            results.append(outcome.value)
        if len(results) < len(request.plan):
            criteria.append("says that permission is missing, and claims nothing else")
            facts.append(("permission", "permissions", "权限"))
            break
        for value in family.facts(results).values():
            facts += [(str(item),) for item in (value if isinstance(value, list) else [value])]
        if request.missing:
            criteria.append(f"asks for the {request.missing} instead of guessing it")
    return Rubric(
        tuple(criteria),
        tuple(checkpoint.tool for checkpoint in checkpoints),
        tuple(checkpoints),
        state,
        tuple(facts),
    )
