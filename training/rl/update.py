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
from training.rl.objective import importance, k2_objective
from training.rl.rollout import Group
from training.rl.tree import Tree, pack_trees, tree_log_probs
from training.trainer import Trainer

MEASURES = ("ptx_loss", "dialogue_loss", "kl", "disagreement", "compared")
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


def rows_of(group: Group, window: int) -> list[Row]:
    """A group as rows of at most `window` tokens, its responses in their order (one response a row at least)."""
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


def practised(rows: Sequence[Row], total: int, temperature: float, config: RlConfig, version: int) -> MicroBatch:
    """The micro-batch of some rows: K2's objective as their share of the mean over `total` responses.

    That is the mean over prompts of the mean over each prompt's K responses, also where pauses let these end in several
    iterations: a mean over those that end in one would weigh a straggler like all K.

    Trained are the tokens that the policy `version` drew; the trainer's log-probabilities of them are compared with
    those that the generator drew by.
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
    share = len(responses) / total

    def loss(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
        device = hidden_BSD.device
        log_probs_NT = tree_log_probs(model, trees.to(device), hidden_BSD, temperature)
        old_NT, mask_NT, weights_N = drawn_NT.to(device), trees.mask_NT.to(device), None
        apart = (log_probs_NT.detach() - old_NT).abs().where(mask_NT, 0.0).sum()
        if config.correction:
            weights_N = importance(log_probs_NT, old_NT, mask_NT, config.correction)
            old_NT = log_probs_NT.detach()
        given = (log_probs_NT, old_NT, mask_NT, advantages_N.to(device), config.tau, config.objective == "k2")
        whole, kl = k2_objective(*given, weights_N)
        return whole * share, {"disagreement": apart, "compared": mask_NT.sum(), "kl": kl * share}

    placed = (trees.tokens_BS, loss, trees.branch_BS, trees.positions_BS)
    return MicroBatch(*placed, shared_prompt=True, experts_BSLK=trees.experts_BSLK)


def micro_batches(
    ranks: World, config: RlConfig, temperature: float, version: int, total: int, rows: Sequence[Row]
) -> list[MicroBatch]:
    """This rank's share of the rows, the smallest first."""
    mine = sorted(rows, key=lambda row: row.size)[ranks.rank :: ranks.size]
    return [practised(batch, total, temperature, config, version) for batch in batches(mine, config.run.micro_tokens)]


def compared(trainer: Trainer, parts: Sequence[MicroBatch]) -> dict[str, float]:
    """How far trainer and generator are apart in all ranks' `parts`, as an update measures it; nothing is learned."""
    names = ("disagreement", "compared")
    trainer.model.train()
    sums = trainer.engine.evaluate(parts)
    zero = sums.loss.new_zeros(())
    found = trainer.world.all_reduce(torch.stack([sums.measures.get(name, zero) for name in names]))
    return dict(zip(names, found.tolist(), strict=True))


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
