"""What a training step keeps for its backward: the switches that make it less, and its size by closed formulas.

Nothing here needs torch: the planner prices a trillion parameters with it. `model/memory.py` does what is asked here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self, get_args

from pydantic import model_validator

from model.config import Config, ModelConfig, parameter_count

Recomputed = Literal["layers", "norms", "swiglu", "mla_up", "moe_down", "dispatch"]
StoredInFp8 = Literal["expert_inputs", "swiglu_inputs"]
Precision = Literal["autocast", "bfloat16", "float32"]

TILE = 128  # K2 report 2.4.3: FP8-E4M3 in tiles of 1 x 128, each with a float32 scale
OFFLOAD_BYTES = 1 << 16  # smaller tensors stay on the device: a copy of its own costs more than they take


class MemoryConfig(Config):
    """How activations are kept between forward and backward (K2 report 2.4.3); the forward's numbers never change."""

    recompute: tuple[Recomputed, ...] = ()
    """What is dropped and computed again in backward. norms: RMSNorms' outputs. swiglu: its output, of dense, shared
    and routed experts. mla_up: queries, keys and values of the latents. moe_down: the weighted inputs of the routed
    experts' down-projections (their outputs, which the report recomputes, nobody needs here: the weight multiplies
    before the projection). dispatch: the copies of tokens that go to the experts (one device only: across devices it is
    communication). layers: all but each layer's input, and so alone."""
    fp8: tuple[StoredInFp8, ...] = ()
    """What is kept in FP8-E4M3, tiles of 1 x 128 with float32 scales; products still run in full precision.
    expert_inputs: of the routed experts' gate and up projections. swiglu_inputs: of every SwiGLU."""
    offload: bool = False
    """Whatever else is kept goes to the host's memory, copied while the device computes; on a CPU it just stays."""

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        for field, names, known in (
            ("recompute", self.recompute, get_args(Recomputed)),
            ("fp8", self.fp8, get_args(StoredInFp8)),
        ):
            twice = [name for name in known if names.count(name) > 1]
            if twice:
                raise ValueError(f"{field} names {', '.join(twice)} twice: name each once")
        if "layers" in self.recompute and (len(self.recompute) > 1 or self.fp8):
            raise ValueError(
                "recompute: layers drops everything within a layer; leave the other switches and fp8 out, or leave "
                "layers out"
            )
        if "dispatch" in self.recompute and "expert_inputs" in self.fp8:
            raise ValueError(
                "recompute: dispatch drops what fp8: expert_inputs would store; choose dispatch on one device, "
                "expert_inputs across several"
            )
        return self

    @property
    def acts(self) -> bool:
        """Whether anything is kept otherwise than autograd would."""
        return bool(self.recompute or self.fp8 or self.offload)


K2_MEMORY = MemoryConfig(
    recompute=("norms", "swiglu", "mla_up", "moe_down"), fp8=("expert_inputs", "swiglu_inputs"), offload=True
)
"""What the K2 report lists."""


@dataclass(frozen=True)
class Footprint:
    """Bytes that a forward leaves for its backward.

    Attributes:
        device: on the device.
        host: in the host's memory, where `offload` is on.
        components: both together, by what they are: "weights" are the copies that autocast makes of the matrices.
    """

    device: int
    host: int
    components: dict[str, int]


def activation_bytes(
    config: ModelConfig,
    memory: MemoryConfig,
    sequence: int,
    rows: int = 1,
    precision: Precision = "autocast",
    layers: Sequence[int] | None = None,
    experts: int | None = None,
) -> Footprint:
    """What `rows` sequences leave between forward and backward, loss and balance loss included, no document mask.

    Exact for the CPU's forms (tests/model/test_footprint.py counts every storage); plain forms keep more.

    Args:
        config: the network.
        memory: the switches.
        sequence: tokens of a row.
        rows: rows of the micro-batch.
        precision: autocast (bfloat16 over float32 weights and residual stream), or the dtype of everything.
        layers: the layers that are passed, of which the last has the head; all by default.
        experts: the routed experts of a layer whose weights are held here; all by default. Where others are held
            elsewhere, as many tokens are taken to come from there as go there.
    """
    kept = _Tally(memory)
    c = config
    held = range(c.num_hidden_layers) if layers is None else layers
    tokens, pairs = rows * sequence, rows * sequence * c.num_experts_per_tok
    size = 4 if precision == "float32" else 2
    stream = 2 if precision == "bfloat16" else 4
    width, heads = c.hidden_size, c.num_attention_heads

    def norm(inputs: int, outputs: int) -> None:
        kept.add("norms", inputs)
        kept.add("norms", 4 * tokens)  # 1 / rms
        if "norms" not in memory.recompute:
            kept.add("norms", outputs)

    def swiglu(name: str, inner: int, count: int) -> None:
        for _ in range(2):
            kept.add(name, *_stored(memory, "swiglu_inputs", inner, count, size))
        if "swiglu" not in memory.recompute:
            kept.add(name, size * inner * count)

    def attention() -> None:
        norm(stream * width * tokens, size * width * tokens)
        if c.q_lora_rank is not None:
            norm(size * c.q_lora_rank * tokens, size * c.q_lora_rank * tokens)
        norm(size * (c.kv_lora_rank + c.qk_rope_head_dim) * tokens, size * c.kv_lora_rank * tokens)
        if "mla_up" in memory.recompute:
            kept.add("attention", size * c.qk_rope_head_dim * tokens)
        else:
            for dims in (c.qk_head_dim, c.qk_head_dim, c.qk_nope_head_dim + c.v_head_dim):
                kept.add("attention", size * heads * dims * tokens)
        kept.add("attention", size * heads * c.v_head_dim * tokens)
        if size == 2:
            kept.add("attention", 4 * heads * tokens)  # log sum exp

    def mixture() -> None:
        for numbers in (c.n_routed_experts, 1, 1, 1):  # scores; sums of scores, twice; the mask of padding
            kept.add("router", 4 * numbers * tokens)
        for number in (8, 8, 8, 4, size):  # choice, order, rank; weights, and those sorted by expert
            kept.add("router", number * pairs)
        # loads and lengths of the balance loss; loads of the experts, by which their layers are grouped
        for fixed in (4 * c.n_routed_experts * rows, 4 * rows, 8 * c.n_routed_experts * (size == 2)):
            kept.add("router", fixed)
        if "dispatch" not in memory.recompute:
            kept.add("experts", *_stored(memory, "expert_inputs", width, pairs, size))
        swiglu("experts", c.moe_intermediate_size, pairs)
        if "moe_down" not in memory.recompute:
            kept.add("experts", size * c.moe_intermediate_size * pairs)
        swiglu("shared_experts", c.n_shared_experts * c.moe_intermediate_size, tokens)

    for layer in held:
        if "layers" in memory.recompute:
            kept.add("norms", stream * width * tokens)
            continue
        attention()
        norm(stream * width * tokens, size * width * tokens)
        if layer < c.first_k_dense_replace:
            swiglu("dense_ffn", c.intermediate_size, tokens)
        else:
            mixture()
    for _ in range(2):
        kept.add("rope", 4 * sequence * c.qk_rope_head_dim // 2)
    if c.num_hidden_layers - 1 in held:
        kept.add("norms", stream * width * tokens, stays=True)
        kept.add("norms", 4 * tokens, stays=True)
        kept.add("head", size * width * tokens + 4 * c.vocab_size * width, stays=True)  # its two gradients
    if precision == "autocast" and "layers" not in memory.recompute:
        here = c.n_routed_experts if experts is None else experts
        kept.add("weights", size * _matrix_elements(c, held, here), stays=True)
    return Footprint(kept.device, kept.host, kept.components)


def _matrix_elements(config: ModelConfig, layers: Sequence[int], experts: int) -> int:
    """Numbers in the matrices of some layers, routers apart, with so many routed experts each."""
    count = parameter_count(config).components
    dense = sum(layer < config.first_k_dense_replace for layer in layers)
    moe = len(layers) - dense
    attention = count["attention"] // config.num_hidden_layers
    ffn = 3 * config.hidden_size * config.intermediate_size
    expert = 3 * config.hidden_size * config.moe_intermediate_size
    return len(layers) * attention + dense * ffn + moe * (experts + config.n_shared_experts) * expert


def _stored(memory: MemoryConfig, switch: StoredInFp8, width: int, count: int, size: int) -> tuple[int, bool]:
    """Bytes of `count` rows of `width` numbers, and whether they stay on the device (as FP8 does)."""
    if switch in memory.fp8:
        return (width + 4 * -(-width // TILE)) * count, True
    return size * width * count, False


class _Tally:
    def __init__(self, memory: MemoryConfig) -> None:
        self.offload, self.device, self.host = memory.offload, 0, 0
        self.components: dict[str, int] = {}

    def add(self, component: str, size: int, stays: bool = False) -> None:
        """Counts one tensor of `size` bytes."""
        self.components[component] = self.components.get(component, 0) + size
        if self.offload and not stays and size >= OFFLOAD_BYTES:
            self.host += size
        else:
            self.device += size
