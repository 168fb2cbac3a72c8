"""Why pauses cost reward in the study of RL's parts: what a pause brings, taken apart. docs/claims/rl.md.

    python -m benchmarks.rl_pauses [--work pauses] [--out docs/claims/rl] [--tables]

A response that is paused is trained on its end alone, compared with those that ended by then, and learned from an
iteration late. Each row of `ARMS` has some of it, with the seeds, the start and the measurements of
`benchmarks.rl_ablations`. Each row of `REGIMES` has all of it, for few responses or many, at high or low rates.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from benchmarks.rl_ablations import SEEDS, SLOW, Study, carry_out, compared
from benchmarks.studies import Row
from training.rl.episodes import INSERTED, Episode
from training.rl.practice import Practice
from training.rl.rollout import Group, Open, Player
from training.rl.train import Reinforcement

SEGMENT, MOST = 32, 0.96
"""Tokens before a pause; the share of responses that are to be spared one."""


class Arm(NamedTuple):
    """What one differs in from responses that are drawn whole and trained on whole."""

    segment: float | None = None
    """Responses are paused at so many tokens; below 1, at the length that this share of the last iteration's have."""
    slow: bool = False
    """At the rates of `SLOW`."""
    trained: str = "present"
    """Which tokens count: those of the `present` policy, as RL has it; `all`; or the `end` behind the last full
    SEGMENT, as if there had been a pause."""
    waits: bool = False
    """A prompt's responses are learned from once all of them have ended."""
    late: bool = False
    """Prompts with a response over SEGMENT tokens are learned from an iteration later."""


ALIKE = "whole"
SLOWLY = f"{ALIKE}, slow"
ARMS: Mapping[str, Arm] = {
    ALIKE: Arm(),
    "pauses, as RL has them": Arm(segment=SEGMENT),
    "whole, only ends trained": Arm(trained="end"),
    "whole, an iteration late": Arm(trained="all", late=True),
    "pauses, all tokens trained": Arm(segment=SEGMENT, trained="all"),
    "pauses, all tokens, prompts whole": Arm(segment=SEGMENT, trained="all", waits=True),
}
"""What a pause brings, apart."""
MEASURES = ("right", "greedy", "tokens")
REGIMES: Mapping[str, Arm] = {
    ALIKE: Arm(),
    "pauses at 32": Arm(segment=SEGMENT),
    "pauses of the longest": Arm(segment=MOST),
    SLOWLY: Arm(slow=True),
    "pauses at 32, slow": Arm(segment=SEGMENT, slow=True),
    "pauses of the longest, slow": Arm(segment=MOST, slow=True),
}


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
        self.arm, self.late, self.lengths = arm, list[Group](), list[int]()

    def iterate(
        self, player: Player, paused: Sequence[dict[str, Any]]
    ) -> tuple[list[Group], list[Group], list[dict[str, Any]]]:
        if self.arm.segment and self.arm.segment < 1 and self.lengths:
            player = replace(player, segment=self.lengths[int(self.arm.segment * len(self.lengths))])
        groups, drawn, left = super().iterate(player, paused)
        self.lengths = sorted(one.written for group in drawn for one in group.responses)
        if self.arm.late:
            now, late = ([one for one in groups if _long(one) is long] for long in (False, True))
            groups, self.late = [*self.late, *now], late
        return groups, drawn, left


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


def run(study: Study, name: str, arm: Arm, seed: int) -> dict[str, Any]:
    """One run and what came of it."""
    changes: Mapping[str, Any] = SLOW if arm.slow else {}
    if arm.segment and arm.segment >= 1:
        changes = {**changes, "segment": arm.segment}
    kind = type("Arm", (TakenApart,), {"arm": arm, "__doc__": TakenApart.__doc__})
    folder, found = study.practise(name, changes, seed, kind)
    return {"arm": name, "seed": seed, **{measure: found[measure] for measure in MEASURES}} | tail(folder)


def tail(folder: Path) -> dict[str, float]:
    """The share of a run's replies that were paused, and the most tokens that one draws in an iteration, on average."""
    drawn: dict[int, int] = {}
    paused = []
    for path in sorted((folder / "rollouts").glob("practice-*.parquet")):
        for versions in pq.read_table(path, columns=["versions"])["versions"].to_pylist():
            counts = Counter(version for version in versions if version != INSERTED)
            paused.append(float(len(counts) > 1))
            for version, count in counts.items():
                drawn[version] = max(count, drawn.get(version, 0))
    return {"paused": round(statistics.fmean(paused), 4), "longest": round(statistics.fmean(drawn.values()), 2)}


def markdown(runs: Sequence[Row]) -> str:
    """The table of the page of what a pause brings: what each arm came to, and by how much it differs, seed by seed."""
    return compared(runs, ARMS, ("seeds", *MEASURES), {ALIKE: dict.fromkeys(ARMS, ALIKE)})


def regimes_markdown(runs: Sequence[Row]) -> str:
    """The table of the page of when it does: each arm held against whole responses at the same rates, seed by seed."""
    against = {name: SLOWLY if arm.slow else ALIKE for name, arm in REGIMES.items()}
    return compared(runs, REGIMES, (*MEASURES, "paused", "longest"), {ALIKE: against})


def runs(study: Study) -> Iterator[Row]:
    """What a pause brings."""
    for seed in SEEDS:
        for name, arm in ARMS.items():
            found = run(study, name, arm, seed)
            yield {key: found[key] for key in ("arm", "seed", *MEASURES)}


def regime_runs(study: Study) -> Iterator[Row]:
    """When it does."""
    for seed in SEEDS:
        for name, arm in REGIMES.items():
            yield run(study, name, arm, seed)


if __name__ == "__main__":
    carry_out(__doc__, "pauses", "pauses.csv", runs, markdown)
    carry_out(__doc__, "pauses", "regimes.csv", regime_runs, regimes_markdown)
