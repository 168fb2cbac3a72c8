"""How the ranks of a run are arranged: pipeline x data x expert parallelism (K2 report 2.4.2).

A copy of the model lies on `pipeline x expert` ranks. Pipeline ranks hold some of the layers each; the `expert` ranks
of a pipeline position hold some of the experts each and all else of their layers. Every rank of a pipeline position
takes its own samples, so for all that is not an expert those ranks are data parallel; experts are so over the `data`
index alone. Ranks are numbered (pipeline, data, expert), the last index running fastest: ranks that exchange tokens
are neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from pydantic import Field

from model.config import Config, ModelConfig


class LayoutError(ValueError):
    """A number of ranks, a network and a layout that do not go together."""


class Layout(Config):
    """How one copy of the model is cut."""

    pipeline: int = Field(default=1, gt=0)
    """Pipeline ranks (K2: 16)."""
    virtual: int = Field(default=1, gt=0)
    """Pieces of the network on each pipeline rank (virtual stages); more of them, less waiting and more traffic."""
    expert: int = Field(default=1, gt=0)
    """Ranks that share the experts of a layer (K2: 16)."""

    @property
    def copy_ranks(self) -> int:
        """Ranks of one copy of the model."""
        return self.pipeline * self.expert

    def data(self, ranks: int) -> int:
        """Copies of the model on so many ranks. Raises `LayoutError` where a copy would be incomplete."""
        if ranks % self.copy_ranks:
            raise LayoutError(
                f"{ranks} ranks do not hold whole copies of the model: one takes pipeline x expert = "
                f"{self.copy_ranks}; use a multiple, such as {math.ceil(ranks / self.copy_ranks) * self.copy_ranks}"
            )
        return ranks // self.copy_ranks

    def place(self, rank: int, ranks: int) -> Place:
        """Where a rank stands."""
        data = self.data(ranks)
        rest, expert = divmod(rank, self.expert)
        return Place(rest // data, rest % data, expert)

    def require(self, model: ModelConfig) -> None:
        """Raise `LayoutError` where `model` cannot be cut so."""
        pieces = self.pipeline * self.virtual
        if pieces > model.num_hidden_layers:
            raise LayoutError(
                f"pipeline x virtual = {self.pipeline} x {self.virtual} pieces for {model.num_hidden_layers} layers: "
                "each takes one at least"
            )
        if model.n_routed_experts % self.expert:
            raise LayoutError(
                f"{model.n_routed_experts} experts do not divide by expert = {self.expert}: choose a divisor"
            )

    def experts(self, model: ModelConfig, expert: int) -> range:
        """The experts of every layer that the ranks of an expert index hold."""
        each = model.n_routed_experts // self.expert
        return range(expert * each, (expert + 1) * each)

    def layers(self, model: ModelConfig) -> list[range]:
        """The layers of each piece of the network, in order; piece i lies on pipeline rank i % pipeline.

        Pieces differ by one layer at most; the first are the longer ones, because the last piece holds the head.
        """
        pieces, count = self.pipeline * self.virtual, model.num_hidden_layers
        ends = [math.ceil(count * piece / pieces) for piece in range(pieces + 1)]
        return [range(first, last) for first, last in pairwise(ends)]


@dataclass(frozen=True)
class Place:
    """One rank's indices."""

    pipeline: int
    data: int
    expert: int
