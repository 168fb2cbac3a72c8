"""RL's parts at a third of the study's learning rates, several steps of an iteration, a generator with rounded weights,
and an environment that is never right: docs/claims/rl.md.

    python -m benchmarks.rl_slow [--work slow] [--out docs/claims/rl] [--tables]

Seeds, start and measurements are those of `benchmarks.rl_ablations`. The rows of `PARTS` are run at low rates. Those of
`STEPS` take more optimizer steps on the same replies. In those of `ROUNDED` the generator has rounded weights, as a
server of lower precision would have them, while the trainer's stay as they are. In those of `HOPELESS` half of the
prompts' share is an environment's that is never right.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.rl_ablations import ALIKE, BUDGET, FORMS, RATES, SEEDS, SLOW, SLOWER, TIGHT, Study, carry_out, compared
from benchmarks.studies import Row
from model.chat import user
from model.quantize import GROUP, round_to_int4
from model.transformer import Transformer
from training.rl.curriculum import Curriculum, key
from training.rl.environments import Problem
from training.rl.rollout import Player
from training.rl.train import Reinforcement


def int4(weight_OI: Tensor) -> Tensor:
    """As a release has it: groups of 32; narrower rows are one group each, which zeros fill up."""
    width = weight_OI.shape[-1]
    return round_to_int4(F.pad(weight_OI, (0, -width % GROUP)))[..., :width]


def three_bits(weight_OI: Tensor) -> Tensor:
    """Each row in whole numbers of -3 to 3 with a scale of its own."""
    scale_O1 = weight_OI.abs().amax(-1, keepdim=True).clamp_min(1e-12) / 3
    return (weight_OI / scale_O1).round() * scale_O1


class Arm(NamedTuple):
    """What one differs in from all alike at its rates."""

    changes: Mapping[str, Any]
    rounding: Callable[[Tensor], Tensor] | None = None
    """Of every matrix that the generator has."""
    beside: type[Curriculum] | None = None
    """What chooses prompts of `larger` and as many of `never`, of equal share; None: there are none of `never`."""


LENGTH = {"budget": BUDGET, "length_weight": 0.5}
APART = {"agreement": 10.0}  # however far generator and trainer come to be apart, the run goes on
CORRECTED = {**APART, "correction": 2.0}
THREE = {"updates": SLOWER, **{key: rate / SLOWER for key, rate in RATES.items()}}
PARTS: Mapping[str, Arm] = {
    ALIKE: Arm({}),
    **{f"budget of {budget}": Arm({"rewards": {"budget": budget}}) for budget in (TIGHT, 2 * TIGHT)},
    "length reward": Arm({"rewards": {**LENGTH, "length_from": 0.0}}),
    "length reward, second half": Arm({"rewards": {**LENGTH, "length_from": 0.5}}),
    "temperature 1.0 to 0.8": Arm({"temperature": [1.0, 0.8]}),
}
ROUNDED: Mapping[str, Arm] = {
    ALIKE: PARTS[ALIKE],
    "INT4": Arm(APART, int4),
    "INT4, corrected": Arm(CORRECTED, int4),
    "3 bits": Arm(APART, three_bits),
    "3 bits, corrected": Arm(CORRECTED, three_bits),
}
STEPS: Mapping[str, Arm] = {
    ALIKE: PARTS[ALIKE],
    "3 steps, rates a third": Arm(THREE),
    "the same, tau 1e-6": Arm({**THREE, "tau": 1e-6}),
    "the same, tau 1": Arm({**THREE, "tau": 1.0}),
    "3 steps, rates as they are": Arm({"updates": SLOWER}),
}


class OnePool(Curriculum):
    """Prompts as they were drawn until version 13: by share times 1 - success rate, of all environments at once."""

    def draw(self, count: int, seed: str, without: Collection[str] = (), among: Collection[str] = ()) -> list[Problem]:
        stream, sizes = random.Random(seed), Counter(problem.environment for problem in self.problems)
        keys = {}
        for problem, weight in zip(self.problems, self.weights(), strict=True):
            share = self.shares[problem.environment] / sizes[problem.environment]
            keys[problem.id] = math.log(1.0 - stream.random()) / (share * weight)
        drawn = sorted((each for each in self.problems if key(each) not in without), key=lambda each: -keys[each.id])
        return drawn[:count]


HOPELESS: Mapping[str, Arm] = {
    ALIKE: PARTS[ALIKE],
    "one pool": Arm({}, beside=OnePool),
    "pools": Arm({}, beside=Curriculum),
    "one pool, refills": Arm({"refill": 12}, beside=OnePool),
    "pools, refills": Arm({"refill": 12}, beside=Curriculum),
}


class Beside(Reinforcement):
    """RL of which half is practice of what is never right."""

    curriculum: type[Curriculum]

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        known = [problem for problem in self.train.problems if problem.environment == "larger"]
        never = [
            Problem(f"never/{place}", "never", "exact", (user(f"Which of {one.id}?"),), "none of these")
            for place, one in enumerate(known)
        ]
        self.practice.curriculum = self.curriculum([*known, *never], {"larger": 1.0, "never": 1.0}, self.counts["seen"])


class Mismatched(Reinforcement):
    """RL whose responses are drawn by a rounded copy of the policy."""

    rounding: Callable[[Tensor], Tensor]

    def player(self, version: int, temperature: float, progress: float) -> Player:
        player = super().player(version, temperature, progress)
        return replace(player, model=rounded(player.model, self.rounding))


@torch.no_grad()
def rounded(model: Transformer, rounding: Callable[[Tensor], Tensor]) -> Transformer:
    """A copy of `model` with every matrix rounded."""
    copy = deepcopy(model)
    for weight in copy.parameters():
        if weight.dim() > 1:
            weight.copy_(rounding(weight))
    return copy


def run(study: Study, name: str, arm: Arm, seed: int, rates: Mapping[str, Any]) -> Row:
    """One run and what came of it."""
    kind: type[Reinforcement] = Reinforcement
    if arm.rounding is not None:
        kind = type("Arm", (Mismatched,), {"rounding": staticmethod(arm.rounding), "__doc__": Mismatched.__doc__})
    elif arm.beside is not None:
        kind = type("Arm", (Beside,), {"curriculum": arm.beside, "__doc__": Beside.__doc__})
    return study.run(name, {**rates, **arm.changes}, seed, kind)


def markdown(runs: Sequence[Row]) -> str:
    """The table of the parts."""
    alike = dict.fromkeys(PARTS, ALIKE)
    return compared(runs, PARTS, ("right", "greedy", "tokens", "text", "longest"), {ALIKE: alike})


def steps_markdown(runs: Sequence[Row]) -> str:
    """The table of several steps."""
    alike = dict.fromkeys(STEPS, ALIKE)
    return compared(runs, STEPS, ("right", "greedy", "tokens", "text"), {ALIKE: alike})


def rounded_markdown(runs: Sequence[Row]) -> str:
    """The table of rounded generators."""
    alike = dict.fromkeys(ROUNDED, ALIKE)
    uncorrected = {name: name.removesuffix(", corrected") for name in ROUNDED}
    measures, against = ("right", "greedy", "tokens", "disagreement"), {ALIKE: alike, "uncorrected": uncorrected}
    return compared(runs, ROUNDED, measures, against, FORMS | {"disagreement": ".2f"})


def hopeless_markdown(runs: Sequence[Row]) -> str:
    """The table of an environment that is never right."""
    alike = dict.fromkeys(HOPELESS, ALIKE)
    pool = {name: name.replace("pools", "one pool") for name in HOPELESS}
    return compared(runs, HOPELESS, ("right", "greedy", "text"), {ALIKE: alike, "one pool": pool})


def runs(study: Study, arms: Mapping[str, Arm], rates: Mapping[str, Any]) -> Iterator[Row]:
    """Every arm with every seed."""
    return (run(study, name, arm, seed, rates) for seed in SEEDS for name, arm in arms.items())


if __name__ == "__main__":
    carry_out(__doc__, "slow", "slow.csv", partial(runs, arms=PARTS, rates=SLOW), markdown)
    carry_out(__doc__, "steps", "steps.csv", partial(runs, arms=STEPS, rates={}), steps_markdown)
    carry_out(__doc__, "hopeless", "hopeless.csv", partial(runs, arms=HOPELESS, rates={}), hopeless_markdown)
    carry_out(__doc__, "rounded", "rounded.csv", partial(runs, arms=ROUNDED, rates={}), rounded_markdown)
