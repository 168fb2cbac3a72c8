"""Checkpoints among gloo ranks of one machine beside torch.distributed.checkpoint: wall and CPU seconds.

    python -m benchmarks.checkpoint [--size 40m] [--ranks 2] [--rounds 5] [--folder FOLDER]

Data parallel: every rank has the model, and its share of one momentum for every weight; both sides write each tensor
once and wait for the disk. Ours also hashes what it wrote (`save`) and what it reads (`load`: verify, then fill the
weights); `beside` is what training waits for where the same is written in the background. Rounds take turns; medians,
CPU seconds summed over the ranks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from statistics import median

import torch
import torch.distributed.checkpoint as dcp
import torch.multiprocessing

from model.sizes import model_preset
from model.transformer import Transformer
from training import checkpoint
from training.checkpoint_writer import Writer
from training.parallel import World, join

Times = dict[str, list[tuple[float, float]]]
"""Task -> (wall, CPU seconds of all ranks) by round."""


def measured(world: World, task: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds of a task that every rank does."""
    world.barrier()
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    used = torch.tensor(time.process_time() - cpu, dtype=torch.float64)
    world.barrier()
    return time.perf_counter() - wall, float(world.all_reduce(used))


def rank_work(rank: int, options: argparse.Namespace, folder: Path, results: SimpleQueue[Times]) -> None:
    """One rank's part of every task; rank 0 tells the times."""
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(options.ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT="29611")
    with join() as world:
        model = Transformer(model_preset(options.size), seed=0)
        weights = model.state_dict()
        own = [name for at, name in enumerate(weights) if at % world.size == rank]
        momenta = {f"momentum/{name}": weights[name] * 0.5 for name in own}
        state = {**weights, **momenta}
        writer = Writer(world)
        ours, theirs = folder / "update-00000001", folder / "theirs"

        def save(background: bool = False) -> None:
            writer.save(ours, model, {}, momenta, background=background)

        def load() -> None:
            checkpoint.verify(ours, world)
            checkpoint.load_weights(ours, model)

        tasks: dict[str, Callable[[], object]] = {
            "ours, save": save,
            "theirs, save": lambda: dcp.save(state, checkpoint_id=theirs),
            "ours, beside": lambda: save(background=True),
            "ours, load": load,
            "theirs, load": lambda: dcp.load(dict(weights), checkpoint_id=theirs),
        }
        times: Times = {name: [] for name in tasks}
        for _ in range(options.rounds):
            for name, task in tasks.items():
                times[name].append(measured(world, task))
                writer.wait()
            world.barrier()
            if rank == 0:
                shutil.rmtree(ours)
                shutil.rmtree(theirs)
        if rank == 0:
            results.put(times)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="40m")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; a temporary one by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        results: SimpleQueue[Times] = torch.multiprocessing.get_context("spawn").SimpleQueue()
        torch.multiprocessing.spawn(rank_work, (options, Path(folder), results), options.ranks)
        times = results.get()
    size = sum(4 * shape.numel() for shape in checkpoint.whole(model_preset(options.size)).values())
    print(f"{options.size}: {size / 1e6:,.0f} MB of weights and as much of momenta, {options.ranks} ranks")
    for name, rounds in times.items():
        wall, cpu = (median(values) for values in zip(*rounds, strict=True))
        print(f"{name:14} {wall:6.2f} s  {cpu:6.2f} CPU s")


if __name__ == "__main__":
    main()
