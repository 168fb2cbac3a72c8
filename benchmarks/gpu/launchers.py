"""6. NCCL with one rank, a run under each launcher, and one that is preempted and resumed.

NCCL puts no two ranks on one GPU: the collectives that training makes run in a group of one, which shows that they
exist for these dtypes and shapes, and no more.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist

from benchmarks.gpu.common import HOUSE, Bench
from tasks import process
from tasks.launch import RENDEZVOUS, STORE, Execution, command, meeting
from tests.training.data import artifact
from tests.training.runs import MODEL, VOCABULARY
from training import checkpoint

Launcher = Literal["torchrun", "deepspeed"]
UPDATES = 40
LIMIT = 60


def main() -> int:
    bench = Bench.begin("launchers", __doc__)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        bench.part("collectives", lambda: collectives(bench, root))
        bench.part("torchrun", lambda: {"exit": run(bench, root, "torchrun", "torchrun")})
        if find_spec("deepspeed") and not bench.tiny:
            bench.part("deepspeed", lambda: {"exit": run(bench, root, "deepspeed", "deepspeed")})
        else:
            bench.part("deepspeed", lambda: {"skipped": "DeepSpeed is not installed, or this is a CPU"})
        if not bench.tiny:
            bench.part("preemption", lambda: preempted(bench, root))
    return bench.end()


def collectives(bench: Bench, root: Path) -> dict[str, Any]:
    """Every collective of `training.parallel` in a group of one rank."""
    dist.init_process_group(
        "gloo" if bench.tiny else "nccl", rank=0, world_size=1, store=dist.FileStore(str(root / "meeting"), 1)
    )
    try:
        found: dict[str, Any] = {"backend": dist.get_backend()}
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64):
            numbers = torch.arange(1000, device=bench.device).to(dtype)
            before, arrived = numbers.clone(), torch.empty_like(numbers)
            dist.all_reduce(numbers)
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
            dist.broadcast(numbers, group_src=0, async_op=True).wait()
            dist.all_to_all_single(arrived, numbers, [1000], [1000])
            found[str(dtype)] = torch.equal(arrived, before)
        told: list[Any] = [None]
        dist.all_gather_object(told, {"rank": 0})
        dist.barrier()
        return found | {"objects": told == [{"rank": 0}]}
    finally:
        dist.destroy_process_group()


def begin(bench: Bench, root: Path, name: str, launcher: Launcher) -> subprocess.Popen[bytes]:
    """A small run of pretraining as the recipe launches it, with one process."""
    work = root / name
    work.mkdir(parents=True, exist_ok=True)
    updates = 2 if bench.tiny else UPDATES
    stage = {
        "name": "constant",
        "updates": updates,
        "sequence_length": 32,
        "batch": 4,
        "rate": {"start": 0.01, "end": 0.01},
    }
    config = {"model": MODEL, "stages": [stage], "evaluation_samples": 2, "dtype": "bfloat16",
              "optimizer": {"newton_schulz_dtype": "bfloat16"},
              "run": {"micro_batch": 2, "checkpoint_every": 10}}  # fmt: skip
    shards = root / "shards"
    tokens = next(shards.glob("tokens/*"), None)
    uri = str(tokens) if tokens else artifact(shards, {"train/web/made/0": [40] * 40, "heldout/web/made/0": [40] * 4})
    record = {"config": config | {"model": MODEL | {"vocab_size": max(VOCABULARY, 2048)}}, "inputs": {"tokens": uri},
              "work": str(work), "threads": 1, "device": bench.device.type}  # fmt: skip
    job = work / "job.json"
    job.write_text(json.dumps(record))
    execution = Execution(launcher=launcher, processes=1, threads=1, device=bench.kind)
    for name in (RENDEZVOUS, STORE):
        (work / name).unlink(missing_ok=True)
    environment = {"PYTHONPATH": str(HOUSE), "OMP_NUM_THREADS": "1", **meeting(work)}
    return process.start(command("training.pretrain", job, execution), work / "log.txt", environment)


def run(bench: Bench, root: Path, name: str, launcher: Launcher) -> int:
    """The exit code of a run; its log where it is not 0."""
    code = ended(begin(bench, root, name, launcher))
    if code:
        print((root / name / "log.txt").read_text(), flush=True)
        raise ChildProcessError(f"exit code {code} (-1: ended after {LIMIT} s): the log above says why")
    return code


def ended(child: subprocess.Popen[bytes]) -> int:
    """Its exit code; none outlives its limit."""
    try:
        return child.wait(LIMIT)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        process.stop(child, grace=5)


def preempted(bench: Bench, root: Path) -> dict[str, Any]:
    """A run that is asked to stop half way and started again ends with the weights of the undisturbed one."""
    child = begin(bench, root, "asked", "torchrun")
    progress = root / "asked" / "progress.json"
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline and not (progress.exists() and json.loads(progress.read_text())["done"] >= 5):
        time.sleep(0.02)
    child.send_signal(signal.SIGTERM)
    ended(child)
    stopped = (root / "asked" / "preempted.json").exists()
    code = run(bench, root, "asked", "torchrun")
    first, second = (checkpoint.load_model(root / name / "final").state_dict() for name in ("torchrun", "asked"))
    same = all(torch.equal(first[name], second[name]) for name in first)
    found = {"wrote_a_checkpoint": stopped, "exit": code, "same_bits": same}
    return found | ({} if same and stopped else {"failed": "the resumed run is not the undisturbed one"})


if __name__ == "__main__":
    sys.exit(main())
