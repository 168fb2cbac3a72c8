"""Quantisation-aware training: the RL model learns to be itself with INT4 routed experts.

    python -m training.qat --config job.json      inputs: rl, dialogues, tokenizer

The forward sees every routed expert as it will be served (groups of 32, `model.quantize`); the gradient goes straight
through to the unrounded weights, which are what is saved. The target is by default the unquantised RL model itself, as
distributions over the assistant's tokens: another pass of the dialogues' own answers would train the policy on, past
what RL chose, and call that quantisation. The summary measures three models on the same held-out problems with the same
draws: the RL model in bf16, the same one merely rounded (post-training quantisation), and this run's result in INT4.

Shapes: N trained positions, V vocabulary.
"""

from __future__ import annotations

import math
import statistics
import sys
from functools import partial
from typing import Any

import torch
from torch import Tensor

from model.quantize import QuantizationError, as_served, fake_quantize_experts
from model.transformer import Transformer
from training.engine import Engine, Loss, Measures
from training.job import JobError
from training.mesh import Mesh
from training.packing import IGNORED, Packed, Rows
from training.posttraining import PostTraining
from training.qat_config import QatConfig
from training.rl.config import RewardConfig
from training.rl.rollout import Evaluation, interval
from training.trainer import Trainer, main

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)

VALIDATION_BATCHES = 4  # of `rows` rows each, for the held-out loss


class Quantising(PostTraining):
    """The RL model's own distributions, with INT4 experts in the forward."""

    settings, source = QatConfig, "rl"
    measures = ("dialogue_loss", "divergence")

    def __init__(self, trainer: Trainer) -> None:
        """Refuses rows that are longer than the model's window."""
        super().__init__(trainer)
        config = self.config
        self.require_window("qat", config.sequence_length)
        self.steps = config.updates
        pad = self.model.pad_token_id
        self.packed = Packed(self.train.examples, config.sequence_length, config.rows, config.seed, pad)
        self.validation = Packed(self.heldout.examples, config.sequence_length, config.rows, 0, pad)

    def fill(self, model: Transformer) -> None:
        """Raises `JobError` where the experts' widths do not divide by 32."""
        super().fill(model)
        try:
            fake_quantize_experts(model)
        except QuantizationError as error:
            raise JobError(str(error)) from error

    def begin(self) -> None:
        """The teacher beside the model: the same weights, never rounded."""
        self.teacher = self.trainer.network().eval().requires_grad_(False)
        super().fill(self.teacher)
        self.teaching = self.trainer.engine_of(self.teacher)
        self.counts = {"tokens": 0, "trained": 0}

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self, number: int) -> str:
        """One update."""
        trainer, config = self.trainer, self.config
        weight = 1 - config.distillation  # of the next token; the teacher's routing is part of what distillation keeps
        rows = self.packed.batches(number - 1, trainer.mesh.data.share(config.rows), config.run.micro_batch)
        read, trained = trainer.total(sum(each.read for each in rows), sum(each.trained for each in rows))
        taught = self._taught(self.teaching, rows) if config.distillation else [None] * len(rows)
        parts = [
            each.micro_batch(
                distilled(each.targets_BS, trained, config.distillation, self.teacher, states),
                weight * len(each.tokens_BS) / config.rows,
            )
            for each, states in zip(rows, taught, strict=True)
        ]
        totals, values = trainer.update(parts, learning_rate(config, number - 1))
        if not config.distillation:
            del values["divergence"]
        self.counts["tokens"] += int(read)
        self.counts["trained"] += int(trained)
        self.record(number, {"tokens": self.counts["tokens"]} | values, int(read), config.sequence_length)
        return f"loss {totals.loss:.4f}"

    @staticmethod
    def _taught(teaching: Engine, rows: list[Rows]) -> list[list[Tensor]]:
        """For each micro-batch the teacher's hidden states at trained positions, where this rank holds the head."""
        states: list[list[Tensor]] = [[] for _ in rows]

        def keep(
            to: list[Tensor], targets_BS: Tensor, model: Transformer, hidden_BSD: Tensor
        ) -> tuple[Tensor, Measures]:
            to.append(hidden_BSD[targets_BS.to(hidden_BSD.device) != IGNORED])
            return hidden_BSD.new_zeros(()), {}

        parts = [each.micro_batch(partial(keep, to, each.targets_BS)) for each, to in zip(rows, states, strict=True)]
        teaching.evaluate(parts)
        return states

    # ------------------------------------------------------------------------------------------------- evaluation

    def measure_first(self) -> bool:
        """The RL model as it is released in bf16, and the same merely rounded."""
        for name, int4 in (("bf16", False), ("rounded", True)):
            self.counts[name] = self._measure(as_served(self.trainer.whole(self.teacher), int4), name)
        if not self.steps:
            self.evaluate(0)
        return True

    def evaluates(self, number: int) -> bool:
        return number == self.steps

    milestone = evaluates

    def evaluate(self, number: int) -> None:
        """The result of training, in INT4."""
        trainer = self.trainer
        self.counts["qat"] = self._measure(as_served(trainer.whole(trainer.model), int4=True), "qat")

    def _measure(self, model: Transformer, name: str) -> dict[str, Any]:
        """Pass rates (of single problems, for pairing), held-out loss and divergence from the RL model."""
        config, trainer, model = self.config, self.trainer, model.to(self.trainer.device)
        rewards, seed = RewardConfig(budget=config.budget), f"qat/{config.seed}/evaluation"
        found = self.pass_rates(model, config.evaluate_samples, seed, rewards)
        # the whole teacher only now: sampling has a copy of the weights of its own
        loss, divergence = self._heldout(model, trainer.whole(self.teacher))
        record = found.record()
        trainer.metrics.write("evaluation", trainer.done, model=name, loss=loss, divergence=divergence, **record)
        note = f"{name}: pass rate {record['sampled']:.0%} sampled, {record['greedy']:.0%} greedy"
        trainer.progress("running", note=note)
        rates = {"environments": found.environments, "sampled": found.sampled, "greedy": found.greedy}
        return {"loss": loss, "divergence": divergence, **rates}

    def _heldout(self, model: Transformer, teacher: Transformer) -> tuple[float, float]:
        """Next-token loss and divergence from the RL model, nats, over the assistant's tokens of held-out dialogues;
        both models are whole, and each rank takes rows of its own."""
        trainer, config = self.trainer, self.config
        share, size = trainer.world.share(config.rows), config.run.micro_batch
        batches = [self.validation.batches(number, share, size) for number in range(VALIDATION_BATCHES)]
        rows = [each for batch in batches for each in batch]
        teaching, taking = (
            Engine(each, Mesh(), trainer.device, config.dtype, trainer.watchdog.beat) for each in (teacher, model)
        )
        parts = [
            each.micro_batch(distilled(each.targets_BS, 1.0, 1.0, teacher, states))
            for each, states in zip(rows, self._taught(teaching, rows), strict=True)
        ]
        found = taking.evaluate(parts).measures
        sums = torch.zeros(3, dtype=torch.float64, device=trainer.device)
        sums[0] += sum(each.trained for each in rows)
        for place, name in enumerate(self.measures, 1):
            sums[place] += found.get(name, 0.0)
        trained, loss, divergence = trainer.world.all_reduce(sums).tolist()
        return loss / trained, divergence / trained

    def summary(self) -> dict[str, Any]:
        counts, config = self.counts, self.config
        models = {name: counts[name] for name in ("bf16", "rounded", "qat")}
        return {
            "updates": config.updates,
            "distillation": config.distillation,
            "loss": {name: found["loss"] for name, found in models.items()},
            "divergence": {name: found["divergence"] for name, found in models.items()},
            "pass_rate": {name: statistics.fmean(found["sampled"]) for name, found in models.items()},
            "greedy_pass_rate": {name: statistics.fmean(found["greedy"]) for name, found in models.items()},
            "change_from_bf16": {name: paired(models["bf16"], models[name]) for name in ("rounded", "qat")},
            "evaluation": {name: _evaluation(found) for name, found in models.items()},
            "tokens": counts["tokens"],
            "trained_tokens": counts["trained"],
            **super().summary(),
        }


def _evaluation(found: dict[str, Any]) -> dict[str, Any]:
    return Evaluation(found["environments"], found["sampled"], found["greedy"], 1.0).record()


def distilled(
    targets_BS: Tensor, total: float, weight: float, teacher: Transformer, states: list[Tensor] | None
) -> Loss:
    """`weight` of the divergence from the teacher and the rest of the cross-entropy, over the trained targets as their
    share of the mean over `total` of them. `states` is the one tensor of the teacher's hidden states there; None leaves
    the divergence out."""

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        targets = targets_BS.to(hidden_BSD.device)
        trained_BS = targets != IGNORED
        logits_NV = model.logits(hidden_BSD[trained_BS]).float()
        nll = torch.nn.functional.cross_entropy(logits_NV, targets[trained_BS], reduction="sum") / total
        if states is None:
            return nll, {"dialogue_loss": nll}
        with torch.no_grad():
            teacher_NV = teacher.logits(states[0]).float()
        divergence = divergences(teacher_NV, logits_NV).sum() / total
        return (1 - weight) * nll + weight * divergence, {"dialogue_loss": nll, "divergence": divergence}

    return loss


def divergences(teacher_NV: Tensor, student_NV: Tensor) -> Tensor:
    """KL(teacher || student) in nats at each of N positions, from logits; zero exactly where they agree."""
    teacher_NV = teacher_NV.log_softmax(-1)
    return (teacher_NV.exp() * (teacher_NV - student_NV.log_softmax(-1))).sum(-1)


def learning_rate(config: QatConfig, done: int) -> float:
    """Of the update after `done` ones: linear warm-up, then a cosine to a tenth."""
    if done < config.warmup:
        return config.learning_rate * (done + 1) / config.warmup
    progress = (done - config.warmup) / max(1, config.updates - config.warmup)
    return config.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * progress)))


def paired(before: dict[str, Any], after: dict[str, Any]) -> dict[str, list[float]]:
    """Change of the pass rates on the same problems: [mean, low, high], 95 %."""
    return {
        kind: list(interval([new - old for old, new in zip(before[kind], after[kind], strict=True)]))
        for kind in ("sampled", "greedy")
    }


if __name__ == "__main__":
    sys.exit(main(Quantising, "training.qat"))
