"""Configuration of reinforcement learning."""

from __future__ import annotations

from typing import ClassVar, Self

from pydantic import Field, model_validator

from model.config import Config
from training.config import PosttrainMuonClipConfig, TuningRunConfig
from training.precision import Precision

MAX_ROWS = 256
"""Replies that a rank samples at once."""


class RewardConfig(Config):
    """How a verdict becomes a reward."""

    budget: int = Field(default=2048, ge=1)
    """Tokens a reply may take, its end included; what runs over is cut (a K2 write-up gives 2,048 by default)."""
    budgets: dict[str, int] = Field(default_factory=dict)
    """Budgets of single environments, where they differ (K2 report 3.2.3: a maximum by the type of task)."""
    over_budget: float = Field(default=-0.5, le=0)
    """Reward of a reply that was cut."""
    length_weight: float = Field(default=0.0, ge=0)
    """Weight of K1.5's length reward; 0 leaves it out, as at the start of K1.5's training."""

    def budget_of(self, environment: str) -> int:
        """Tokens a reply may take in `environment`."""
        return self.budgets.get(environment, self.budget)


class RlRunConfig(TuningRunConfig):
    """How a job of reinforcement learning runs; its steps are iterations."""

    micro_batch: int = Field(default=8, gt=0)
    """Samples of pretraining tokens of one forward and backward on one rank."""
    micro_tokens: int = Field(default=4096, ge=1)
    """Most tokens of responses, their prompts included, of one forward and backward on one rank."""


class RlConfig(Config):
    """Reinforcement learning with verifiable rewards and K2's objective."""

    execution_fields: ClassVar[frozenset[str]] = frozenset({"run"})

    seed: int = Field(default=0, ge=0)
    """Decides the prompts, the samples and the auxiliary tokens of every iteration."""
    iterations: int = Field(default=30, ge=1)
    """Rounds of: draw prompts, sample responses, update."""
    prompts: int = Field(default=48, ge=1)
    """Prompts of an iteration."""
    responses: int = Field(default=8, ge=2)
    """Responses to each prompt, K."""
    tau: float = Field(default=0.1, gt=0)
    """Weight of the log-ratio in the objective; the report leaves it open."""
    learning_rate: float = Field(default=3e-4, gt=0)
    """At the beginning of the run."""
    final_learning_rate: float = Field(default=3e-5, gt=0)
    """In the last iteration; a straight line leads there."""
    updates: int = Field(default=1, ge=1)
    """Optimizer updates that share an iteration's responses."""
    optimizer: PosttrainMuonClipConfig = Field(default_factory=PosttrainMuonClipConfig)
    """MuonClip's constants."""
    reset_optimizer: bool = False
    """Forget the optimizer's momentum at each iteration, as K1.5 does."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient."""
    temperature: tuple[float, float] = (1.0, 1.0)
    """Sampling temperature of the first and of the last iteration, a straight line between (K2 report 3.2.3)."""
    rewards: RewardConfig = Field(default_factory=RewardConfig)
    """Budget, penalty and length reward."""
    prioritised: bool = True
    """Draw prompts in proportion to 1 - success rate (K1.5 2.3.4)."""
    environments: dict[str, float] = Field(default_factory=dict)
    """Share of prompts by environment; empty leaves it to the dialogues' own numbers."""
    ptx_weight: float = Field(default=0.1, ge=0)
    """Weight of the next-token loss on pretraining tokens, against forgetting; a K2 write-up gives about 0.1."""
    ptx_samples: int = Field(default=4, ge=0)
    """Samples of pretraining tokens in each update."""
    ptx_sequence_length: int = Field(default=128, ge=1)
    """Tokens of such a sample."""
    dtype: Precision = "auto"
    """Precision of the forward and backward products, rollouts included; `auto`: what the device multiplies fast."""
    int4: bool = False
    """Quantisation-aware training (K2-Thinking: in post-training): the forward, and whoever samples replies, see the
    routed experts rounded to INT4; the gradient goes straight through to the unrounded weights, which are saved. The
    release's INT4 is what was seen, bit for bit."""
    float32_head: bool = True
    """Logits in float32 where all else is bfloat16, whose logits between 16 and 32 are 0.125 apart."""
    agreement: float = Field(default=0.05, gt=0)
    """Largest mean difference, in nats per token, between the generator's log-probabilities and the trainer's."""
    evaluate_prompts: int = Field(default=100, ge=1)
    """Held-out prompts per environment, the same before and after."""
    evaluate_samples: int = Field(default=4, ge=1)
    """Samples for each of them at temperature 1."""
    evaluate_every: int = Field(default=0, ge=0)
    """Iterations between evaluations of the curve (one sample a prompt); 0 leaves them out."""
    run: RlRunConfig = Field(default_factory=RlRunConfig)
    """How it runs."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if min(self.temperature) <= 0:
            raise ValueError(f"temperature = {self.temperature}: sampling needs temperatures above 0")
        if self.updates > self.prompts:
            raise ValueError(f"updates = {self.updates} of {self.prompts} prompts: give each update at least one")
        if any(share < 0 for share in self.environments.values()):
            raise ValueError(f"environments = {self.environments}: shares are not negative")
        return self
