"""What the objectives of post-training share: a published model to begin with, dialogues, and pass rates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor

from model.quantize import QuantizationError, fake_quantize_experts
from model.transformer import Transformer
from training.engine import Loss, Measures, MicroBatch
from training.inputs import Published, fingerprints, load_chat, load_splits
from training.job import JobError
from training.loader import Loader
from training.objective import Objective
from training.order import Mix
from training.packing import IGNORED, Packed
from training.pretrain import parts_of, weighted
from training.rl.config import RewardConfig
from training.rl.environments import Problem, Services
from training.rl.rollout import Player, first_of_each
from training.trainer import Trainer


class PostTraining(Objective):
    """An objective that begins with the model of an earlier stage and is measured by the replies of the present one."""

    source: ClassVar[str]
    """The input that holds that model."""

    def __init__(self, trainer: Trainer) -> None:
        """Reads the dialogues; checks that there is a model."""
        super().__init__(trainer)
        self.config, job = trainer.config, trainer.job
        self.optimizer = self.config.optimizer
        self.published = Published.at(job.input(self.source))
        self.model = self.published.config
        self.chat = load_chat(job.input("tokenizer"))
        self.train, self.development, self.test = load_splits(job.input("dialogues"))
        self.problems: Sequence[Problem] = first_of_each(self.development.problems, self.config.evaluate_prompts)
        """Of development: what a run is steered by."""
        literals = json.dumps(self.config.literals(), sort_keys=True)
        self.identity = {"run": hashlib.sha256(literals.encode()).hexdigest(), "inputs": fingerprints(job.inputs)}
        self.counts: dict[str, Any] = {}
        """What the run has counted and measured so far, as JSON has it."""

    def fill(self, model: Transformer) -> None:
        """Raises `JobError` where INT4 is asked for and the experts' widths do not divide by 32."""
        self.published.fill(model)
        if self.config.int4:
            try:
                fake_quantize_experts(model)
            except QuantizationError as error:
                raise JobError(f"{error}; or set int4 to false") from error

    def state(self) -> dict[str, Any]:
        return {"state": self.counts}

    def load(self, state: dict[str, Any]) -> None:
        self.counts = state["state"]

    def require_window(self, stage: str, length: int) -> None:
        """Raise `JobError` where rows of `length` tokens are longer than the model's window."""
        if length > (window := self.model.max_position_embeddings):
            raise JobError(
                f"{stage}.sequence_length = {length}: the window of the {self.source} model is {window} tokens; pack "
                "shorter rows, and lower dialogues.max_tokens with them"
            )

    def evaluator(self, rewards: RewardConfig, services: Services) -> Player:
        """The present model as it is measured: at temperature 1, on problems that the ranks share."""
        trainer = self.trainer
        return Player(
            *(trainer.whole(trainer.model), self.chat, 1.0, rewards, self.config.dtype, services),
            world=trainer.world,
            beat=trainer.watchdog.beat,
        )

    def text_loader(self, length: int, mix: Mix | None = None) -> Loader:
        """Pretraining text in samples of `length` tokens, to be mixed into updates against forgetting: all there is, or
        as `mix` says."""
        return Loader(self.trainer.job.input("tokens"), "train", mix, self.config.seed, length)

    def text(self, loader: Loader, number: int, samples: int, weight: float) -> list[MicroBatch]:
        """This rank's micro-batches of the pretraining text of update `number`, from 0: `samples` of all ranks."""
        share = self.trainer.mesh.data.share(samples)
        batch = loader.batch(number * samples + share.start, len(share))
        return [weighted(part, weight, "ptx_loss") for part in parts_of(self.trainer, batch, samples)]

    def dialogues(self, packed: Packed, number: int, weight: float = 1.0) -> tuple[list[MicroBatch], int, int]:
        """This rank's micro-batches of the dialogues of update `number`, from 0; how many tokens all ranks' rows have,
        and how many are trained."""
        trainer = self.trainer
        rows = packed.batches(number, trainer.mesh.data.share(packed.rows), self.config.run.micro_batch)
        read, trained = trainer.total(sum(each.read for each in rows), sum(each.trained for each in rows))
        parts = [each.micro_batch(nll(each.targets_BS, trained), len(each.tokens_BS) / packed.rows) for each in rows]
        return [weighted(part, weight, "dialogue_loss") for part in parts], int(read), int(trained)

    def record(self, number: int, values: Mapping[str, Any], tokens: int, length: int, **timing: float) -> None:
        """Write the line of one step that went over so many tokens, of rows of `length`; `timing` is what else the
        clock says of it."""
        trainer = self.trainer
        ticked = trainer.clock.tick(trainer.model.config, tokens, length)
        trainer.metrics.write("update", number, **values, timing=ticked | timing)

    def summary(self) -> dict[str, Any]:
        return {"seed": self.config.seed, "int4": self.config.int4}


def nll(targets_BS: Tensor, total: float) -> Loss:
    """Cross-entropy of the trained targets as their share of the mean over `total` of them; logits are made only where
    something is learned."""

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        targets = targets_BS.to(hidden_BSD.device)
        trained_BS = targets != IGNORED
        return model.loss(hidden_BSD[trained_BS][None], targets[trained_BS][None], reduction="sum") / total, {}

    return loss
