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

import logging
import math
import statistics
import sys
import time
from typing import Any

import torch
from torch import Tensor

from model.quantize import QuantizationError, as_served, fake_quantize_experts
from model.transformer import Transformer
from training.inputs import device_of, load_chat, load_model, load_splits
from training.job import Job, JobError
from training.muonclip import MuonClip
from training.packing import IGNORED, Packed
from training.qat_config import QatConfig
from training.rl.config import RewardConfig
from training.rl.rollout import Evaluation, evaluate, first_of_each, interval
from training.run import Run, main, update

log = logging.getLogger(__name__)

VALIDATION_BATCHES = 4  # of `rows` rows each, for the held-out loss


class Quantising:
    """One QAT run."""

    def __init__(self, job: Job) -> None:
        self.config = config = job.configured(QatConfig)
        self.device = device_of(job)
        self.chat = load_chat(job.input("tokenizer"))
        train, heldout = load_splits(job.input("dialogues"))
        self.problems = first_of_each(heldout.problems, config.evaluate_prompts)
        self.teacher = load_model(job.input("rl")).to(self.device).eval().requires_grad_(False)
        self.model = load_model(job.input("rl")).to(self.device)
        fake_quantize_experts(self.model)
        pad = self.model.config.pad_token_id
        self.packed = Packed(train.examples, config.sequence_length, config.rows, config.seed, pad)
        self.heldout = Packed(heldout.examples, config.sequence_length, config.rows, 0, pad)
        self.optimizer = MuonClip.for_model(self.model, config.optimizer)
        self.run = Run(job, config, self.model, self.optimizer, "updates", config.updates)
        self.began = time.monotonic()

    def fit(self) -> None:
        """Measure, train, measure, and write `final/`."""
        run, config = self.run, self.config
        if not run.state:
            run.state = {
                "tokens": 0,
                "trained": 0,
                "bf16": self._measure(as_served(self.teacher, int4=False), "bf16"),
                "rounded": self._measure(as_served(self.teacher, int4=True), "rounded"),
            }
            run.save()
        while run.step < config.updates:
            run.pause_if_asked()
            began = time.monotonic()
            values, tokens, trained = self._update()
            run.step += 1
            run.state["tokens"] += tokens
            run.state["trained"] += trained
            timing = {"seconds": time.monotonic() - began}
            run.metrics.write("update", run.step, tokens=run.state["tokens"], **values, timing=timing)
            run.tell(f"loss {values['loss']:.4f}")
            if run.step % config.checkpoint_every == 0:
                run.save()
        trained_model = self._measure(as_served(self.model, int4=True), "qat")
        run.finish(self._summary(trained_model))

    def _update(self) -> tuple[dict[str, float], int, int]:
        """One update: its metrics, the tokens read and the tokens trained."""
        lr = learning_rate(self.config, self.run.step)
        batch = self.packed.batch(self.run.step)
        parts: dict[str, float] = {}

        def forward() -> tuple[Tensor, Tensor | None]:
            loss, max_logits_LH, measured = self._loss(batch)
            parts.update(measured)
            return loss, max_logits_LH

        values = update(self.model, self.optimizer, lr, self.config.gradient_clip, [forward])
        read, trained = int((batch[2] >= 0).sum()), int((batch[1] != IGNORED).sum())
        return {"learning_rate": lr, **values, **parts}, read, trained

    def _loss(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None, dict[str, float]]:
        """Loss over a batch's trained positions, the heads' maxima, and the parts of the loss as numbers."""
        weight = self.config.distillation
        tokens_BS, targets_BS, documents_BS, positions_BS = (tensor.to(self.device) for tensor in batch)
        trained_BS = targets_BS != IGNORED
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.dtype == "bfloat16"):
            places = {"positions_BS": positions_BS, "document_ids_BS": documents_BS}
            output = self.model(tokens_BS, **places, max_logits=True)
            logits_NV = self.model.logits(output.hidden_BSD[trained_BS]).float()
            nll = torch.nn.functional.cross_entropy(logits_NV, targets_BS[trained_BS])
            loss, measured = nll + output.aux_loss, {"dialogue_loss": float(nll.detach())}
            if weight > 0:
                with torch.no_grad():
                    hidden_BSD = self.teacher(tokens_BS, **places).hidden_BSD
                    teacher_NV = self.teacher.logits(hidden_BSD[trained_BS]).float()
                divergence = kl_divergence(teacher_NV, logits_NV)
                # the teacher's routing is part of what is kept: distillation leaves the balance loss out
                loss = (1 - weight) * loss + weight * divergence
                measured["divergence"] = float(divergence.detach())
        return loss, output.max_logits_LH, measured

    def _measure(self, model: Transformer, name: str) -> dict[str, Any]:
        """Pass rates (of single problems, for pairing), held-out loss and divergence from the RL model."""
        model = model.to(self.device)
        config, run = self.config, self.run
        found = evaluate(
            model,
            self.chat,
            self.problems,
            config.evaluate_samples,
            f"qat/{config.seed}/evaluation",
            RewardConfig(budget=config.budget),
            config.dtype,
        )
        loss, divergence = self._heldout(model)
        record = found.record()
        run.metrics.write("evaluation", run.step, model=name, loss=loss, divergence=divergence, **record)
        run.tell(f"{name}: pass rate {record['sampled']:.0%} sampled, {record['greedy']:.0%} greedy")
        rates = {"environments": found.environments, "sampled": found.sampled, "greedy": found.greedy}
        return {"loss": loss, "divergence": divergence, **rates}

    @torch.no_grad()
    def _heldout(self, model: Transformer) -> tuple[float, float]:
        """Next-token loss and divergence from the RL model, nats, over the assistant's tokens of held-out dialogues."""
        sums, count = torch.zeros(2, dtype=torch.float64), 0
        for number in range(VALIDATION_BATCHES):
            tokens_BS, targets_BS, documents_BS, positions_BS = (
                tensor.to(self.device) for tensor in self.heldout.batch(number)
            )
            trained_BS = targets_BS != IGNORED
            places = {"positions_BS": positions_BS, "document_ids_BS": documents_BS}
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.dtype == "bfloat16"):
                logits_NV, teacher_NV = (
                    network.logits(network(tokens_BS, **places).hidden_BSD[trained_BS]).float()
                    for network in (model, self.teacher)
                )
            nll = torch.nn.functional.cross_entropy(logits_NV, targets_BS[trained_BS], reduction="sum")
            sums += torch.stack([nll, kl_divergence(teacher_NV, logits_NV) * len(logits_NV)]).double().cpu()
            count += len(logits_NV)
        loss, divergence = (sums / count).tolist()
        return loss, divergence

    def _summary(self, trained: dict[str, Any]) -> dict[str, Any]:
        """The stage's statistics."""
        state, config = self.run.state, self.config
        models = {"bf16": state["bf16"], "rounded": state["rounded"], "qat": trained}
        return {
            "updates": config.updates,
            "distillation": config.distillation,
            "loss": {name: found["loss"] for name, found in models.items()},
            "divergence": {name: found["divergence"] for name, found in models.items()},
            "pass_rate": {name: statistics.fmean(found["sampled"]) for name, found in models.items()},
            "greedy_pass_rate": {name: statistics.fmean(found["greedy"]) for name, found in models.items()},
            "change_from_bf16": {name: paired(models["bf16"], models[name]) for name in ("rounded", "qat")},
            "evaluation": {name: self._evaluation(found) for name, found in models.items()},
            "tokens": state["tokens"],
            "trained_tokens": state["trained"],
            "seed": config.seed,
            "seconds": round(time.monotonic() - self.began, 3),
        }

    @staticmethod
    def _evaluation(found: dict[str, Any]) -> dict[str, Any]:
        return Evaluation(found["environments"], found["sampled"], found["greedy"], 1.0).record()


def kl_divergence(teacher_NV: Tensor, student_NV: Tensor) -> Tensor:
    """Mean KL(teacher || student) in nats over N positions, from logits; zero exactly where they agree."""
    teacher_NV = teacher_NV.log_softmax(-1)
    return (teacher_NV.exp() * (teacher_NV - student_NV.log_softmax(-1))).sum(-1).mean()


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


def run(job: Job) -> None:
    """The job; JobError where the experts' widths do not divide by 32."""
    try:
        Quantising(job).fit()
    except QuantizationError as error:
        raise JobError(str(error)) from error


if __name__ == "__main__":
    sys.exit(main(run, "training.qat"))
