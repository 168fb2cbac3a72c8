"""Dialogues in worlds with state: a scripted assistant plays a task, and the filters say what it is worth.

Some assistants are wrong in a known way: the filters have to refuse every one of them, and a right one never. A task is
also a problem of RL, which draws it again from `answer`.
"""

from __future__ import annotations

import random

from tasks.agentic.config import WorldsConfig
from tasks.agentic.dialogue import Dialogue
from training.rl.environments.world import problem_of
from training.rl.worlds.filters import judge
from training.rl.worlds.policies import WRONG, play
from training.rl.worlds.task import Kind, draw_task
from training.rl.worlds.wording import Split


def world_dialogue(config: WorldsConfig, split: Split, draw: random.Random) -> Dialogue | None:
    """A dialogue of a task of the split, which says what the filters refuse it for; None where the way of being wrong
    that was drawn does not apply to the task.

    Raises:
        AssertionError: the filters let a wrong assistant pass, or refuse a right one: their mistake.
    """
    kind = Kind(**config.kind)
    seed = str(draw.randrange(2**32))
    task = draw_task(seed, split, kind)
    policy = draw.choice(list(WRONG)) if draw.random() < config.wrong else "right"
    played = play(task, policy, seed)
    if played is None:
        return None
    verdict = judge(played)
    right = played.policy in ("right", "recovering")
    assert right == (verdict.score == 1.0), f"{task.seed}, {played.policy}: {verdict}"
    broken = f"{verdict.rule}: {verdict.reason}" if verdict.rule else None
    messages = [dict(message) for message in played.messages]
    problem = problem_of(task, seed, kind)
    return Dialogue(
        problem, messages, broken, unseen=task.unseen, player=f"script: {played.policy}", topic=task.requests[0].family
    )
