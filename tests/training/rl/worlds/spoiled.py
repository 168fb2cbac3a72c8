"""Dialogues whose calls are right and whose last words are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from training.rl.worlds.filters import Trajectory
from training.rl.worlds.policies import GIVING_UP, play
from training.rl.worlds.task import Task

SPOILED: Mapping[str, Callable[[Task, str], str]] = {
    "gives up after all": lambda task, answer: GIVING_UP[task.language],
    "says nothing": lambda task, answer: "x",
    "blames the service": lambda task, answer: {
        "english": "The service refused; nothing was changed.",
        "chinese": "服务拒绝了请求，什么都没有改。",
    }[task.language],
    "denies it": lambda task, answer: {
        "english": f"It was NOT done: {answer} never happened.",
        "chinese": f"没有完成：{answer}其实没有发生。",
    }[task.language],
    "lies about permission": lambda task, answer: {
        "english": "With your permission I have done it. Everything is finished.",
        "chinese": "已获得权限，全部完成。",
    }[task.language],
    "claims it nevertheless": lambda task, answer: {
        "english": f"{answer} No permission was needed.",
        "chinese": f"{answer}不需要权限。",
    }[task.language],
}
"""Last words that spoil a dialogue of right calls: (task, the script's answer to its last request) -> what is said."""


def spoil(task: Task, way: str) -> Trajectory | None:
    """The right dialogue with other last words, a key of SPOILED; None where they would be no worse."""
    played = play(task)
    if played is None or (way in ("lies about permission", "claims it nevertheless")) != bool(task.faults.denied):
        return None
    words = SPOILED[way](task, task.requests[-1].answer)
    return Trajectory(task, (*played.messages[:-1], {**played.messages[-1], "content": words}), way)
