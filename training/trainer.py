"""The trainer: one loop for every objective, on as many ranks as there are, resumable at any moment.

    python -m training.pretrain --config job.json
    torchrun --nproc-per-node 2 -m training.sft --config job.json
    deepspeed --module training.rl.train --config job.json

An objective (`training.objective`: pretraining's, SFT's, RL's, QAT's) says what a step's micro-batches
and their loss are, when it evaluates and when it is finished. The trainer does all else. An update is

    each rank alone      forwards and backwards over its own micro-batches
    all ranks together   sum gradients, losses, maxima and expert counts; one norm, one verdict, one step of MuonClip

Whatever is decided (a spike, an order to stop, a verdict of an evaluation) is decided from numbers that were reduced or
gathered before, so that ranks cannot part ways.

Started again after a kill, a crash or a preemption, the same command goes on from the newest complete checkpoint and
ends with the same weights, bit for bit, on the same number of ranks and threads; on another number, in another layout,
to the rounding of sums. Exit codes: 0 done; 75 (EX_TEMPFAIL) preempted, that is, SIGTERM or SIGINT came (or the
launcher died) and a checkpoint was written; 1 failed, with one sentence on stderr that says why.

The job's folder then holds `checkpoints/`, `metrics.jsonl`, `progress.json`, `preempted.json` after a preemption, and
at the end `final/` and, last of all, `summary.json`.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import json
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch.utils import deterministic

from model.config import Config
from model.kernels.table import chosen
from model.quantize import seen_state, viewed
from model.transformer import Transformer, update_router_bias
from training import checkpoint, checkpoint_writer
from training.cache import ShardError
from training.checkpoint import CheckpointError
from training.config import RunConfig, SpikeConfig
from training.engine import Engine, MicroBatch
from training.expert_parallel import network, pieces
from training.job import Job, JobError, Preemption, held
from training.layout import LayoutError
from training.mesh import Mesh, arrange
from training.metrics import Metrics, replace_file, write_progress
from training.muonclip import MuonClip, MuonClipError
from training.objective import Diverged, Objective
from training.order import OrderError
from training.parallel import RankError, join
from training.replicas import Replicas
from training.spikes import Rollbacks, Spike, SpikeDetector
from training.telemetry import Clock, Totals, joined, measured
from training.watchdog import Watchdog

log = logging.getLogger(__name__)

DONE, FAILED, PREEMPTED = 0, 1, 75


EXPECTED = (OSError, JobError, LayoutError, CheckpointError, MuonClipError, Diverged, RankError, ShardError, OrderError)
"""Errors whose sentence is enough; others are logged with their traceback."""


class Trainer:
    """One run: an objective, the model, its optimizer and how far it is."""

    def __init__(
        self,
        kind: type[Objective],
        config: Any,
        job: Job,
        mesh: Mesh,
        device: torch.device,
        preemption: Preemption | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """A run of `job`, whose configuration is `config`, not yet begun or resumed."""
        self.config, self.job, self.work, self.device = config, job, job.work, device
        self.mesh, self.world = mesh, mesh.world
        self.preemption, self.watchdog = preemption or Preemption(), watchdog or Watchdog(None)
        self.run_config: RunConfig = config.run
        self.writer = checkpoint_writer.Writer(self.world, self.run_config.collective_timeout_seconds)
        self.metrics = Metrics(self.work / "metrics.jsonl", -1, writes=False)  # until the run begins
        self.stopping = False
        """Whether some rank was asked to stop, as all have heard."""
        self.objective = kind(self)
        self.rollbacks = Rollbacks(self.work / "rollbacks.jsonl", self.objective.identity)
        mesh.layout.require(self.objective.model)
        self.detector = SpikeDetector(self.objective.spikes or SpikeConfig())
        self._begin()

    def _begin(self) -> None:
        """Everything as it is before the first step, but for what rollbacks leave out."""
        self.model = self.network()
        self.objective.fill(self.model)
        self.engine = self.engine_of(self.model)
        self.replicas = Replicas(self.model, self.mesh)
        self.new_optimizer()
        self.detector.load({})
        self.done = 0
        self.code = [{"hash": self.job.code, "from": 1}]
        self.clock = Clock(self.device, self.world.size, self.run_config.peak_flops)
        self.objective.begin()

    @property
    def step(self) -> str:
        """What a step is called."""
        return self.objective.unit.removesuffix("s")

    def network(self) -> Transformer:
        """This rank's part of the network, its numbers not set."""
        layers = self.mesh.layout.held(self.objective.model, self.mesh.place.pipeline)
        weights = getattr(torch, self.objective.weights)
        model = network(self.objective.model, None, self.mesh.expert, self.device, layers, weights)
        model.memory = self.run_config.memory
        return model

    def engine_of(self, model: Transformer) -> Engine:
        """What runs micro-batches through this rank's part of a network."""
        given = (model, self.mesh, self.device, self.config.dtype, self.watchdog.beat)
        if self.mesh.pipeline.size == 1:
            return Engine(*given)
        from training.pipeline import PipelineEngine  # a second and a half of imports

        return PipelineEngine(*given)

    @torch.no_grad()
    def whole(self, model: Transformer) -> Transformer:
        """All of a network of which every rank has a part, on every rank, with its experts as training sees them;
        `model` itself where it is that already.

        Replies are sampled from it: each rank its own.
        """
        held, cuts, alone = seen_state(model), pieces(model), self.mesh.layout.copy_ranks == 1
        if alone and not viewed(model):
            return model
        with torch.device("meta"):
            made = Transformer(model.config).to(next(model.parameters()).dtype).eval()
        made.float32_head = model.float32_head
        if alone:
            made.load_state_dict(held, assign=True)
            return made
        made = made.to_empty(device=self.device)
        for name, tensor in made.state_dict().items():
            tensor.zero_()
            # every part comes from one rank, zeros from the others
            if name in held and (name in cuts or self.mesh.expert.rank == 0):
                first, _ = cuts.get(name, (0, 0))
                tensor[first : first + len(held[name])] = held[name]
            self.mesh.pipeline.all_reduce(self.mesh.expert.all_reduce(tensor))
        return made

    def new_optimizer(self) -> None:
        """An optimizer without memory; that of the former is free before this one takes its own."""
        self.__dict__.pop("optimizer", None)
        self.optimizer = MuonClip.for_model(self.model, self.objective.optimizer, self.mesh)

    # ----------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Train to the end or to a preemption; the exit code."""
        final = self.work / "final"
        if self.world.rank == 0:
            forms = ", ".join(chosen(self.device.type, getattr(torch, self.config.dtype))) or "none"
            log.info("%s on %s; operations in a faster form: %s", self.config.dtype, self.device.type, forms)
            self.work.mkdir(parents=True, exist_ok=True)
            (self.work / "preempted.json").unlink(missing_ok=True)
        if not self._is_finished(final):
            resumed = self._resume()
            self._open_metrics(self.done if resumed else -1)
            try:
                if not resumed and self.objective.measure_first():
                    self.checkpoint()
                finished = self._train()
            except RankError:
                self.writer.close(abandon=True)
                raise
            finally:
                self.writer.close()
                self.objective.close()
                self.metrics.close()
            if not finished:
                return PREEMPTED
            self.watchdog.rest()
            checkpoint_writer.save(final, self.model, self._state(), cuts=self.replicas.cuts, world=self.world)
        if self.world.rank == 0:
            replace_file(self.work / "summary.json", json.dumps(self._summary(), indent=1, allow_nan=False) + "\n")
        self.progress("finished")
        return DONE

    def _train(self) -> bool:
        """All steps that are left; False where a preemption ended them early, a checkpoint written."""
        objective = self.objective
        self.progress("running", **objective.progress())
        while not objective.finished:
            number = self.done + 1
            self.watchdog.beat(f"{self.step} {number}")
            try:
                note = objective.step(number)
            except Spike as spike:
                self._roll_back(number, str(spike))
                continue
            self.done = number
            if objective.evaluates(number):
                self.watchdog.beat(f"the evaluation after {self.step} {number}")
                objective.evaluate(number)
            if self.stopping or objective.milestone(number) or number % self.run_config.checkpoint_every == 0:
                self.checkpoint()
            if self.stopping and not objective.finished:
                self._preempted(note)
                return False
            self.progress("running", note=note, **objective.progress())
        self._settle()
        return True

    def _settle(self) -> None:
        """Wait for the checkpoint that is being written: a slow disk is no stall."""
        self.watchdog.rest()
        self.writer.settle()

    def _preempted(self, note: str) -> None:
        self._settle()
        log.warning("stopping at %s %d as asked; the same command goes on", self.step, self.done)
        self.progress("preempted", note=note)
        if self.world.rank == 0:
            replace_file(self.work / "preempted.json", json.dumps({"step": self.done}) + "\n")

    def _summary(self) -> dict[str, Any]:
        ran = {"ranks": self.world.size, "layout": self.mesh.layout.model_dump(), "code": self.code}
        return {**ran, **self.objective.summary()}

    def progress(self, status: str, **values: Any) -> None:
        """Tell a launcher where the run stands."""
        if self.world.rank == 0:
            total, unit = self.objective.steps, self.objective.unit
            write_progress(self.work / "progress.json", self.done, total, status, unit=unit, **values)

    # ------------------------------------------------------------------------------------------------------- update

    def update(
        self, parts: Sequence[MicroBatch], learning_rate: float, stage: str = "", bias_update_rate: float = 0.0
    ) -> tuple[Totals, dict[str, Any]]:
        """One optimizer update from this rank's micro-batches: its sums over all ranks, and what to record of it.

        Raises `Spike`, on every rank and having changed no weight, where it must not be applied; `stage` names the
        updates that it is compared with.
        """
        totals = self.accumulate(parts)
        return totals, self.apply(totals, learning_rate, stage, bias_update_rate)

    def accumulate(self, parts: Sequence[MicroBatch]) -> Totals:
        """Gradients of the global batch, and the losses, maxima and counts of all ranks: the same on each."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        sums = self.engine.train(parts)
        flags = {"stop": self.preemption.asked, "lost": self.writer.failed}
        totals = joined(sums, self.objective.measures, self.engine.layers, self.objective.model, flags, self.world)
        self.stopping |= "stop" in totals.flags
        if "lost" in totals.flags:
            self.writer.check()
            raise CheckpointError("another rank could not write its part of a checkpoint: its log says why")
        self.replicas.reduce_gradients()
        return totals

    def apply(
        self, totals: Totals, learning_rate: float, stage: str = "", bias_update_rate: float = 0.0
    ) -> dict[str, Any]:
        """Clip, judge, step and balance; what to record of it."""
        gradient_norm = self.replicas.clip_gradients(self.config.gradient_clip)
        self._judge(stage, totals.loss, gradient_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step(max_logits_LH=totals.max_logits_LH)
        if bias_update_rate:
            dense = self.model.config.first_k_dense_replace
            mixtures = [layer - dense for layer in self.model.held if layer >= dense]
            update_router_bias(self.model, totals.expert_counts_LE[mixtures], bias_update_rate)
        if self.objective.spikes is not None:  # else there is nothing to compare with, and only NaN is a spike
            self.detector.applied(stage, totals.loss, gradient_norm)
        return measured(totals, gradient_norm, self.optimizer)

    def _judge(self, stage: str, loss: float, gradient_norm: float) -> None:
        """Raise `Spike` on every rank where the update is one for any."""
        reason = self.detector.judge(stage, loss, gradient_norm)
        if float(self.world.all_reduce(torch.tensor(float(bool(reason)), device=self.device), "max")):
            raise Spike(reason or "another rank saw a spike")

    def total(self, *values: float) -> list[float]:
        """Each value summed over the ranks that have other samples."""
        return self.mesh.data.all_reduce(torch.tensor(values, dtype=torch.float64, device=self.device)).tolist()

    # ------------------------------------------------------------------------------------------------- going back

    def _roll_back(self, number: int, reason: str) -> None:
        """Go back to the last good checkpoint and leave out the data from there to the spike, or end the run."""
        self._settle()  # to read a large checkpoint, below, is no stall either
        most = self.objective.spikes.most_rollbacks if self.objective.spikes else None
        if most is not None and len(self.rollbacks.all) >= most:
            raise Diverged(
                f"update {number} is a spike: {reason}; it was not applied, and the run has gone back "
                f"{len(self.rollbacks.all)} times already (run.spikes.most_rollbacks is {most}). Lower the learning "
                "rate or gradient_clip, or allow more rollbacks and start the same command again"
            )
        root = self.work / "checkpoints"
        found = checkpoint.newest(root, self.rollbacks.taken, self.world)
        to = checkpoint.number(found) if found else 0
        self.rollbacks.add(self.objective.rollback(number, to, reason), writes=self.world.rank == 0)
        self._drop_undone(root)
        self.objective.close()
        self._begin()
        if found:
            self._take_up(found)
        self._open_metrics(self.done if found else -1)

    def _open_metrics(self, after: int) -> None:
        """The metrics up to step `after`, to be gone on with."""
        self.metrics.close()
        self.metrics = Metrics(self.work / "metrics.jsonl", after, self.world.rank == 0, self.run_config.trackers)

    # ------------------------------------------------------------------------------------------------ checkpoints

    def checkpoint(self) -> None:
        """Write one of the present step."""
        self.watchdog.beat(f"the checkpoint of {self.step} {self.done}")
        self.metrics.sync()
        self.replicas.assert_equal()
        self.watchdog.rest()  # the one before may still be being written
        self.writer.save(
            self._folder(self.done),
            self.model,
            self._state(),
            self.optimizer.state_dict(),
            self.replicas.cuts,
            background=self.run_config.checkpoint_in_background,
            then=self._prune,
        )

    def _folder(self, step: int) -> Path:
        return self.work / "checkpoints" / f"update-{step:08d}"

    def _prune(self) -> None:
        objective, retention = self.objective, self.run_config.retention
        checkpoint.prune(self.work / "checkpoints", retention, objective.stage_ends)

    def _state(self) -> dict[str, Any]:
        """Where the run stands, as `state.json` has it."""
        return {
            "update": self.done,
            **copy.deepcopy(self.objective.state()),  # written while training goes on
            **self.objective.identity,
            "rollbacks": self.rollbacks.records(),
            "code": list(self.code),
            "recent": self.detector.state,
            "ranks": self.world.size,
            "layout": self.mesh.layout.model_dump(),
        }

    def _check_run(self, directory: Path, state: dict[str, Any]) -> None:
        """Refuse to continue what another configuration, other inputs or an older version began."""
        for name, ours in self.objective.identity.items():
            if state.get(name) != ours:
                what = "another configuration (model, schedule, optimizer, seed or precision)"
                what = what if name == "run" else f"other {name.replace('_', ' ')}"
                raise CheckpointError(
                    f"{directory} was trained with {what}: give this job a work folder of its own, or remove that one"
                )
        if not {"update", "code"} <= state.keys():
            raise CheckpointError(
                f"{directory} was written by an older version, which did not record its code: go on with that version, "
                "or remove the checkpoints to start over"
            )

    def _is_finished(self, final: Path) -> bool:
        """Whether an earlier start wrote this run's `final/`; one that does not verify is written again."""
        if not self.world.from_first(int(final.exists())):
            return False
        try:
            checkpoint.verify(final, self.world)
        except CheckpointError as error:
            log.error("%s; it is written again", error)
            return False
        state = checkpoint.load_state(final)
        self._check_run(final, state)
        self.done, self.code = state["update"], state["code"]
        self.objective.load(state)
        return True

    def _resume(self) -> bool:
        """Take up the newest complete checkpoint; False where there is none."""
        root = self.work / "checkpoints"
        if self.world.rank == 0:
            root.mkdir(parents=True, exist_ok=True)
            self._drop_undone(root)
        found = checkpoint.newest(root, world=self.world)
        if found:
            self._take_up(found)
            total = self.objective.steps
            log.info("resuming at %s %d of %d from checkpoint %s", self.step, self.done, total, found.name)
        elif self.rollbacks.all and self.rollbacks.all[-1].to:  # somebody removed the checkpoint that it went back to
            log.warning("no checkpoint is left: the run starts over, and %s with it", self.rollbacks.path)
            self.rollbacks.replace([], writes=self.world.rank == 0)
            self.objective.close()
            self.objective.begin()
        if self.world.rank == 0:
            self._prune()
        return found is not None

    def _take_up(self, directory: Path) -> None:
        """Go on from a checkpoint, which is this run's."""
        state = checkpoint.load_state(directory)
        self._check_run(directory, state)
        checkpoint.load_weights(directory, self.model, self.replicas.cuts)
        self.optimizer.load_state_dict(checkpoint.load_optimizer_state(directory))
        self.detector.load(state.get("recent", {}))
        self.done = state["update"]
        self.code = state["code"]
        if self.code[-1]["hash"] != self.job.code:
            log.warning("going on with other code than %s %d ended with: recorded", self.step, self.done)
            self.code.append({"hash": self.job.code, "from": self.done + 1})
        self.objective.load(state)

    def _drop_undone(self, root: Path) -> None:
        """Rank 0: delete the checkpoints that a rollback went back past."""
        if self.world.rank == 0 and self.rollbacks.all:
            for directory in checkpoint.checkpoints(root):
                try:
                    known = len(checkpoint.load_state(directory).get("rollbacks", []))
                except (OSError, ValueError):
                    continue  # damaged: `checkpoint.newest` sets it aside, and says so
                if self.rollbacks.undone(checkpoint.number(directory), known):
                    checkpoint.remove(directory)


# ------------------------------------------------------------------------------------------------------ command line


def main(kind: type[Objective], name: str, arguments: Sequence[str] | None = None) -> int:
    """Run the job of `--config`; the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=(kind.__doc__ or "").splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="job.json: config, inputs, work, threads, device")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # the DeepSpeed launcher passes it
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    trainer = None
    try:
        job = Job.read(options.config)
        config: Any = _validated(kind.settings, job, options.config)
        run: RunConfig = config.run
        be_deterministic(job.threads)
        cuda = job.device == "cuda" or (job.device == "auto" and torch.cuda.is_available())
        with (
            held(job.work),
            Preemption().listen() as preemption,
            Watchdog(run.stall_seconds).watch() as watchdog,
            join("cuda" if cuda else "cpu", run.collective_timeout_seconds) as world,
        ):
            device = torch.device("cuda", world.local_rank) if cuda else torch.device("cpu")
            mesh = arrange(world, run.layout, run.collective_timeout_seconds)
            trainer = Trainer(kind, config, job, mesh, device, preemption, watchdog)
            return trainer.run()
    except Exception as error:
        if not isinstance(error, EXPECTED):
            log.exception("an error that nobody expected")
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # the launcher reads the last such line
        if trainer is not None:
            with contextlib.suppress(OSError):  # a full disk must not hide the sentence above
                trainer.progress("failed", note=str(error))
        return FAILED


def _validated(settings: type[Config], job: Job, path: Path) -> Config:
    try:
        return job.configured(settings)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(item) for item in ("config", *first["loc"]))
        raise JobError(f"{path}: {where}: {first['msg']}") from None


def be_deterministic(threads: int | None) -> None:
    """The same bits on every start: fixed algorithms and a fixed number of threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # a debugging aid that would write every new tensor twice
    setattr(deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (a property that type checkers do not see)
    if threads:
        torch.set_num_threads(threads)
