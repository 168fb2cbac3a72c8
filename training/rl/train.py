"""Reinforcement learning with verifiable rewards: the loop.

    python -m training.rl.train --config job.json      inputs: sft, dialogues, tokens, tokenizer

An iteration: draw prompts (harder ones more often), sample K responses to each from the present policy, judge them,
and take one or a few steps of K2's objective, a next-token loss on pretraining tokens beside it (PTX). The same
held-out prompts are answered with the same draws before and after.
"""

from __future__ import annotations

import logging
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from training.inputs import device_of, load_chat, load_model, load_splits
from training.job import Job
from training.loader import Loader
from training.muonclip import MuonClip
from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum
from training.rl.objective import LossInputs, k2_objective
from training.rl.rollout import Evaluation, Group, evaluate, first_of_each, interval, roll_out
from training.rl.tree import Tree, plant, tree_log_probs
from training.run import Diverged, Run, main, update

log = logging.getLogger(__name__)


class Reinforcement:
    """One RL run."""

    def __init__(self, job: Job) -> None:
        self.config = config = job.configured(RlConfig)
        self.chat = load_chat(job.input("tokenizer"))
        train, heldout = load_splits(job.input("dialogues"))
        self.problems = train.problems
        self.heldout = first_of_each(heldout.problems, config.evaluate_prompts)
        self.device = device_of(job)
        self.model = load_model(job.input("sft")).to(self.device)
        self.model.float32_head = config.float32_head
        self.optimizer = MuonClip.for_model(self.model, config.optimizer)
        self.run = Run(job, config, self.model, self.optimizer, "iterations", config.iterations)
        self.tokens = self._pretraining_tokens(job.input("tokens"))
        self.began = time.monotonic()

    def _pretraining_tokens(self, uri: str) -> Loader | None:
        config = self.config
        if not (config.ptx_weight and config.ptx_samples):
            return None
        return Loader(uri, "train", None, config.seed, config.ptx_sequence_length)

    def fit(self) -> None:
        """All iterations, between two evaluations; writes `final/`."""
        config, run = self.config, self.run
        if not run.state:
            before = self._evaluate(config.evaluate_samples)
            run.metrics.write("evaluation", 0, **before.record())
            run.state = {"seen": {}, "before": vars(before), "tokens": 0, "responses": 0}
            run.save()
        curriculum = Curriculum(self.problems, config.environments, config.prioritised, run.state["seen"])
        while run.step < config.iterations:
            run.pause_if_asked()
            began = time.monotonic()
            values = self._iterate(curriculum)
            run.step += 1
            timing = {"seconds": time.monotonic() - began}
            run.metrics.write("update", run.step, **values, timing=timing)
            run.tell(f"reward {values['reward']:.2f}, right {values['right']:.0%}")
            if config.evaluate_every and run.step % config.evaluate_every == 0 and run.step < config.iterations:
                run.metrics.write("evaluation", run.step, **self._evaluate(1, greedy=False).record())
            if run.step % config.checkpoint_every == 0:
                run.save()
        after = self._evaluate(config.evaluate_samples)
        run.metrics.write("evaluation", run.step, **after.record())
        run.finish(self._summary(Evaluation(**run.state["before"]), after))

    def _evaluate(self, samples: int, greedy: bool = True) -> Evaluation:
        """On the same problems with the same draws, whenever it is asked."""
        seed = f"rl/{self.config.seed}/evaluation"
        rewards, dtype = self.config.rewards, self.config.dtype
        return evaluate(self.model, self.chat, self.heldout, samples, seed, rewards, dtype, greedy)

    def _iterate(self, curriculum: Curriculum) -> dict[str, Any]:
        """One iteration; what there is to know about it."""
        config, number = self.config, self.run.step
        progress = number / max(1, config.iterations - 1)
        temperature = _between(config.temperature, progress)
        lr = _between((config.learning_rate, config.final_learning_rate), progress)
        seed = f"rl/{config.seed}/{number}"
        problems = curriculum.draw(config.prompts, f"{seed}/prompts")
        self.model.eval()
        groups = roll_out(
            self.model, self.chat, problems, config.responses, temperature, seed, config.rewards, config.dtype
        )
        for group in groups:
            curriculum.record(group.problem, int(sum(group.scores)), len(group.scores))
        if config.reset_optimizer:
            self.optimizer = self.run.optimizer = MuonClip.for_model(self.model, config.optimizer)
        steps = []
        for part in range(config.updates):
            chosen = groups[part :: config.updates]
            steps.append(self._update(chosen, lr, temperature, number * config.updates + part, first=part == 0))
        responses = [response for group in groups for response in group.responses]
        self.run.state["responses"] += len(responses)
        self.run.state["tokens"] += sum(len(response.ids) for response in responses)
        return {
            "temperature": temperature,
            "learning_rate": lr,
            "reward": statistics.fmean(reward for group in groups for reward in group.rewards),
            "right": statistics.fmean(score for group in groups for score in group.scores),
            "finished": statistics.fmean(float(response.finished) for response in responses),
            "response_tokens": statistics.fmean(len(response.ids) for response in responses),
            "informative": statistics.fmean(float(group.informative) for group in groups),
            "responses": len(responses),
            **{name: statistics.fmean(step[name] for step in steps) for name in steps[0]},
        }

    def _update(
        self, groups: Sequence[Group], lr: float, temperature: float, number: int, first: bool
    ) -> dict[str, float]:
        """One optimizer step on the objective of whole groups and on pretraining tokens."""
        config = self.config
        total = sum(len(group.responses) for group in groups)
        seen = {"ptx_loss": 0.0, "kl": 0.0, "disagreement": 0.0, "tokens": 0.0}
        # Groups of equal rewards have no gradient at pi_theta = pi_old: in the first update they are left out.
        used = [group for group in groups if group.informative] if first else list(groups)

        def policy(batch: list[Group]) -> tuple[Tensor, Tensor | None]:
            trees = plant([Tree(group.prompt, [response.ids for response in group.responses]) for group in batch])
            trees = trees.to(self.device)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
                log_probs_NT, output = tree_log_probs(self.model, trees, temperature)
            old_NT = torch.zeros_like(log_probs_NT)
            rows = [response.log_probs for group in batch for response in group.responses]
            for row, values in enumerate(rows):
                old_NT[row, : len(values)] = torch.tensor(values)
            if first:
                apart = float((log_probs_NT.detach() - old_NT).abs().sum())
                seen["disagreement"] += apart
                seen["tokens"] += float(trees.mask_NT.sum())
            rewards_N = torch.tensor([reward for group in batch for reward in group.rewards], device=self.device)
            groups_N = torch.tensor([place for place, group in enumerate(batch) for _ in group.responses])
            inputs = LossInputs(log_probs_NT, old_NT, trees.mask_NT, rewards_N, groups_N.to(self.device))
            result = k2_objective(inputs, config.tau)
            share = len(rows) / total
            seen["kl"] += result.kl * share
            return result.loss * share, output.max_logits_LH

        def ptx() -> tuple[Tensor, Tensor | None]:
            assert self.tokens is not None
            batch = self.tokens.batch(number * config.ptx_samples, config.ptx_samples)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
                output = self.model(
                    batch.tokens_BS.to(self.device),
                    document_ids_BS=batch.document_ids_BS.to(self.device),
                    max_logits=True,
                )
                loss = self.model.loss(output.hidden_BSD, batch.targets_BS.to(self.device))
            seen["ptx_loss"] = float(loss.detach())
            return config.ptx_weight * (loss + output.aux_loss), output.max_logits_LH

        work: list[Callable[[], tuple[Tensor, Tensor | None]]] = [
            partial(policy, batch) for batch in _micro_batches(used, config.micro_tokens)
        ]
        if self.tokens is not None:
            work.append(ptx)
        if not work:
            return {**_NOTHING, "disagreement": 0.0}
        values = update(self.model, self.optimizer, lr, config.gradient_clip, work)
        disagreement = seen["disagreement"] / max(1.0, seen["tokens"])
        if not disagreement <= config.agreement:
            raise Diverged(
                f"iteration {self.run.step}: the generator's log-probabilities differ from the trainer's by "
                f"{disagreement:.3g} nats a token on average (allowed: {config.agreement}): what was sampled is not "
                "what would be trained; try rl.dtype float32"
            )
        return {**values, "ptx_loss": seen["ptx_loss"], "kl": seen["kl"], "disagreement": disagreement}

    def _summary(self, before: Evaluation, after: Evaluation) -> dict[str, Any]:
        """The stage's statistics: both evaluations, and the rise with its paired interval."""
        pairs: dict[str, Any] = {}
        for name, kind in (("sampled", "sampled"), ("greedy", "greedy")):
            rises = [new - old for old, new in zip(getattr(before, kind), getattr(after, kind), strict=True)]
            mean, low, high = interval(rises)
            pairs[name] = {"rise": mean, "interval": [low, high]}
        state = self.run.state
        return {
            "iterations": self.run.step,
            "before": before.record(),
            "after": after.record(),
            "rise": pairs,
            "tasks": {"before": before.of().record(), "after": after.of().record()},  # tool calls apart
            "responses": state["responses"],
            "response_tokens": state["tokens"],
            "prompts_seen": len(state["seen"]),
            "seed": self.config.seed,
            "seconds": round(time.monotonic() - self.began, 3),
        }


_NOTHING = {"loss": 0.0, "gradient_norm": 0.0, "max_logit": 0.0, "clipped_heads": 0, "update_rms": 0.0} | {
    "ptx_loss": 0.0,
    "kl": 0.0,
}


def _between(ends: tuple[float, float], progress: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * min(1.0, progress)


def _micro_batches(groups: Sequence[Group], tokens: int) -> list[list[Group]]:
    """Groups by size, so many together that their padded rows have at most `tokens` tokens (one group at least)."""

    def size(group: Group) -> int:
        return Tree(group.prompt, [response.ids for response in group.responses]).size

    batches: list[list[Group]] = []
    for group in sorted(groups, key=size):  # stable: the order of equal sizes is that of the draws
        if batches and size(group) * (len(batches[-1]) + 1) <= tokens:
            batches[-1].append(group)
        else:
            batches.append([group])
    return batches


def run(job: Job) -> None:
    """The job."""
    Reinforcement(job).fit()


if __name__ == "__main__":
    sys.exit(main(run, "training.rl.train"))
