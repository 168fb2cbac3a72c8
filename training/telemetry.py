"""What is measured of each update: the sums over its global batch, the optimizer's report, and the clock's.

Shapes: L layers, H heads, E experts.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig, flops_per_token
from training.engine import Sums
from training.muonclip import MuonClip
from training.parallel import World


@dataclass
class Totals:
    """Sums and maxima over the global batch of one update."""

    loss: float
    """The objective's, the balance loss apart."""
    aux_loss: float
    """Balance loss, its weight included."""
    max_logits_LH: Tensor
    expert_counts_LE: Tensor
    flags: frozenset[str]
    """What is so on some rank: `stop` where it was asked to, `lost` where it could not write a checkpoint."""
    measures: dict[str, float]
    """What the objective measured beside its loss, by name."""


def joined(
    sums: Sums,
    measures: Sequence[str],
    layers: Sequence[int],
    model: ModelConfig,
    flags: Mapping[str, bool],
    world: World,
) -> Totals:
    """The sums of all ranks, `layers` being those that this rank's rows belong to: the same on every rank.

    One collective for all that is summed and one for the maxima, whatever the depth.
    """
    places, dense = torch.tensor(layers, device=sums.loss.device), model.first_k_dense_replace
    maxima_LH = sums.max_logits_LH.new_full((model.num_hidden_layers, model.num_attention_heads), -math.inf)
    maxima_LH[places] = sums.max_logits_LH
    counts_LE = sums.loss.new_zeros((model.num_moe_layers, model.n_routed_experts))
    counts_LE[places[places >= dense] - dense] = sums.expert_counts_LE.double()
    zero = sums.loss.new_zeros(())
    scalars = [sums.loss, sums.aux_loss, *(sums.measures.get(name, zero) for name in measures)]
    packed = world.all_reduce(torch.cat([torch.stack(scalars), counts_LE.flatten()]))
    raised = maxima_LH.new_tensor([float(flag) for flag in flags.values()])
    peaks = world.all_reduce(torch.cat([raised, maxima_LH.flatten()]), "max")
    loss, aux_loss, *measured = packed[: len(scalars)].tolist()
    return Totals(
        loss=loss,
        aux_loss=aux_loss,
        max_logits_LH=peaks[len(flags) :].view_as(maxima_LH),
        expert_counts_LE=packed[len(scalars) :].view_as(counts_LE).to(torch.int64),
        flags=frozenset(name for name, value in zip(flags, peaks[: len(flags)].tolist(), strict=True) if value),
        measures=dict(zip(measures, measured, strict=True)),
    )


class Clock:
    """Throughput, utilisation, memory and time to the end of a run."""

    def __init__(self, device: torch.device, ranks: int, peak_flops: float | None) -> None:
        """`peak_flops` is that of one rank's device, for the utilisation."""
        self.device, self.ranks, self.peak = device, ranks, peak_flops
        self.begun = self.last = time.monotonic()
        self.tokens = 0

    @property
    def seconds_per_token(self) -> float:
        """Since the start, all between updates included."""
        return (self.last - self.begun) / max(1, self.tokens)

    def tick(self, model: ModelConfig, tokens: int, length: int) -> dict[str, float | None]:
        """Close an update of so many tokens in rows of `length` and return its timing; evaluations and checkpoints
        count to the update after them."""
        now = time.monotonic()
        seconds, self.last = now - self.last, now
        self.tokens += tokens
        flops = tokens * flops_per_token(model, length) / seconds
        if self.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(self.device)
        else:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {
            "seconds": seconds,
            "tokens_per_second": tokens / seconds,
            "flops_per_second": flops,
            "mfu": flops / (self.peak * self.ranks) if self.peak else None,
            "memory_bytes": float(memory),
        }


def measured(totals: Totals, gradient_norm: float, optimizer: MuonClip) -> dict[str, Any]:
    """What is recorded of one applied update, whatever the objective."""
    report = optimizer.last_report
    assert report is not None
    load_LE = totals.expert_counts_LE.double() / totals.expert_counts_LE.double().mean(1, keepdim=True)
    return {
        "learning_rate": optimizer.param_groups[0]["lr"],
        "loss": totals.loss,
        "aux_loss": totals.aux_loss,
        **totals.measures,
        "gradient_norm": gradient_norm,
        "max_logit": float(totals.max_logits_LH.max()),
        "max_logit_by_layer": totals.max_logits_LH.amax(1).tolist(),
        "clipped_heads": report.clipped_heads,
        "update_rms": report.update_rms,
        "update_rms_lowest": report.update_rms_lowest,
        "idle_matrices": report.idle,
        "expert_load_max": float(load_LE.max()) if load_LE.numel() else 1.0,
        "expert_load_max_by_layer": load_LE.amax(1).tolist() if load_LE.numel() else [],
    }


def heads(totals: Totals, optimizer: MuonClip) -> dict[str, Any]:
    """Every head's largest logit, its factor and how often it was clipped so far."""
    report = optimizer.last_report
    assert report is not None
    assert report.gamma_LH is not None
    return {
        "max_logit": totals.max_logits_LH.tolist(),
        "gamma": report.gamma_LH.tolist(),
        "clips": optimizer.clips_LH.tolist(),
    }
