"""What pretraining takes before it starts: weights and optimizer per rank, operations, days and money, in closed form.

Nothing is built and no GPU is needed; the model is only its configuration. Assumed of the engine: weights and fp32
gradients on every rank that works with them; the optimizer's float32 state (masters, momentum, AdamW's moments) cut
over all ranks (ZeRO-1); routed experts cut over the expert-parallel ranks, all else repeated on them.
`training.dry_run` asks the network itself, rank by rank, and knows the activations.
"""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import Field

from model.config import Config, ModelConfig, flops_per_token, parameter_count
from training.config import MuonClipConfig
from training.layout import Layout
from training.newton_schulz import COEFFICIENTS, newton_schulz_cost
from training.schedule import Stage, StagePlan
from training.traffic import GRADIENT_BYTES

PEAK = 989e12
"""FLOP/s of an H100 or H800, dense bf16."""
BANDWIDTH = 3.35e12
"""Bytes that an H100 or H800 reads of its memory in a second."""


class Hardware(Config):
    """One accelerator, and what it achieves and costs."""

    name: str
    """What people call it."""
    peak_flops: float = Field(gt=0)
    """Dense bf16 floating point operations per second."""
    memory_bytes: float = Field(gt=0)
    """Its memory."""
    memory_bandwidth: float = Field(default=BANDWIDTH, gt=0)
    """Bytes that it reads of it in a second."""
    mfu: float = Field(gt=0, le=1)
    """Share of the peak that training achieves; ANCHORS.md: 0.2 to 0.35 for mixtures of experts."""
    price_per_hour: float = Field(default=0.0, ge=0)
    """Price of one for an hour, in your currency."""

    @property
    def achieved_flops(self) -> float:
        """Floating point operations per second of one accelerator in training."""
        return self.peak_flops * self.mfu


@dataclass(frozen=True)
class Plan:
    """The answer; bytes, floating point operations, days, and the currency of the price."""

    muon_matrices: int
    """Matrices that every update orthogonalises."""
    copy_bytes: int
    """Weights and fp32 gradients of one copy of the model."""
    rank_bytes: float
    """Weights, gradients and optimizer state of one rank, layers spread evenly over the pipeline."""
    flops: float
    """Matrix products of forward and backward, without recomputation."""
    newton_schulz_share: float
    """Newton-Schulz's operations beside those, at the first stage's batch."""
    days: float
    accelerator_hours: float
    money: float


def muon_shapes(config: ModelConfig, router: bool = True, per_head: bool = False) -> list[tuple[int, int, int]]:
    """(how many, rows, columns) of the matrices that Muon updates in a model of that shape: with the routers', and each
    head's part of the up-projections apart, if so asked (`MuonClipConfig`)."""
    c, layers, moe = config, config.num_hidden_layers, config.num_moe_layers
    width, heads = c.hidden_size, c.num_attention_heads

    def swiglu(inner: int, count: int) -> list[tuple[int, int, int]]:
        return [(2 * count, inner, width), (count, width, inner)]

    def by_head(columns: int, *rows: int) -> list[tuple[int, int, int]]:
        """An up-projection whose block of a head has so many rows of each kind."""
        return (
            [(layers * heads, each, columns) for each in rows] if per_head else [(layers, heads * sum(rows), columns)]
        )

    return [
        *([(layers, c.q_lora_rank, width)] if c.q_lora_rank is not None else []),
        *by_head(c.q_lora_rank or width, c.qk_head_dim),
        (layers, c.kv_lora_rank + c.qk_rope_head_dim, width),
        *by_head(c.kv_lora_rank, c.qk_nope_head_dim, c.v_head_dim),
        (layers, width, heads * c.v_head_dim),
        *swiglu(c.intermediate_size, c.first_k_dense_replace),
        *swiglu(c.n_shared_experts * c.moe_intermediate_size, moe),
        *swiglu(c.moe_intermediate_size, moe * c.n_routed_experts),
        *([(moe, c.n_routed_experts, width)] if router else []),
    ]


def update_flops(model: ModelConfig, stage: Stage) -> float:
    """Floating point operations of one update: matrix products of forward and backward."""
    return float(stage.tokens_per_update * flops_per_token(model, stage.sequence_length))


def update_seconds(model: ModelConfig, stage: Stage, ranks: int, hardware: Hardware) -> float:
    """Seconds of one update on so many accelerators."""
    return update_flops(model, stage) / hardware.achieved_flops / ranks


def plan(
    model: ModelConfig,
    stages: StagePlan,
    layout: Layout,
    ranks: int,
    hardware: Hardware,
    optimizer: MuonClipConfig | None = None,
    weight_bytes: int = 2,
) -> Plan:
    """Price a run of `stages` on `ranks` of `hardware`, with weights in bfloat16 beside float32 masters or, of four
    bytes, float32 weights that are their own masters.

    Raises `LayoutError` where the ranks hold no whole copies of the model.
    """
    layout.data(ranks)
    optimizer = optimizer or MuonClipConfig()
    count = parameter_count(model)
    routed = count.components["routed_experts"]
    asked = optimizer.router == "muon", optimizer.per_head
    shapes = muon_shapes(model, *asked) if optimizer.matrices == "muon" else []
    muon = sum(number * rows * columns for number, rows, columns in shapes)
    held = routed / (layout.pipeline * layout.expert) + (count.total - routed) / layout.pipeline
    master = 4 if weight_bytes < 4 else 0
    state = (master + 4) * muon + (master + 8) * (count.trainable - muon)  # beside it momentum; two moments
    rank_bytes = (weight_bytes + GRADIENT_BYTES) * held + state / ranks
    flops = sum(span.updates * update_flops(model, span.stage) for span in stages.spans)
    form = COEFFICIENTS[optimizer.coefficients], optimizer.gram_ratio
    newton_schulz = sum(number * newton_schulz_cost(rows, columns, *form) for number, rows, columns in shapes)
    hours = flops / hardware.achieved_flops / 3600
    return Plan(
        muon_matrices=sum(number for number, _, _ in shapes),
        copy_bytes=(weight_bytes + GRADIENT_BYTES) * count.total,
        rank_bytes=rank_bytes,
        flops=flops,
        newton_schulz_share=newton_schulz / update_flops(model, stages.stages[0]),
        days=hours / 24 / ranks,
        accelerator_hours=hours,
        money=hours * hardware.price_per_hour,
    )
