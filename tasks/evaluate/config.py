"""What is released and what is measured on it: literals that bear identity, importable without torch."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from model.config import Config
from tasks.evaluate.suites.config import SuitesConfig

VARIANTS = ("bf16", "int4")
"""What a release holds."""
MODELS = ("base", "sft", "rl", *VARIANTS)
"""The chain, in its order; the first three are measured rounded to bf16, as they would be released."""


class ReleaseConfig(Config):
    """The released checkpoints: Hugging Face folders `bf16` and `int4`."""

    name: str = Field(default="openk2", pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The model's name, as the card's title and the served model are called."""
    licence: str = "other"
    """Licence of the weights by its SPDX or Hugging Face identifier. `other` until somebody has read the licences of
    the sources in the card and decided."""
    max_shard_bytes: int = Field(default=5_000_000_000, ge=1_000_000)
    """Largest size of one safetensors file; larger checkpoints are split and get an index."""
    temperature: float = Field(default=0.6, ge=0, le=2)
    """Default sampling temperature in generation_config.json (0.6 is what K2's model card recommends)."""
    verify: bool = True
    """Load what was written through transformers and compare logits before publishing. It holds the model in float32
    twice: switch it off only where it does not fit, and verify on a larger machine."""
    verify_tokens: int = Field(default=48, ge=2)
    """Tokens of each of the two rows that are compared."""


class EvaluateConfig(Config):
    """What is measured on the base, SFT and RL checkpoints and on both released ones, on the same prompts."""

    execution_fields: ClassVar[frozenset[str]] = frozenset({"suites"})  # stages of their own, which bear it

    seed: int = 0
    """Decides the problems drawn and the samples."""
    heldout_tokens: int = Field(default=16_384, ge=64)
    """Held-out tokens per domain for the loss (fewer where the split has fewer)."""
    sequence_length: int = Field(default=256, ge=8)
    """Tokens of a window of the held-out loss; at most the model's own window."""
    problems: int = Field(default=96, ge=2)
    """Held-out problems for the pass rates, drawn evenly from all environments."""
    samples: int = Field(default=4, ge=1)
    """Sampled replies per problem, beside the greedy one."""
    temperature: float = Field(default=1.0, gt=0, le=2)
    """Temperature of the sampled replies; 1 is the policy itself."""
    max_new_tokens: int = Field(default=64, ge=1)
    """Tokens a reply may take; one that is cut there has not passed."""
    tool_dialogues: int = Field(default=32, ge=1)
    """Test dialogues of each environment with tools for tool-call fidelity: every assistant turn is tried, those where
    a call is due and those where the answer is."""
    continuation_prompts: tuple[str, ...] = (
        "The derivative of a function",
        "def read_file(path):",
        "软件的许可证",
    )
    """Beginnings that the model continues, shown in the report as they come out."""
    chat_prompts: tuple[str, ...] = ("What is 17 + 25?", "What is a file system?")
    """User turns that the model answers, shown in the report as they come out."""
    suites: SuitesConfig = SuitesConfig()
    """Benchmarks that every checkpoint and release is measured by."""
