"""The environments, by the name that a problem's `verifier` gives, and the problem sets that come with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from model.chat import Reply
from training.rl.environments import apis, code, faithful, instructions, logic, maths, open_ended, safety, verifiers
from training.rl.environments.exact import ExactAnswer, RightCall
from training.rl.environments.protocol import Environment, Outcome, Problem
from training.rl.environments.services import Services
from training.rl.environments.world import InWorld

ENVIRONMENTS: Mapping[str, type[Environment]] = {
    "exact": ExactAnswer,
    "call": RightCall,
    "world": InWorld,
    "math": maths.Mathematics,
    "logic": logic.Logic,
    "instructions": instructions.Instructions,
    "code": code.Coding,
    "faithful": faithful.Faithful,
    "safety": safety.Safety,
    "critique": open_ended.OpenEnded,
    "apis": apis.Apis,
    "verifiers": verifiers.OfLibrary,
}
SETS: Mapping[str, Callable[[int, str], list[Problem]]] = {
    "math": maths.problems,
    "logic": logic.problems,
    "instructions": instructions.problems,
    "judged": instructions.judged_problems,
    "code": code.problems,
    "faithful": faithful.problems,
    "safety": safety.problems,
    "critique": open_ended.problems,
    "apis": apis.problems,
}
"""(how many, seed) -> problems: the same for the same seed. Those of `exact`, `call` and `world` are dialogues', and
those of `verifiers` a library's (`verifiers.problems`)."""


def environment(problem: Problem, services: Services | None = None) -> Environment:
    """A fresh environment for `problem`."""
    try:
        kind = ENVIRONMENTS[problem.verifier]
    except KeyError:
        raise ValueError(
            f"problem {problem.id} asks for verifier '{problem.verifier}': known are {', '.join(ENVIRONMENTS)}"
        ) from None
    return kind(services or Services())


def play(problem: Problem, replies: Sequence[Reply], services: Services | None = None) -> Outcome:
    """One episode with the replies that are given."""
    return environment(problem, services).play(problem, replies)
