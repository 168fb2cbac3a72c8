"""The forwards and backwards of one update on this rank: all between an objective's micro-batches and the reduction of
gradients.

Shape suffixes: B rows, S tokens of a row, D hidden, L layers that this rank holds (in `experts_BSLK` all mixture
layers), H heads, E experts, K of them for a token.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from model.attention import document_mask
from model.transformer import Output, Transformer
from training.mesh import Mesh
from training.samples import PADDING

Measures = Mapping[str, Tensor]
"""Scalars by name, to be added up over micro-batches and ranks."""
Loss = Callable[[Transformer, Tensor], tuple[Tensor, Measures]]
"""(model, hidden_BSD) -> a micro-batch's share of the loss of the global batch, and what was measured beside it."""


@dataclass(frozen=True)
class MicroBatch:
    """Rows that go through the network together, on the CPU, and what is learned from them."""

    tokens_BS: Tensor
    loss: Loss
    document_ids_BS: Tensor | None = None
    """Attention stays inside equal ids, and below 0 is padding; without ids it crosses from document to document."""
    positions_BS: Tensor | None = None
    """0, 1, ... along each row where there are none."""
    shared_prompt: bool = False
    """Ids are those of a prompt's responses, and 0 is the prompt, which all of them see (`training.rl.tree`)."""
    experts_BSLK: Tensor | None = None
    """Experts that the routers are to take, below 0 their own choice (`Transformer.forward`)."""
    aux_weight: float = 0.0
    """Weight of the mean balance loss of these rows: their share of the global batch's, as a rule."""


@dataclass
class Sums:
    """What the micro-batches of one update gave on this rank, for its own rows and the layers that it holds."""

    loss: Tensor
    """The sum of the shares, float64; 0 where another rank holds the head."""
    aux_loss: Tensor
    """Balance loss of these layers, its weight included, float64."""
    max_logits_LH: Tensor
    """Each head's largest attention logit, float32; -inf where there was no token."""
    expert_counts_LE: Tensor
    """Tokens per expert of the mixture layers, int64."""
    measures: dict[str, Tensor] = field(default_factory=dict)
    """float64."""

    def add(self, loss: Tensor, measures: Measures) -> None:
        """Count what one micro-batch gave."""
        self.loss += loss.detach().double()
        for name, value in measures.items():
            value = value.detach().double()
            self.measures[name] = self.measures[name] + value if name in self.measures else value


class Engine:
    """Runs micro-batches through a network whose layers are all on this rank, one after another."""

    def __init__(
        self, model: Transformer, mesh: Mesh, device: torch.device, dtype: str, beat: Callable[[str], None]
    ) -> None:
        """`dtype` is the precision of the products; `beat` hears of every micro-batch."""
        self.model, self.mesh, self.device, self.beat = model, mesh, device, beat
        self.dtype: torch.dtype = getattr(torch, dtype)
        self.layers = model.held
        """Indices, within the whole network, of the layers whose maxima and counts `train` gives, in that order."""

    def train(self, parts: Sequence[MicroBatch]) -> Sums:
        """Forwards and backwards over this rank's micro-batches of a global batch; gradients are added up.

        Losses are shares of one number, so that the sum of all ranks' gradients is that of the global batch, however it
        is cut.
        """
        sums = self._zeros()
        for part in self._as_many(parts):
            output = self._forward(part, max_logits=True)
            with self.precision():
                loss, measures = part.loss(self.model, output.hidden_BSD)
            aux_loss = output.aux_loss * part.aux_weight
            (loss + aux_loss).backward()
            sums.add(loss, measures)
            sums.aux_loss += aux_loss.detach().double()
            assert output.max_logits_LH is not None
            sums.max_logits_LH = torch.maximum(sums.max_logits_LH, output.max_logits_LH)
            sums.expert_counts_LE += output.expert_counts_LE
        return sums

    @torch.no_grad()
    def evaluate(self, parts: Sequence[MicroBatch]) -> Sums:
        """Losses and measures of this rank's micro-batches."""
        sums = self._zeros()
        for part in self._as_many(parts):
            hidden_BSD = self._forward(part, max_logits=False).hidden_BSD
            with self.precision():
                sums.add(*part.loss(self.model, hidden_BSD))
        return sums

    def _zeros(self) -> Sums:
        config = self.model.config
        moe = sum(layer >= config.first_k_dense_replace for layer in self.layers)
        return Sums(
            loss=torch.zeros((), dtype=torch.float64, device=self.device),
            aux_loss=torch.zeros((), dtype=torch.float64, device=self.device),
            max_logits_LH=torch.full((len(self.layers), config.num_attention_heads), -math.inf, device=self.device),
            expert_counts_LE=torch.zeros((moe, config.n_routed_experts), dtype=torch.int64, device=self.device),
        )

    def _as_many(self, parts: Sequence[MicroBatch]) -> list[MicroBatch]:
        """The micro-batches, filled up with padding to as many as any rank has that this one exchanges tokens with."""
        return filled_up(parts, most_of(len(parts), self.mesh, self.device))

    def _forward(self, part: MicroBatch, max_logits: bool) -> Output:
        self.beat("a micro-batch")
        with self.precision():
            return self.model(part.tokens_BS.to(self.device), **self.places(part), max_logits=max_logits)

    def places(self, part: MicroBatch) -> dict[str, object]:
        """Positions, routes and attention of a micro-batch, as `Transformer.forward` takes them."""
        ids_BS, given = part.document_ids_BS, {"positions_BS": part.positions_BS, "experts_BSLK": part.experts_BSLK}
        places: dict[str, object] = {
            name: None if value is None else value.to(self.device) for name, value in given.items()
        }
        if ids_BS is None:
            return places
        ids_BS = ids_BS.to(self.device)
        if part.shared_prompt:
            return places | {"mask": document_mask(ids_BS, shared_prompt=True)}
        return places | {"document_ids_BS": ids_BS}

    def precision(self) -> torch.autocast:
        """The precision of the forward's products."""
        return torch.autocast(self.device.type, self.dtype, enabled=self.dtype != torch.float32)


def filled_up(parts: Sequence[MicroBatch], count: int) -> list[MicroBatch]:
    """`count` micro-batches: `parts`, and one row of padding each where these are not enough.

    Padding has document ids below 0 and no loss, so that it enters neither losses, nor counts, nor maxima.
    """
    length = parts[0].tokens_BS.shape[1] if parts else 1
    tokens_BS = torch.zeros((1, length), dtype=torch.int64)
    nothing = MicroBatch(tokens_BS, _nothing, torch.full((1, length), PADDING, dtype=torch.int32))
    return [*parts, *[nothing] * (count - len(parts))]


def _nothing(model: Transformer, hidden_BSD: Tensor) -> tuple[Tensor, Measures]:
    """A loss of zero from whose backward every layer gets a gradient: other ranks' tokens may pass through it."""
    return hidden_BSD.float().sum() * 0, {}


def most_of(count: int, mesh: Mesh, device: torch.device) -> int:
    """The largest `count` of the ranks that exchange tokens: all of them make as many forwards."""
    if mesh.expert.size == 1:
        return count
    return int(mesh.expert.all_reduce(torch.tensor(count, device=device), "max"))
