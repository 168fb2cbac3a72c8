"""The network on one GPU: utilisation of a training step, and the memory that each switch saves. It has never run yet.

    python -m benchmarks.model_gpu [--preset gpu] [--rows 8] [--length 4096] [--peak 989] [--compile]

A step is forward, maxima, loss and backward under bfloat16 autocast, without an optimizer. Utilisation is
`flops_per_token` (recomputation not counted) over wall time and `--peak`, the dense bfloat16 TFLOP/s of the device (989
for an H100 or H200). Asked: at least 35 %. Then one step under each switch of MemoryConfig: peak memory above weights
and gradients, and how much longer it takes; and the operations that take the most time.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch

from model.config import flops_per_token, parameter_count
from model.footprint import MemoryConfig
from model.sizes import model_preset
from model.transformer import Transformer

SWITCHES = {
    "nothing": MemoryConfig(),
    "norms": MemoryConfig(recompute=("norms",)),
    "swiglu": MemoryConfig(recompute=("swiglu",)),
    "mla_up": MemoryConfig(recompute=("mla_up",)),
    "moe_down": MemoryConfig(recompute=("moe_down",)),
    "these four": MemoryConfig(recompute=("norms", "swiglu", "mla_up", "moe_down")),
    "expert_inputs in FP8": MemoryConfig(fp8=("expert_inputs",)),
    "swiglu_inputs in FP8": MemoryConfig(fp8=("swiglu_inputs",)),
    "offload": MemoryConfig(offload=True),
    "whole layers": MemoryConfig(recompute=("layers",)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="gpu")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=4096)
    parser.add_argument("--peak", type=float, default=989.0, help="dense bfloat16 TFLOP/s of the device")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the layers")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("no GPU here: benchmarks/model.py measures on CPUs")
    rows, length = arguments.rows, arguments.length
    config = model_preset(arguments.preset)
    model = Transformer(config, seed=0).cuda()
    if arguments.compile:
        for layer in model.blocks():
            layer.compile()
    tokens_BS = torch.randint(0, config.vocab_size, (rows, length + 1), device="cuda")

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            out = model(tokens_BS[:, :-1], max_logits=True)
            loss = model.loss(out.hidden_BSD, tokens_BS[:, 1:])
        (loss + out.aux_loss).backward()

    def timed(number: int = 8) -> tuple[float, float]:
        """Median seconds of a step, and its peak of GB above what stands before it."""
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before, took = torch.cuda.memory_allocated(), []
        for _ in range(number):
            began = time.perf_counter()
            step()
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        return median(took), (torch.cuda.max_memory_allocated() - before) / 1e9

    count = parameter_count(config)
    flops = flops_per_token(config, length) * rows * length
    active = f"{arguments.preset}: {count.active / 1e9:.2f}B active"
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; {active}")
    print(f"{'kept otherwise':22} {'ms':>8} {'tokens/s':>10} {'utilisation':>11} {'peak GB':>8}")
    for name, memory in SWITCHES.items():
        model.memory = memory
        seconds, peak = timed()
        used = flops / seconds / arguments.peak / 1e12
        print(f"{name:22} {seconds * 1e3:8.1f} {rows * length / seconds:10,.0f} {used:11.1%} {peak:8.2f}", flush=True)
    model.memory = MemoryConfig()
    with torch.profiler.profile() as seen:
        step()
        torch.cuda.synchronize()
    print(seen.key_averages().table(sort_by="self_cuda_time_total", row_limit=25))


if __name__ == "__main__":
    main()
