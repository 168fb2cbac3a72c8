"""Parts of a network as the ranks of a layout hold them, with an optimizer's state that is cut over the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import ModelConfig
from training.layout import Layout
from training.pieces import Cuts, pieces_of


@dataclass(frozen=True)
class Part:
    """What one rank holds: some layers, of every tensor of experts some slices, and some momenta."""

    config: ModelConfig
    weights: dict[str, Tensor]
    cuts: Cuts
    optimizer_state: dict[str, Tensor]

    def state_dict(self) -> dict[str, Tensor]:
        """As a model gives it."""
        return self.weights


def part(config: ModelConfig, weights: Mapping[str, Tensor], layout: Layout, rank: int, ranks: int) -> Part:
    """The part of `rank` of the whole network's `weights`; momenta are half the weights, each kept by one rank."""
    place, data = layout.place(rank, ranks), layout.data(ranks)
    held = {f"layers.{index}." for index in layout.held(config, place.pipeline)}
    held |= {"embed_tokens."} if "layers.0." in held else set()
    held |= {"norm.", "lm_head."} if f"layers.{config.num_hidden_layers - 1}." in held else set()
    experts = layout.experts(config, place.expert)
    mine = {name: tensor for name, tensor in weights.items() if name.startswith(tuple(held))}
    cuts = {name: (experts.start, config.n_routed_experts) for name in mine if ".experts." in name}
    mine = {
        name: (tensor[experts.start : experts.stop] if name in cuts else tensor).clone()
        for name, tensor in mine.items()
    }
    momenta = {"steps": torch.tensor(7)}
    for at, piece in enumerate(pieces_of(mine, cuts)):
        keeper = divmod(at % (data * layout.expert), layout.expert)
        if keeper == (place.data, place.expert) or (piece.name in cuts and keeper[0] == place.data):
            momenta[f"momentum/{piece.key}"] = mine[piece.name] / 2
    return Part(config, mine, cuts, momenta)
