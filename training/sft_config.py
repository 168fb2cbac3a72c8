"""Configuration of supervised fine-tuning."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, PositiveInt, model_validator

from model.config import Config
from training.config import MuonClipConfig, TuningRunConfig
from training.precision import Precision
from training.rl.config import RewardConfig


class SftStage(Config):
    """A stretch of SFT with rows and a learning rate of its own."""

    updates: int = Field(ge=1)
    """How many it takes."""
    sequence_length: int = Field(ge=16)
    """Tokens of a row; dialogues that only a later stage has room for wait for that."""
    rows: int = Field(ge=1)
    """Rows of an update."""
    learning_rate: float = Field(gt=0)
    """After the warm-up."""
    final_learning_rate: float | None = Field(default=None, gt=0)
    """At its last update; a straight line leads there. None keeps the rate."""
    warmup: int = Field(default=0, ge=0)
    """Updates over which the learning rate rises from 0."""

    @model_validator(mode="after")
    def _arrives(self) -> Self:
        require_reached(self.updates, self.warmup, self.final_learning_rate)
        return self

    def rate(self, number: int) -> float:
        """The learning rate of its update `number`, from 1."""
        last = self.learning_rate if self.final_learning_rate is None else self.final_learning_rate
        progress = max(0, number - self.warmup) / max(1, self.updates - self.warmup)
        return min(1.0, number / max(1, self.warmup)) * (self.learning_rate + (last - self.learning_rate) * progress)


def require_reached(updates: int, warmup: int, final: float | None) -> None:
    """Raise ValueError where a stage is too short for its learning rate to come to `final`."""
    if final is not None and warmup >= updates:
        raise ValueError(
            f"warmup = {warmup} takes all of the {updates} updates, and the learning rate would never come to "
            f"final_learning_rate = {final:g}: shorten the warm-up, or leave final_learning_rate out"
        )


class SftConfig(Config):
    """Supervised fine-tuning, in each family as far as reinforcement learning still has something to win."""

    execution_fields: ClassVar[frozenset[str]] = frozenset({"run"})

    seed: int = Field(default=0, ge=0)
    """Decides the order of the dialogues and the samples of the evaluations."""
    optimizer: MuonClipConfig = Field(default_factory=MuonClipConfig)
    """MuonClip's constants."""
    learning_rate: float = Field(default=1e-3, gt=0)
    """After the warm-up."""
    final_learning_rate: float | None = Field(default=None, gt=0)
    """At the last of `max_updates`; a straight line leads there. None keeps the rate: the band may end a run."""
    warmup: int = Field(default=10, ge=0)
    """Updates over which the learning rate rises from 0."""
    sequence_length: int = Field(default=256, ge=16)
    """Tokens of a row into which dialogues are packed, attention kept apart."""
    rows: int = Field(default=8, ge=1)
    """Rows of an update."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient."""
    dtype: Precision = "auto"
    """Precision of the forward and backward products; `auto`: what the device multiplies fast."""
    int4: bool = False
    """Quantisation-aware training (K2-Thinking: in post-training): the forward, and whoever samples replies, see the
    routed experts rounded to INT4; the gradient goes straight through to the unrounded weights, which are saved. The
    release's INT4 is what was seen, bit for bit."""
    max_updates: int = Field(default=500, ge=1)
    """The run ends here, if not every family has come into the band before; with tools it always ends here."""
    then: tuple[SftStage, ...] = ()
    """Stages after those updates. K1.5 has one (its report, 2.5): an epoch in rows of 32K at 2e-5 to 2e-6, then another
    in rows of 128K, warmed up again to 1e-5 and down to 1e-6."""
    text_samples: int = Field(default=0, ge=0)
    """Samples of pretraining text in each update, against forgetting the language; 0 mixes none in."""
    text_sequence_length: int = Field(default=256, ge=8)
    """Tokens of such a sample, and of those that the held-out loss is measured on."""
    text_weight: float = Field(default=1.0, ge=0)
    """Weight of their next-token loss beside that of the dialogues."""
    text_evaluated: int = Field(default=16, ge=1)
    """Held-out samples per domain (fewer where a domain has fewer), before the first update and after the last."""
    evaluate_every: int = Field(default=20, ge=1)
    """Updates between evaluations, each of which writes a checkpoint."""
    evaluate_prompts: int = Field(default=64, ge=1)
    """Held-out prompts per environment of an evaluation."""
    evaluate_samples: int = Field(default=2, ge=1)
    """Samples for each of them at temperature 1: with few, noise alone enters the band."""
    band: tuple[float, float] = (0.2, 0.5)
    """A family rests from when its sampled pass rate has entered this band, and RL trains on those within it: K2 keeps
    tasks of moderate difficulty by the SFT model's pass@k (K2 report 3.2.1)."""
    gate: tuple[str, ...] = ()
    """Environments that rest; none means all whose problems declare no tools."""
    budget: int = Field(default=48, ge=1)
    """Tokens of a reply in evaluations; what runs over counts as wrong."""
    budgets: dict[str, PositiveInt] = Field(default_factory=dict)
    """Budgets of single environments, where they differ (`tool_call`: of every turn with tools, too)."""
    run: TuningRunConfig = Field(default_factory=TuningRunConfig)
    """How it runs; its micro-batches are rows."""

    @model_validator(mode="after")
    def _band_and_rate(self) -> Self:
        low, high = self.band
        if not 0 < low < high <= 1:
            raise ValueError(f"band = {self.band}: give two rates with 0 < low < high <= 1, such as [0.2, 0.5]")
        require_reached(self.max_updates, self.warmup, self.final_learning_rate)
        return self

    @property
    def rewards(self) -> RewardConfig:
        """How replies are judged in evaluations."""
        return RewardConfig(budget=self.budget, budgets=self.budgets)

    @property
    def stages(self) -> tuple[SftStage, ...]:
        """All of them, in order."""
        first = {name: getattr(self, name) for name in SftStage.model_fields if name != "updates"}
        return (SftStage(updates=self.max_updates, **first), *self.then)

    @property
    def updates(self) -> int:
        """Of all stages."""
        return sum(stage.updates for stage in self.stages)

    @property
    def longest(self) -> int:
        """Tokens of the longest rows."""
        return max(stage.sequence_length for stage in self.stages)
