"""Reinforcement learning with verifiable rewards: what an iteration is.

    python -m training.rl.train --config job.json      inputs: sft, dialogues, tokens, tokenizer

An iteration: draw prompts (harder ones more often), sample K responses to each from the present policy, judge them,
and take one or a few steps of K2's objective, a next-token loss on pretraining tokens beside it (PTX). The same
held-out prompts are answered with the same draws before and after.

Ranks share the prompts when they sample, tell each other their responses, and share the groups when they train: what is
drawn and what is learned do not depend on how many there are.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from model.transformer import Transformer
from training.engine import Measures, MicroBatch
from training.loader import Loader
from training.objective import Diverged
from training.posttraining import PostTraining
from training.pretrain import next_token
from training.rl.config import RlConfig
from training.rl.curriculum import Curriculum
from training.rl.objective import LossInputs, k2_objective
from training.rl.rollout import Evaluation, Group, interval, roll_out
from training.rl.tree import Tree, pack_trees, tree_log_probs
from training.samples import IGNORED
from training.trainer import Trainer, main

VERSION = 1  # raise it where the same inputs give other bytes (tasks/code.py)


class Reinforcement(PostTraining):
    """K2's objective on the policy's own responses, and PTX."""

    settings, source, unit = RlConfig, "sft", "iterations"
    measures = ("ptx_loss", "kl", "disagreement", "compared")

    def __init__(self, trainer: Trainer) -> None:
        """Opens the pretraining tokens where PTX needs them."""
        super().__init__(trainer)
        config = self.config
        self.steps = config.iterations
        self.ptx: Loader | None = None
        tokens = trainer.job.input("tokens")
        if config.ptx_weight and config.ptx_samples:
            self.ptx = Loader(tokens, "train", None, config.seed, config.ptx_sequence_length)

    def fill(self, model: Transformer) -> None:
        super().fill(model)
        model.float32_head = self.config.float32_head

    def begin(self) -> None:
        self.load({"state": {"seen": {}, "tokens": 0, "responses": 0}})

    def load(self, state: dict[str, Any]) -> None:
        super().load(state)
        config = self.config
        self.curriculum = Curriculum(self.train.problems, config.environments, config.prioritised, self.counts["seen"])

    # ----------------------------------------------------------------------------------------------------- a step

    def step(self, number: int) -> str:
        """One iteration."""
        config, trainer, done = self.config, self.trainer, number - 1
        progress = done / max(1, config.iterations - 1)
        temperature = _between(config.temperature, progress)
        rate = _between((config.learning_rate, config.final_learning_rate), progress)
        groups = self._practise(done, temperature)
        if config.reset_optimizer:
            trainer.new_optimizer()
        # every update has a share of the groups; only the first trains the very policy that drew them
        updates = [
            self._update(groups[part :: config.updates], rate, temperature, done * config.updates + part, part == 0)
            for part in range(config.updates)
        ]
        responses = [response for group in groups for response in group.responses]
        tokens = sum(len(response.ids) for response in responses)
        self.counts["responses"] += len(responses)
        self.counts["tokens"] += tokens
        values = {
            "temperature": temperature,
            "learning_rate": rate,
            "reward": statistics.fmean(reward for group in groups for reward in group.rewards),
            "right": statistics.fmean(score for group in groups for score in group.scores),
            "finished": statistics.fmean(float(response.finished) for response in responses),
            "response_tokens": tokens / len(responses),
            "informative": statistics.fmean(float(group.informative) for group in groups),
            "responses": len(responses),
            **{name: statistics.fmean(update[name] for update in updates) for name in updates[0]},
        }
        self.record(number, values, max(1, tokens), max(_size(group) for group in groups))
        return f"reward {values['reward']:.2f}, right {values['right']:.0%}"

    def _practise(self, done: int, temperature: float) -> list[Group]:
        """Draw prompts and sample responses; the curriculum hears how they went."""
        config, trainer = self.config, self.trainer
        seed = f"rl/{config.seed}/{done}"
        problems = self.curriculum.draw(config.prompts, f"{seed}/prompts")
        policy = trainer.whole(trainer.model).eval()
        groups = roll_out(
            *(policy, self.chat, problems, config.responses, temperature, seed, config.rewards, config.dtype),
            *(trainer.world, trainer.watchdog.beat),
        )
        for group in groups:
            self.curriculum.record(group.problem, int(sum(group.scores)), len(group.scores))
        return groups

    def _update(
        self, groups: Sequence[Group], rate: float, temperature: float, number: int, first: bool
    ) -> dict[str, float]:
        """One optimizer step on the objective of whole groups and on pretraining tokens; each rank has a share.

        Raises `Diverged`, and applies nothing, where the trainer sees other log-probabilities than the generator.
        """
        config, trainer, data = self.config, self.trainer, self.trainer.mesh.data
        # groups of equal rewards have no gradient at pi_theta = pi_old: in the first update they are left out
        used = sorted((group for group in groups if group.informative or not first), key=_size)
        parts = [
            practised(batch, sum(len(group.responses) for group in groups), temperature, config.tau, first)
            for batch in _batches(used[data.rank :: data.size], config.run.micro_tokens)
        ]
        if self.ptx is not None:
            parts += self._pretraining(self.ptx, number)
        elif not used:
            return dict.fromkeys(NUMBERS, 0.0)
        totals = trainer.accumulate(parts)
        disagreement = totals.measures["disagreement"] / max(1.0, totals.measures["compared"])
        if not disagreement <= config.agreement:
            raise Diverged(
                f"iteration {trainer.done + 1}: the generator's log-probabilities differ from the trainer's by "
                f"{disagreement:.3g} nats a token on average (allowed: {config.agreement}): what was sampled is not "
                "what would be trained; try rl.dtype float32"
            )
        values = trainer.apply(totals, rate) | {"disagreement": disagreement}
        return {name: float(values[name]) for name in NUMBERS}

    def _pretraining(self, tokens: Loader, number: int) -> list[MicroBatch]:
        """This rank's micro-batches of the pretraining tokens of update `number`."""
        config, trainer = self.config, self.trainer
        share = trainer.mesh.data.share(config.ptx_samples)
        batch = tokens.batch(number * config.ptx_samples + share.start, len(share))
        (targets,) = trainer.total(int((batch.targets_BS != IGNORED).sum()))
        return [
            weighted(part, config.ptx_weight)
            for part in next_token(batch, targets, config.ptx_samples, config.run.micro_batch)
        ]

    # ------------------------------------------------------------------------------------------------- evaluation

    def _measure(self, samples: int, greedy: bool = True) -> Evaluation:
        """On the same problems with the same draws, whenever it is asked."""
        config = self.config
        found = self.pass_rates(
            self.trainer.whole(self.trainer.model), samples, f"rl/{config.seed}/evaluation", config.rewards, greedy
        )
        self.trainer.metrics.write("evaluation", self.trainer.done, **found.record())
        return found

    def measure_first(self) -> bool:
        """The policy before any practice."""
        self.counts["before"] = vars(self._measure(self.config.evaluate_samples))
        return True

    def evaluates(self, number: int) -> bool:
        every = self.config.evaluate_every
        return number == self.steps or bool(every and number % every == 0)

    def evaluate(self, number: int) -> None:
        """A point of the curve (one sample a prompt), and at the end what is held against the beginning."""
        if number == self.steps:
            self.counts["after"] = vars(self._measure(self.config.evaluate_samples))
        else:
            self._measure(1, greedy=False)

    def milestone(self, number: int) -> bool:
        return number == self.steps

    def summary(self) -> dict[str, Any]:
        counts = self.counts
        before, after = (Evaluation(**counts[name]) for name in ("before", "after"))
        pairs: dict[str, Any] = {}
        for kind in ("sampled", "greedy"):
            rises = [new - old for old, new in zip(getattr(before, kind), getattr(after, kind), strict=True)]
            mean, low, high = interval(rises)
            pairs[kind] = {"rise": mean, "interval": [low, high]}
        return {
            "iterations": self.trainer.done,
            "before": before.record(),
            "after": after.record(),
            "rise": pairs,
            "tasks": {"before": before.of().record(), "after": after.of().record()},  # tool calls apart
            "responses": counts["responses"],
            "response_tokens": counts["tokens"],
            "prompts_seen": len(counts["seen"]),
            **super().summary(),
        }


NUMBERS = (
    *("loss", "aux_loss", "gradient_norm", "max_logit", "clipped_heads", "update_rms"),
    *("ptx_loss", "kl", "disagreement"),
)
"""What is recorded of an iteration's updates, as their mean."""


def practised(groups: Sequence[Group], total: int, temperature: float, tau: float, first: bool) -> MicroBatch:
    """The micro-batch of some groups: K2's objective as their share of the mean over `total` responses.

    In the `first` update the trainer's log-probabilities are compared with those that the generator drew by.
    """
    trees = pack_trees([Tree(group.prompt, [response.ids for response in group.responses]) for group in groups])
    responses = [response for group in groups for response in group.responses]
    old_NT = torch.zeros(trees.mask_NT.shape)
    for row, response in enumerate(responses):
        old_NT[row, : len(response.log_probs)] = torch.tensor(response.log_probs)
    rewards_N = torch.tensor([reward for group in groups for reward in group.rewards])
    groups_N = torch.tensor([place for place, group in enumerate(groups) for _ in group.responses])
    share = len(responses) / total

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        device = hidden_BSD.device
        log_probs_NT = tree_log_probs(model, trees.to(device), hidden_BSD, temperature)
        inputs = LossInputs(
            *(log_probs_NT, old_NT.to(device), trees.mask_NT.to(device)), rewards_N.to(device), groups_N.to(device)
        )
        result = k2_objective(inputs, tau)
        measures = {"kl": torch.tensor(result.kl * share, device=device)}
        if first:
            measures["disagreement"] = (log_probs_NT.detach() - inputs.old_log_probs_NT).abs().sum()
            measures["compared"] = inputs.mask_NT.sum()
        return result.loss * share, measures

    return MicroBatch(trees.tokens_BS, loss, trees.branch_BS, trees.positions_BS, shared_prompt=True)


def weighted(part: MicroBatch, weight: float) -> MicroBatch:
    """A micro-batch of pretraining tokens at `weight`, its loss recorded without it."""

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        plain, _ = part.loss(model, hidden_BSD)
        return weight * plain, {"ptx_loss": plain}

    return replace(part, loss=loss, aux_weight=weight * part.aux_weight)


def _between(ends: tuple[float, float], progress: float) -> float:
    return ends[0] + (ends[1] - ends[0]) * min(1.0, progress)


def _size(group: Group) -> int:
    return Tree(group.prompt, [response.ids for response in group.responses]).size


def _batches(groups: Sequence[Group], tokens: int) -> list[list[Group]]:
    """Groups, the smallest first, so many together that their padded rows have at most `tokens` tokens (one group at
    least)."""
    batches: list[list[Group]] = []
    for group in groups:
        if batches and _size(group) * (len(batches[-1]) + 1) <= tokens:
            batches[-1].append(group)
        else:
            batches.append([group])
    return batches


if __name__ == "__main__":
    sys.exit(main(Reinforcement, "training.rl.train"))
