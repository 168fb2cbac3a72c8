"""Supervised fine-tuning: dialogues packed into rows, the assistant's tokens trained, stopped at a pass rate.

    python -m training.sft --config job.json      inputs: base, dialogues, tokenizer

K2 trains RL on tasks of moderate difficulty for the SFT model. A small model and few families turn that round: SFT
stops as soon as the sampled pass rate on held-out problems enters the band (20 to 50 %), for a model that has learned
all of it leaves reinforcement learning nothing to win. Where the rate jumps over the band between two evaluations, the
run goes back to the earlier one and looks four times as often.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from typing import Any

from torch import Tensor

from model.transformer import Transformer
from training.engine import Loss, Measures
from training.packing import IGNORED, Packed
from training.posttraining import PostTraining
from training.rl.config import RewardConfig
from training.sft_config import SftConfig
from training.trainer import Trainer, main

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)


class Tuning(PostTraining):
    """The assistant's next token, until the pass rate is in the band."""

    settings, source = SftConfig, "base"

    def __init__(self, trainer: Trainer) -> None:
        """Refuses rows that are longer than the base model's window."""
        super().__init__(trainer)
        config = self.config
        self.require_window("sft", config.sequence_length)
        self.steps = config.max_updates
        pad = self.model.pad_token_id
        self.packed = Packed(self.train.examples, config.sequence_length, config.rows, config.seed, pad)

    def begin(self) -> None:
        self.counts = {"every": self.config.evaluate_every, "evaluated": 0, "tokens": 0, "trained": 0, "stopped": None}

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self, number: int) -> str:
        """One update."""
        trainer, config = self.trainer, self.config
        rows = self.packed.batches(number - 1, trainer.mesh.data.share(config.rows), config.run.micro_batch)
        read, trained = trainer.total(sum(each.read for each in rows), sum(each.trained for each in rows))
        parts = [each.micro_batch(nll(each.targets_BS, trained), len(each.tokens_BS) / config.rows) for each in rows]
        totals, values = trainer.update(parts, config.learning_rate * min(1.0, number / max(1, config.warmup)))
        self.counts["tokens"] += int(read)
        self.counts["trained"] += int(trained)
        counted = {name: self.counts[name] for name in ("tokens", "trained")}
        self.record(number, counted | values, int(read), config.sequence_length)
        return f"loss {totals.loss:.3f}"

    # ------------------------------------------------------------------------------------------------- evaluation

    def evaluates(self, number: int) -> bool:
        return number % self.counts["every"] == 0 or number == self.steps

    milestone = evaluates

    def evaluate(self, number: int) -> None:
        """Hold the pass rate against the band: it ends the run, sends it back to look closer, or lets it go on."""
        config, trainer, counts = self.config, self.trainer, self.counts
        rewards = RewardConfig(budget=config.budget, budgets=config.budgets)
        found = self.pass_rates(
            trainer.whole(trainer.model), config.evaluate_samples, f"sft/{config.seed}/evaluation", rewards
        )
        rate = found.of(config.gate).record()
        low, high = config.band
        if rate["sampled"] > high and counts["every"] > 1:
            self._look_closer(rate["sampled"], number)
            return
        trainer.metrics.write("evaluation", number, gate=rate, **found.record())
        counts["evaluated"], counts["last"] = number, {"gate": rate, **found.record()}
        log.info("pass rate %.0f%% sampled, %.0f%% greedy", 100 * rate["sampled"], 100 * rate["greedy"])
        if rate["sampled"] >= low:
            counts["stopped"] = "over" if rate["sampled"] > high else "band"
        elif number >= self.steps:
            log.warning("the pass rate is %.2f after the last update: it never reached the band", rate["sampled"])
            counts["stopped"] = "budget"

    def _look_closer(self, rate: float, number: int) -> None:
        """Go on from the evaluation before this one, with a quarter of the updates between two."""
        trainer, earlier = self.trainer, self.counts["evaluated"]
        log.info("pass rate %.2f at update %d: over the band, going back to %d", rate, number, earlier)
        trainer.go_back(earlier)
        self.counts["every"] = max(1, self.counts["every"] // 4)
        trainer.checkpoint()
        trainer.forget_later()

    def measure_first(self) -> bool:
        return True  # the start is what the first evaluation may go back to

    @property
    def finished(self) -> bool:
        return self.counts["stopped"] is not None

    @property
    def needed(self) -> Collection[int]:
        return {self.counts["evaluated"]}

    def summary(self) -> dict[str, Any]:
        counts = self.counts
        reasons = {
            "band": "the sampled pass rate entered the band",
            "over": "the sampled pass rate was above the band at once",
            "budget": "the last update came before the band",
        }
        return {
            "updates": self.trainer.done,
            "stopped": counts["stopped"],
            "stopped_because": reasons[counts["stopped"]],
            "band": list(self.config.band),
            "pass_rate": counts["last"]["gate"]["sampled"],
            "greedy_pass_rate": counts["last"]["gate"]["greedy"],
            "evaluation": counts["last"],
            "tokens": counts["tokens"],
            "trained_tokens": counts["trained"],
            "dialogues": len(self.train.examples),
            **super().summary(),
        }


def nll(targets_BS: Tensor, total: float) -> Loss:
    """Cross-entropy of the trained targets as their share of the mean over `total` of them; logits are made only where
    something is learned."""

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        targets = targets_BS.to(hidden_BSD.device)
        trained_BS = targets != IGNORED
        return model.loss(hidden_BSD[trained_BS][None], targets[trained_BS][None], reduction="sum") / total, {}

    return loss


if __name__ == "__main__":
    sys.exit(main(Tuning, "training.sft"))
