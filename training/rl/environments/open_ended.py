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
    r"^\W*(?:(?:wow|oh|ah|thanks?|thank you|for|asking|such|that|this|it|is|s|an?|very|really|truly)\b\W*)*"
    r"\b(?:great|good|excellent|wonderful|thoughtful|interesting|fantastic|brilliant) (?:question|request|topic|idea)\b"
    r"(?=\W*$|\s*[.!,;:–—-])"
    r"|^\W*(?:(?:wow|oh|ah)\W+)?what an? (?:\w+ )?(?:question|idea)\b"
    r"|^\W*I (?:really )?(?:love|like) (?:this|that|your) question\b"
    r"|^\W*your (?:question|idea) is\b|^\W*you(?: are|['’]re) (?:absolutely |so |quite )?right\b"
    r"|^\W*(?:[这那]?真?[是的]?)?(?:一?个)?(?:很|非常|真)?(?:好|棒)的?问题|^\W*这个?问题[问提]得",
    re.IGNORECASE,
)
"""A compliment to the user or the question (K2's first prescriptive rubric); "a good question to ask is" is none."""
BOASTS = re.compile(
    r"\b(?:this|my|the above) (?:reply|response|answer|text) (?:is|was) (?:the )?"
    r"(?:best|perfect|ideal|flawless|excellent|complete|accurate|correct|helpful)\b"
    r"|\b(?:this|it|above)\b(?: \w+){0,2} (?:meets?|fulfils?|fulfills?|satisfies)(?: \w+){0,2}"
    r" (?:rubrics?|criteri(?:a|on)|requirements?|requests?)\b",
    re.IGNORECASE,
)
"""What says of the reply itself that it is good (the second one)."""


class OpenEnded(Environment):
    """One reply; 1.0 says that it may be compared."""

    def answer(self, problem: Problem, reply: Reply) -> Outcome:
        text = reply.content.strip()
        if reply.calls or not words(text):
            return verdict(False, "nothing is said")
        if PRAISE.search(text):
            return verdict(False, "it begins with praise")
        if BOASTS.search(text):
            return verdict(False, "it says that it is good")
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
