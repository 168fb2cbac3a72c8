"""Pretraining's costs: the optimizer's step beside torch's, its share of an update, the loop around it, two ranks.

    python -m benchmarks.pretrain [--only optimizer,share,loop,ranks] [--rounds 7] [--updates 24]

- optimizer: CPU-seconds of a MuonClip step and of torch.optim.Muon (match_rms_adamw, five steps, bfloat16) looped over
  the same matrices one by one: those of the laptop model, and some of every shape of the gpu preset. `plain` is ours
  without the Gram form.
- share: forward and backward of the laptop model per token, and the steps of MuonClip, of torch's fused AdamW and of
  our AdamW over all parameters. What MuonClip adds to an update of T tokens is (its step - AdamW's) / (T x seconds per
  token + AdamW's step). At sizes that do not fit here the same by operations: Newton-Schulz's over those of forward and
  backward, both at one rate, which is unkind to Newton-Schulz: its products are the larger ones.
- loop: a run of the laptop model through `training.pretrain`: CPU-seconds in forward and backward, in the optimizer,
  and in everything else (reading, clipping, judging, metrics, checkpoints), by part.
- ranks: such runs as processes of one thread: one rank, two ranks with twice the batch under gloo, and two processes
  that know nothing of each other, whose tokens a second are the most that this machine can give. CPU-seconds count what
  two ranks do more (sums of gradients, exchange, what both do alike); the clock also counts waiting for each other,
  and wants a machine that does nothing else.

One thread, sides in turns, medians of rounds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn

from benchmarks.common import ONE_THREAD, cpu, in_turns, module, ratio
from benchmarks.random_tokens import random_tokens
from model.config import ModelConfig, flops_per_token
from model.precision import speed
from model.sizes import model_preset
from model.transformer import Transformer
from tests.training import runs
from tests.training.ranks import Launched
from training.config import MuonClipConfig
from training.metrics import read_metrics
from training.muonclip import MuonClip
from training.newton_schulz import COEFFICIENTS, newton_schulz_cost
from training.plan import muon_shapes

SEQUENCE, BATCH = 256, 16
HALF_A_MILLION = 1 << 19
MICRO_BATCHES, SHORT, LONG = 2, 2, 5  # of `ranks`: a rank's micro-batches in an update, and the updates of its runs
SOME = {"experts": 24, "others": 2}  # matrices of a shape of the gpu preset that are measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="optimizer,share,loop,ranks")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--updates", type=int, default=24)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    for name in arguments.only.split(","):
        if arguments.here:
            torch.set_num_threads(1)
            with tempfile.TemporaryDirectory() as folder:
                {"optimizer": optimizer, "share": share, "loop": loop, "ranks": ranks}[name](Path(folder), arguments)
        else:  # what CPUs need in the environment has to stand before a process starts
            given = ["--rounds", str(arguments.rounds), "--updates", str(arguments.updates), "--here"]
            subprocess.run(module("pretrain", "--only", name, *given), env=os.environ | ONE_THREAD, check=True)


def timed(side: Callable[[], object]) -> Callable[[], float]:
    """The CPU-seconds of `side` whenever it is called."""

    def seconds() -> float:
        began = time.process_time()
        side()
        return time.process_time() - began

    return seconds


# ------------------------------------------------------------------------------------------------------------ optimizer


def optimizer(folder: Path, arguments: argparse.Namespace) -> None:
    laptop, _ = laptop_model()
    named = {
        name: p for name, p in laptop.named_parameters() if p.ndim >= 2 and "embed" not in name and "head" not in name
    }
    gpu = model_preset("gpu")
    some = {}
    for at, (count, rows, columns) in enumerate(muon_shapes(gpu)):
        most = SOME["experts" if count > gpu.num_hidden_layers * 8 else "others"]
        some[f"{at}"] = nn.Parameter(torch.randn(min(count, most), rows, columns))
    for title, parameters in (("the laptop model", named), ("some of each shape of gpu", some)):
        for parameter in parameters.values():
            parameter.grad = torch.randn_like(parameter)
        theirs = []
        for parameter in parameters.values():
            assert parameter.grad is not None
            stacks = (tensor.reshape(-1, *tensor.shape[-2:]) for tensor in (parameter.detach(), parameter.grad))
            for matrix, gradient in zip(*stacks, strict=True):
                theirs.append(nn.Parameter(matrix.clone()))
                theirs[-1].grad = gradient.clone()
        ours = MuonClip(parameters, {}, lr=1e-3)
        plain = MuonClip(parameters, {}, MuonClipConfig(gram_ratio=None), lr=1e-3)
        torchs = torch.optim.Muon(theirs, lr=1e-3, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
        assert ours.matrices == len(theirs)
        sides = {"ours": ours.step, "plain": plain.step, "torch": torchs.step}
        seconds = in_turns({name: timed(side) for name, side in sides.items()}, arguments.rounds, warm=1)
        print(f"optimizer, {title}: {len(theirs)} matrices, {sum(p.numel() for p in theirs) / 1e6:.1f}M parameters")
        for name, each in seconds.items():
            print(
                f"  {name:>6}: {median(each) * 1e3:8.1f} ms; "
                f"torch.optim.Muon takes {ratio(seconds['torch'], each):.2f} times that"
            )


# ---------------------------------------------------------------------------------------------------------------- share


def share(folder: Path, arguments: argparse.Namespace) -> None:
    model, config = laptop_model()
    tokens_BS = torch.randint(2, config.vocab_size, (BATCH, SEQUENCE + 1))

    def forward_and_backward() -> None:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=speed("cpu").fast == "bfloat16"):
            output = model(tokens_BS[:, :-1], max_logits=True)
            loss = model.loss(output.hidden_BSD, tokens_BS[:, 1:]) + output.aux_loss
        loss.backward()

    forward_and_backward()
    steps = {
        "MuonClip": MuonClip.for_model(model).step,
        "AdamW, torch's fused": torch.optim.AdamW(model.parameters(), lr=0.0, fused=True).step,
        "AdamW, ours": MuonClip.for_model(model, MuonClipConfig(matrices="adamw")).step,
    }
    gradients = [parameter.grad for parameter in model.parameters()]

    def passes() -> None:
        forward_and_backward()
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient  # the same for every step

    sides = {"forward and backward": passes, **steps}
    seconds = in_turns({name: timed(side) for name, side in sides.items()}, arguments.rounds, warm=1)
    token = median(seconds["forward and backward"]) / (BATCH * SEQUENCE)
    print(
        f"share, the laptop model: {token * 1e6:.1f} us a token "
        f"({flops_per_token(config, SEQUENCE) / token / 1e9:.0f} GFLOP/s)"
    )
    for name in steps:
        print(f"  {name:>20}: {median(seconds[name]) * 1e3:7.1f} ms a step")
    adamw = median(seconds["AdamW, torch's fused"])
    for tokens in (BATCH * SEQUENCE, HALF_A_MILLION):
        added = (median(seconds["MuonClip"]) - adamw) / (tokens * token + adamw)
        print(f"  an update of {tokens:,} tokens with MuonClip takes {1 + added:.4f} of the time with AdamW")
    for name, tokens, length in (("gpu", HALF_A_MILLION, 4096), ("k2", HALF_A_MILLION, 4096), ("k2", 1 << 26, 4096)):
        network, form = model_preset(name), (COEFFICIENTS["quintic"], MuonClipConfig().gram_ratio)
        work = sum(count * newton_schulz_cost(n, m, *form) for count, n, m in muon_shapes(network))
        passed = tokens * flops_per_token(network, length)
        print(f"  by operations, {name} at {tokens:,} tokens: Newton-Schulz adds {work / passed:.2%}")


def laptop_model() -> tuple[Transformer, ModelConfig]:
    config = model_preset("laptop")
    return Transformer(config, seed=0), config


# ----------------------------------------------------------------------------------------------------------------- loop


def loop(folder: Path, arguments: argparse.Namespace) -> None:
    trainer = runs.trainer_of(job(folder, "work", BATCH, arguments.updates))
    spent: dict[str, float] = {}
    parts = {
        "forward and backward": (trainer.engine, "train"),
        "optimizer": (trainer.optimizer, "step"),
        "reading": (trainer.objective, "_read"),
        "checkpoints": (trainer, "checkpoint"),
        "clipping": (trainer.replicas, "clip_gradients"),
        "evaluation": (trainer.objective, "evaluate"),
    }
    for name, (owner, method) in parts.items():
        setattr(owner, method, counted(spent, name, getattr(owner, method)))
    began = time.process_time()
    trainer.run()
    total = time.process_time() - began
    training = total - spent.pop("evaluation", 0.0)
    spent["all else"] = training - sum(spent.values())
    print(
        f"loop: {arguments.updates} updates of {BATCH} x {SEQUENCE} tokens, two checkpoints, {training:.1f} CPU-seconds"
    )
    for name, seconds in spent.items():
        print(f"  {name:>20}: {seconds:7.3f} s, {seconds / training:6.2%}")
    around = training - spent["forward and backward"] - spent["optimizer"]
    print(f"  outside forward, backward and optimizer: {around / training:.2%}")


def counted(spent: dict[str, float], name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    def wrapped(*positional: Any, **named: Any) -> Any:
        began = time.process_time()
        try:
            return call(*positional, **named)
        finally:
            spent[name] = spent.get(name, 0.0) + time.process_time() - began

    return wrapped


def job(folder: Path, work: str, batch: int, updates: int) -> dict[str, Any]:
    """A job of the laptop model on random tokens."""
    stage = {"name": "constant", "updates": updates, "sequence_length": SEQUENCE, "batch": batch}
    config = {
        "model": {"preset": "laptop"},
        "stages": [{**stage, "rate": {"start": 1e-3, "end": 1e-3}}],
        "evaluation_samples": 4,
        "dtype": speed("cpu").fast,
        "optimizer": {"newton_schulz_dtype": speed("cpu").fast},
        "run": {"micro_batch": BATCH, "checkpoint_every": max(1, updates // 2)},
    }
    sizes = {"train/web/made/0": 1 << 20, "heldout/web/made/0": 1 << 14}
    tokens = random_tokens(folder / "tokens", sizes, vocabulary=8192, end=1)
    return {"config": config, "inputs": {"tokens": tokens}, "work": str(folder / work), "threads": 1, "device": "cpu"}


# ---------------------------------------------------------------------------------------------------------------- ranks


def ranks(folder: Path, arguments: argparse.Namespace) -> None:
    seconds, rates = {}, {}
    for name, size in (("one rank", 1), ("two ranks", 2)):
        spent = []
        for updates in SHORT, LONG:  # the difference has neither start nor end in it
            before = cpu()
            (work,) = finished([start(folder, f"{name} {updates}", size, updates)])
            spent.append(cpu() - before)
        seconds[name] = (spent[1] - spent[0]) / (LONG - SHORT) / size
        rates[name] = rate(work)
    alone = [start(folder, name, 1, LONG) for name in ("first alone", "second alone")]
    rates["two alone"] = sum(rate(work) for work in finished(alone))
    print(f"ranks: the laptop model, {MICRO_BATCHES * BATCH} x {SEQUENCE} tokens a rank and update")
    for name, each in rates.items():
        told = f", {seconds[name]:.2f} CPU-seconds a rank and update" if name in seconds else ""
        print(f"  {name:>9}: {each:8,.0f} tokens/s{told}")
    print(f"  by CPU-seconds two ranks do {seconds['one rank'] / seconds['two ranks']:.2f} of twice one rank's work")
    twice = 2 * rates["one rank"]
    print(f"  by the clock {rates['two ranks'] / twice:.2f}; two processes alone {rates['two alone'] / twice:.2f}")


def start(folder: Path, name: str, size: int, updates: int) -> tuple[Path, list[Launched]]:
    """A run as the launcher starts it, a process for each rank."""
    values = job(folder / name, "work", MICRO_BATCHES * BATCH * size, updates)
    return Path(values["work"]), runs.start(values, folder / name, size)


def finished(begun: list[tuple[Path, list[Launched]]]) -> list[Path]:
    """Their work folders, once all have ended."""
    for work, processes in begun:
        codes = [process.wait() for process in processes]
        if any(codes):
            logs = "".join(path.read_text() for path in work.parent.glob("rank*.log"))
            raise SystemExit(f"a run failed:\n{logs[-3000:]}")
    return [work for work, _ in begun]


def rate(work: Path) -> float:
    """Tokens a second, the median of the updates after the first."""
    updates = read_metrics(work / "metrics.jsonl", "update")
    return median([update["timing"]["tokens_per_second"] for update in updates[1:]])


if __name__ == "__main__":
    main()
