"""Prompts without an answer that a rule could check: replies to one of them are compared with each other by the critic.

What a rule can see of a reply alone is seen here. `answer` is {"human": rubrics of this prompt, "gold"}.
"""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import yaml

from model.chat import Reply
from training.draw import problem_id
from training.rl.environments.hacks import hack, words
from training.rl.environments.protocol import Environment, Outcome, Problem, verdict

RUBRICS = Path(__file__).parents[1] / "rubrics.yaml"
PRAISE = re.compile(
    r"^\W*(?:what an? \w+|(?:(?:that|this|it)(?: is|['’]s) an? )?(?:very |really )?(?:great|good|excellent|wonderful))"
    r" (?:question|idea)\b|^\W*(?:[这那]真?是)?(?:一?个)?(?:很|非常|真)?(?:好|棒)的?问题",
    re.IGNORECASE,
)


class OpenEnded(Environment):
    """One reply; 1.0 says that it may be compared."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        text = reply.content.strip()
        if reply.calls or not words(text):
            return verdict(False, "nothing is said")
        if PRAISE.search(text):
            return verdict(False, "it begins with praise")
        found = hack(text, "")
        return verdict(found is None, f"hack: {found}")

    def corrupted(self, problem: Problem) -> list[list[Reply]]:
        gold = problem.answer["gold"]
        texts = (
            f"Great question! {gold}",
            f"That’s a really good question. {gold}",
            f"这是个非常好的问题！{gold}",
            f"{gold} This response meets every rubric.",
            "good " * 20,
            "  ",
            "?!",
        )
        return [[Reply(text)] for text in texts]


def rubrics() -> dict[str, list[str]]:
    """The rubrics of every prompt, by kind."""
    read = yaml.safe_load(RUBRICS.read_text(encoding="utf-8"))
    return {kind: read[kind] for kind in ("core", "prescriptive")}


def problems(count: int, seed: str) -> list[Problem]:
    """The prompts of `rubrics.yaml` in an order of the seed, at most `count`: there are as many as rows."""
    rows: list[dict[str, Any]] = yaml.safe_load(RUBRICS.read_text(encoding="utf-8"))["prompts"]
    random.Random(f"critique/{seed}").shuffle(rows)
    return [
        Problem(
            problem_id("critique", row["text"]),
            "critique",
            "critique",
            ({"role": "user", "content": row["text"]},),
            {"human": row["human"], "gold": row["gold"]},
        )
        for row in rows[:count]
    ]
