"""Typed, frozen configuration: the base of every configuration in the project, and the model's own.

The field names are those of the `config.json` that Kimi K2 (and DeepSeek-V3) ships on Hugging Face. Nothing here needs
torch: the planner prices a trillion parameters by closed formulas. `model.sizes` has the sizes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    SerializationInfo,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema

INT4_GROUP = 32
"""Weights that share a scale along an expert's input (K2-Thinking: groups of 1 x 32)."""
WIDEST, LONGEST = 2**20, 2**31
"""Bounds that no network comes near: what a strange `config.json` asks for is refused before a formula overflows, or
anything is built."""
IDENTITY = "identity"
"""Context in which `Config.literals` serialises."""


def _exact(schema: Any) -> None:
    """Make numbers and booleans strict: pydantic takes `true` for 1, `"nan"` for a number and 1 for `true`, each of
    which is a slip of whoever wrote it. Lists still do for tuples, and whole numbers for floats."""
    if isinstance(schema, list | tuple):
        for item in schema:
            _exact(item)
    elif isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        if schema.get("type") == "float":
            schema["allow_inf_nan"] = False
        for key, inner in schema.items():
            if key not in ("default", "metadata"):
                _exact(inner)


class Config(BaseModel):
    """A frozen record of literals that refuses unknown fields; the docstring under a field is its description."""

    # An input that was refused may hold a secret: an error's text does not repeat it.
    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, protected_namespaces=(), hide_input_in_errors=True
    )
    execution_fields: ClassVar[frozenset[str]] = frozenset()
    """Fields that say how something runs and not what it is: they enter no fingerprint."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        _exact(schema)
        return schema

    def literals(self) -> dict[str, Any]:
        """What bears identity, as JSON-able values: every field but `execution_fields`."""
        return self.model_dump(mode="json", exclude=set(self.execution_fields), context=IDENTITY)


def for_identity(info: SerializationInfo) -> bool:
    """Whether a field's serializer is asked for `literals`, where what does not bear identity is left out."""
    return bool(info.context == IDENTITY)


def contents(files: Iterable[Path]) -> str:
    """16 hex digits over files by their names and what is in them, wherever they lie; empty where there are none."""
    found = sorted(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files)
    return hashlib.sha256("".join(found).encode()).hexdigest()[:16] if found else ""


class YarnConfig(Config):
    """YaRN (arXiv 2309.00071) as K2 releases it: stretches RoPE from the original window to `factor` times that."""

    factor: float = Field(gt=1.0, le=LONGEST)
    """How many times longer the window becomes. K2: 32 over 4,096; K2-0905 and K2-Thinking: 64."""
    original_max_position_embeddings: int = Field(default=4096, ge=1, le=LONGEST)
    """The window, in tokens, that the model was trained with before stretching."""
    beta_fast: float = Field(default=1.0, gt=0)
    """Dimensions that turn more often than this within the original window keep their frequency (K2: 1)."""
    beta_slow: float = Field(default=1.0, gt=0)
    """Dimensions that turn less often than this are interpolated in full (K2: 1)."""
    mscale: float = Field(default=1.0, gt=0, le=100)
    """Weight of the logarithmic temperature on the rotated dimensions' cosines and sines (K2: 1)."""
    mscale_all_dim: float = Field(default=1.0, ge=0, le=100)
    """Weight of the logarithmic temperature on the whole logit: the softmax scale grows by its square (K2: 1)."""

    @model_validator(mode="after")
    def _ordered_betas(self) -> Self:
        if self.beta_fast < self.beta_slow:
            raise ValueError(
                f"beta_fast = {self.beta_fast} is below beta_slow = {self.beta_slow}: swap them, or set both to 1 as K2"
            )
        if self.mscale != 1 and not self.mscale_all_dim:
            raise ValueError(
                f"mscale = {self.mscale} without mscale_all_dim: transformers takes 1 for it then, and DeepSeek's code "
                "does not; set both, or mscale to 1"
            )
        turn = 2 * math.pi * self.beta_slow
        if self.original_max_position_embeddings < turn:
            raise ValueError(
                f"original_max_position_embeddings = {self.original_max_position_embeddings}: no dimension turns "
                f"beta_slow = {self.beta_slow:g} times within it; give the window of pretraining, {math.ceil(turn)} "
                "tokens at least"
            )
        return self


def refused(error: ValidationError) -> tuple[str, str]:
    """Which field pydantic refused first, '' for a configuration as a whole, and why."""
    first = error.errors()[0]
    return ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")


class ModelConfig(Config):
    """The shape of a K2 network; the defaults are Kimi K2's own (K2 report, table 2, and its released config.json)."""

    vocab_size: int = Field(default=163_840, ge=2, le=LONGEST)
    """Rows of the input embedding and of the LM head."""
    hidden_size: int = Field(default=7168, ge=1, le=WIDEST)
    """Width of the residual stream, D."""
    num_hidden_layers: int = Field(default=61, ge=1, le=1024)
    """Decoder layers, dense ones included."""
    first_k_dense_replace: int = Field(default=1, ge=0)
    """The first so many layers have a dense feed-forward network instead of experts."""
    intermediate_size: int = Field(default=18_432, ge=1, le=WIDEST)
    """Width of the dense SwiGLU feed-forward network."""
    n_routed_experts: int = Field(default=384, ge=1, le=WIDEST)
    """Routed experts per mixture layer, E."""
    num_experts_per_tok: int = Field(default=8, ge=1)
    """Routed experts that each token visits, K. n_routed_experts / num_experts_per_tok is the sparsity: 48 in K2."""
    n_shared_experts: int = Field(default=1, ge=1, le=WIDEST)
    """Experts that every token visits, fused into one SwiGLU of n_shared_experts x moe_intermediate_size."""
    moe_intermediate_size: int = Field(default=2048, ge=1, le=WIDEST)
    """Width of one expert, F."""
    routed_scaling_factor: float = Field(default=2.827, gt=0)
    """Factor on the renormalised weights of the chosen experts."""
    num_attention_heads: int = Field(default=64, ge=1, le=WIDEST)
    """Attention heads, H."""
    q_lora_rank: int | None = Field(default=1536, ge=1, le=WIDEST)
    """Rank of the query latent; None projects the hidden state to the queries at once, as Moonlight does."""
    kv_lora_rank: int = Field(default=512, ge=1, le=WIDEST)
    """Rank of the key/value latent, R: with the shared rotary key, all that the cache keeps of a token."""
    qk_nope_head_dim: int = Field(default=128, ge=1, le=WIDEST)
    """Query/key dimensions per head without position."""
    qk_rope_head_dim: int = Field(default=64, ge=2, le=WIDEST)
    """Rotated query/key dimensions per head; the key's are shared by all heads."""
    v_head_dim: int = Field(default=128, ge=1, le=WIDEST)
    """Value dimensions per head."""
    rope_theta: float = Field(default=50_000.0, gt=1)
    """Base of the rotary frequencies."""
    rope_scaling: YarnConfig | None = None
    """YaRN, or none while the model is pretrained at its original window."""
    max_position_embeddings: int = Field(default=4096, ge=1, le=LONGEST)
    """The longest sequence, in tokens, that the model takes."""
    rms_norm_eps: float = Field(default=1e-6, gt=0)
    """Epsilon of the residual stream's RMSNorms. The two latents' norms use 1e-6 always, as transformers does."""
    initializer_range: float = Field(default=0.02, gt=0)
    """Standard deviation of the initial weights."""
    aux_loss_alpha: float = Field(default=0.001, ge=0)
    """Weight of the sequence-wise balance loss (DeepSeek-V3 report, eq. 17)."""
    bias_update_rate: float = Field(default=0.001, ge=0)
    """Step of the router's correction bias per global batch (DeepSeek-V3 report 4.2). Training only; not exported."""
    bos_token_id: int = Field(default=163_584, ge=0)
    """Token that begins a sequence."""
    eos_token_id: int = Field(default=163_585, ge=0)
    """Token that ends a document."""
    pad_token_id: int = Field(default=163_839, ge=0)
    """Token that fills a row; its embedding trains like any other."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        def refuse(field: str, why: str) -> None:
            raise ValueError(f"{field} = {getattr(self, field)}: {why}")

        if self.first_k_dense_replace > self.num_hidden_layers:
            refuse("first_k_dense_replace", f"exceeds num_hidden_layers ({self.num_hidden_layers}); lower it")
        if self.num_experts_per_tok > self.n_routed_experts:
            refuse("num_experts_per_tok", f"exceeds n_routed_experts ({self.n_routed_experts}); lower it")
        if self.qk_rope_head_dim % 2:
            refuse("qk_rope_head_dim", "RoPE turns pairs of dimensions; make it even")
        for field in ("bos_token_id", "eos_token_id", "pad_token_id"):
            if getattr(self, field) >= self.vocab_size:
                refuse(field, f"is no id of a vocabulary of {self.vocab_size}; set it below vocab_size")
        if self.rope_scaling is not None:
            yarn = self.rope_scaling
            original = yarn.original_max_position_embeddings
            if self.max_position_embeddings < original:
                refuse(
                    "max_position_embeddings",
                    f"is below original_max_position_embeddings ({original}): YaRN only lengthens a window; raise it, "
                    "or leave rope_scaling out",
                )
            reach = yarn.factor * original
            if self.max_position_embeddings > reach:
                refuse(
                    "max_position_embeddings",
                    f"YaRN reaches factor x original_max_position_embeddings = {reach:g} tokens; raise the factor",
                )
        return self

    @property
    def qk_head_dim(self) -> int:
        """Dimensions of one head's query and key: those without position, then the rotated ones."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def num_moe_layers(self) -> int:
        """Layers that route to experts."""
        return self.num_hidden_layers - self.first_k_dense_replace

    def with_yarn(self, factor: float) -> ModelConfig:
        """A copy whose window is `factor` times the one before any YaRN."""
        present = self.rope_scaling
        original = present.original_max_position_embeddings if present else self.max_position_embeddings
        yarn = YarnConfig(factor=factor, original_max_position_embeddings=original)
        return self.replace(rope_scaling=yarn, max_position_embeddings=int(factor * original))

    def replace(self, /, **changes: Any) -> ModelConfig:
        """A validated copy with some fields changed."""
        return ModelConfig.model_validate(dict(self) | changes)

    def to_hf(self, *, dtype: str = "bfloat16") -> dict[str, Any]:
        """The `config.json` of a Kimi K2 checkpoint whose weights are stored in `dtype`, by torch's name: every field
        of the released one but for the code that its repository carries."""
        config: dict[str, Any] = {field: getattr(self, field) for field in _HF_FIELDS} | _HF_CONSTANTS
        config["num_key_value_heads"] = self.num_attention_heads  # MLA materialises one key per head
        config["torch_dtype"] = dtype
        yarn = self.rope_scaling
        config["rope_scaling"] = yarn and yarn.model_dump() | {"type": "yarn"}
        return dict(sorted(config.items()))

    @classmethod
    def from_hf(cls, config: Mapping[str, Any]) -> ModelConfig:
        """Reads a `config.json` of `kimi_k2` or `deepseek_v3`.

        Fields that change nothing in the network (dtype, caching, quantisation) are passed over.

        Raises:
            ValueError: the file asks for something this network is not (expert groups, tied embeddings, biases
                ...), contradicts itself, or lacks a field.
        """
        kind = config.get("model_type")
        if kind not in ("kimi_k2", "deepseek_v3"):
            raise ValueError(f"model_type = {kind!r}: only kimi_k2 and deepseek_v3 networks can be read")
        for field, ours in _HF_BINDING.items():
            if (theirs := config.get(field, ours)) != ours:
                raise ValueError(f"{field} = {theirs!r}: this network has {ours!r} only")
        heads, kv_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
        if kv_heads not in (None, heads):
            raise ValueError(f"num_key_value_heads = {kv_heads}: MLA has one key per head ({heads})")
        known = {field: config[field] for field in _HF_FIELDS if config.get(field) is not None}
        if "q_lora_rank" in config:  # null is a value of this one
            known["q_lora_rank"] = config["q_lora_rank"]
        rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
        if not isinstance(rope, Mapping):
            raise ValueError(f"rope_scaling = {rope!r}: it is an object with the fields of YaRN, or null")
        for field, theirs in rope.items():
            if field not in _HF_ROPE and theirs is not None and theirs != _HF_ROPE_NEUTRAL.get(field):
                raise ValueError(f"rope_scaling has {field} = {theirs!r}, which this network does not know")
        theta = rope.get("rope_theta")  # transformers 5 keeps it there
        if theta is not None and known.setdefault("rope_theta", theta) != theta:
            raise ValueError(f"rope_theta = {known['rope_theta']!r} and {theta!r} in rope_parameters: one is wrong")
        ends = known.get("eos_token_id")
        if isinstance(ends, list) and ends:
            known["eos_token_id"] = ends[0]  # generation may end at any of them, a document ends with the first
        if missing := [field for field in _HF_FIELDS if field not in known and field not in _HF_OPTIONAL]:
            raise ValueError(
                f"config lacks {', '.join(missing)}: add them as the released kimi_k2 config.json has them"
            )
        known.setdefault("pad_token_id", known["eos_token_id"])
        kind = rope.get("type", rope.get("rope_type", "default"))
        if kind == "yarn":
            if "original_max_position_embeddings" not in rope:
                raise ValueError("rope_scaling lacks original_max_position_embeddings: give the window before YaRN")
            if rope.get("mscale_all_dim") and not rope.get("mscale"):
                raise ValueError(
                    "rope_scaling lacks mscale beside mscale_all_dim: DeepSeek's code takes 1 for it then, and "
                    "transformers does not; give both"
                )
            known["rope_scaling"] = {name: rope[name] for name in YarnConfig.model_fields if rope.get(name) is not None}
            # what DeepSeek's code assumes where a file is silent
            known["rope_scaling"] = {"beta_fast": 32, "mscale_all_dim": 0} | known["rope_scaling"]
        elif kind != "default":
            raise ValueError(f"rope_scaling type = {kind!r}: only yarn is known")
        try:
            read = cls.model_validate(known)
        except ValidationError as error:
            where, said = refused(error)
            raise ValueError(f"{where}: {said}; it has {error.errors()[0]['input']!r:.80}" if where else said) from None
        told = config.get("qk_head_dim")
        if told not in (None, read.qk_head_dim):
            raise ValueError(f"qk_head_dim = {told}: qk_nope_head_dim and qk_rope_head_dim make {read.qk_head_dim}")
        return read


_HF_FIELDS = tuple(name for name in ModelConfig.model_fields if name not in ("rope_scaling", "bias_update_rate"))
_HF_OPTIONAL = frozenset({"initializer_range", "aux_loss_alpha", "pad_token_id"})
_HF_CONSTANTS: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "ep_size": 1,
    "hidden_act": "silu",
    # K2's own config.json says kimi_k2 and brings code for it; under the name of its architecture transformers, vLLM
    # and SGLang load the folder by themselves, and no remote code is run
    "model_type": "deepseek_v3",
    "moe_layer_freq": 1,
    "n_group": 1,
    "norm_topk_prob": True,
    "num_nextn_predict_layers": 0,  # K2 has no multi-token prediction layer
    "pretraining_tp": 1,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "transformers_version": "4.48.3",
    "use_cache": True,
}
_HF_BINDING: dict[str, Any] = {"rope_interleave": True} | {
    field: _HF_CONSTANTS[field]
    for field in (
        *("attention_bias", "hidden_act", "moe_layer_freq", "n_group", "norm_topk_prob", "num_nextn_predict_layers"),
        *("scoring_func", "tie_word_embeddings", "topk_group", "topk_method"),
    )
}
"""What a file must say where it says it: this network does nothing else."""
_HF_ROPE = frozenset({*YarnConfig.model_fields, "type", "rope_type", "rope_theta"})
_HF_ROPE_NEUTRAL: dict[str, Any] = {"truncate": True, "partial_rotary_factor": 1.0}
"""Fields of transformers' RoPE that would change the network with any other value."""


@dataclass(frozen=True)
class ParameterCount:
    """How many numbers a model holds, by closed formula.

    Attributes:
        total: every stored number, the routers' correction biases included.
        trainable: `total` without those biases, which are buffers.
        active: what one token passes through: both embeddings, K of the E routed experts, everything else.
        components: `total` by component.
    """

    total: int
    trainable: int
    active: int
    components: dict[str, int]


def parameter_count(config: ModelConfig) -> ParameterCount:
    """Counts a model's numbers without building it; equal to the sum over the tensors of `Transformer(config)`."""
    c = config
    width, heads, layers, moe = c.hidden_size, c.num_attention_heads, c.num_hidden_layers, c.num_moe_layers
    queries = heads * c.qk_head_dim
    attention = (
        (width * queries if c.q_lora_rank is None else (width + queries) * c.q_lora_rank)
        + width * (c.kv_lora_rank + c.qk_rope_head_dim)
        + c.kv_lora_rank * heads * (c.qk_nope_head_dim + c.v_head_dim)
        + heads * c.v_head_dim * width
    )
    expert = 3 * width * c.moe_intermediate_size
    components = {
        "embedding": c.vocab_size * width,
        "lm_head": c.vocab_size * width,
        "attention": layers * attention,
        "dense_ffn": c.first_k_dense_replace * 3 * width * c.intermediate_size,
        "router": moe * c.n_routed_experts * width,
        "correction_bias": moe * c.n_routed_experts,
        "routed_experts": moe * c.n_routed_experts * expert,
        "shared_experts": moe * c.n_shared_experts * expert,
        "norms": layers * (2 * width + (c.q_lora_rank or 0) + c.kv_lora_rank) + width,
    }
    total = sum(components.values())
    idle = moe * (c.n_routed_experts - c.num_experts_per_tok) * expert
    bias = components["correction_bias"]
    return ParameterCount(total=total, trainable=total - bias, active=total - bias - idle, components=components)


def flops_per_token(config: ModelConfig, seq_len: int, *, training: bool = True) -> int:
    """Floating point operations per token of a sequence of `seq_len` tokens, matrix products only.

    A weight costs 2 per token forward and 4 backward; causal attention sees (seq_len + 1) / 2 keys on average. The
    embedding look-up costs nothing; recomputation is not counted.
    """
    count = parameter_count(config)
    weights = count.active - count.components["embedding"] - count.components["norms"]
    return (3 if training else 1) * (2 * weights + score_flops_per_token(config, seq_len))


def score_flops_per_token(config: ModelConfig, seq_len: int) -> int:
    """The part of a forward's `flops_per_token` that grows with the sequence: attention's scores and weighted sums."""
    per_key = 2 * config.num_hidden_layers * config.num_attention_heads * (config.qk_head_dim + config.v_head_dim)
    return per_key * (seq_len + 1) // 2


def cache_values_per_token(config: ModelConfig) -> int:
    """Numbers that generation keeps of one token: each layer's latent and the rotated key that all heads share."""
    return config.num_hidden_layers * (config.kv_lora_rank + config.qk_rope_head_dim)


def plain_cache_values_per_token(config: ModelConfig) -> int:
    """What plain multi-head attention of the same heads would keep of one token: every head's key and value."""
    return config.num_hidden_layers * config.num_attention_heads * (config.qk_head_dim + config.v_head_dim)
