"""What SFT and RL share: a run with checkpoints, metrics and progress that can be killed at any moment, and one update.

A run is a sequence of numbered steps; step n depends on the weights, the optimizer, a small JSON state and the seed
alone, so that a run taken up at its newest checkpoint ends with the same bytes as one that was never stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import logging
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError

from model.config import Config
from model.transformer import Transformer
from training import checkpoint, checkpoint_writer
from training.cache import ShardError, read_manifest
from training.checkpoint import CheckpointError
from training.config import RetentionConfig
from training.job import Job, JobError, Preemption
from training.metrics import Metrics, replace_file, write_progress
from training.muonclip import MuonClip, MuonClipError

log = logging.getLogger(__name__)

DONE, FAILED, PREEMPTED = 0, 1, 75
KEEP = RetentionConfig(newest=3)  # SFT goes back to its last evaluation, also past one that a preemption wrote


class Diverged(RuntimeError):
    """A loss or a gradient is not a number any more, or two computations of one number disagree."""


class Preempted(RuntimeError):
    """SIGTERM or SIGINT asked the run to stop, and a checkpoint was written."""


EXPECTED = (OSError, ValidationError, JobError, CheckpointError, MuonClipError, ShardError, Diverged)
"""Errors whose sentence is enough; others are logged with their traceback."""


class Run:
    """One run in the folder of its job."""

    def __init__(
        self, job: Job, config: Config, model: Transformer, optimizer: MuonClip, unit: str, total: int
    ) -> None:
        self.job, self.model, self.optimizer = job, model, optimizer
        self.unit, self.total = unit, total
        self.identity = identity(job, config)
        self.root = job.work / "checkpoints"
        self.step = 0
        self.state: dict[str, Any] = {}
        self.metrics_bytes = 0
        self._until_finished = contextlib.ExitStack()
        self.preemption = self._until_finished.enter_context(Preemption().listen())
        self._resume()
        self._open_metrics()

    @property
    def asked(self) -> bool:
        """Whether the run was asked to stop."""
        return self.preemption.asked

    def _resume(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        (self.job.work / "preempted.json").unlink(missing_ok=True)
        found = checkpoint.newest(self.root)
        checkpoint.prune(self.root, KEEP)
        if found is None:
            return
        self.load(found)
        log.info("resuming at %s %d of %d", self.unit, self.step, self.total)

    def load(self, directory: Path) -> None:
        """Take up a checkpoint of this run; CheckpointError where it is another run's."""
        state = checkpoint.load_state(directory)
        if state["run"] != self.identity:
            raise CheckpointError(
                f"{directory} belongs to another configuration or to other inputs: give this job a work folder of its "
                "own, or remove that one"
            )
        checkpoint.load_weights(directory, self.model)
        self.optimizer.load_state_dict(checkpoint.load_optimizer_state(directory))
        self.step, self.state, self.metrics_bytes = state["step"], state["state"], state["metrics_bytes"]

    def folder(self, step: int) -> Path:
        """Where the checkpoint of a step lies."""
        return self.root / f"update-{step:08d}"

    def save(self) -> None:
        """Write the checkpoint of the present step."""
        self.metrics.sync()
        length = (self.job.work / "metrics.jsonl").stat().st_size
        state = {"step": self.step, "run": self.identity, "state": self.state, "metrics_bytes": length}
        checkpoint_writer.save(self.folder(self.step), self.model, state, self.optimizer.state_dict())
        checkpoint.prune(self.root, KEEP)

    def back_to(self, step: int) -> None:
        """Take up the checkpoint of an earlier step of this run, and drop what was recorded after it."""
        self.load(self.folder(step))
        self.metrics.close()
        self._open_metrics()

    def _open_metrics(self) -> None:
        """Go on in `metrics.jsonl` where the checkpoint was written. By its length and not by the step alone: an
        evaluation has the step of the update before it, and would be kept and written again."""
        path = self.job.work / "metrics.jsonl"
        if path.exists():
            os.truncate(path, min(self.metrics_bytes, path.stat().st_size))
        self.metrics = Metrics(path, after=self.step)

    def tell(self, note: str, status: str = "running") -> None:
        """Tell the launcher where the run stands."""
        write_progress(self.job.work / "progress.json", self.step, self.total, status, unit=self.unit, note=note)

    def pause_if_asked(self) -> None:
        """Raise Preempted, a checkpoint written, where a signal came."""
        if self.asked:
            self.save()
            (self.job.work / "preempted.json").write_text(json.dumps({"step": self.step}) + "\n", encoding="utf-8")
            raise Preempted(f"stopped at {self.unit} {self.step} as asked; the same command goes on")

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write `final/`, and last of all `summary.json`."""
        self.metrics.sync()
        self.metrics.close()
        checkpoint_writer.save(self.job.work / "final", self.model, {"step": self.step, "run": self.identity})
        replace_file(self.job.work / "summary.json", json.dumps(summary, indent=1, allow_nan=False) + "\n")
        self.tell("finished", "finished")
        self._until_finished.close()


def identity(job: Job, config: Config) -> str:
    """sha256 of the configuration and of the inputs' fingerprints, by which a checkpoint knows its run."""
    inputs = {name: read_manifest(uri)["fingerprint"] for name, uri in job.inputs.items()}
    text = json.dumps({"config": config.model_dump(mode="json"), "inputs": inputs}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def update(
    model: Transformer, optimizer: MuonClip, lr: float, clip: float, micro_batches: Sequence[Callable[[], tuple]]
) -> dict[str, float]:
    """One optimizer update from micro-batches, each a function that gives (loss, max_logits_LH) to be summed.

    Returns the sum of the losses, the gradient's norm, the largest logit and the update's RMS.

    Raises:
        Diverged: the loss or the gradient is not finite; nothing was applied.
    """
    model.train()
    optimizer.zero_grad(set_to_none=True)
    total, maxima_LH = 0.0, None
    for micro_batch in micro_batches:
        loss, logits_LH = micro_batch()
        loss.backward()
        total += float(loss.detach())
        maxima_LH = logits_LH if maxima_LH is None else torch.maximum(maxima_LH, logits_LH)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    norm = float(torch.nn.utils.clip_grad_norm_(parameters, clip))
    if not (math.isfinite(total) and math.isfinite(norm)):
        raise Diverged(
            f"the loss is {total} and the gradient's norm {norm}: nothing was applied; lower the learning rate"
        )
    for group in optimizer.param_groups:
        group["lr"] = lr
    optimizer.step(max_logits_LH=maxima_LH)
    assert maxima_LH is not None
    report = optimizer.last_report
    assert report is not None
    return {
        "loss": total,
        "gradient_norm": norm,
        "max_logit": float(maxima_LH.max()),
        "clipped_heads": report.clipped_heads,
        "update_rms": report.update_rms,
    }


def seeded(*parts: Any) -> int:
    """A 63-bit seed from what names a draw: independent streams without shared state."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "little") >> 1


def main(run: Callable[[Job], None], name: str, arguments: Sequence[str] | None = None) -> int:
    """The command line of a post-training job; the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--config", type=Path, required=True, help="job.json: config, inputs, work, threads, device")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # the DeepSpeed launcher passes it
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    try:
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            raise JobError(f"{name} runs on one rank: set execution.processes and execution.nodes to 1 for it")
        job = Job.read(options.config)
        if job.threads:
            torch.set_num_threads(job.threads)
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # debugging aid, slow
        run(job)
    except Preempted as stop:
        log.warning("%s", stop)
        return PREEMPTED
    except EXPECTED as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # the launcher reads the last such line
        return FAILED
    return DONE
