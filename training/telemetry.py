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
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from model.config import ModelConfig, flops_per_token
from training.engine import Sums
from training.metrics import Metrics
from training.muonclip import MuonClip
from training.parallel import World
from training.schedule import Update

if TYPE_CHECKING:
    from training.pretrain import Trainer


@dataclass
class Totals:
    """Sums and maxima over the global batch of one update."""

    loss: float
    """Mean cross-entropy per target, nats."""
    aux_loss: float
    """Balance loss, its weight included."""
    max_logits_LH: Tensor
    expert_counts_LE: Tensor
    flags: frozenset[str]
    """What is so on some rank: `stop` where it was asked to, `lost` where it could not write a checkpoint."""


def joined(
    sums: Sums, targets: float, layers: Sequence[int], model: ModelConfig, flags: Mapping[str, bool], world: World
) -> Totals:
    """The sums of all ranks, `layers` being those that this rank's rows belong to: the same on every rank.

    One collective for all that is summed and one for the maxima, whatever the depth.
    """
    places, dense = torch.tensor(layers, device=sums.nll.device), model.first_k_dense_replace
    maxima_LH = sums.max_logits_LH.new_full((model.num_hidden_layers, model.num_attention_heads), -math.inf)
    maxima_LH[places] = sums.max_logits_LH
    counts_LE = sums.nll.new_zeros((model.num_moe_layers, model.n_routed_experts))
    counts_LE[places[places >= dense] - dense] = sums.expert_counts_LE.double()
    packed = world.all_reduce(torch.cat([torch.stack([sums.nll / targets, sums.aux_loss]), counts_LE.flatten()]))
    raised = maxima_LH.new_tensor([float(flag) for flag in flags.values()])
    peaks = world.all_reduce(torch.cat([raised, maxima_LH.flatten()]), "max")
    return Totals(
        loss=float(packed[0]),
        aux_loss=float(packed[1]),
        max_logits_LH=peaks[len(flags) :].view_as(maxima_LH),
        expert_counts_LE=packed[2:].view_as(counts_LE).to(torch.int64),
        flags=frozenset(name for name, value in zip(flags, peaks[: len(flags)].tolist(), strict=True) if value),
    )


class Clock:
    """Throughput, utilisation, memory and time to the end of a run."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.begun = self.last = time.monotonic()
        self.tokens = 0
        self.seconds_per_token = 0.0

    def tick(self, update: Update) -> dict[str, float | None]:
        """Close the update and return its timing; evaluations and checkpoints count to the update after them."""
        now, trainer = time.monotonic(), self.trainer
        seconds, self.last = now - self.last, now
        tokens = update.stage.tokens_per_update
        self.tokens += tokens
        self.seconds_per_token = (now - self.begun) / self.tokens
        flops = tokens * flops_per_token(trainer.model.config, update.stage.sequence_length) / seconds
        peak = trainer.config.run.peak_flops
        if trainer.device.type == "cuda":
            memory = torch.cuda.max_memory_allocated(trainer.device)
        else:
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return {
            "seconds": seconds,
            "tokens_per_second": tokens / seconds,
            "flops_per_second": flops,
            "mfu": flops / (peak * trainer.world.size) if peak else None,
            "memory_bytes": float(memory),
            "eta_seconds": (trainer.plan.tokens - update.tokens_after) * self.seconds_per_token,
        }

    def progress(self) -> dict[str, Any]:
        """What `progress.json` tells beside the count of updates."""
        update = self.trainer.plan.update(self.trainer.done)
        return {
            "stage": update.stage.name,
            "tokens": update.tokens_after,
            "tokens_per_second": 1 / self.seconds_per_token,
            "eta_seconds": (self.trainer.plan.tokens - update.tokens_after) * self.seconds_per_token,
        }


def record(
    update: Update, totals: Totals, gradient_norm: float, optimizer: MuonClip, timing: dict[str, Any], metrics: Metrics
) -> None:
    """Write the line of one applied update."""
    report = optimizer.last_report
    assert report is not None
    load_LE = totals.expert_counts_LE.double() / totals.expert_counts_LE.double().mean(1, keepdim=True)
    metrics.write(
        "update",
        update.number,
        stage=update.stage.name,
        tokens=update.tokens_after,
        learning_rate=update.learning_rate,
        loss=totals.loss,
        aux_loss=totals.aux_loss,
        gradient_norm=gradient_norm,
        max_logit=float(totals.max_logits_LH.max()),
        max_logit_by_layer=totals.max_logits_LH.amax(1).tolist(),
        clipped_heads=report.clipped_heads,
        update_rms=report.update_rms,
        update_rms_lowest=report.update_rms_lowest,
        idle_matrices=report.idle,
        expert_load_max=float(load_LE.max()) if load_LE.numel() else 1.0,
        expert_load_max_by_layer=load_LE.amax(1).tolist() if load_LE.numel() else [],
        timing=timing,
    )


def record_heads(update: Update, totals: Totals, optimizer: MuonClip, metrics: Metrics) -> None:
    """Write every head's largest logit, its factor and how often it was clipped so far."""
    report = optimizer.last_report
    assert report is not None
    assert report.gamma_LH is not None
    metrics.write(
        "heads",
        update.number,
        max_logit=totals.max_logits_LH.tolist(),
        gamma=report.gamma_LH.tolist(),
        clips=optimizer.clips_LH.tolist(),
    )
