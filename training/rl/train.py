"""Reinforcement learning with verifiable rewards: what an iteration is.

    python -m training.rl.train --config job.json      inputs: sft, dialogues, tokens, tokenizer

An iteration: draw prompts (harder ones more often), let the present policy play K episodes of each with their
environments, and take one step of K2's objective. Beside it, against forgetting, a next-token loss on
pretraining tokens (PTX) and SFT's loss on dialogues of what is not practised, or has tools.

Ranks share the prompts when they sample, tell each other their responses, and share the groups when they train: what is
drawn and what is learned do not depend on how many there are.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from training.objective import Diverged
from training.packing import Packed
from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum
from training.rl.measuring import Measuring
from training.rl.practice import Practice, numbers
from training.rl.rollout import Group
from training.rl.update import MEASURES, NUMBERS, Row, batches, practised, rows_of
from training.selection import selected
from training.trainer import Trainer, main

VERSION = 8  # raise it where the same inputs give other bytes (tasks/code.py)


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
        self.ptx = self.text_loader(config.ptx_sequence_length) if wanted else None
        self.kept = self._kept() if config.dialogue_weight and config.dialogue_rows else None

    def _kept(self) -> Packed | None:
        """Dialogues of what is not practised, and of all that have tools: practice sees the first turns of those alone.
        The other answers are to be found, not told. None where nothing is left."""
        config, selected = self.config, self.selected
        practised = [each for each in self.train.problems if not selected or selected.get(each.environment)]
        found = {problem.environment for problem in practised if not problem.tools}
        kept = [each for each in self.train.examples if each.environment not in found]
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
        progress = done / max(1, config.iterations - 1)
        temperature = _between(config.temperature, progress)
        rate = _between((config.learning_rate, config.final_learning_rate), progress)
        player = self.player(done, temperature, progress)
        groups, self.counts["paused"] = self.practice.iterate(player, self.counts["paused"])
        verdicts = self.practice.closed_loop(player, groups)
        if config.reset_optimizer:
            trainer.new_optimizer()
        learned = [*groups, *verdicts]
        self.records.practised(number, learned)
        update = self._update(learned, rate, temperature, done)
        tokens = sum(response.drawn(done) for group in learned for response in group.responses)
        self.counts["responses"] += sum(len(group.responses) for group in learned)
        self.counts["tokens"] += tokens
        values = {"temperature": temperature, "learning_rate": rate, **numbers(groups, verdicts, self.counts["paused"])}
        self.record(number, values | update, max(1, tokens), max((row.size for row in self._rows(learned)), default=1))
        return f"reward {values['reward']:.2f}, right {values['right']:.0%}"

    def _update(self, groups: Sequence[Group], rate: float, temperature: float, done: int) -> dict[str, float]:
        """One optimizer step on whole groups, pretraining tokens and dialogues, of which each rank has a share.

        Raises `Diverged`, and applies nothing, where the trainer sees other log-probabilities than the generator.
        """
        config, trainer, data = self.config, self.trainer, self.trainer.mesh.data
        # groups of equal rewards have no gradient at pi_theta = pi_old
        used = sorted(self._rows([group for group in groups if group.informative]), key=lambda row: row.size)
        total = sum(len(group.responses) for group in groups)
        parts = [
            practised(batch, total, temperature, config, done)
            for batch in batches(used[data.rank :: data.size], config.run.micro_tokens)
        ]
        if self.ptx is not None:
            parts += self.text(self.ptx, done, config.ptx_samples, config.ptx_weight)
        if self.kept is not None:
            parts += self.dialogues(self.kept, done, config.dialogue_weight)[0]
        if not used and self.ptx is None and self.kept is None:
            return dict.fromkeys(NUMBERS, 0.0)
        totals = trainer.accumulate(parts)
        disagreement = totals.measures["disagreement"] / max(1.0, totals.measures["compared"])
        if not disagreement <= config.agreement:
            raise Diverged(
                f"iteration {trainer.done + 1}: the generator's log-probabilities differ from the trainer's by "
                f"{disagreement:.3g} nats a token on average (allowed: {config.agreement}): what was sampled is not "
                "what would be trained; try rl.dtype float32"
            )
        values = trainer.apply(totals, rate) | {"disagreement": disagreement}
        return {name: float(values[name]) for name in NUMBERS}

    def _rows(self, groups: Sequence[Group]) -> list[Row]:
        return [row for group in groups for row in rows_of(group, self.model.max_position_embeddings)]


def _between(ends: tuple[float, float], progress: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * progress


if __name__ == "__main__":
    sys.exit(main(Reinforcement, "training.rl.train"))
