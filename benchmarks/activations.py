"""What each switch of `model.footprint.MemoryConfig` saves, costs and changes: one model, the same weights and tokens.

    python -m benchmarks.activations [--preset laptop] [--rows 8] [--sequence 256] [--rounds 5]

For every switch: bytes that a forward leaves for its backward (every storage counted; on a GPU the allocator's growth),
the closed formula beside it, the relative error of the gradients against no switch, and the time of a step beside it
(process CPU time on a CPU, rounds interleaved, medians). The last table is K2's, by formula. Measured is bfloat16
autocast over float32 weights. The GPU part has never run.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from model.config import ModelConfig
from model.footprint import K2_MEMORY, MemoryConfig, activation_bytes
from model.sizes import model_preset
from model.transformer import Transformer
from tests.kept import bytes_kept

SWITCHES = {
    "none": MemoryConfig(),
    "recompute norms": MemoryConfig(recompute=("norms",)),
    "recompute swiglu": MemoryConfig(recompute=("swiglu",)),
    "recompute mla_up": MemoryConfig(recompute=("mla_up",)),
    "recompute moe_down": MemoryConfig(recompute=("moe_down",)),
    "recompute dispatch": MemoryConfig(recompute=("dispatch",)),
    "fp8 expert_inputs": MemoryConfig(fp8=("expert_inputs",)),
    "fp8 swiglu_inputs": MemoryConfig(fp8=("swiglu_inputs",)),
    "the report's, no offload": K2_MEMORY.model_copy(update={"offload": False}),
    "the report's": K2_MEMORY,
    "recompute layers": MemoryConfig(recompute=("layers",)),
    "layers and offload": MemoryConfig(recompute=("layers",), offload=True),
}


class Bench:
    """One model and one batch."""

    def __init__(self, config: ModelConfig, rows: int, sequence: int, device: str) -> None:
        self.model = Transformer(config, seed=0).to(device)
        draw = torch.Generator().manual_seed(0)
        text = torch.randint(0, config.vocab_size, (rows, sequence + 1), generator=draw).to(device)
        self.inputs_BS, self.targets_BS, self.device = text[:, :-1], text[:, 1:], device

    def forward(self) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16):
            out = self.model(self.inputs_BS, max_logits=True)
            return self.model.loss(out.hidden_BSD, self.targets_BS) + out.aux_loss

    def kept(self) -> int:
        """Bytes that a forward leaves behind."""
        if self.device == "cpu":
            return bytes_kept(self.forward)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        loss = self.forward()
        torch.cuda.synchronize()
        after = torch.cuda.memory_allocated()
        del loss
        return after - before

    def step(self) -> float:
        """Seconds of a forward and backward."""
        self.model.zero_grad()
        if self.device == "cpu":
            start = time.process_time()
            self.forward().backward()
            return time.process_time() - start
        torch.cuda.synchronize()
        start = time.perf_counter()
        self.forward().backward()
        torch.cuda.synchronize()
        return time.perf_counter() - start

    def gradients(self) -> list[Tensor]:
        """Of a step."""
        self.step()
        return [p.grad.double().cpu() for p in self.model.parameters() if p.grad is not None]


def distance(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Relative, over all numbers of all tensors."""
    apart = sum(float((a - b).square().sum()) for a, b in zip(found, wanted, strict=True))
    return math.sqrt(apart / sum(float(b.square().sum()) for b in wanted))


def measure(config: ModelConfig, rows: int, sequence: int, rounds: int, device: str) -> Table:
    """The table of one model."""
    bench = Bench(config, rows, sequence, device)
    exact = bench.gradients()
    kept, errors = {}, {}
    times: dict[str, list[float]] = {name: [] for name in SWITCHES}
    for name, bench.model.memory in SWITCHES.items():
        kept[name], errors[name] = bench.kept(), distance(bench.gradients(), exact)
    for _ in range(rounds):
        for name, bench.model.memory in SWITCHES.items():
            times[name].append(bench.step())
    base = statistics.median(times["none"])
    table = Table("switch", "kept, MB", "formula: device", "host", "saved", "gradients off by", "step")
    for name, memory in SWITCHES.items():
        formula = activation_bytes(config, memory, sequence, rows)
        table.add_row(
            name,
            f"{kept[name] / 1e6:.1f}",
            f"{formula.device / 1e6:.1f}",
            f"{formula.host / 1e6:.1f}",
            f"{1 - kept[name] / kept['none']:.0%}",
            f"{errors[name]:.1e}" if errors[name] else "0",
            f"x {statistics.median(times[name]) / base:.2f}",
        )
    return table


def by_formula(config: ModelConfig, sequence: int) -> Table:
    """One sequence through the whole depth, weights in bfloat16."""
    plain = activation_bytes(config, MemoryConfig(), sequence, precision="bfloat16").device
    table = Table("switch", "device, GiB", "host, GiB", "off the device")
    for name, memory in SWITCHES.items():
        found = activation_bytes(config, memory, sequence, precision="bfloat16")
        table.add_row(
            name, f"{found.device / 2**30:.1f}", f"{found.host / 2**30:.1f}", f"{1 - found.device / plain:.0%}"
        )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="laptop")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    console = Console(width=120)
    config = model_preset(options.preset)
    console.print(f"{options.preset}, {options.rows} rows of {options.sequence} tokens, {device}")
    console.print(measure(config, options.rows, options.sequence, options.rounds, device))
    console.print("k2, one sequence of 4,096 tokens through 61 layers, by formula")
    console.print(by_formula(model_preset("k2"), 4096))


if __name__ == "__main__":
    main()
