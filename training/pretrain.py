"""Pretraining: the next token, through the stages of a plan.

    python -m training.pretrain --config job.json      inputs: tokens

`training.trainer` says how a run is started, resumed and ended, and what it leaves.

Shapes: B samples, S tokens of a sample, D hidden.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Any

from torch import Tensor

from model.config import YarnConfig, parameter_count
from model.transformer import Transformer
from training import best_fit, order
from training.cache import Cache, ShardError
from training.config import PretrainConfig
from training.engine import Measures, MicroBatch
from training.heldout import HeldoutText
from training.loader import Batch
from training.metrics import summarise
from training.objective import Objective
from training.samples import IGNORED
from training.schedule import Stage, Update, unread_words
from training.shards import TokenShards
from training.spikes import Rollback, parse
from training.streams import Streams
from training.telemetry import heads
from training.trainer import Trainer, main

VERSION = 2  # raise it where the same inputs give other bytes (tasks/code.py)

log = logging.getLogger(__name__)


class NextToken(Objective):
    """Pretraining on token shards, from weights that are drawn."""

    settings = PretrainConfig

    def __init__(self, trainer: Trainer) -> None:
        """Checks the shards and that the plan can be read from them."""
        super().__init__(trainer)
        self.config: PretrainConfig = trainer.config
        self.model, self.optimizer, self.weights = self.config.model, self.config.optimizer, self.config.weights
        self.plan, self.spikes, self.steps = self.config.stages, self.config.run.spikes, self.config.stages.updates
        self.tokens, self.cache = trainer.job.input("tokens"), Cache.from_environment()
        self.cache.checked = trainer.watchdog.prolong  # a batch may be the first to read many shards
        self.shards = TokenShards(self.tokens, self.cache)
        if self.shards.vocabulary > self.model.vocab_size:
            raise ShardError(
                f"{self.tokens} has {self.shards.vocabulary} token ids and the model {self.model.vocab_size}: "
                "set model.vocab_size to the tokenizer's"
            )
        versions = [order.VERSION, best_fit.VERSION]
        self.identity = {
            "run": self.config.fingerprint,
            "tokens_content": self.shards.content,
            "order_of_samples": versions,  # another one would read some samples twice and others never
        }
        self.heldout = HeldoutText(trainer, self.tokens, self.cache, skips=self.config.run.bad_shards == "skip")
        for stage in self.plan.stages:
            self.heldout.warn_without(stage.sequence_length, f"stage {stage.name!r}")
        self._warn_of_padding()

    def fill(self, model: Transformer) -> None:
        model.init_weights(self.config.seed)

    def begin(self) -> None:
        trainer = self.trainer
        self.streams = Streams(self.config, self.tokens, self.cache, trainer.mesh, trainer.rollbacks.all)
        self.streams.require()
        self.heldout.skip({})
        unread, share = self.streams.unread()
        if unread and trainer.world.rank == 0 and not trainer.rollbacks.all:  # not again where it goes back
            log.warning(unread_words(unread, share))

    def close(self) -> None:
        self.streams.close()

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self, number: int) -> str:
        """One update of the plan."""
        trainer, update = self.trainer, self.plan.update(number)
        stage = update.stage
        self._set_window(stage)
        batch = self._read(update)
        last = min(number + self.config.run.prefetch_updates, self.steps)
        self.streams.prefetch(self.plan.update(later) for later in range(number + 1, last + 1))
        parts = self.parts(batch, stage.batch)
        totals, values = trainer.update(parts, update.learning_rate, stage.name, self.model.bias_update_rate)
        timing = trainer.clock.tick(trainer.model.config, stage.tokens_per_update, stage.sequence_length)
        timing["eta_seconds"] = (self.plan.tokens - update.tokens_after) * trainer.clock.seconds_per_token
        trainer.metrics.write("update", number, stage=stage.name, tokens=update.tokens_after, **values, timing=timing)
        if number % self.config.heads_every == 0 or number == self.steps:
            trainer.metrics.write("heads", number, **heads(totals, trainer.optimizer))
        return f"{stage.name}, loss {totals.loss:.3f}, {1 / trainer.clock.seconds_per_token:,.0f} tokens/s"

    def parts(self, batch: Batch, samples: int) -> list[MicroBatch]:
        """Micro-batches of this rank's share of a global batch of so many `samples`."""
        return parts_of(self.trainer, batch, samples, self.config.separate_documents)

    def _read(self, update: Update) -> Batch:
        """This rank's share of the global batch; what is skipped for it is recorded."""
        batch, skipped = self.streams.read(update)
        for key, reason in skipped.items():
            log.warning("update %d: shard %s is skipped from now on: %s", update.number, key, reason)
            first = self.streams.first_sample(update)
            self.trainer.metrics.write("skip", update.number, shard=key, first_sample=first, reason=reason)
        return batch

    def _set_window(self, stage: Stage) -> None:
        """Give the model the stage's RoPE, plain or stretched by YaRN over the window it was built with, and what its
        activations are kept as."""
        model = self.trainer.model
        model.memory = self.config.run.memory_in(stage.name)
        window = self.model.max_position_embeddings
        yarn, reach = None, window
        if stage.yarn_factor > 1:
            yarn = YarnConfig(factor=stage.yarn_factor, original_max_position_embeddings=window)
            reach = int(stage.yarn_factor * window)
        if model.config.rope_scaling != yarn or model.config.max_position_embeddings != reach:
            model.set_yarn(yarn, reach)

    def _warn_of_padding(self) -> None:
        mesh = self.trainer.mesh
        for stage in self.plan.stages if mesh.pipeline.size > 1 and mesh.world.rank == 0 else ():
            most = math.ceil(math.ceil(stage.batch / mesh.data.size) / self.config.run.micro_batch)
            if (count := mesh.layout.micro_batches(most)) > most:
                log.warning(
                    "stage %r: %d micro-batches a rank become %d, filled up with padding, because %d pipeline ranks of "
                    "%d pieces each need them; a smaller run.micro_batch or a larger batch makes them useful",
                    *(stage.name, most, count, mesh.layout.pipeline, mesh.layout.virtual),
                )

    # ------------------------------------------------------------------------------------------------- evaluation

    def milestone(self, number: int) -> bool:
        """The end of a stage."""
        return number == self.steps or self.plan.update(number + 1).span != self.plan.update(number).span

    @property
    def stage_ends(self) -> Collection[int]:
        return {span.first_update + span.updates for span in self.plan.spans}

    def evaluates(self, number: int) -> bool:
        every = self.config.evaluate_every
        return self.milestone(number) or bool(every and number % every == 0)

    def evaluate(self, number: int) -> None:
        stage = self.plan.update(number).stage
        known = self.heldout.skipped
        losses = self.heldout_losses(stage)
        for key in sorted(self.heldout.skipped.keys() - known.keys()):
            reason = self.heldout.skipped[key]
            log.warning("the evaluation after update %d: shard %s is skipped from now on: %s", number, key, reason)
            self.trainer.metrics.write("skip", number, shard=key, first_sample=0, reason=reason)
        self.trainer.metrics.write("evaluation", number, stage=stage.name, losses=losses)

    def heldout_losses(self, stage: Stage) -> dict[str, float]:
        """Mean cross-entropy of the held-out samples by domain, at the stage's window; the model is left as it was."""
        return self.heldout.losses(stage.sequence_length, self.config.evaluation_samples, self.parts)

    # --------------------------------------------------------------------------------------------------- position

    def state(self) -> dict[str, Any]:
        last = self.plan.update(self.trainer.done)
        return {
            "stage": last.stage.name,
            "tokens": last.tokens_after,
            "samples": self.streams.consumed(self.trainer.done),
            "skipped": self.streams.skipped,
            "heldout_skipped": self.heldout.skipped,
            "seed": self.config.seed,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Leave out the samples that were left out then, and set the window: after the last update nothing else
        would."""
        known, rollbacks = parse(state.get("rollbacks", [])), self.trainer.rollbacks
        if len(known) > len(rollbacks.all):  # the checkpoint came here without the file
            rollbacks.replace(known, writes=self.trainer.world.rank == 0)
            self.close()
            self.begin()
        self.streams.skip(state.get("skipped", []))
        self.heldout.skip(state.get("heldout_skipped", {}))
        self._set_window(self.plan.update(self.trainer.done).stage)

    def rollback(self, number: int, to: int, reason: str) -> Rollback:
        """Leave out the samples of the updates after `to`, as far as they are of the spike's stream, to its own."""
        update = self.plan.update(number)
        lost = [self.plan.update(each) for each in range(to + 1, number + 1)]
        first = self.streams.first_sample(next(each for each in lost if each.stream == update.stream))
        end = self.streams.first_sample(update) + update.stage.batch
        log.warning(
            "update %d is a spike (%s); back to update %d, without the samples %d to %d of stream %d",
            *(number, reason, to, first, end - 1, update.stream),
        )
        return Rollback(number, to, update.stream, first, end, reason)

    def progress(self) -> dict[str, Any]:
        clock = self.trainer.clock
        if not clock.tokens:
            return {}
        update = self.plan.update(self.trainer.done)
        return {
            "stage": update.stage.name,
            "tokens": update.tokens_after,
            "tokens_per_second": 1 / clock.seconds_per_token,
            "eta_seconds": (self.plan.tokens - update.tokens_after) * clock.seconds_per_token,
        }

    def summary(self) -> dict[str, Any]:
        count = parameter_count(self.model)
        return {
            "parameters": count.total,
            "active_parameters": count.active,
            **summarise(self.trainer.work / "metrics.jsonl"),
            "tokens": self.plan.tokens,  # also where a checkpoint came here without its metrics
            "epochs": self.streams.epochs(),
            "skipped": self.streams.skipped,
            "heldout_skipped": sorted(self.heldout.skipped),
            "rollbacks": self.trainer.rollbacks.records(),
        }


def parts_of(trainer: Trainer, batch: Batch, samples: int, separate_documents: bool = True) -> list[MicroBatch]:
    """The micro-batches of `next_token` that are this rank's of a global batch of `samples`: all ranks' targets are
    counted."""
    (targets,) = trainer.total(int((batch.targets_BS != IGNORED).sum()))
    return next_token(batch, targets, samples, trainer.config.run.micro_batch, separate_documents)


def next_token(
    batch: Batch, targets: float, samples: int, size: int, separate_documents: bool = True
) -> list[MicroBatch]:
    """Micro-batches of at most `size` samples of one rank's share of a global batch.

    Each is weighted by its targets (the balance loss by its samples) among the `targets` and `samples` of the global
    batch, so that the sum of all ranks' gradients is that of its mean, however it is cut. Without `separate_documents`
    attention crosses from one document into another.
    """

    def loss(targets_BS: Tensor, model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        targets_BS = targets_BS.to(hidden_BSD.device)
        return model.loss(hidden_BSD, targets_BS, IGNORED, reduction="sum") / targets, {}

    parts = []
    for first in range(0, len(batch.tokens_BS), size):
        rows = slice(first, first + size)
        tokens_BS, ids_BS = batch.tokens_BS[rows], batch.document_ids_BS[rows] if separate_documents else None
        learned = partial(loss, batch.targets_BS[rows])
        parts.append(MicroBatch(tokens_BS, learned, ids_BS, aux_weight=len(tokens_BS) / samples))
    return parts


def weighted(part: MicroBatch, weight: float, measure: str) -> MicroBatch:
    """A micro-batch at `weight`, its loss recorded without it as `measure`."""

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        plain, _ = part.loss(model, hidden_BSD)
        return weight * plain, {measure: plain}

    return replace(part, loss=loss, aux_weight=weight * part.aux_weight)


if __name__ == "__main__":
    sys.exit(main(NextToken, "training.pretrain"))
