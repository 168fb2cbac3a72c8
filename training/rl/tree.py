"""A prompt and its K responses in one row: the prompt is computed once, and every response sees it and itself only.

    row        p0 p1 p2 | a0 a1 a2 | b0 b1 | ...
    positions   0  1  2 |  3  4  5 |  3  4 | ...

The log-probability of a response's first token is read at the prompt's last one. For short answers behind longer
prompts this is several times less work than K copies of the prompt, and exactly the same numbers.

Shape suffixes: B rows (prompts), S positions, N responses, T response tokens, M = response tokens of the batch; L
mixture layers, K experts of a token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from model.transformer import Transformer


@dataclass(frozen=True)
class Tree:
    """One prompt with its responses."""

    prompt: Sequence[int]
    responses: Sequence[Sequence[int]]
    trained: Sequence[Sequence[bool]] | None = None
    """For each token of the responses whether it counts: not what tools and users said. All do where it is None."""
    experts: Sequence[Tensor | None] = ()
    """Of each response: the experts (tokens, L, K) of its prompt's tokens and its own, as far as a generator has read
    them: not of the last one, nor of what was said to it last where it is paused there."""

    @property
    def size(self) -> int:
        """Tokens of the row. The last token of a response is predicted, but predicts nothing, and is left out."""
        return len(self.prompt) + sum(len(response) - 1 for response in self.responses)


@dataclass(frozen=True)
class TreeBatch:
    """Trees as tensors."""

    tokens_BS: Tensor
    positions_BS: Tensor
    branch_BS: Tensor
    """0 in the prompt, k in its k-th response (from 1), -1 at padding: document ids with a shared prompt."""
    sources_NT: Tensor
    """Index into B * S of the position that predicts a response token."""
    targets_NT: Tensor
    mask_NT: Tensor
    """True at response tokens that count."""
    experts_BSLK: Tensor | None = None
    """The experts that each token was routed to when it was drawn, int16, -1 where that is not known; the prompt's are
    those of the first response that knows them."""

    def to(self, device: torch.device) -> TreeBatch:
        """The same on a device."""
        return replace(self, **{name: value.to(device) for name, value in vars(self).items() if value is not None})


def pack_trees(trees: Sequence[Tree], pad: int = 0) -> TreeBatch:
    """The batch of `trees`, its responses in their order.

    Raises:
        ValueError: a prompt or a response is empty.
    """
    if any(not tree.prompt or not all(tree.responses) for tree in trees):
        raise ValueError("a tree needs a prompt and responses of at least one token each")
    size = max(tree.size for tree in trees)
    longest = max(len(response) for tree in trees for response in tree.responses)
    tokens, positions, branches, sources, targets, mask = [], [], [], [], [], []
    for row, tree in enumerate(trees):
        start = len(tree.prompt)
        ids, places, marks = list(tree.prompt), list(range(start)), [0] * start
        trained = tree.trained or [[True] * len(response) for response in tree.responses]
        for branch, (response, counts) in enumerate(zip(tree.responses, trained, strict=True), 1):
            inner = range(len(ids), len(ids) + len(response) - 1)
            fill = longest - len(response)
            sources.append([row * size + place for place in (start - 1, *inner)] + [0] * fill)
            targets.append([*response, *[0] * fill])
            mask.append([*counts, *[False] * fill])
            ids += response[:-1]
            places += range(start, start + len(inner))
            marks += [branch] * len(inner)
        rest = size - len(ids)
        tokens.append(ids + [pad] * rest)
        positions.append(places + [0] * rest)
        branches.append(marks + [-1] * rest)
    return TreeBatch(
        torch.tensor(tokens), torch.tensor(positions), torch.tensor(branches),
        torch.tensor(sources), torch.tensor(targets), torch.tensor(mask), _routes(trees, size),
    )  # fmt: skip


def _routes(trees: Sequence[Tree], size: int) -> Tensor | None:
    """The trees' experts in rows of `size` tokens; None where no response knows any."""
    known = [one for tree in trees for one in tree.experts if one is not None]
    if not known:
        return None
    experts_BSLK = known[0].new_full((len(trees), size, *known[0].shape[1:]), -1)
    for row_SLK, tree in zip(experts_BSLK, trees, strict=True):
        start = place = len(tree.prompt)
        for response, one in zip(tree.responses, tree.experts, strict=True):
            if one is not None:
                row_SLK[place : place + len(one) - start] = one[start:]
            place += len(response) - 1
        first = next((one for one in tree.experts if one is not None), None)
        if first is not None:
            row_SLK[:start] = first[:start]
    return experts_BSLK


def tree_log_probs(model: Transformer, batch: TreeBatch, hidden_BSD: Tensor, temperature: float = 1.0) -> Tensor:
    """log pi of every response token that counts, at `temperature` [N, T], float32, 0 outside the mask, from the hidden
    states that `model` gave for the batch.

    Only the positions that predict a response token go through the LM head.
    """
    hidden_MD = hidden_BSD.flatten(0, 1)[batch.sources_NT[batch.mask_NT]]
    values_M = model.log_probs(hidden_MD[None], batch.targets_NT[batch.mask_NT][None], temperature)[0]
    return values_M.new_zeros(batch.mask_NT.shape).masked_scatter(batch.mask_NT, values_M)
