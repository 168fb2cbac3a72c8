"""How the ranks of a run are arranged: pipeline x data x expert parallelism (K2 report 2.4.2).

A copy of the model lies on `pipeline x expert` ranks. Pipeline ranks hold some of the layers each; the `expert` ranks
of a pipeline position hold some of the experts each and all else of their layers. Every rank of a pipeline position
takes its own samples, so for all that is not an expert those ranks are data parallel; experts are so over the `data`
index alone. Ranks are numbered (pipeline, data, expert), the last index running fastest: ranks that exchange tokens
are neighbours.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pydantic import Field

from model.config import Config, ModelConfig, parameter_count, score_flops_per_token


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
        if self.virtual > 1 and self.pipeline == 1:
            raise LayoutError(
                f"virtual = {self.virtual} pieces a rank, of a pipeline of one rank: set pipeline, or leave virtual out"
            )
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

        Cut by cost, so that no rank waits longer than it must for the one with most to do: every layer goes to the rank
        that has least so far, the head being there from the start. In K2, where the head costs as much as two layers,
        15 ranks hold four layers and the last one layer and the head.
        """
        layer, dense, head = costs(model)
        pieces = [0.0] * (self.pipeline * self.virtual)
        pieces[0], pieces[-1] = model.first_k_dense_replace * (dense - layer), head
        counts = [0] * len(pieces)

        def load(piece: int) -> tuple[bool, float, float]:
            return counts[piece] > 0, sum(pieces[piece % self.pipeline :: self.pipeline]), pieces[piece]

        for _ in range(model.num_hidden_layers):
            least = min(range(len(pieces)), key=load)
            pieces[least] += layer
            counts[least] += 1
        ends = [0, *accumulate(counts)]
        return [range(first, last) for first, last in pairwise(ends)]

    def held(self, model: ModelConfig, pipeline: int) -> list[int]:
        """The layers that the ranks of a pipeline index hold, rising."""
        return [layer for piece in self.layers(model)[pipeline :: self.pipeline] for layer in piece]

    def micro_batches(self, count: int) -> int:
        """So many micro-batches, and those without samples that the schedule needs on top of them: 1F1B as many as
        there are pipeline ranks, interleaved 1F1B equal rounds of as many or more."""
        if self.virtual == 1:
            return max(count, self.pipeline)
        return next(most for most in itertools.count(count) if most % max(1, most // self.pipeline) == 0)


def costs(model: ModelConfig) -> tuple[float, float, float]:
    """Multiplications per token of a layer of experts, of a dense layer and of the head, at the network's window."""
    parts, layers = parameter_count(model).components, model.num_hidden_layers
    attention = (parts["attention"] + score_flops_per_token(model, model.max_position_embeddings) / 2) / layers
    width, one = model.hidden_size, 3 * model.hidden_size * model.moe_intermediate_size
    experts = (model.num_experts_per_tok + model.n_shared_experts) * one + model.n_routed_experts * width
    return attention + experts, attention + 3 * width * model.intermediate_size, float(parts["lm_head"])


@dataclass(frozen=True)
class Place:
    """One rank's indices."""

    pipeline: int
    data: int
    expert: int
