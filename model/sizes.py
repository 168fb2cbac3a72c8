"""Sizes of the network, from a million parameters to Kimi K2's 1.04T, each as a few numbers.

Kimi K2 in units of u = 1,024: it is 7 u wide, its heads are 8 u wide together, its dense feed-forward network 18 u, and
an expert 2 u, that is 18 u shared among the 8 + 1 experts a token visits. The sizes of attention that belong to one
head go with the head and not with the model (DeepSeek-V2 report 2.1.4: d_c = 4 d_h, d_h^R = d_h / 2): for heads of d
dimensions the key/value latent has 4 d, the query latent 12 d, the rotated part d / 2. So a size is a unit, a head and
a few counts, and the rest follows; at u = 1,024 and d = 128 it is K2 to the last field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from model.config import INT4_GROUP, Config, ModelConfig
from model.vocabulary import BOS, EOS, PADDING, special_ids


class Size(Config):
    """What is chosen of a size; `config` derives the rest."""

    unit: int = Field(ge=16)
    """u: the residual stream is 7 u wide. K2: 1,024."""
    head_dim: int = Field(ge=4, multiple_of=4)
    """d: dimensions of one head's value, and of its query and key without position. K2: 128."""
    layers: int = Field(ge=2)
    """Layers, the first of them dense. K2: 61."""
    experts: int = Field(ge=2)
    """Routed experts of each layer after the first. K2: 384."""
    top_k: int = Field(default=8, ge=1)
    """Routed experts that a token visits."""
    vocabulary: int = Field(default=163_840)
    """Tokens, special ones included."""
    window: int = Field(default=4096, ge=1)
    """Tokens of the longest sequence, before YaRN."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if 8 * self.unit % self.head_dim:
            raise ValueError(
                f"head_dim = {self.head_dim}: heads are 8 x unit = {8 * self.unit} wide together, which it does not "
                "divide; take a power of two"
            )
        if 18 * self.unit // (self.top_k + 1) < INT4_GROUP:
            raise ValueError(
                f"top_k = {self.top_k}: 18 x unit = {18 * self.unit} leaves each of {self.top_k + 1} experts less than "
                f"{INT4_GROUP}; lower it"
            )
        return self

    def config(self) -> ModelConfig:
        """The network of this size. Expert widths are rounded down to whole INT4 groups."""
        width = 7 * self.unit
        expert = 18 * self.unit // (self.top_k + 1)
        ids = special_ids(self.vocabulary)
        return ModelConfig(
            vocab_size=self.vocabulary,
            hidden_size=width,
            num_hidden_layers=self.layers,
            intermediate_size=18 * self.unit,
            n_routed_experts=self.experts,
            num_experts_per_tok=self.top_k,
            moe_intermediate_size=expert // INT4_GROUP * INT4_GROUP,
            num_attention_heads=8 * self.unit // self.head_dim,
            q_lora_rank=min(12 * self.head_dim, width // 2),  # a narrow model has nothing to gain from more
            kv_lora_rank=4 * self.head_dim,
            qk_nope_head_dim=self.head_dim,
            qk_rope_head_dim=self.head_dim // 2,
            v_head_dim=self.head_dim,
            max_position_embeddings=self.window,
            bos_token_id=ids[BOS],
            eos_token_id=ids[EOS],
            pad_token_id=ids[PADDING],
        )


LADDER: Mapping[str, Size] = {
    "1m": Size(unit=16, head_dim=16, layers=3, experts=8, top_k=2, vocabulary=1024, window=256),
    "10m": Size(unit=32, head_dim=32, layers=4, experts=28, top_k=4, vocabulary=8192, window=1024),
    "40m": Size(unit=48, head_dim=32, layers=5, experts=48, top_k=4, vocabulary=8192, window=1024),
    "100m": Size(unit=64, head_dim=64, layers=8, experts=64, vocabulary=16_384, window=2048),
    "300m": Size(unit=64, head_dim=64, layers=14, experts=128, vocabulary=16_384, window=2048),
    "1b": Size(unit=96, head_dim=128, layers=14, experts=192, vocabulary=32_768),
    "3b": Size(unit=128, head_dim=128, layers=24, experts=192, vocabulary=32_768),
    "10b": Size(unit=192, head_dim=128, layers=20, experts=320, vocabulary=65_536),
    "30b": Size(unit=256, head_dim=128, layers=28, experts=384),
    "100b": Size(unit=448, head_dim=128, layers=32, experts=384),
    "300b": Size(unit=640, head_dim=128, layers=46, experts=384),
    "k2": Size(unit=1024, head_dim=128, layers=61, experts=384),
}
"""Named by all parameters, half a decade a step. What a choice costs is told by `openk2 model sizes`."""

MODEL_PRESETS: Mapping[str, ModelConfig] = {
    # for tests: every mechanism, nothing large
    "tiny": ModelConfig(
        vocab_size=512,
        hidden_size=64,
        num_hidden_layers=3,
        intermediate_size=160,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        num_attention_heads=4,
        q_lora_rank=32,
        kv_lora_rank=16,
        qk_nope_head_dim=16,
        qk_rope_head_dim=8,
        v_head_dim=16,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    ),
    # two CPU cores, minutes: a narrow latent and few heads, for speed
    "laptop": ModelConfig(
        vocab_size=8192,
        hidden_size=192,
        num_hidden_layers=4,
        intermediate_size=512,
        n_routed_experts=32,
        num_experts_per_tok=2,
        moe_intermediate_size=96,
        num_attention_heads=4,
        q_lora_rank=96,
        kv_lora_rank=64,
        qk_nope_head_dim=32,
        qk_rope_head_dim=16,
        v_head_dim=32,
        max_position_embeddings=256,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    ),
    # one 80 to 140 GB GPU
    "gpu": ModelConfig(
        vocab_size=32_768,
        hidden_size=1024,
        num_hidden_layers=16,
        intermediate_size=4096,
        n_routed_experts=128,
        num_experts_per_tok=8,
        moe_intermediate_size=384,
        num_attention_heads=8,
        q_lora_rank=512,
        kv_lora_rank=256,
        max_position_embeddings=4096,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    ),
    **{name: size.config() for name, size in LADDER.items()},
}
"""Every size by name: three cut for their machines, then the ladder. `.with_yarn(32)` of `k2` is the 128K release."""


def model_preset(name: str, /, **changes: Any) -> ModelConfig:
    """A size of `MODEL_PRESETS` with some fields changed, such as the vocabulary of the tokenizer at hand.

    Raises:
        KeyError: no preset of that name.
    """
    if not isinstance(name, str) or name not in MODEL_PRESETS:
        raise KeyError(f"no model preset {name!r}: choose one of {', '.join(MODEL_PRESETS)}")
    return MODEL_PRESETS[name].replace(**changes)
