"""Responses as micro-batches of K2's objective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.transformer import Transformer
from training.engine import Measures, MicroBatch
from training.objective import Diverged
from training.parallel import World
from training.rl.config import RlConfig
from training.rl.episodes import Episode
from training.rl.objective import divergence, importance, k2_objective
from training.rl.practice import mean
from training.rl.rollout import Group
from training.rl.tree import Tree, TreeBatch, pack_trees, tree_log_probs
from training.trainer import Trainer

MEASURES = ("ptx_loss", "dialogue_loss", "kl", "responses", "disagreement", "compared")
"""What the losses measure beside themselves."""
NUMBERS = (
    *("loss", "aux_loss", "gradient_norm", "max_logit", "clipped_heads", "update_rms"),
    *("ptx_loss", "dialogue_loss", "kl", "disagreement"),
)
"""What is recorded of an iteration's update."""


@dataclass(frozen=True)
class Row:
    """A prompt and some of the responses to it."""

    prompt: list[int]
    responses: list[Episode]
    rewards: list[float]
    baseline: float

    @property
    def size(self) -> int:
        """Tokens of the row."""
        return Tree(self.prompt, [response.ids for response in self.responses]).size


def rows_of(groups: Sequence[Group], window: int) -> list[Row]:
    """Each group as rows of at most `window` tokens, its responses in their order (one response a row at least)."""
    return [row for group in groups for row in _rows(group, window)]


def _rows(group: Group, window: int) -> list[Row]:
    rows: list[Row] = []
    for response, reward in zip(group.responses, group.rewards, strict=True):
        one = Row(group.prompt, [response], [reward], group.baseline)
        if rows and rows[-1].size + one.size - len(group.prompt) <= window:
            rows[-1] = replace(rows[-1], responses=[*rows[-1].responses, response], rewards=[*rows[-1].rewards, reward])
        else:
            rows.append(one)
    return rows


def batches(rows: Sequence[Row], tokens: int) -> list[list[Row]]:
    """Rows, the smallest first, so many together that padded they have at most `tokens` tokens (one row at least)."""
    found: list[list[Row]] = []
    for row in rows:
        if found and row.size * (len(found[-1]) + 1) <= tokens:
            found[-1].append(row)
        else:
            found.append([row])
    return found


@dataclass
class PolicyLoss:
    """K2's objective over the responses of a micro-batch."""

    trees: TreeBatch
    drawn_NT: Tensor
    """Log-probabilities by which the generator drew them."""
    advantages_N: Tensor
    share: float
    """Of the responses of the update."""
    temperature: float
    config: RlConfig
    old_NT: Tensor | None = None
    """The trainer's log-probabilities before the iteration's first step, which evaluation notes. Without an evaluation
    this is that step, and they are the present ones."""

    def __call__(self, model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        device = hidden_BSD.device
        log_probs_NT = tree_log_probs(model, self.trees.to(device), hidden_BSD, self.temperature)
        if not torch.is_grad_enabled():
            self.old_NT = log_probs_NT
        old_NT = log_probs_NT.detach() if self.old_NT is None else self.old_NT
        drawn_NT, mask_NT, config = self.drawn_NT.to(device), self.trees.mask_NT.to(device), self.config
        weights_N = importance(old_NT, drawn_NT, mask_NT, config.correction) if config.correction else None
        given = (log_probs_NT, old_NT, mask_NT, self.advantages_N.to(device), config.tau, config.objective == "k2")
        measures = {
            "disagreement": (old_NT - drawn_NT).abs().where(mask_NT, 0.0).sum(),
            "compared": mask_NT.sum(),
            "kl": divergence(log_probs_NT, drawn_NT, mask_NT),
            "responses": mask_NT.any(1).sum(),
        }
        return k2_objective(*given, weights_N) * self.share, measures


def practised(rows: Sequence[Row], total: int, temperature: float, config: RlConfig, version: int) -> MicroBatch:
    """The micro-batch of some rows: K2's objective as their share of the mean over `total` responses.

    That is the mean over prompts of the mean over each prompt's K responses, also where pauses let these end in several
    iterations: a mean over those that end in one would weigh a straggler like all K.

    Trained are the tokens that the policy `version` drew.
    """
    responses = [response for row in rows for response in row.responses]
    trees = pack_trees(
        [
            Tree(
                row.prompt,
                [response.ids for response in row.responses],
                [[drew == version for drew in response.versions] for response in row.responses],
                [response.experts for response in row.responses],
            )
            for row in rows
        ]
    )
    drawn_NT = torch.zeros(trees.mask_NT.shape)
    for place, response in enumerate(responses):
        drawn_NT[place, : len(response.log_probs)] = torch.tensor(response.log_probs)
    rewards_N = torch.tensor([reward for row in rows for reward in row.rewards])
    advantages_N = rewards_N - torch.tensor([row.baseline for row in rows for _ in row.responses])
    loss = PolicyLoss(trees, drawn_NT, advantages_N, len(responses) / total, temperature, config)
    placed = (trees.tokens_BS, loss, trees.branch_BS, trees.positions_BS)
    return MicroBatch(*placed, shared_prompt=True, experts_BSLK=trees.experts_BSLK)


@dataclass(frozen=True)
class Drawn:
    """What the policy `version` drew at `temperature`, as micro-batches of this rank."""

    ranks: World
    config: RlConfig
    temperature: float
    version: int
    window: int
    """Tokens of a row at most."""

    def steps(self, groups: Sequence[Group]) -> list[list[MicroBatch]]:
        """Those of each of the iteration's optimizer steps (`updates`), which share its groups; fewer steps where so
        much is paused that there are fewer groups, for one that nothing went through has nothing to clip by.

        A single step leaves out groups of equal rewards, which have no gradient at pi_theta = pi_old. Further off they
        have one, back to it.
        """
        updates = self.config.updates
        count = max(1, min(updates, len(groups)))
        return [self.micro_batches(groups[first::count], equal=updates > 1) for first in range(count)]

    def micro_batches(self, groups: Sequence[Group], equal: bool = True) -> list[MicroBatch]:
        """Those of some groups, the smallest rows first. Without `equal`, groups of equal rewards are left out, and
        count in the mean over responses alone."""
        total = max(1, sum(len(group.responses) for group in groups))
        rows = rows_of([group for group in groups if equal or group.informative], self.window)
        mine = sorted(rows, key=lambda row: row.size)[self.ranks.rank :: self.ranks.size]
        parts = batches(mine, self.config.run.micro_tokens)
        return [practised(part, total, self.temperature, self.config, self.version) for part in parts]


def compared(trainer: Trainer, parts: Sequence[MicroBatch]) -> dict[str, float]:
    """How far trainer and generator are apart in all ranks' `parts`, as an update measures it; nothing is learned.
    The parts note the policy's log-probabilities (`PolicyLoss`)."""
    names = ("disagreement", "compared")
    trainer.model.train()
    sums = trainer.engine.evaluate(parts)
    zero = sums.loss.new_zeros(())
    found = trainer.world.all_reduce(torch.stack([sums.measures.get(name, zero) for name in names]))
    return dict(zip(names, found.tolist(), strict=True))


def means(steps: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """What is recorded of an iteration's steps: `NUMBERS` on their mean, `kl` in nats for each response in them."""
    told = [{**step, "kl": step["kl"] / max(1.0, step["responses"])} for step in steps]
    return {name: mean(float(step[name]) for step in told) for name in NUMBERS}


def agreed(measures: Mapping[str, float], most: float, iteration: int) -> float:
    """The mean difference of the generator's and the trainer's log-probabilities.

    Raises:
        Diverged: it is more than `most` nats a token.
    """
    apart = measures["disagreement"] / max(1.0, measures["compared"])
    if not apart <= most:
        raise Diverged(
            f"iteration {iteration}: the generator's log-probabilities differ from the trainer's by {apart:.3g} nats a "
            f"token on average (allowed: {most}): what was sampled is not what would be trained; try rl.dtype float32"
        )
    return apart
