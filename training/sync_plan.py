"""What a checkpoint engine takes to hand weights from training to inference on the same nodes, in closed form.

Kimi K2's way (K2 report 3.3; checkpoint-engine): every rank copies its own part of the weights to its host;
training sleeps; then all weights pass in buckets, one owner after another: from the owner's host to its accelerator,
by broadcast to all ranks, and into the engines, which keep what they hold of it. Two buckets are under way on every
accelerator, so that the copy from the host and the engines' own are hidden behind the broadcast, but for the first and
the last. Every accelerator receives every weight: it is simpler than to send each what it needs, and fast enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import Field

from model.config import Config, ModelConfig, parameter_count
from training.layout import Layout
from training.plan import BANDWIDTH

BYTES = {"bfloat16": 2.0, "fp8": 1.0 + 4 / 128**2, "int4": 0.5 + 2 / 32}
"""Of a weight: FP8 in blocks of 128 x 128 with a float32 scale each, INT4 in groups of 32 with a bfloat16 one."""
NEVER_ROUNDED = {"embedding", "lm_head", "router", "correction_bias", "norms"}
SECONDS = 30.0
"""In which K2's are updated (K2 report 3.3)."""


class Links(Config):
    """Bandwidths, in bytes a second and one direction."""

    network: float = Field(default=8 * 50e9, gt=0)
    """Of a node: 8 x 400 Gb/s (K2 report 2.4.1)."""
    nvlink: float = Field(default=200e9, gt=0)
    """Of an accelerator to the others of its node: an H800's."""
    host: float = Field(default=50e9, gt=0)
    """Between a host and one accelerator: what PCIe 5 x16 achieves of its 63."""
    achieved: float = Field(default=0.33, gt=0, le=1)
    """Share of the narrower of network and NVLink that a broadcast achieves: with it K2's FP8 weights take the 14 to 16
    s that checkpoint-engine measured on 16 to 256 accelerators."""

    @property
    def broadcast(self) -> float:
        """Bytes a second that every rank receives of a broadcast to all."""
        return min(self.network, self.nvlink) * self.achieved


@dataclass(frozen=True)
class SyncPlan:
    """The answer; bytes and seconds."""

    weights: float
    """All weights, once."""
    rank: float
    """What the rank of most copies to its host: a part of the layers, and of their experts."""
    buckets: int
    room: float
    """Of an accelerator, while the buckets pass."""
    to_host: float
    """Seconds of that copy."""
    first_bucket: float
    """From an owner's host to its accelerator."""
    broadcast: float
    """Of all buckets, to all ranks."""
    last_bucket: float
    """From the accelerator's memory to the engine's own."""

    @property
    def seconds(self) -> float:
        """From the end of an update to engines that may sample."""
        return self.to_host + self.first_bucket + self.broadcast + self.last_bucket


def weight_bytes(model: ModelConfig, form: str) -> dict[str, float]:
    """Bytes of a model's parts as they are sent, in one of the forms of `BYTES`."""
    parts = parameter_count(model).components
    rounded = {"routed_experts"} if form == "int4" else parts.keys() - NEVER_ROUNDED
    return {name: count * BYTES[form if name in rounded else "bfloat16"] for name, count in parts.items()}


def sync_plan(model: ModelConfig, layout: Layout, form: str, bucket: float, links: Links | None = None) -> SyncPlan:
    """How `model`, cut by `layout` in training, reaches inference in buckets of so many bytes."""
    links = links or Links()
    parts = weight_bytes(model, form)
    weights, experts = sum(parts.values()), parts["routed_experts"]
    rank = experts / (layout.pipeline * layout.expert) + (weights - experts) / layout.pipeline
    size = min(bucket, weights)
    return SyncPlan(
        weights=weights,
        rank=rank,
        buckets=math.ceil(weights / bucket),
        room=2 * size,
        to_host=rank / links.host,
        first_bucket=size / links.host,
        broadcast=weights / links.broadcast,
        last_bucket=2 * size / BANDWIDTH,
    )
