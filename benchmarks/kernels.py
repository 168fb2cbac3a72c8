"""What the faster forms of the model's operations save of a run's training stages (docs/model.md has the table).

    python -m benchmarks.kernels --root data [--stages base,sft,rl] [--of rms_norm,causal_attention] [--rounds 5]
    ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 MKL_ENABLE_INSTRUCTIONS=AVX2 python -m benchmarks.kernels ...

The stages are those of a finished run of the laptop preset below `--root`: its jobs are read again, on one rank of one
thread and in the precision that this machine multiplies fast, and their steps timed: an update of the base and of
SFT, an iteration of RL with its generation, and the evaluations of SFT. Each operation (and all together)
takes its faster forms and its plain one in turn, as `OPENK2_REFERENCE` has it, over the same data: with, without,
without, with. Printed are the medians of the rounds in CPU-seconds, and the median of their ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.common import ONE_THREAD, module
from model.kernels.table import TABLE, VARIABLE
from model.precision import speed
from training.job import Job
from training.mesh import Mesh
from training.objective import Objective
from training.pretrain import NextToken
from training.rl.config import RewardConfig
from training.rl.environments import Services
from training.rl.rollout import evaluate
from training.rl.train import Reinforcement
from training.sft import Tuning
from training.trainer import Trainer, be_deterministic

KINDS: dict[str, type[Objective]] = {"base": NextToken, "sft": Tuning, "rl": Reinforcement}
TRAINING = ("rms_norm", "causal_attention", "silu_times", "router_scores", "grouped_linear", "cross_entropy", "all")
GENERATING = ("decoder", "all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="where a run of the laptop preset lies")
    parser.add_argument("--stages", default="base,sft,rl")
    parser.add_argument("--of", help=f"operations, of {', '.join(sorted({form.operation for form in TABLE}))}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if unknown := set(filter(None, (arguments.of or "").split(","))) - {"all", *(form.operation for form in TABLE)}:
        parser.error(f"--of: there is no operation {', '.join(sorted(unknown))}")
    for stage in arguments.stages.split(","):
        if arguments.here:
            measure(stage, arguments)
        else:  # what CPUs need in the environment has to stand before a process starts
            given = ["--root", str(arguments.root), "--stages", stage, "--rounds", str(arguments.rounds)]
            given += ["--of", arguments.of] if arguments.of else []
            subprocess.run(module("kernels", *given, "--here"), env=os.environ | ONE_THREAD, check=True)


def measure(stage: str, arguments: argparse.Namespace) -> None:
    """The table of one stage."""
    be_deterministic(1)  # as a job is
    asked = arguments.of.split(",") if arguments.of else None
    with tempfile.TemporaryDirectory() as work:
        trainer = trainer_of(arguments.root, stage, Path(work))
        rates = f"{speed('cpu').fast}, {torch.backends.cpu.get_cpu_capability()}"
        print(f"{stage} ({trainer.config.dtype}; fast here: {rates}), CPU-seconds with, without")
        compare("a step", trainer.objective.step, asked or TRAINING, arguments.rounds)
        if stage == "sft":
            compare("an evaluation", evaluation(trainer), asked or GENERATING, arguments.rounds)


def trainer_of(root: Path, stage: str, work: Path) -> Trainer:
    """The stage's job at its beginning, on this machine."""
    files = root.glob(f"{stage}/*/work/job.json") if stage in KINDS else ()
    file = max(files, key=lambda path: path.stat().st_mtime, default=None)
    if file is None:
        raise SystemExit(f"{root} has no job of a stage {stage}: of {', '.join(KINDS)}, run the laptop preset there")
    values = json.loads(file.read_text())
    fast = speed("cpu").fast
    if stage != "rl":  # which the preset trains in float32 everywhere
        values["config"]["dtype"] = fast
    values["config"]["optimizer"]["newton_schulz_dtype"] = fast
    job = replace(Job.read(file), config=values["config"], work=work, threads=1)
    trainer = Trainer(KINDS[stage], job.configured(KINDS[stage].settings), job, Mesh(), torch.device("cpu"))
    trainer.objective.spikes = None  # a step is taken four times over the same data: no loss is like the ones before
    return trainer


def evaluation(trainer: Trainer) -> Callable[[int], object]:
    """The pass rates of the model as it is, with other draws for every number."""
    objective: Any = trainer.objective
    config = objective.config
    rewards = RewardConfig(budget=config.budget, budgets=getattr(config, "budgets", {}))
    player = objective.evaluator(rewards, Services())
    return lambda number: evaluate(player, objective.problems, config.evaluate_samples, f"draw {number}")


def compare(what: str, turn: Callable[[int], object], names: Sequence[str], rounds: int) -> None:
    """Each operation's forms against its plain one."""

    def seconds(plain: str, number: int) -> float:
        os.environ[VARIABLE] = plain
        began = time.process_time()
        turn(number)
        return time.process_time() - began

    number = 0
    for name in names:
        taken: list[tuple[float, float]] = []
        for _ in range(rounds + 1):
            number += 1
            first, *without, last = (seconds(plain, number) for plain in ("", name, name, ""))
            taken.append(((first + last) / 2, sum(without) / 2))
        counted = taken[1:]  # the first round compiles and warms up
        faster, plain = (median(each) for each in zip(*counted, strict=True))
        ratio = median(two / one for one, two in counted)
        print(f"  {what:14} {name:20} {faster:8.3f} {plain:8.3f} {ratio - 1:+8.1%}", flush=True)


if __name__ == "__main__":
    main()
