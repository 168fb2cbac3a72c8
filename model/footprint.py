"""What a training step keeps for its backward: the switches that make it less, and its size by closed formulas.

Nothing here needs torch: the planner prices a trillion parameters with it. `model/memory.py` does what is asked here.
"""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import model_validator

from model.config import Config

Recomputed = Literal["layers", "norms", "swiglu", "mla_up", "moe_down", "dispatch"]
StoredInFp8 = Literal["expert_inputs", "swiglu_inputs"]
Precision = Literal["autocast", "bfloat16", "float32"]

TILE = 128  # K2 report 2.4.3: FP8-E4M3 in tiles of 1 x 128, each with a float32 scale


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
