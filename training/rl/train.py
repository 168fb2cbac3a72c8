"""Reinforcement learning with verifiable rewards: what an iteration is.

    python -m training.rl.train --config job.json      inputs: sft, dialogues, tokens, tokenizer

An iteration: draw prompts (harder ones more often), let the present policy play K episodes of each with their
environments, and take one step of K2's objective, or several. Beside it, against forgetting, a next-token loss on
pretraining tokens (PTX) and SFT's loss on dialogues of what is not practised, or has tools.

Ranks share the prompts when they sample, tell each other their responses, and share the groups when they train: what is
drawn and what is learned do not depend on how many there are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import chain
from typing import Any

from training.packing import Packed
from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum
from training.rl.measuring import Measuring
from training.rl.practice import Practice, numbers, unpractised
from training.rl.rollout import Group
from training.rl.update import MEASURES, Drawn, agreed, compared, means, rows_of
from training.selection import selected
from training.trainer import Trainer, main

VERSION = 16  # raise it where the same inputs give other bytes (tasks/code.py)


class Reinforcement(Measuring):
    """K2's objective on the policy's own responses, and PTX."""

    settings, source, unit, measures = RlConfig, "sft", "iterations", MEASURES

    def __init__(self, trainer: Trainer) -> None:
        """Opens the pretraining tokens and packs the dialogues that are wanted beside the objective."""
        super().__init__(trainer)
        config = self.config
        self.steps = config.iterations
        self.selected = selected(trainer.job.input("sft"), config.environments, self.made)
        wanted = config.ptx_weight and config.ptx_samples
        self.ptx = self.text_loader(config.ptx_sequence_length, config.ptx_mix) if wanted else None
        self.kept = self._kept() if config.dialogue_weight and config.dialogue_rows else None

    def _kept(self) -> Packed | None:
        """None where no dialogue is left that may be told."""
        config, kept = self.config, unpractised(self.train, self.selected)
        if not kept:
            return None
        self.require_window("rl", config.dialogue_sequence_length)
        return Packed(kept, config.dialogue_sequence_length, config.dialogue_rows, config.seed, self.model.pad_token_id)

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        config, seen = self.config, self.counts["seen"]
        curriculum = Curriculum(self.train.problems, self.selected, seen)
        self.practice = Practice(config, curriculum, self.judge)

    def step(self, number: int) -> str:
        """One iteration."""
        config, trainer, done = self.config, self.trainer, number - 1
        progress, waited = done / max(1, config.iterations - 1), self.services.idle_seconds
        temperature = _between(config.temperature, progress)
        rate = _between((config.learning_rate, config.final_learning_rate), progress)
        # what plays may be a copy of the policy: nothing here keeps it, for the update takes its memory
        played = self.practice.play(self.player(done, temperature, progress), self.counts["paused"])
        groups, drawn, verdicts, self.counts["paused"] = played
        idle = self.services.idle_seconds - waited  # of this rank
        if config.reset_optimizer:
            trainer.new_optimizer()
        learned, told = [*groups, *verdicts], [*drawn, *verdicts]
        self.records.practised(number, told)
        update = self._update(learned, rate, temperature, done)
        tokens = sum(response.drawn(done) for group in told for response in group.responses)
        self.counts["responses"] += sum(len(group.responses) for group in told)
        self.counts["tokens"] += tokens
        values = {"temperature": temperature, "learning_rate": rate, **numbers(drawn, verdicts, self.counts["paused"])}
        longest = max((row.size for row in rows_of(learned, self.model.max_position_embeddings)), default=1)
        self.record(number, values | update, max(1, tokens), longest, idle_seconds=idle)
        return f"reward {values['reward']:.2f}, right {values['right']:.0%}"

    def _update(self, groups: Sequence[Group], rate: float, temperature: float, done: int) -> dict[str, float]:
        """The iteration's optimizer steps (`updates`) on whole groups, pretraining tokens and dialogues, of which each
        rank has a share; the means of what they measured.

        Raises `Diverged`, and applies nothing, where the trainer sees other log-probabilities than the generator.
        """
        config, trainer, apart, found = self.config, self.trainer, 0.0, list[dict[str, float]]()
        drawn = Drawn(trainer.mesh.data, config, temperature, done, self.model.max_position_embeddings)
        steps, used = drawn.steps(groups), any(group.informative for group in groups)
        if config.updates > 1 and groups:  # later steps need the policy before the first
            apart = agreed(compared(trainer, list(chain(*steps))), config.agreement, trainer.done + 1)
        elif not used:  # what nothing is learned from, or is not yet, tells as well whether the two agree
            parts = drawn.micro_batches([*groups, *self.practice.under_way])
            apart = agreed(compared(trainer, parts[:1]), config.agreement, trainer.done + 1)
        learns = used or self.ptx is not None or self.kept is not None
        for number, parts in enumerate(steps, done * config.updates):
            if self.ptx is not None:
                parts += self.text(self.ptx, number, config.ptx_samples, config.ptx_weight)
            if self.kept is not None:
                parts += self.dialogues(self.kept, number, config.dialogue_weight)[0]
            totals = trainer.accumulate(parts if learns else [])  # else to hear of an order to stop
            if used and config.updates == 1:
                apart = agreed(totals.measures, config.agreement, trainer.done + 1)
            if learns:
                found.append(trainer.apply(totals, rate))
        return means(found) | {"disagreement": apart}


def _between(ends: tuple[float, float], progress: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * progress


if __name__ == "__main__":
    sys.exit(main(Reinforcement, "training.rl.train"))
