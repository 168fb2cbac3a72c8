"""2. Pretraining's updates at the size of the gpu preset, and what each switch and each variant costs or saves.

- run: up to 300 updates of the trainer itself on shards of this repository's text: tokens/s, utilisation, memory, loss.
- switches: each row of SWITCHES: a step's time and utilisation, and the bytes that a forward leaves for its backward as
  `model.footprint` predicts them and as they are.
- profile: a step's device time by kernel.
- variants: one thing changed at a time.

A step is forward with maxima, loss and backward under bfloat16 autocast; utilisation is `flops_per_token` (nothing that
is recomputed counted) over the time and the peak that NVIDIA gives.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import yaml
from torch.nn.attention.flex_attention import flex_attention

from benchmarks.gpu.common import HOUSE, LENGTH, PEAK, ROWS, TINY, Bench
from benchmarks.gpu.shards import make
from model.config import ModelConfig, flops_per_token
from model.footprint import K2_MEMORY, MemoryConfig, activation_bytes
from model.kernels.gpu import causal_blocks
from model.kernels.table import VARIABLE
from model.transformer import Transformer
from tests.kept import bytes_kept
from training.config import PretrainConfig
from training.job import Job
from training.mesh import Mesh
from training.pretrain import NextToken
from training.trainer import Trainer, be_deterministic

UPDATES, SECONDS = 300, 60
SWITCHES = {
    "nothing": MemoryConfig(),
    "norms": MemoryConfig(recompute=("norms",)),
    "swiglu": MemoryConfig(recompute=("swiglu",)),
    "mla_up": MemoryConfig(recompute=("mla_up",)),
    "moe_down": MemoryConfig(recompute=("moe_down",)),
    "dispatch": MemoryConfig(recompute=("dispatch",)),
    "expert_inputs in FP8": MemoryConfig(fp8=("expert_inputs",)),
    "swiglu_inputs in FP8": MemoryConfig(fp8=("swiglu_inputs",)),
    "offload": MemoryConfig(offload=True),
    "K2's": K2_MEMORY,
    "whole layers": MemoryConfig(recompute=("layers",)),
}
BLOCKS = ((64, 64), (128, 64), (64, 128), (128, 128))


def main() -> int:
    bench = Bench.begin("updates", __doc__)
    bench.part("limits", lambda: {"products": bench.products(), "bandwidth": bench.bandwidth()})
    bench.part("run", lambda: run(bench))
    bench.free()
    step = Step(bench)
    for name, memory in SWITCHES.items():
        bench.part(f"switch {name}", partial(step.under, memory))
    bench.part("profile", step.profile)
    for name, variant in variants(step).items():
        bench.part(f"variant {name}", variant)
    for blocks in BLOCKS:
        bench.part(f"blocks {blocks[0]} x {blocks[1]}", partial(attention, bench, blocks))
    return bench.end()


def run(bench: Bench) -> dict[str, Any]:
    """The trainer's own updates, without a checkpoint: 300, or as many as fit."""
    with tempfile.TemporaryDirectory() as folder:
        config = settings(bench)
        tokens, _ = make(Path(folder), HOUSE, config.model.vocab_size, most=40 if bench.tiny else 10_000)
        be_deterministic(1 if bench.tiny else 8)
        job = Job(config.model_dump(mode="json"), {"tokens": tokens.uri}, Path(folder), 1, bench.kind, "")
        trainer = Trainer(NextToken, config, job, Mesh(), bench.device)
        began, losses, seconds = time.monotonic(), [], []
        try:
            for number in range(1, (2 if bench.tiny else UPDATES) + 1):
                at = time.monotonic()
                note = trainer.objective.step(number)
                seconds.append(time.monotonic() - at)
                trainer.done = number
                losses.append(float(note.split("loss ")[1].split(",")[0]))
                if time.monotonic() - began > SECONDS:
                    break
        finally:
            trainer.objective.close()
            torch.use_deterministic_algorithms(False)
        stage = config.stages.stages[0]
        tokens_each, each = stage.batch * stage.sequence_length, median(seconds[len(seconds) // 10 :])
        return {
            "updates": len(losses),
            "tokens_per_second": tokens_each / each,
            "utilisation": tokens_each * flops_per_token(config.model, stage.sequence_length) / each / PEAK,
            "seconds_an_update": each,
            "memory_bytes": 0 if bench.tiny else torch.cuda.max_memory_allocated(),
            "loss_first": losses[0],
            "loss_last": losses[-1],
        }


def settings(bench: Bench) -> PretrainConfig:
    """The preset's own, with updates of one micro-batch: half a million tokens an update would be minutes of them."""
    preset = yaml.safe_load((HOUSE / "flows/presets/gpu.yaml").read_text(encoding="utf-8"))["pretrain"]
    rows, length = (TINY["rows"], TINY["length"]) if bench.tiny else (ROWS, LENGTH)
    rate = {"start": 8.0e-4, "end": 8.0e-4, "shape": "linear"}
    stage = {"name": "constant", "updates": UPDATES + 1, "sequence_length": length, "batch": rows, "rate": rate}
    network = bench.config.model_dump(mode="json") if bench.tiny else preset["model"]
    return PretrainConfig.model_validate(
        preset | {"model": network, "stages": [stage], "dtype": "bfloat16", "evaluate_every": 10 * UPDATES}
    )


class Step:
    """Forward, maxima, loss and backward of one micro-batch."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.rows, self.length = bench, ROWS, LENGTH
        if bench.tiny:
            self.rows, self.length = TINY["rows"], TINY["length"]
        self.model: Transformer = bench.model()

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    def tokens(self, rows: int, length: int) -> torch.Tensor:
        return torch.randint(0, self.config.vocab_size, (rows, length + 1), device=self.bench.device)

    def forward(self, tokens_BS: torch.Tensor) -> torch.Tensor:
        """The loss."""
        with torch.autocast(self.bench.device.type, torch.bfloat16):
            out = self.model(tokens_BS[:, :-1], max_logits=True)
            return self.model.loss(out.hidden_BSD, tokens_BS[:, 1:]) + out.aux_loss

    def under(self, memory: MemoryConfig) -> dict[str, float]:
        """Time, and memory kept, with the switches of `memory`."""
        self.model.memory = memory
        predicted = activation_bytes(self.config, memory, self.length, self.rows)
        tokens_BS, bench = self.tokens(self.rows, self.length), self.bench
        timed = self.timed(self.rows, self.length)
        self.model.zero_grad(set_to_none=True)
        if bench.tiny:
            kept = bytes_kept(lambda: self.forward(tokens_BS))
        else:
            bench.wait()
            before = torch.cuda.memory_allocated()
            loss = self.forward(tokens_BS)
            bench.wait()
            kept = torch.cuda.memory_allocated() - before
            del loss
        return timed | {"predicted_bytes": predicted.device, "kept_bytes": kept, "host_bytes": predicted.host}

    def timed(self, rows: int, length: int) -> dict[str, float]:
        """A step's time over rows of such a length, and its peak of memory."""
        tokens_BS = self.tokens(rows, length)
        self.bench.free()
        seconds = self.bench.seconds(lambda: self.forward(tokens_BS).backward())
        flops = rows * length * flops_per_token(self.config, length)
        return {
            "seconds": seconds,
            "tokens_per_second": rows * length / seconds,
            "utilisation": flops / seconds / PEAK,
            "peak_bytes": 0 if self.bench.tiny else torch.cuda.max_memory_allocated(),
        }

    def profile(self) -> dict[str, float]:
        """Shares of the device's time in one step by kernel (on a CPU by operation), the largest ones."""
        self.model.memory = MemoryConfig()
        tokens_BS, device = self.tokens(self.rows, self.length), self.bench.device.type
        activities = [torch.profiler.ProfilerActivity.CPU]
        if device == "cuda":
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        with torch.profiler.profile(activities=activities) as seen:
            self.forward(tokens_BS).backward()
            self.bench.wait()
        spent: dict[str, float] = defaultdict(float)
        for row in seen.key_averages():
            if device == "cpu":
                spent[row.key] += row.self_cpu_time_total
            elif row.device_type == torch.autograd.DeviceType.CUDA:  # an operation's row counts its kernels again
                spent[row.key[:70]] += row.self_device_time_total
        total = sum(spent.values())
        ordered = sorted(spent.items(), key=lambda item: -item[1])[:25]
        return {name: took / total for name, took in ordered}


def variants(step: Step) -> dict[str, Callable[[], Any]]:
    """One thing changed at a time; the first row of the switches is what they are held against."""

    def plainly(*names: str) -> dict[str, float]:
        with environment(",".join(names)):
            return step.timed(step.rows, step.length)

    def compiled() -> dict[str, float]:
        if step.bench.tiny:  # a minute of a C++ compiler
            return {"seconds": 0.0}
        for layer in step.model.blocks():
            layer.compile()
        try:
            return step.timed(step.rows, step.length)
        finally:
            for layer in step.model.blocks():
                layer._compiled_call_impl = None

    step.model.memory = MemoryConfig()
    found: dict[str, Callable[[], Any]] = {
        "layers compiled": compiled,
        "experts one by one": lambda: plainly("grouped_linear"),
        "cross-entropy plain": lambda: plainly("cross_entropy"),
        "RMSNorm plain": lambda: plainly("rms_norm"),
        "CUDA graph": lambda: graphed(step),
    }
    for rows, length in ((2, LENGTH), (4, LENGTH), (16, LENGTH), (16, 2048), (4, 8192)):
        if not step.bench.tiny:
            found[f"{rows} rows of {length}"] = partial(step.timed, rows, length)
    return found


@contextmanager
def environment(operations: str) -> Iterator[None]:
    """The plain forms of these operations."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = operations
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def graphed(step: Step) -> dict[str, float]:
    """The step recorded once and played back: what its launches cost. Fails where something in it waits."""
    if step.bench.tiny:
        return {"seconds": 0.0}
    tokens_BS = step.tokens(step.rows, step.length)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step.forward(tokens_BS).backward()
    torch.cuda.current_stream().wait_stream(side)
    step.model.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.forward(tokens_BS).backward()
    seconds = step.bench.seconds(graph.replay)
    flops = step.rows * step.length * flops_per_token(step.config, step.length)
    return {"seconds": seconds, "utilisation": flops / seconds / PEAK}


def attention(bench: Bench, blocks: tuple[int, int]) -> dict[str, float]:
    """FlexAttention's forward and backward at the preset's shapes, with other blocks than torch chooses."""
    if bench.tiny:
        return {"seconds": 0.0}
    config = bench.config
    heads, keys, values = config.num_attention_heads, config.qk_head_dim, config.v_head_dim
    q, k, v = (
        torch.randn(ROWS, heads, LENGTH, width, device=bench.device, dtype=torch.bfloat16, requires_grad=True)
        for width in (keys, keys, values)
    )
    low, high = sorted(blocks)  # of the backward one has to divide the other
    options = {"fwd_BLOCK_M": blocks[0], "fwd_BLOCK_N": blocks[1]}
    options |= {"bwd_BLOCK_M1": low, "bwd_BLOCK_N1": high, "bwd_BLOCK_M2": high, "bwd_BLOCK_N2": low}
    kernel: Any = torch.compile(flex_attention)
    mask = causal_blocks(LENGTH, bench.device)

    def both() -> None:
        kernel(q, k, v, block_mask=mask, kernel_options=options).backward(torch.ones_like(v))

    seconds = bench.seconds(both)
    flops = 3.5 * 2 * ROWS * heads * LENGTH * LENGTH / 2 * (keys + values)  # two products forward, five backward
    return {"seconds": seconds, "flops_per_second": flops / seconds}


if __name__ == "__main__":
    sys.exit(main())
