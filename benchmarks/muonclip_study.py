"""MuonClip against AdamW at equal tokens, and QK-Clip against logits forced up, on the laptop preset's network.

    python benchmarks/muonclip_study.py --tokens data/tokens/FINGERPRINT [--work study] [--out docs/claims/muonclip]
                                        [--threads 1] [--seconds 280] [--tables]

FINGERPRINT is the token artifact of a run of the preset (`make run`, or `openk2 run` as far as its tokens). Runs go one
after another, each as the recipe starts it (`python -m training.pretrain`); finished ones are skipped, and one that was
stopped goes on from its checkpoint, so that the same command goes on until it has exit code 0. After `--seconds` it
stops by itself with exit code 75. `--tables` runs nothing and writes the tables and drawings of what is there.

- sweep: MuonClip and AdamW (of the same configuration, `optimizer.matrices: adamw`) at the peak rates of `Design.rates`
  on a seed of their own; while the best is the lowest or the highest rate, another one beyond it.
- equal: both at their best rate on other seeds; MuonClip also on shorter plans of its own, decay included, until one
  ends above AdamW's loss: between them lie the tokens that it takes to reach that loss.
- forced: a rate far above the best, tau out of reach ("muon") and low ("muonclip"); tail: the latter, gone on with at
  the rate at which its plan ends.

What comes of it stands in docs/claims/muonclip.md; `muonclip_findings.py` has the statistics.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HOUSE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HOUSE)]

from benchmarks import muonclip_findings as findings  # noqa: E402
from flows.precision import settle  # noqa: E402
from flows.preset import load_preset  # noqa: E402
from flows.request import Request  # noqa: E402
from tasks import process  # noqa: E402
from tasks.launch import CPU_ENVIRONMENT, GRACE, POLL  # noqa: E402
from tasks.progress import Progress, listen  # noqa: E402
from training.config import PretrainConfig, SpikeConfig  # noqa: E402
from training.schedule import Rate, StagePlan  # noqa: E402

PAUSED = 75
OUT_OF_REACH = 1e9
MOST_RATES = 7  # of one side's sweep
BEYOND = 1.25  # length of a MuonClip plan for what the whole one did not reach


@dataclass(frozen=True)
class Design:
    """What the study runs. Whatever depends on results (the best rate, how short a plan must be) follows by rule."""

    updates: int = 96
    """Of a whole plan: 393,216 tokens at the preset's batch."""
    shares: tuple[float, ...] = (0.5, 0.375, 0.25)
    """Lengths of MuonClip's shorter plans; each after the first only where the one before still ended below AdamW's
    loss."""
    longer: float = 2.0
    """Length of another plan of AdamW's on the first seed: whether what MuonClip saves is a matter of short runs."""
    rates: tuple[float, ...] = (2e-3, 4e-3, 8e-3)
    """Peak learning rates that a sweep begins with, a factor of two apart."""
    sweep_seed: int = 0
    seeds: tuple[int, ...] = (1, 2, 3)
    """Of the comparison: initial weights and order of the samples, the same for both sides."""
    forced_rate: float = 6.4e-2
    forced_tau: float = 20.0
    forced_seeds: tuple[int, ...] = (1, 2)
    tail: int = 96
    """Updates that another forced run of MuonClip goes on at its plan's last rate: does clipping end?"""
    evaluate_every: int = 16


@dataclass(frozen=True)
class Trial:
    """One run."""

    part: str
    side: str
    rate: float
    seed: int
    updates: int
    tau: float | None = None
    """None: the preset's."""
    tail: int = 0
    """Of the updates, the last so many at the rate at which the plan ends."""

    @property
    def name(self) -> str:
        """The folder of the run."""
        tau = "" if self.tau is None or self.side == "muon" else f"-tau{self.tau:g}"
        tail = f"-tail{self.tail}" if self.tail else ""
        return f"{self.side}-rate{self.rate:g}{tau}-seed{self.seed}-updates{self.updates}{tail}"

    def config(self, base: PretrainConfig, design: Design) -> PretrainConfig:
        """The preset's pretraining with this run's plan, seed and optimizer."""
        optimizer = {"matrices": "adamw" if self.side == "adamw" else "muon"}
        if self.tau is not None:
            optimizer["tau"] = self.tau
        run = base.run.model_copy(
            update={
                "checkpoint_every": design.evaluate_every,
                # a rollback would leave samples out of one run and not of the other
                "spikes": SpikeConfig(loss_deviations=1e9, gradient_deviations=1e9),
            }
        )
        values = base.model_copy(
            update={
                "stages": shortened(base.stages, self.rate, self.updates, self.tail),
                "optimizer": base.optimizer.model_copy(update=optimizer),
                "seed": self.seed,
                "evaluate_every": design.evaluate_every,
                "run": run,
            }
        )
        return PretrainConfig.model_validate(values.model_dump())


def shortened(plan: StagePlan, rate: float, updates: int, tail: int = 0) -> StagePlan:
    """The plan's stages of the first window, in proportion but for the warm-up, which keeps its updates; `rate` is the
    peak. The last `tail` of the `updates` stay at the rate where the plan ends. Stages of longer windows are left out:
    their loss is another task's."""
    window = plan.stages[0].sequence_length
    spans = [span for span in plan.spans if span.stage.sequence_length == window]
    whole = spans[-1].first_update + spans[-1].updates
    peak = max(span.stage.rate.end for span in spans if span.stage.rate)
    stages, done = [], 0
    for number, span in enumerate(spans):
        end = span.updates if number == 0 else round((updates - tail) * (span.first_update + span.updates) / whole)
        curve = span.stage.rate
        scaled = curve and Rate(start=curve.start / peak * rate, end=curve.end / peak * rate, shape=curve.shape)
        changes = {"updates": end - done, "tokens": None, "until_tokens": None, "rate": scaled}
        stages.append(span.stage.model_copy(update=changes).model_dump())
        done = end
    if tail:
        constant = {"start": stages[-1]["rate"]["end"], "end": stages[-1]["rate"]["end"], "shape": "linear"}
        stages.append({**stages[-1], "name": "tail", "updates": tail, "rate": constant})
    return StagePlan.model_validate(stages)


# ------------------------------------------------------------------------------------------------------- what is to run


def trials(design: Design, losses: Mapping[Trial, float]) -> list[Trial]:
    """All runs as far as the held-out losses so far decide them, in their order. What a sweep has not decided yet
    stands there with the best rate so far."""
    wanted = []
    for side in ("muonclip", "adamw"):
        wanted += [sweep_trial(design, side, rate) for rate in swept(design, side, losses)]
    muonclip, adamw = (best_rate(design, side, losses) for side in ("muonclip", "adamw"))
    baselines = [Trial("equal", "adamw", adamw, seed, design.updates) for seed in design.seeds]
    wholes = [replace(baseline, side="muonclip", rate=muonclip) for baseline in baselines]
    for baseline, whole in zip(baselines, wholes, strict=True):
        wanted += [baseline, whole]
    for baseline, whole in zip(baselines, wholes, strict=True):
        for share in design.shares:
            shorter = replace(whole, updates=round(design.updates * share))
            wanted.append(shorter)
            if not losses.get(shorter, 0) < losses.get(baseline, 0):
                break
    forced = [forced_trials(design, seed) for seed in design.forced_seeds]
    longer = replace(baselines[0], updates=round(design.updates * design.longer))
    wanted += [*forced[0], longer]
    if longer in losses and losses[longer] < losses[wholes[0]]:
        wanted.append(replace(wholes[0], updates=round(design.updates * BEYOND)))
    wanted.append(replace(forced[0][-1], part="tail", updates=design.updates + design.tail, tail=design.tail))
    return [*wanted, *(trial for pair in forced[1:] for trial in pair)]


def forced_trials(design: Design, seed: int) -> list[Trial]:
    taus = {"muon": OUT_OF_REACH, "muonclip": design.forced_tau}
    return [Trial("forced", side, design.forced_rate, seed, design.updates, tau) for side, tau in taus.items()]


def sweep_trial(design: Design, side: str, rate: float) -> Trial:
    return Trial("sweep", side, rate, design.sweep_seed, design.updates)


def swept(design: Design, side: str, losses: Mapping[Trial, float]) -> list[float]:
    """The rates of a side's sweep: the first ones, and while the best lies at an end, one more beyond that end."""
    rates = sorted(design.rates)
    while len(rates) < MOST_RATES and all(sweep_trial(design, side, rate) in losses for rate in rates):
        best = min(rates, key=lambda rate: losses[sweep_trial(design, side, rate)])
        if best == rates[0]:
            rates.insert(0, best / 2)
        elif best == rates[-1]:
            rates.append(best * 2)
        else:
            break
    return rates


def best_rate(design: Design, side: str, losses: Mapping[Trial, float]) -> float:
    """The rate with the lowest held-out loss of those that ran, or the middle one of the first."""
    known = {trial.rate: loss for trial, loss in losses.items() if trial == sweep_trial(design, side, trial.rate)}
    return min(known, key=lambda rate: known[rate]) if known else sorted(design.rates)[len(design.rates) // 2]


# ---------------------------------------------------------------------------------------------------------- running it


class Paused(Exception):
    """The time is over; the same command goes on."""


class RunFailed(RuntimeError):
    """A run ended without a summary; the message carries where its log lies."""


Run = Callable[[Trial, PretrainConfig, Callable[[int, str], None]], None]
"""Takes a trial to its end and tells how many of its updates are done; raises `Paused` where it must stop before."""


@dataclass(frozen=True)
class Runner:
    """Starts runs and waits for them, one at a time."""

    tokens: str
    work: Path
    threads: int
    deadline: float | None = None
    """On `time.monotonic`."""

    def __call__(self, trial: Trial, config: PretrainConfig, tell: Callable[[int, str], None]) -> None:
        """Run a trial to its end; raises `Paused` at the deadline, a checkpoint written, and `RunFailed`."""
        folder = self.work / trial.name
        folder.mkdir(parents=True, exist_ok=True)
        values = {
            "config": config.model_dump(mode="json"),
            "inputs": {"tokens": self.tokens},
            "work": str(folder),
            "threads": self.threads,
            "device": "cpu",
        }
        (folder / "job.json").write_text(json.dumps(values, indent=1))
        (folder / "progress.json").unlink(missing_ok=True)  # an earlier start's
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise Paused
        command = [sys.executable, "-m", "training.pretrain", "--config", str(folder / "job.json")]
        environment = {**CPU_ENVIRONMENT, "OMP_NUM_THREADS": str(self.threads), "PYTHONPATH": str(HOUSE)}
        child = process.start(command, folder / "log.txt", environment)
        try:
            while child.poll() is None:
                if self.deadline is not None and time.monotonic() > self.deadline:
                    process.stop(child, GRACE)
                    break
                if (folder / "progress.json").exists():
                    state = json.loads((folder / "progress.json").read_text())
                    tell(state["done"], state.get("note", ""))
                time.sleep(POLL)
        finally:
            process.stop(child, GRACE)
        if (folder / "summary.json").exists():
            return
        if (folder / "preempted.json").exists():
            raise Paused
        raise RunFailed(f"{trial.name} ended without a summary: {folder / 'log.txt'} says why")


def carry_out(design: Design, base: PretrainConfig, work: Path, run: Run) -> None:
    """Run all that is not finished yet, in order."""
    losses = finished(design, work)
    progress: Progress | None = None
    while todo := [trial for trial in trials(design, losses) if trial not in losses]:
        trial, before = todo[0], sum(trial.updates for trial in losses)
        total = before + sum(trial.updates for trial in todo)
        label = f"{trial.part}, {trial.name} ({len(losses) + 1} of {len(losses) + len(todo)} runs)"

        def tell(done: int, note: str, before: int = before, total: int = total, label: str = label) -> None:
            nonlocal progress
            if progress is None:  # what a checkpoint brings is not of this start
                progress = Progress("study", total, "updates", before + done, every=10)
            progress.total = total
            progress.set(before + done, f"{label}: {note}")

        run(trial, trial.config(base, design), tell)
        losses[trial] = heldout_loss(work, trial)


def finished(design: Design, work: Path) -> dict[Trial, float]:
    """The held-out losses of the runs that are done, as far as the design asks for them."""
    losses: dict[Trial, float] = {}
    while known := [
        trial
        for trial in trials(design, losses)
        if trial not in losses and (work / trial.name / "summary.json").exists()
    ]:
        losses[known[0]] = heldout_loss(work, known[0])
    return losses


def heldout_loss(work: Path, trial: Trial) -> float:
    """Mean over the domains of a finished run's last held-out losses, nats a token."""
    return mean(json.loads((work / trial.name / "summary.json").read_text())["heldout"])


def mean(losses: Mapping[str, float]) -> float:
    return sum(losses.values()) / len(losses)


# ------------------------------------------------------------------------------------------------------------- tables


def tables(work: Path, done: Sequence[Trial]) -> dict[str, list[dict[str, Any]]]:
    """`runs`, one row a run; `heldout`, one an evaluation; `logits`, one an update of the forced runs."""
    runs, heldout, logits = [], [], []
    for trial in done:
        key = {"part": trial.part, "side": trial.side, "rate": trial.rate, "seed": trial.seed, "updates": trial.updates}
        records = [json.loads(line) for line in (work / trial.name / "metrics.jsonl").read_text().splitlines()]
        updates = {record["step"]: record for record in records if record["event"] == "update"}
        evaluations = [record for record in records if record["event"] == "evaluation"]
        clipped = [step for step, record in updates.items() if record["clipped_heads"]]
        heads = next(record["max_logit"] for record in records if record["event"] == "heads")
        last = evaluations[-1]["losses"]
        runs.append(
            {
                **key,
                "tau": "" if trial.tau is None else f"{trial.tau:g}",
                "tokens": updates[trial.updates]["tokens"],
                "heldout": round(mean(last), 4),
                **{domain: round(loss, 4) for domain, loss in last.items()},
                "largest_logit": round(max(record["max_logit"] for record in updates.values()), 2),
                "final_logit": round(updates[trial.updates]["max_logit"], 2),
                "clipped_updates": len(clipped),
                "last_clipped": max(clipped, default=0),
                "heads": sum(len(layer) for layer in heads),
            }
        )
        for record in evaluations:
            tokens = updates[record["step"]]["tokens"]
            heldout.append({**key, "tokens": tokens, "heldout": round(mean(record["losses"]), 4)})
        if trial.part in ("forced", "tail"):
            for step, record in updates.items():
                values = {"loss": round(record["loss"], 4), "max_logit": round(record["max_logit"], 2)}
                logits.append({**key, "update": step, **values, "clipped_heads": record["clipped_heads"]})
    return {"runs": runs, "heldout": heldout, "logits": logits}


def write_tables(out: Path, made: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Each table as `NAME.csv`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in made.items():
        with (out / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]) if rows else ["part"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", help="the token artifact's folder")
    parser.add_argument("--work", type=Path, default=Path("study"), help="where the runs lie")
    parser.add_argument("--out", type=Path, default=HOUSE / "docs" / "claims" / "muonclip")
    parser.add_argument("--threads", type=int, default=1, help="of a run; another number rounds differently")
    parser.add_argument("--seconds", type=float, help="stop after so many, resumably")
    parser.add_argument("--tables", action="store_true", help="run nothing")
    options = parser.parse_args(arguments)
    if not options.tables and not options.tokens:
        parser.error("--tokens names the token artifact to train on")
    design, code = Design(), 0
    if not options.tables:
        deadline = time.monotonic() + options.seconds if options.seconds else None
        runner = Runner(options.tokens, options.work.resolve(), options.threads, deadline)
        try:
            with listen(lambda tick: print(tick.sentence(), flush=True)):
                carry_out(design, load_preset(settle(Request()).request).pretrain, options.work, runner)
        except Paused:
            print("paused; the same command goes on")
            code = PAUSED
    done = finished(design, options.work)
    if not done:
        return code
    write_tables(options.out, tables(options.work, list(done)))
    print(findings.publish(options.out))
    return code


if __name__ == "__main__":
    sys.exit(main())
