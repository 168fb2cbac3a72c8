"""Configurations of training: MuonClip's constants and the pretraining job. Nothing here needs torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from model.config import Config, ModelConfig
from model.footprint import MemoryConfig
from model.sizes import model_preset
from training.layout import Layout, LayoutError
from training.precision import Precision
from training.schedule import StagePlan


class MuonClipConfig(Config):
    """The optimizer's constants; the learning rate comes from the stage plan."""

    momentum: float = Field(default=0.95, ge=0, lt=1)
    """mu of Muon's momentum (Moonlight's public code)."""
    nesterov: bool = True
    """Orthogonalise G + mu M and not M (Moonlight's public code)."""
    coefficients: Literal["quintic", "quintic_varied", "polar_express_5", "polar_express_6", "polar_express_8"] = (
        "quintic"
    )
    """Newton-Schulz coefficient set; `training.newton_schulz.COEFFICIENTS` names the sources."""
    newton_schulz_dtype: Precision = "auto"
    """Precision of the Newton-Schulz iterations; momentum and weights stay float32. `auto`: as `dtype`'s."""
    gram_ratio: float | None = Field(default=2.0, ge=1)
    """Newton-Schulz iterates on the N x N Gram matrix where a matrix is at least so many times as long as wide, which
    takes 0.8 of the operations at 3.5 (K2's experts) and 0.69 at 8; None never does (docs/pretraining.md)."""
    per_head: bool = False
    """Orthogonalise each head's rows of the up-projections of queries, keys and values apart ("Muon split", as some
    successors do); Algorithm 1 takes the linear layer as one matrix."""
    weight_decay: float = Field(default=0.1, ge=0)
    """Decoupled decay of every parameter with two or more dimensions, embeddings and head included (K2 report 2.5)."""
    betas: tuple[float, float] = (0.9, 0.95)
    """AdamW's, for embeddings, head, norms and biases."""
    adamw_epsilon: float = Field(default=1e-8, gt=0)
    """AdamW's epsilon."""
    matrices: Literal["muon", "adamw"] = "muon"
    """Who updates the matrices of the layers. `adamw` makes the whole optimizer AdamW, with the same decay and QK-Clip
    by `tau`: the baseline that MuonClip is measured against (docs/claims/muonclip.md)."""
    router: Literal["muon", "adamw"] = "muon"
    """Who updates the routers' matrices. Disputed: Moonlight's Fig. 4 and torchtitan use Muon, MaxText does not."""
    tau: float = Field(default=100.0, gt=0)
    """QK-Clip's threshold on the attention logits (K2 report 2.1); small models reach it only if it is set low."""

    @model_validator(mode="after")
    def _betas(self) -> MuonClipConfig:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas = {self.betas}: both lie in [0, 1); K2 has 0.9 and 0.95")
        return self


class PosttrainMuonClipConfig(MuonClipConfig):
    """The constants after SFT, where decay would pull on what was learned and nothing against it."""

    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled decay; none by default."""


class SpikeConfig(Config):
    """What a spike is, and how often a run goes round one (`training/spikes.py`).

    An update is a spike when its loss or the norm of its gradient (before clipping) is not finite, or lies above the
    median of the latest applied updates of its stage by more than so many deviations (1.4826 times the median absolute
    deviation) and by more than a share of the median: numbers that hardly vary must not make a ripple a spike.
    """

    window: int = Field(default=64, gt=0)
    """Latest applied updates of the stage that an update is judged by."""
    least: int = Field(default=16, gt=0)
    """Applied updates of the stage before there is a judgement; until then only what is not finite is a spike."""
    loss_deviations: float = Field(default=6.0, gt=0)
    """Deviations of the loss above its median."""
    loss_share: float = Field(default=0.1, ge=0)
    """Share of its median that the loss must be above it."""
    gradient_deviations: float = Field(default=30.0, gt=0)
    """Deviations of the gradient's norm above its median; norms have long tails, and clipping bounds them anyway."""
    gradient_share: float = Field(default=3.0, ge=0)
    """Share of its median that the gradient's norm must be above it: 3 is four times the median."""
    most_rollbacks: int = Field(default=8, ge=0)
    """Rollbacks of the whole run; one more ends it with an error. 0 ends it at the first spike."""

    @model_validator(mode="after")
    def _judges(self) -> SpikeConfig:
        if self.least > self.window:
            raise ValueError(
                f"least = {self.least} is more than window = {self.window} updates: no update would ever be judged"
            )
        return self


class RetentionConfig(Config):
    """Which checkpoints stay. The newest are what a run resumes from and goes back to; the others are for people."""

    newest: int = Field(default=3, gt=0)
    """So many of the newest."""
    every: int | None = Field(default=None, gt=0)
    """And those of every so many updates, for good."""
    stage_ends: bool = False
    """And the last one of each stage, for good."""

    def kept(self, updates: Sequence[int], stage_ends: Collection[int] = ()) -> set[int]:
        """Which of the checkpoints of `updates` stay, where stages end at `stage_ends`."""
        kept = set(sorted(updates)[-self.newest :])
        if self.every is not None:
            kept.update(update for update in updates if update % self.every == 0)
        if self.stage_ends:
            kept.update(set(updates) & set(stage_ends))
        return kept


class RunConfig(Config):
    """How a training job runs; not part of what a checkpoint holds a run to."""

    micro_batch: int = Field(default=8, gt=0)
    """Samples of one forward and backward on one rank; gradients accumulate over as many as the global batch needs."""
    layout: Layout = Field(default_factory=Layout)
    """How the ranks are arranged: pipeline and expert parallelism; all that is left over is data parallel."""
    memory: MemoryConfig = Field(default_factory=MemoryConfig)
    """What is kept between forward and backward: recomputation, storage in FP8, offload to the host."""
    checkpoint_every: int = Field(default=100, gt=0)
    """Steps between checkpoints; the end of a stage and an evaluation that decides something write one too."""
    checkpoint_in_background: bool = True
    """Copy the state to host memory and write it while training goes on; False writes before the next update, and
    needs no memory for the copy."""
    retention: RetentionConfig = Field(default_factory=RetentionConfig)
    """Which checkpoints stay; others are deleted when a newer one is complete."""
    trackers: tuple[Literal["tensorboard"], ...] = ()
    """What shows the metrics beside metrics.jsonl: `tensorboard` writes event files (the extra of that name)."""
    collective_timeout_seconds: float = Field(default=600, gt=0)
    """How long a rank waits for the others before it ends with an error."""
    stall_seconds: float | None = Field(default=480, gt=0)
    """Seconds without a micro-batch done (or a reply sampled, a shard checked, an evaluation begun) after which a rank
    writes its stacks to the log and ends, but while checkpoints are written or read; less than
    collective_timeout_seconds, so that every rank does. None never does."""
    peak_flops: float | None = Field(default=None, gt=0)
    """Peak floating point operations per second of one rank's device, for the MFU; None leaves the MFU out."""

    @model_validator(mode="after")
    def _stalls_first(self) -> RunConfig:
        if self.stall_seconds is not None and self.stall_seconds >= self.collective_timeout_seconds:
            raise ValueError(
                f"stall_seconds = {self.stall_seconds:g} is not less than collective_timeout_seconds = "
                f"{self.collective_timeout_seconds:g}: ranks that wait for one that hangs would end without telling "
                "where they stand; lower it"
            )
        return self


class PretrainRunConfig(RunConfig):
    """How a pretraining job runs."""

    memory_of: dict[str, MemoryConfig] = Field(default_factory=dict)
    """`memory` for stages that need it otherwise, by their names: long sequences leave less room."""
    spikes: SpikeConfig = Field(default_factory=SpikeConfig)
    """What a spike is; the run goes back to its last good checkpoint and leaves out the data that led there."""
    prefetch_updates: int = Field(default=2, ge=0)
    """Updates whose shards are checked, and fetched where they are remote, ahead of their use."""
    bad_shards: Literal["error", "skip"] = "error"
    """What a missing or altered shard, held-out ones included, is: the end of the run, or from that update on left out
    by every rank and recorded (in the metrics, the checkpoints and the summary)."""
    most_skipped: float = Field(default=0.01, ge=0, le=1)
    """Share of the samples to train on that may lie in skipped shards before the run ends after all."""

    def memory_in(self, stage: str) -> MemoryConfig:
        """What is kept in the stage of that name."""
        return self.memory_of.get(stage, self.memory)


class TuningRunConfig(RunConfig):
    """How a job of post-training runs."""

    checkpoint_every: int = Field(default=10, gt=0)
    """Steps between checkpoints; an evaluation that decides something writes one too."""


class PretrainConfig(Config):
    """The base model's making: the network, MuonClip and the stages."""

    execution_fields: ClassVar[frozenset[str]] = frozenset({"run"})

    model: ModelConfig
    """The network; `{preset: laptop, vocab_size: 4096}` takes a size of `model.sizes` with some fields changed."""
    stages: StagePlan
    """The schedule, as a list of stages."""
    optimizer: MuonClipConfig = Field(default_factory=MuonClipConfig)
    """MuonClip's constants."""
    seed: int = Field(default=0, ge=0)
    """Seed of the initial weights and of the order of the samples."""
    dtype: Precision = "auto"
    """Precision of the forward and backward products; gradients and optimizer state are float32. `auto`: what the
    device multiplies fast, or what the run began with (docs/pretraining.md)."""
    weights: Literal["bfloat16", "float32"] = "float32"
    """Precision of the weights on the ranks that work with them. bfloat16 ones have float32 masters, which lie with
    their owners alone: a third less memory with many ranks, and no copies for the products (K2 report 2.4.2)."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient; longer ones are shortened before the momentum sees them."""
    most_epochs: dict[str, float] = Field(default_factory=dict)
    """Most times that the whole run may go through the shards of a domain (`web`), a source (`web/NAME`) or any source
    (`*`); a plan that needs more is refused before it begins. It counts passes over the shards, which hold a document
    as often as `mix.epochs` allows: of 4 and 4 a document may be read 16 times."""
    separate_documents: bool = True
    """Attention does not cross from one document of a packed sample into another."""
    evaluate_every: int | None = Field(default=None, gt=0)
    """Updates between held-out evaluations; each stage's end has one in any case."""
    evaluation_samples: int = Field(default=16, gt=0)
    """Held-out samples per domain of one evaluation (fewer where a domain has fewer)."""
    heads_every: int = Field(default=50, gt=0)
    """Updates between records of every single head's largest logit, factor and clip count."""
    run: PretrainRunConfig = Field(default_factory=PretrainRunConfig)
    """How it runs."""

    @model_validator(mode="before")
    @classmethod
    def _named_model(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("model"), dict) and "preset" in values["model"]:
            changes = dict(values["model"])
            try:
                return {**values, "model": model_preset(changes.pop("preset"), **changes)}
            except KeyError as error:
                raise ValueError(error.args[0]) from None
        return values

    @model_validator(mode="after")
    def _windows_fit(self) -> PretrainConfig:
        if self.model.rope_scaling is not None:
            raise ValueError("model.rope_scaling is set by the stages' yarn_factor in pretraining; leave it out")
        for stage in self.stages.stages:
            reach = int(self.model.max_position_embeddings * stage.yarn_factor)
            if stage.sequence_length > reach:
                raise ValueError(
                    f"stage {stage.name!r} has samples of {stage.sequence_length} tokens and a window of {reach}: "
                    "raise its yarn_factor or the model's max_position_embeddings"
                )
        return self

    @model_validator(mode="after")
    def _precisions_fit(self) -> PretrainConfig:
        if self.weights == "bfloat16" and self.dtype != "bfloat16":
            raise ValueError(
                "weights in bfloat16 are multiplied in bfloat16: set dtype to bfloat16, or weights to float32"
            )
        return self

    @model_validator(mode="after")
    def _layout_fits(self) -> PretrainConfig:
        try:
            self.run.layout.require(self.model)
        except LayoutError as error:
            raise ValueError(f"run.layout: {error}") from None
        stages = [stage.name for stage in self.stages.stages]
        if unknown := [name for name in self.run.memory_of if name not in stages]:
            raise ValueError(f"run.memory_of names the stage {unknown[0]!r}: the stages are {', '.join(stages)}")
        return self

    @property
    def fingerprint(self) -> str:
        """sha256 of all but `run`: by it a checkpoint knows the run it belongs to."""
        return hashlib.sha256(json.dumps(self.literals(), sort_keys=True).encode()).hexdigest()
