"""Logic and puzzles of reasoning-gym at levels of difficulty: rows of `GENERATORS`.

Only puzzles with one answer are taken: it is compared as a text, so that judging needs neither the package nor its
scorers, some of which evaluate what a model wrote. `answer` is {"gold": text}.
"""

from __future__ import annotations

import importlib
import random
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from model.chat import Reply
from training.draw import problem_id
from training.rl.environments.errors import EnvironmentUnavailable
from training.rl.environments.final import final
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict


class Logic(Environment):
    """One reply, which may reason before its final answer."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        said = final(reply.content)
        return verdict(not reply.calls and _plain(said) == _plain(problem.answer["gold"]), "another answer")

    def gold(self, problem: Problem) -> list[Reply]:
        return [Reply(f"Let me think.\nAnswer: {problem.answer['gold']}")]

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        gold = problem.answer["gold"]
        texts = (f"{gold}9", f"not {gold}", f"Answer: {gold}\nAnswer: none", f"Answer: {gold} {gold}", "unknown")
        return [[Reply(text)] for text in texts]


def _plain(text: str) -> str:
    """Without what does not count: case, space, the full stop, which minus it is, wide figures, commas, quotes and
    stars (a list may have either quote), and articles, for knights_knaves asks for "is a altruist" and expects "is an
    altruist"."""
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-").removesuffix(".")
    words = re.sub(r"[\"'`*\u2018\u2019\u201c\u201d]", "", plain).replace(",", " ").split()
    return " ".join(word for word in words if len(words) == 1 or word not in ("a", "an")).removesuffix(".")


def _between(low: str, high: str, *pairs: tuple[int, int]) -> tuple[Mapping[str, Any], ...]:
    return tuple({low: least, high: most} for least, most in pairs)


GENERATORS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "chain_sum": _between("min_terms", "max_terms", (2, 2), (3, 4), (5, 6)),
    "basic_arithmetic": _between("min_terms", "max_terms", (2, 2), (3, 4), (5, 6)),
    "gcd": _between("min_numbers", "max_numbers", (2, 2), (3, 3), (4, 4)),
    "lcm": _between("min_numbers", "max_numbers", (2, 2), (3, 3), (4, 4)),
    "count_bits": _between("min_n", "max_n", (1, 63), (64, 1023), (1024, 65535)),
    "count_primes": _between("min_n", "max_n", (1, 50), (50, 200), (200, 1000)),
    "letter_counting": _between("min_words", "max_words", (3, 5), (6, 10), (11, 15)),
    "leg_counting": _between("min_animals", "max_animals", (1, 2), (3, 5), (6, 9)),
    "base_conversion": _between("min_value", "max_value", (0, 63), (64, 511), (512, 4095)),
    "number_filtering": _between("min_numbers", "max_numbers", (3, 4), (5, 7), (8, 10)),
    "knights_knaves": ({"n_people": 2}, {"n_people": 3}, {"n_people": 4}),
    "syllogism": ({},),
    "family_relationships": _between("min_family_size", "max_family_size", (4, 4), (5, 6), (7, 8)),
    "number_sequence": _between("min_terms", "max_terms", (4, 5), (6, 7), (8, 9)),
}
"""Data sets of reasoning-gym, with their settings by level."""


def problems(count: int, seed: str) -> list[Problem]:
    """`count` problems, the generators in turn, their levels in turn.

    Raises:
        EnvironmentUnavailable: reasoning-gym is not installed.
    """
    try:
        gym = importlib.import_module("reasoning_gym")
    except ImportError:
        raise EnvironmentUnavailable(
            "problems of the environment 'logic' are made by reasoning-gym, which is not installed: "
            "pip install 'openk2[rl]', or leave them out"
        ) from None
    stream, generators = random.Random(f"logic/{seed}"), list(GENERATORS.items())
    found = []
    for place in range(count):
        name, levels = generators[place % len(generators)]
        level = place // len(generators) % len(levels)
        entry = {"answer": ""}
        while not _plain(str(entry["answer"])):  # a list from which all is filtered away: saying nothing would be right
            # The package seeds its own stream, and nothing of it is global.
            (entry,) = gym.create_dataset(name, size=1, seed=stream.randrange(2**31), **levels[level])
        text = f'{entry["question"].strip()}\nEnd with a line "Answer: ...".'
        found.append(
            Problem(
                problem_id("logic", name, entry["question"]),
                f"logic.{name}",
                "logic",
                ({"role": "user", "content": text},),
                {"gold": str(entry["answer"]), "level": level + 1},
            )
        )
    return found
