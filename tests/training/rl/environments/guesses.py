"""Environments of the library `verifiers` as they were before 0.4, for test_played.py: they are read by the library,
under its interpreter."""

from __future__ import annotations

import random

import verifiers as vf
from datasets import Dataset

ROWS = [
    {"question": f"Give {number} in words.", "answer": words, "info": {"number": number}}
    for number, words in enumerate(("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"))
]


def last(completion) -> str:
    return completion[-1].content


def right(completion, answer, **_) -> float:
    return float(last(completion) == answer)


def short(completion, **_) -> float:
    return float(len(last(completion)) < 10)


class Guesses(vf.MultiTurnEnv):
    """A user who says colder until the answer stands there, at most four times."""

    @vf.stop
    async def found(self, state) -> bool:
        said = [step["completion"][-1].content for step in state["trajectory"]]
        return bool(said) and state["answer"] in said[-1]

    async def env_response(self, messages, state, **_):
        return [{"role": "user", "content": f"Colder by {random.randrange(1000)}."}]


class Rewriting(vf.MultiTurnEnv):
    """Shows the model another past than it had."""

    async def get_prompt_messages(self, state):
        return state["prompt"] if not state["trajectory"] else [{"role": "user", "content": "Begin again."}]

    async def env_response(self, messages, state, **_):
        return []


class Groups(vf.Rubric):
    def __init__(self):
        async def best(completions) -> list[float]:
            return [1.0 for _ in completions]

        super().__init__(funcs=[best])


def spell(number: int) -> str:
    """A number in words.

    Args:
        number: from 0 to 9
    """
    return next(row["answer"] for row in ROWS if row["info"]["number"] == number)


def load_environment(kind: str = "single") -> vf.Environment:
    if kind == "unknown":
        raise ValueError(f"no rows of {kind}")
    data = Dataset.from_list(ROWS)
    rubric = vf.Rubric(funcs=[right, short], weights=[1.0, 0.2])
    given = {"dataset": data, "rubric": rubric, "system_prompt": "You spell."}
    if kind == "tools":
        steps = [
            row | {"info": {"steps": [{"name": "spell", "arguments": {"number": n}}]}} for n, row in enumerate(ROWS)
        ]
        calls = vf.Rubric(funcs=[right, called], weights=[0.5, 0.5])
        return vf.ToolEnv(tools=[spell], **{**given, "dataset": Dataset.from_list(steps), "rubric": calls})
    if kind == "guesses":
        return Guesses(max_turns=4, **{**given, "rubric": vf.Rubric(funcs=[within], weights=[1.0])})
    if kind == "rewriting":
        return Rewriting(max_turns=2, **given)
    if kind == "groups":
        return vf.SingleTurnEnv(**{**given, "rubric": Groups()})
    if kind == "raises":
        return vf.SingleTurnEnv(**{**given, "rubric": vf.Rubric(funcs=[raising])})
    return vf.SingleTurnEnv(**given)


def within(completion, answer, **_) -> float:
    return float(answer in last(completion))


def called(completion, **_) -> float:
    return float(any(getattr(message, "tool_calls", None) for message in completion))


def raising(completion, **_) -> float:
    raise RuntimeError("no reward")
