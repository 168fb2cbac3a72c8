"""Pretraining: the staged loop, from a job file to `final/`, resumable at any moment.

    python -m training.pretrain --config job.json
    torchrun --nproc-per-node 2 -m training.pretrain --config job.json
    deepspeed --module training.pretrain --config job.json

Started again after a kill, a crash or a preemption, the same command goes on from the newest complete checkpoint and
ends with the same weights, bit for bit, on the same number of ranks and threads. Exit codes: 0 done; 75 (EX_TEMPFAIL)
preempted, that is, SIGTERM or SIGINT came (or the launcher died) and a checkpoint was written; 1 failed, with one
sentence on stderr that says why.

The job's folder then holds `checkpoints/`, `metrics.jsonl`, `progress.json`, `preempted.json` after a preemption, and
at the end `final/` and, last of all, `summary.json`.

Shapes: B samples, S tokens of a sample, L layers, H heads, E experts.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch.utils import deterministic

from model.config import YarnConfig, parameter_count
from model.transformer import update_router_bias
from training import checkpoint, checkpoint_writer
from training.cache import Cache, ShardError
from training.checkpoint import CheckpointError
from training.config import PretrainConfig
from training.engine import engine
from training.expert_parallel import network
from training.job import Job, JobError, Preemption
from training.layout import LayoutError
from training.loader import Batch, Loader
from training.mesh import Mesh, arrange
from training.metrics import Metrics, replace_file, summarise, write_progress
from training.muonclip import MuonClip, MuonClipError
from training.order import OrderError
from training.parallel import RankError, join
from training.replicas import Replicas
from training.samples import IGNORED
from training.schedule import Stage, Update
from training.shards import TokenShards
from training.spikes import Rollback, Rollbacks, Spike, SpikeDetector, parse
from training.streams import Streams
from training.telemetry import Clock, Totals, joined, record, record_heads
from training.watchdog import Watchdog

log = logging.getLogger(__name__)

DONE, FAILED, PREEMPTED = 0, 1, 75


class Diverged(RuntimeError):
    """The loss or the gradient went out of bounds, or is not a number, more often than the run may go round it."""


EXPECTED = (OSError, JobError, LayoutError, CheckpointError, MuonClipError, Diverged, RankError, ShardError, OrderError)
"""Errors whose sentence is enough; others are logged with their traceback."""


class Trainer:
    """One run: model, optimizer, data and the position in the schedule."""

    def __init__(
        self,
        config: PretrainConfig,
        tokens: str,
        work: Path,
        mesh: Mesh,
        device: torch.device,
        preemption: Preemption | None = None,
        watchdog: Watchdog | None = None,
    ) -> None:
        """A run of `config` on the token shards at `tokens`, in the folder `work`, not yet begun or resumed."""
        self.config, self.tokens, self.work, self.device = config, tokens, work, device
        self.mesh, self.world = mesh, mesh.world
        self.plan, self.preemption = config.stages, preemption or Preemption()
        self.watchdog = watchdog or Watchdog(None)
        self.rollbacks = Rollbacks(work / "rollbacks.jsonl")
        self.detector = SpikeDetector(config.run.spikes)
        self.writer = checkpoint_writer.Writer(self.world, config.run.collective_timeout_seconds)
        self.cache = Cache.from_environment()
        self.shards = TokenShards(tokens, self.cache)
        if self.shards.vocabulary > config.model.vocab_size:
            raise ShardError(
                f"{tokens} has {self.shards.vocabulary} token ids and the model {config.model.vocab_size}: "
                "set model.vocab_size to the tokenizer's"
            )
        self._begin()
        self.streams.require()
        self.heldout: dict[tuple[str, int], Loader] = {}
        self.shards.shards("heldout")

    def _begin(self) -> None:
        """Everything as it is before the first update, but for the samples that rollbacks leave out."""
        layers = self.mesh.layout.held(self.config.model, self.mesh.place.pipeline)
        weights = getattr(torch, self.config.weights)
        self.model = network(self.config.model, self.config.seed, self.mesh.expert, self.device, layers, weights)
        self.engine = engine(self.model, self.config, self.mesh, self.device, self.watchdog.beat)
        self.optimizer = MuonClip.for_model(self.model, self.config.optimizer, self.mesh)
        self.replicas = Replicas(self.model, self.mesh)
        self.detector.load({})
        self.done = 0
        self._open_streams()

    def _open_streams(self) -> None:
        self.streams = Streams(self.config, self.tokens, self.cache, self.mesh, self.rollbacks.all)

    # ----------------------------------------------------------------------------------------------------- the run

    def run(self) -> int:
        """Train to the end or to a preemption; the exit code."""
        final = self.work / "final"
        if self.world.rank == 0:
            self.work.mkdir(parents=True, exist_ok=True)
            (self.work / "preempted.json").unlink(missing_ok=True)
        if not self._is_finished(final):
            self._resume()
            try:
                finished = self._train()
            except RankError:
                self.writer.close(abandon=True)
                raise
            finally:
                self.writer.close()
                self.streams.close()
            if not finished:
                return PREEMPTED
            self.watchdog.beat("writing final/")
            checkpoint_writer.save(final, self.model, self._state(), cuts=self.replicas.cuts, world=self.world)
        self.done = self.plan.updates
        if self.world.rank == 0:
            replace_file(self.work / "summary.json", json.dumps(self._summary(), indent=1, allow_nan=False) + "\n")
        self.progress("finished")
        return DONE

    def _summary(self) -> dict[str, Any]:
        """What `summary.json` tells of the whole run."""
        count = parameter_count(self.config.model)
        return {
            "parameters": count.total,
            "active_parameters": count.active,
            "ranks": self.world.size,
            "layout": self.mesh.layout.model_dump(),
            **summarise(self.work / "metrics.jsonl"),
            "epochs": self.streams.epochs(),
            "skipped": self.streams.skipped,
            "rollbacks": self.rollbacks.records(),
        }

    def _train(self) -> bool:
        """All updates that are left; False where a preemption ended them early, a checkpoint written."""
        metrics = self._metrics()
        clock = Clock(self)
        self.progress("running")
        while self.done < self.plan.updates:
            update = self.plan.update(self.done + 1)
            self.watchdog.beat(f"update {update.number}")
            try:
                totals = self._update(update, metrics, clock)
            except Spike as spike:
                metrics.close()
                self._roll_back(update, str(spike))
                metrics = self._metrics()
                continue
            self.done += 1
            last = self.done == self.plan.updates
            stage_ends = last or self.plan.update(self.done + 1).span != update.span
            if stage_ends or (self.config.evaluate_every and self.done % self.config.evaluate_every == 0):
                losses = self._evaluate(update.stage)
                metrics.write("evaluation", self.done, stage=update.stage.name, losses=losses)
            if stage_ends or "stop" in totals.flags or self.done % self.config.run.checkpoint_every == 0:
                self.watchdog.beat(f"the checkpoint of update {self.done}")
                metrics.sync()
                self._checkpoint()
            note = f"{update.stage.name}, loss {totals.loss:.3f}, {1 / clock.seconds_per_token:,.0f} tokens/s"
            if "stop" in totals.flags and not last:
                self.writer.settle()
                log.warning("stopping at update %d as asked; the same command goes on", self.done)
                self.progress("preempted", note=note)
                if self.world.rank == 0:
                    replace_file(self.work / "preempted.json", json.dumps({"update": self.done}) + "\n")
                metrics.close()
                return False
            self.progress("running", note=note, **clock.progress())
        self.writer.settle()
        metrics.close()
        return True

    def _metrics(self) -> Metrics:
        """The metrics up to the last update done, to be gone on with."""
        return Metrics(self.work / "metrics.jsonl", self.done, self.world.rank == 0, self.config.run.trackers)

    def _update(self, update: Update, metrics: Metrics, clock: Clock) -> Totals:
        """One optimizer update: accumulate, reduce, clip, step, balance. Raises `Spike` and changes no weight where it
        must not be applied."""
        self._set_window(update.stage)
        batch = self._read(update, metrics)
        self._prefetch(update.number)
        totals = self._accumulate(update, batch)
        self.replicas.reduce_gradients()
        gradient_norm = self.replicas.clip_gradients(self.config.gradient_clip)
        self._judge(update, totals, gradient_norm)
        for group in self.optimizer.param_groups:
            group["lr"] = update.learning_rate
        self.optimizer.step(max_logits_LH=totals.max_logits_LH)
        dense = self.config.model.first_k_dense_replace
        mixtures = [layer - dense for layer in self.model.held if layer >= dense]
        update_router_bias(self.model, totals.expert_counts_LE[mixtures], self.config.model.bias_update_rate)
        self.detector.applied(update.stage.name, totals.loss, gradient_norm)
        record(update, totals, gradient_norm, self.optimizer, clock.tick(update), metrics)
        if update.number % self.config.heads_every == 0 or update.number == self.plan.updates:
            record_heads(update, totals, self.optimizer, metrics)
        return totals

    def _read(self, update: Update, metrics: Metrics) -> Batch:
        """This rank's share of the global batch; what is skipped for it is recorded."""
        batch, skipped = self.streams.read(update)
        for key, reason in skipped.items():
            log.warning("update %d: shard %s is skipped from now on: %s", update.number, key, reason)
            metrics.write(
                "skip", update.number, shard=key, first_sample=self.streams.first_sample(update), reason=reason
            )
        return batch

    def _prefetch(self, update: int) -> None:
        """Begin to get the shards of the updates after this one."""
        last = min(update + self.config.run.prefetch_updates, self.plan.updates)
        self.streams.prefetch(self.plan.update(number) for number in range(update + 1, last + 1))

    def _accumulate(self, update: Update, batch: Batch) -> Totals:
        """Gradients over this rank's share of the global batch, and the losses, maxima and counts of all ranks."""
        self.model.train()
        self.optimizer.zero_grad(set_to_none=True)
        targets = self._targets(batch)
        sums = self.engine.train(batch, targets, update.stage.batch)
        flags = {"stop": self.preemption.asked, "lost": self.writer.failed}
        totals = joined(sums, targets, self.engine.layers, self.config.model, flags, self.world)
        if "lost" in totals.flags:
            self.writer.check()
            raise CheckpointError("another rank could not write its part of a checkpoint: its log says why")
        return totals

    def _targets(self, batch: Batch) -> float:
        """Targets of all data ranks' shares that count."""
        return float(self.mesh.data.all_reduce((batch.targets_BS != IGNORED).sum().double().to(self.device)))

    def _judge(self, update: Update, totals: Totals, gradient_norm: float) -> None:
        """Raise `Spike` on every rank where the update is one for any."""
        reason = self.detector.judge(update.stage.name, totals.loss, gradient_norm)
        if float(self.world.all_reduce(torch.tensor(float(bool(reason)), device=self.device), "max")):
            raise Spike(reason or "another rank saw a spike")

    def _roll_back(self, update: Update, reason: str) -> None:
        """Go back to the last good checkpoint and leave out the samples from there to the spike, or end the run."""
        self.writer.settle()
        most = self.config.run.spikes.most_rollbacks
        if len(self.rollbacks.all) >= most:
            raise Diverged(
                f"update {update.number} ({update.stage.name}) is a spike: {reason}; it was not applied, and the run "
                f"has gone back {len(self.rollbacks.all)} times already (run.spikes.most_rollbacks is {most}). Lower "
                "the learning rate or gradient_clip, or allow more rollbacks and start the same command again"
            )
        self.watchdog.rest()  # reading a large checkpoint is no stall
        root = self.work / "checkpoints"
        found = checkpoint.newest(root, self.rollbacks.taken, self.world)
        to = checkpoint.number(found) if found else 0
        lost = [self.plan.update(number) for number in range(to + 1, update.number + 1)]
        first = self.streams.first_sample(next(each for each in lost if each.stream == update.stream))
        end = self.streams.first_sample(update) + update.stage.batch
        log.warning(
            "update %d is a spike (%s); back to update %d, without the samples %d to %d of stream %d",
            *(update.number, reason, to, first, end - 1, update.stream),
        )
        rollback = Rollback(update.number, to, update.stream, first, end, reason)
        self.rollbacks.add(rollback, writes=self.world.rank == 0)
        self._drop_undone(root)
        self.streams.close()
        self._begin()
        if found:
            self._take_up(found)

    @torch.no_grad()
    def _evaluate(self, stage: Stage) -> dict[str, float]:
        """Mean cross-entropy of the held-out samples by domain, at the stage's window; the model is left as it was."""
        self.model.eval()
        losses = {}
        for domain, windows in sorted(self.shards.windows("heldout", stage.sequence_length).items()):
            if not windows:
                continue  # a domain too small for one sample of this length has no loss to show
            key = (domain, stage.sequence_length)
            if key not in self.heldout:
                self.heldout[key] = Loader(
                    self.tokens,
                    "heldout",
                    {domain: 1.0},
                    seed=0,
                    sequence_length=stage.sequence_length,
                    cache=self.cache,
                )
            samples = min(windows, self.config.evaluation_samples)
            share = self.mesh.data.share(samples)
            batch = self.heldout[key].batch(share.start, len(share))
            total = self.world.all_reduce(self.engine.evaluate(batch, samples))
            losses[domain] = float(total) / self._targets(batch)
        return losses

    # ----------------------------------------------------------------------------------------------------- position

    def _set_window(self, stage: Stage) -> None:
        """Give the model the stage's RoPE, plain or stretched by YaRN over the window it was built with, and what its
        activations are kept as."""
        self.model.memory = self.config.run.memory_in(stage.name)
        window = self.config.model.max_position_embeddings
        yarn, reach = None, window
        if stage.yarn_factor > 1:
            yarn = YarnConfig(factor=stage.yarn_factor, original_max_position_embeddings=window)
            reach = int(stage.yarn_factor * window)
        if self.model.config.rope_scaling != yarn or self.model.config.max_position_embeddings != reach:
            self.model.set_yarn(yarn, reach)

    def _state(self) -> dict[str, Any]:
        """Where the run stands, as `state.json` has it."""
        last = self.plan.update(self.done)
        return {
            "update": self.done,
            "stage": last.stage.name,
            "tokens": last.tokens_after,
            "samples": self.streams.consumed(self.done),
            "skipped": self.streams.skipped,
            "rollbacks": self.rollbacks.records(),
            "recent": self.detector.state,
            "seed": self.config.seed,
            "run": self.config.fingerprint,
            "tokens_content": self.shards.content,
            "ranks": self.world.size,
            "layout": self.mesh.layout.model_dump(),
        }

    def _check_run(self, directory: Path, state: dict[str, Any]) -> None:
        """Refuse to continue what another model, plan, seed or corpus began."""
        for key, ours, what in (
            ("run", self.config.fingerprint, "another configuration (model, stages, optimizer, seed or precision)"),
            ("tokens_content", self.shards.content, "other token shards"),
        ):
            if state.get(key) != ours:
                raise CheckpointError(
                    f"{directory} was trained with {what}: give this job a work folder of its own, or remove that one"
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
        self._leave_out(state)
        return True

    def _resume(self) -> None:
        """Take up the newest complete checkpoint, if there is one."""
        root = self.work / "checkpoints"
        if self.world.rank == 0:
            root.mkdir(parents=True, exist_ok=True)
            self._drop_undone(root)
        found = checkpoint.newest(root, world=self.world)
        if self.world.rank == 0:
            self._prune(root)
        if found:
            self._take_up(found)
            log.info("resuming at update %d of %d from checkpoint %s", self.done, self.plan.updates, found.name)

    def _take_up(self, directory: Path) -> None:
        """Go on from a checkpoint, which is this run's."""
        state = checkpoint.load_state(directory)
        self._check_run(directory, state)
        self._leave_out(state)
        checkpoint.load_weights(directory, self.model, self.replicas.cuts)
        self.optimizer.load_state_dict(checkpoint.load_optimizer_state(directory))
        self.detector.load(state.get("recent", {}))
        self.done = state["update"]
        self._set_window(self.plan.update(self.done).stage)  # after the last update nothing else would

    def _leave_out(self, state: dict[str, Any]) -> None:
        """Leave out the samples that were left out when `state` was written."""
        known = parse(state.get("rollbacks", []))
        if len(known) > len(self.rollbacks.all):  # the checkpoint came here without the file
            self.rollbacks.replace(known, writes=self.world.rank == 0)
            self.streams.close()
            self._open_streams()
        self.streams.skip(state.get("skipped", []))

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

    def _checkpoint(self) -> None:
        self.replicas.assert_equal()
        root = self.work / "checkpoints"
        self.writer.save(
            root / f"update-{self.done:08d}",
            self.model,
            self._state(),
            self.optimizer.state_dict(),
            self.replicas.cuts,
            background=self.config.run.checkpoint_in_background,
            then=lambda: self._prune(root),
        )

    def _prune(self, root: Path) -> None:
        ends = {span.first_update + span.updates for span in self.plan.spans}
        checkpoint.prune(root, self.config.run.retention, ends)

    def progress(self, status: str, **values: Any) -> None:
        """Tell a launcher where the run stands."""
        if self.world.rank == 0:
            write_progress(self.work / "progress.json", self.done, self.plan.updates, status, **values)


def main(arguments: list[str] | None = None) -> int:
    """Run the job of `--config`; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.pretrain", description=__doc__.splitlines()[0])
    parser.add_argument("--config", type=Path, required=True, help="job.json: config, inputs, work, threads, device")
    parser.add_argument("--local_rank", type=int, help=argparse.SUPPRESS)  # the DeepSpeed launcher passes it
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    trainer = None
    try:
        job = Job.read(options.config)
        config = _validated(job, options.config)
        _be_deterministic(job.threads)
        cuda = job.device == "cuda" or (job.device == "auto" and torch.cuda.is_available())
        with (
            Preemption().listen() as preemption,
            Watchdog(config.run.stall_seconds).watch() as watchdog,
            join("cuda" if cuda else "cpu", config.run.collective_timeout_seconds) as world,
        ):
            device = torch.device("cuda", world.local_rank) if cuda else torch.device("cpu")
            mesh = arrange(world, config.run.layout, config.run.collective_timeout_seconds)
            trainer = Trainer(config, job.input("tokens"), job.work, mesh, device, preemption, watchdog)
            return trainer.run()
    except (OSError, ValueError, RuntimeError) as error:
        if not isinstance(error, EXPECTED):
            log.exception("an error that nobody expected")
        sys.stderr.write(f"{type(error).__name__}: {error}\n")  # the launcher reads the last such line
        if trainer is not None:
            trainer.progress("failed", note=str(error))
        return FAILED


def _validated(job: Job, path: Path) -> PretrainConfig:
    try:
        return job.configured(PretrainConfig)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(item) for item in ("config", *first["loc"]))
        raise JobError(f"{path}: {where}: {first['msg']}") from None


def _be_deterministic(threads: int | None) -> None:
    """The same bits on every start: fixed algorithms and a fixed number of threads."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    # a debugging aid that would write every new tensor twice
    setattr(deterministic, "fill_uninitialized_memory", False)  # noqa: B010 (a property that type checkers do not see)
    if threads:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    sys.exit(main())
