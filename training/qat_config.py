"""Configuration of quantisation-aware training."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from model.config import Config
from training.config import PosttrainMuonClipConfig, TuningRunConfig
from training.precision import Precision


class QatConfig(Config):
    """INT4 in the forward of the routed experts, after RL (K2-Thinking: during post-training)."""

    execution_fields: ClassVar[frozenset[str]] = frozenset({"run"})

    seed: int = Field(default=0, ge=0)
    """Decides the order of the dialogues and the samples of the evaluations."""
    updates: int = Field(default=30, ge=0)
    """Optimizer updates; 0 measures rounding without training."""
    distillation: float = Field(default=1.0, ge=0, le=1)
    """Weight of the divergence from the unquantised RL model; the rest is the next-token loss on the dialogues. At 1
    the rounded model only learns to do what RL taught; at 0 it is fine-tuned on the dialogues once more."""
    learning_rate: float = Field(default=1e-5, gt=0)
    """After the warm-up; it falls along a cosine to a tenth of this. Small: rounding costs a trained model little, and
    Muon's steps have their size however little is left to learn. It is right where the summary's divergence of `qat`
    is below that of `rounded`."""
    warmup: int = Field(default=3, ge=0)
    """Updates over which the learning rate rises from 0."""
    optimizer: PosttrainMuonClipConfig = Field(default_factory=PosttrainMuonClipConfig)
    """MuonClip's constants."""
    sequence_length: int = Field(default=256, ge=16)
    """Tokens of a row into which dialogues are packed, attention kept apart."""
    rows: int = Field(default=8, ge=1)
    """Rows of an update."""
    gradient_clip: float = Field(default=1.0, gt=0)
    """Largest norm of the whole gradient."""
    dtype: Precision = "auto"
    """Precision of the forward and backward products, evaluations included; `auto`: what the device multiplies fast."""
    evaluate_prompts: int = Field(default=64, ge=1)
    """Held-out prompts per environment, the same for the unquantised, the rounded and the trained model."""
    evaluate_samples: int = Field(default=2, ge=1)
    """Samples for each of them at temperature 1."""
    budget: int = Field(default=48, ge=1)
    """Tokens of a reply in evaluations; what runs over counts as wrong."""
    run: TuningRunConfig = Field(default_factory=TuningRunConfig)
    """How it runs; its micro-batches are rows."""
