"""Why pauses cost reward in the study of RL's parts: what a pause brings, taken apart. docs/claims/rl.md.

    python -m benchmarks.rl_pauses [--work pauses] [--out docs/claims/rl] [--tables]

A response that is paused is trained on its end alone, compared with those that ended by then, and learned from an
iteration late. Each row of `ARMS` has some of it, with the seeds, the start and the measurements of
`benchmarks.rl_ablations`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from benchmarks.rl_ablations import FORMS, RL, SEEDS, Study, carry_out
from benchmarks.studies import Row, spread, table
from tests.posttraining import go, write_job
from training.checkpoint import load_model
from training.rl.episodes import INSERTED, Episode
from training.rl.practice import Practice
from training.rl.rollout import Group, Open, Player
from training.rl.train import Reinforcement

SEGMENT = 32


class Arm(NamedTuple):
    """What one differs in from responses that are drawn whole and trained on whole."""

    pauses: bool = False
    """Responses are paused at SEGMENT tokens."""
    trained: str = "present"
    """Which tokens count: those of the `present` policy, as RL has it; `all`; or the `end` behind the last full
    SEGMENT, as if there had been a pause."""
    waits: bool = False
    """A prompt's responses are learned from once all of them have ended."""
    late: bool = False
    """Prompts with a response over SEGMENT tokens are learned from an iteration later."""


ALIKE = "whole"
ARMS: Mapping[str, Arm] = {
    ALIKE: Arm(),
    "pauses, as RL has them": Arm(pauses=True),
    "whole, only ends trained": Arm(trained="end"),
    "whole, an iteration late": Arm(trained="all", late=True),
    "pauses, all tokens trained": Arm(pauses=True, trained="all"),
    "pauses, all tokens, prompts whole": Arm(pauses=True, trained="all", waits=True),
}
MEASURES = {"right": "right, sampled", "greedy": "right, greedy", "tokens": "tokens of a reply"}


class Waiting(Player):
    """Gives a prompt's responses back together."""

    def _judged(self, work: Open) -> Group | None:
        return super()._judged(work) if all(one.ended for one in work.episodes) else None

    def _left(self, work: Open) -> Open:
        return replace(work, episodes=[]) if all(one.ended for one in work.episodes) else work


class Taken(Practice):
    """Changes which groups an iteration is trained on."""

    def __init__(self, practice: Practice, arm: Arm) -> None:
        super().__init__(practice.config, practice.curriculum, practice.judge)
        self.arm, self.late = arm, list[Group]()

    def iterate(self, player: Player, paused: Sequence[dict[str, Any]]) -> tuple[list[Group], list[dict[str, Any]]]:
        groups, left = super().iterate(player, paused)
        if self.arm.late:
            now, late = ([one for one in groups if _long(one) is long] for long in (False, True))
            groups, self.late = [*self.late, *now], late
        return groups, left


class TakenApart(Reinforcement):
    """RL as an arm has it."""

    arm: Arm

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        self.practice = Taken(self.practice, self.arm)

    def player(self, version: int, temperature: float, progress: float) -> Player:
        player = super().player(version, temperature, progress)
        return Waiting(**vars(player)) if self.arm.waits else player

    def _update(self, groups: Sequence[Group], rate: float, temperature: float, done: int) -> dict[str, float]:
        if self.arm.trained != "present":
            groups = [
                replace(group, responses=[self._counted(one, done) for one in group.responses]) for group in groups
            ]
        return super()._update(groups, rate, temperature, done)

    def _counted(self, response: Episode, done: int) -> Episode:
        """As if the present policy had drawn what counts."""
        drawn = [place for place, version in enumerate(response.versions) if version != INSERTED]
        first = SEGMENT * ((len(drawn) - 1) // SEGMENT) if self.arm.trained == "end" else 0
        versions = [INSERTED] * len(response.versions)
        for place in drawn[first:]:
            versions[place] = done
        return replace(response, versions=versions)


def _long(group: Group) -> bool:
    return any(one.written > SEGMENT for one in group.responses)


def run(study: Study, name: str, seed: int) -> dict[str, Any]:
    """One run and what came of it."""
    arm, folder = ARMS[name], study.work / f"{name.replace(' ', '-').replace(',', '')}-{seed}"
    changes = {"segment": SEGMENT} if arm.pauses else {}
    job = write_job(folder, {**RL, "seed": seed, **changes}, {**study.inputs, "sft": study.start})
    if go(type("Arm", (TakenApart,), {"arm": arm, "__doc__": TakenApart.__doc__}), job):
        sys.exit(f"{name}, seed {seed} failed: its last line says why")
    found = study.measured(load_model(folder / "final"), seed)
    return {"arm": name, "seed": seed, **{measure: found[measure] for measure in MEASURES}}


def markdown(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table of the page: what each arm came to, and by how much it differs, seed by seed."""
    by_arm = {name: {run["seed"]: run for run in runs if run["arm"] == name} for name in ARMS}
    head = ["mean, 95 % interval", "seeds", *MEASURES.values(), f"right, less {ALIKE}", f"greedy, less {ALIKE}"]
    rows = []
    for name, own in by_arm.items():
        said = [spread([one[measure] for one in own.values()], FORMS[measure]) for measure in MEASURES]
        for measure in ("right", "greedy"):
            rises = [own[seed][measure] - by_arm[ALIKE][seed][measure] for seed in own]
            said.append("–" if name == ALIKE else spread(rises, f"+{FORMS[measure]}"))
        rows.append([name, str(len(own)), *said])
    return table(head, rows)


def runs(study: Study) -> Iterator[Row]:
    for seed in SEEDS:
        for name in ARMS:
            yield run(study, name, seed)


if __name__ == "__main__":
    carry_out(__doc__, "pauses", "pauses.csv", runs, markdown)
