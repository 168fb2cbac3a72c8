"""3. Newton-Schulz: stacked against looped, in the Gram form and without, and what MuonClip adds to an update.

Of the gpu preset's matrices, all of every shape but of the experts some; torch.optim.Muon and fused AdamW run beside.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import torch
from torch import nn

from benchmarks.gpu.common import Bench
from model.transformer import Transformer
from training.config import MuonClipConfig
from training.muonclip import MuonClip
from training.newton_schulz import COEFFICIENTS, newton_schulz, newton_schulz_cost
from training.plan import muon_shapes

MOST = 512
"""Matrices of one shape that are measured."""


def main() -> int:
    bench = Bench.begin("newton_schulz", __doc__)
    config, form = bench.config, MuonClipConfig()
    for count, n, m in muon_shapes(config):
        bench.part(f"{count} of {n} x {m}", partial(shape, bench, min(count, MOST), n, m))
    bench.part("steps", lambda: steps(bench, bench.model()))
    work = sum(count * newton_schulz_cost(n, m, COEFFICIENTS[form.coefficients], form.gram_ratio)
               for count, n, m in muon_shapes(config))  # fmt: skip
    bench.part("operations", lambda: {"newton_schulz": work})
    return bench.end()


def shape(bench: Bench, count: int, n: int, m: int) -> dict[str, float]:
    """Seconds for `count` matrices, and the rate at which the stacked products of the plain form run."""
    quintic = COEFFICIENTS["quintic"]
    stack_GNM = torch.randn(4 if bench.tiny else count, n, m, device=bench.device)
    gram = MuonClipConfig().gram_ratio
    found = {
        "stacked": bench.seconds(lambda: newton_schulz(stack_GNM, quintic)),
        "gram": bench.seconds(lambda: newton_schulz(stack_GNM, quintic, gram_ratio=gram)),
        "looped": bench.seconds(lambda: [newton_schulz(matrix, quintic) for matrix in stack_GNM], rounds=2, warm=1),
    }
    flops = len(stack_GNM) * newton_schulz_cost(n, m, quintic, None)
    return found | {"stacked_flops_per_second": flops / found["stacked"]}


def steps(bench: Bench, model: Transformer) -> dict[str, Any]:
    """Seconds of a whole step by each optimizer over the same parameters and gradients."""
    for parameter in model.parameters():
        parameter.grad = torch.randn_like(parameter)
    found: dict[str, Any] = {}
    for name, build in (
        ("MuonClip", lambda: MuonClip.for_model(model)),
        ("AdamW, ours", lambda: MuonClip.for_model(model, MuonClipConfig(matrices="adamw"))),
        ("AdamW, torch's fused", lambda: torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)),
        ("Muon, torch's", lambda: torchs(model)),
    ):
        bench.free()
        found[name] = bench.seconds(build().step, rounds=3, warm=1)
        found[f"{name}, peak bytes"] = 0 if bench.tiny else torch.cuda.max_memory_allocated()
    return found


def torchs(model: Transformer) -> torch.optim.Optimizer:
    """torch's own Muon over some of the matrices, one by one as it wants them: so many, and not all."""
    matrices: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.ndim >= 2 and "embed" not in name and "head" not in name and len(matrices) < MOST:
            matrices += [nn.Parameter(matrix) for matrix in parameter.detach().reshape(-1, *parameter.shape[-2:])]
    for matrix in matrices[:MOST]:
        matrix.grad = torch.randn_like(matrix)
    return torch.optim.Muon(matrices[:MOST], lr=0.0, adjust_lr_fn="match_rms_adamw")


if __name__ == "__main__":
    sys.exit(main())
