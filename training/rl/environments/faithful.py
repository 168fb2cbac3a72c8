"""Faithfulness: every sentence of a reply is supported by the source that it was asked about.

Support is judged by a callable (`Services.support`: a source and sentences to a number from 0 to 1 each): the check of
fidelity (`fidelity_process.py`), or a judge behind an endpoint. Without one the environment refuses.
`answer` is {"source", "gold", "wrong"}.
"""

from __future__ import annotations

import random

from model.chat import Reply
from training.draw import problem_id
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.hacks import hack, sentences
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict

SUPPORTED = 0.5
"""Least support of a sentence."""


class Faithful(Environment):
    """One reply of at least one sentence."""

    waits = True

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        support = self.services.support
        if support is None:
            raise EnvironmentUnavailable(
                f"problem {problem.id} asks whether a reply is faithful to its source, and no model that judges this "
                "is configured: give rl.fidelity the model of the fidelity check or rl.judge an endpoint, or leave the "
                "environment out"
            )
        said = sentences(reply.content)
        if reply.calls or not said:
            return verdict(False, "nothing is said")
        if found := hack(reply.content, ""):
            return verdict(False, f"hack: {found}")
        weak = sum(value < SUPPORTED for value in support(problem.answer["source"], said))
        return verdict(weak == 0, f"{weak} of {len(said)} sentences are not supported")

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        answer = problem.answer
        return [[Reply(text)] for text in (answer["wrong"], f"{answer['gold']} {answer['wrong']}", "...")]


PLACES = ("Arden", "Bellmoor", "Corvale", "Dunhill", "Eastmere")
FACTS = (
    ("The library of {0} opened in {1}.", 1850, 1990),
    ("Its reading room has {1} seats.", 40, 400),
    ("The tower of {0} is {1} metres high.", 20, 120),
    ("About {1} people visit {0} in a year.", 1000, 90000),
    ("The market of {0} has {1} stalls.", 10, 90),
)


def problems(count: int, seed: str) -> list[Problem]:
    """`count` problems: a source of a few facts, and what one may say of it."""
    draw, found = random.Random(f"faithful/{seed}"), []
    for _ in range(count):
        place = draw.choice(PLACES)
        chosen = draw.sample(FACTS, 3)
        numbers = [draw.randint(low, high) for _, low, high in chosen]
        facts = [fact.format(place, number) for (fact, _, _), number in zip(chosen, numbers, strict=True)]
        source = " ".join(facts)
        wrong = chosen[0][0].format(place, numbers[0] + draw.randint(1, 9))
        text = f"{source}\n\nSay in your own words what this tells of {place}. Add nothing."
        answer = {"source": source, "gold": facts[0], "wrong": wrong}
        message = {"role": "user", "content": text}
        found.append(Problem(problem_id("faithful", source), "faithful", "faithful", (message,), answer))
    return found
