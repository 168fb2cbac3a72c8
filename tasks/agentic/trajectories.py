"""Dialogues in worlds with state: an assistant plays a task, and the filters say what it is worth.

The assistant is a script, or a model behind an endpoint. Some scripts are wrong in a known way: the filters have to
refuse every one of them, and a right one never. A task is also a problem of RL, which draws it again from `answer`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow.parquet as pq

from tasks.agentic.config import WorldsConfig
from tasks.agentic.dialogue import BY_JUDGE, Dialogue
from tasks.agentic.judging import Judge
from tasks.agentic.roles import Player, Roles
from tasks.agentic.rubric import shown
from tasks.artifact import Artifact
from training.rl.environments.world import problem_of
from training.rl.worlds import filters
from training.rl.worlds.filters import Verdict
from training.rl.worlds.policies import RIGHT, WRONG, play
from training.rl.worlds.synthetic.requests import setting_of
from training.rl.worlds.synthetic.spec import DomainSpec, ToolSpec
from training.rl.worlds.task import Kind, Task, draw_task
from training.rl.worlds.wording import Split

DOMAIN_TRIES = 100
"""Draws of a task from one synthetic domain: all of its tools may be held out from a split."""


@dataclass(frozen=True)
class Domain:
    """A synthetic application with its tools."""

    spec: DomainSpec
    tools: tuple[ToolSpec, ...]

    @property
    def record(self) -> dict[str, Any]:
        """What its world is made again from, in JSON."""
        tools = [tool.model_dump(mode="json", exclude_defaults=True) for tool in self.tools]
        return {"domain": self.spec.model_dump(mode="json", exclude_defaults=True), "tools": tools}


def domains_of(tools: Artifact) -> list[Domain]:
    """The domains of the tools stage, with those of their tools that it kept."""
    found: dict[str, list[ToolSpec]] = {}
    for path in tools.files("tools"):
        for row in pq.read_table(path, columns=["domain", "spec"]).to_pylist():
            found.setdefault(row["domain"], []).append(ToolSpec.model_validate_json(row["spec"]))
    return [
        Domain(DomainSpec.model_validate_json(row["spec"]), tuple(found[row["domain"]]))
        for path in tools.files("domains")
        for row in pq.read_table(path, columns=["domain", "spec"]).to_pylist()
        if row["domain"] in found
    ]


@dataclass(frozen=True)
class Drawn:
    """A task, and what leads to it again."""

    task: Task
    seed: str
    kind: Kind
    domain: Domain | None


def draw_from(
    config: WorldsConfig, split: Split, draw: random.Random, domains: Sequence[Domain] | None
) -> Drawn | None:
    """A task of the split, in one of the synthetic `domains` or in a hand-written world; None where the domain that was
    drawn has none."""
    seed = str(draw.randrange(2**32))
    if domains is None:
        return Drawn(draw_task(seed, split, config.kind), seed, config.kind, None)
    domain = draw.choice(domains)
    try:
        task = draw_task(seed, split, config.kind, setting=setting_of(domain.spec, domain.tools), tries=DOMAIN_TRIES)
    except ValueError:
        return None
    return Drawn(task, seed, config.kind, domain)


def world_dialogue(
    config: WorldsConfig,
    split: Split,
    name: str,
    draw: random.Random,
    domains: Sequence[Domain] | None,
    roles: Roles,
) -> Callable[[], Dialogue | None]:
    """What makes a dialogue of a task of the split, which says what the filters refuse it for; None where the way of
    being wrong that was drawn does not apply to the task. All draws are taken here, so that plays may overlap."""
    drawn = draw_from(config, split, draw, domains)
    if drawn is None:
        return lambda: None
    if roles.player and roles.player.plays(drawn.seed):
        return partial(_modelled, drawn, name, roles.player, roles.judge)
    policy = draw.choice(list(WRONG)) if draw.random() < config.wrong else "right"
    return partial(_scripted, drawn, name, policy)


def _scripted(drawn: Drawn, name: str, policy: str) -> Dialogue | None:
    """Raises AssertionError where the filters let a wrong assistant pass, or refuse a right one: their mistake."""
    task = drawn.task
    played = play(task, policy, drawn.seed)
    if played is None:
        return None
    verdict = filters.judge(played)
    assert (played.policy in RIGHT) == (verdict.score == 1.0), f"{task.seed}, {played.policy}: {verdict}"
    return _dialogue(drawn, name, played.messages, _reason(verdict), f"script: {played.policy}")


def _modelled(drawn: Drawn, name: str, player: Player, judge: Judge | None) -> Dialogue:
    """The best play of the task, with the others behind it."""
    plays = [_played(drawn, name, player, judge, candidate) for candidate in range(player.config.candidates)]
    if len(plays) == 1:
        return plays[0][0]
    passed = sum(dialogue.broken is None for dialogue, _ in plays)
    told = {"candidates": f"the best of {passed} that passed, of {len(plays)}"}
    first, *others = (
        replace(dialogue, verdicts={**dialogue.verdicts, **told}) for dialogue, _ in sorted(plays, key=_rank)
    )
    return replace(first, others=tuple(others))


def _played(
    drawn: Drawn, name: str, player: Player, judge: Judge | None, candidate: int
) -> tuple[Dialogue, float | None]:
    """A play, and the judge's score of it where the judge is believed."""
    played = player.play(drawn.task, drawn.seed, candidate)
    broken, verdicts = _reason(played.verdict), {"rules": "passed"}
    score: float | None = None
    if broken is None and judge:
        opinion = judge.opinion(drawn.task, played.messages)
        verdicts["judge"] = opinion.verdict
        if opinion.score is not None:
            verdicts["judge's score"] = f"{opinion.score:g} of 10"
        score = opinion.score if judge.counts else None
        if opinion.verdict == "refused" and judge.counts:
            broken = BY_JUDGE
    return _dialogue(drawn, name, played.messages, broken, played.player, verdicts), score


def _rank(play: tuple[Dialogue, float | None]) -> tuple[bool, float, int]:
    """What passes the filters first, then the judge's score, then the shorter: it took less to do the same."""
    dialogue, score = play
    return dialogue.broken is not None, 0.0 if score is None else -score - 1, len(dialogue.messages)


def _reason(verdict: Verdict) -> str | None:
    return f"{verdict.rule}: {verdict.reason}" if verdict.rule else None


def _dialogue(
    drawn: Drawn,
    name: str,
    messages: Sequence[Mapping[str, Any]],
    broken: str | None,
    player: str,
    verdicts: Mapping[str, str] | None = None,
) -> Dialogue:
    task, record = drawn.task, drawn.domain.record if drawn.domain else None
    problem = problem_of(task, drawn.seed, drawn.kind, name, record)
    calls = [(one.tool, one.arguments, one.allowed) for one in task.rubric.checkpoints]
    return Dialogue(
        problem,
        [dict(message) for message in messages],
        broken,
        unseen=task.unseen,
        player=player,
        persona=task.persona.name,
        topic=task.requests[0].family,
        rubric=shown(task.rubric.criteria, calls, task.rubric.says),
        verdicts=verdicts or {"rules": "passed"},
    )
