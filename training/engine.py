"""The forwards and backwards of one batch on this rank: all between reading samples and reducing gradients.

Shape suffixes: B samples, S tokens of a sample, L layers that this rank holds, H heads, E experts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from model.transformer import Output, Transformer
from training.config import PretrainConfig
from training.loader import Batch
from training.mesh import Mesh
from training.samples import IGNORED, PADDING


@dataclass
class Sums:
    """What the forwards of one batch gave on this rank, for its own samples and the layers that it holds."""

    nll: Tensor
    """Cross-entropy summed over the targets, nats, float64; 0 where another rank holds the head."""
    aux_loss: Tensor
    """Balance loss of these layers, its weight included, as a mean over the global batch, float64."""
    max_logits_LH: Tensor
    """Each head's largest attention logit, float32; -inf where there was no token."""
    expert_counts_LE: Tensor
    """Tokens per expert of the mixture layers, int64."""


class MicroBatch(NamedTuple):
    """Samples that go through the network together, on the CPU."""

    tokens_BS: Tensor
    targets_BS: Tensor
    document_ids_BS: Tensor | None


def micro_batches(batch: Batch, size: int, count: int, documents: bool) -> Iterator[MicroBatch]:
    """`count` pieces of at most `size` samples; where `batch` has not enough, one sample of padding each.

    Padding has no target and document ids below 0, so that it enters neither losses, nor counts, nor maxima. Without
    `documents`, samples of the batch have no ids: attention crosses from one document into another.
    """
    for number in range(count):
        part = slice(number * size, (number + 1) * size)
        tokens_BS = batch.tokens_BS[part]
        if len(tokens_BS):
            yield MicroBatch(tokens_BS, batch.targets_BS[part], batch.document_ids_BS[part] if documents else None)
        else:
            shape = (1, tokens_BS.shape[1])
            none_BS = torch.full(shape, IGNORED), torch.full(shape, PADDING, dtype=torch.int32)
            yield MicroBatch(torch.zeros(shape, dtype=torch.int64), *none_BS)


class Engine:
    """Runs a batch through a network whose layers are all on this rank, micro-batch after micro-batch."""

    def __init__(
        self, model: Transformer, config: PretrainConfig, mesh: Mesh, device: torch.device, beat: Callable[[str], None]
    ) -> None:
        """`beat` hears of every micro-batch."""
        self.model, self.config, self.mesh, self.device, self.beat = model, config, mesh, device, beat
        self.layers = model.held
        """Indices, within the whole network, of the layers whose maxima and counts `train` gives, in that order."""

    def train(self, batch: Batch, targets: float, samples: int) -> Sums:
        """Forwards and backwards over `batch`, this rank's share of a global batch; gradients are added up.

        Every micro-batch is weighted by its targets (the balance loss by its samples) among the `targets` and `samples`
        of the global batch, so that the sum of all ranks' gradients is that of its mean, however it is cut.
        """
        sums = self._zeros()
        for part in self._parts(batch, samples):
            nll, output = self._forward(part, max_logits=True)
            aux_loss = output.aux_loss * (len(part.tokens_BS) / samples)
            (nll / targets + aux_loss).backward()
            sums.nll += nll.detach().double()
            sums.aux_loss += aux_loss.detach().double()
            assert output.max_logits_LH is not None
            sums.max_logits_LH = torch.maximum(sums.max_logits_LH, output.max_logits_LH)
            sums.expert_counts_LE += output.expert_counts_LE
        return sums

    @torch.no_grad()
    def evaluate(self, batch: Batch, samples: int) -> Tensor:
        """Cross-entropy summed over the targets of `batch`, this rank's share of `samples`, as `Sums.nll`."""
        nll = torch.zeros((), dtype=torch.float64, device=self.device)
        for part in self._parts(batch, samples):
            nll += self._forward(part, max_logits=False)[0].double()
        return nll

    def _zeros(self) -> Sums:
        model = self.config.model
        moe = sum(layer >= model.first_k_dense_replace for layer in self.layers)
        return Sums(
            nll=torch.zeros((), dtype=torch.float64, device=self.device),
            aux_loss=torch.zeros((), dtype=torch.float64, device=self.device),
            max_logits_LH=torch.full((len(self.layers), model.num_attention_heads), -math.inf, device=self.device),
            expert_counts_LE=torch.zeros((moe, model.n_routed_experts), dtype=torch.int64, device=self.device),
        )

    def _parts(self, batch: Batch, samples: int) -> Iterator[MicroBatch]:
        """The micro-batches, as many on all ranks that exchange tokens: those of the largest share of `samples`."""
        alone = self.mesh.expert.size == 1
        most = len(batch.tokens_BS) if alone else math.ceil(samples / self.mesh.data.size)
        size = self.config.run.micro_batch
        return micro_batches(batch, size, math.ceil(most / size), self.config.separate_documents)

    def _forward(self, part: MicroBatch, max_logits: bool) -> tuple[Tensor, Output]:
        """Sum of the cross-entropy over the targets of some samples, and the model's output."""
        self.beat("a micro-batch")
        documents_BS = None if part.document_ids_BS is None else part.document_ids_BS.to(self.device)
        with self.precision():
            output = self.model(part.tokens_BS.to(self.device), document_ids_BS=documents_BS, max_logits=max_logits)
            nll = self.model.loss(output.hidden_BSD, part.targets_BS.to(self.device), IGNORED, reduction="sum")
        return nll, output

    def precision(self) -> torch.autocast:
        """The precision of the forward's products."""
        dtype = getattr(torch, self.config.dtype)
        return torch.autocast(self.device.type, dtype, enabled=dtype != torch.float32)


def engine(
    model: Transformer, config: PretrainConfig, mesh: Mesh, device: torch.device, beat: Callable[[str], None]
) -> Engine:
    """The engine that the layout asks for."""
    if mesh.pipeline.size == 1:
        return Engine(model, config, mesh, device, beat)
    from training.pipeline import PipelineEngine  # a second and a half of imports

    return PipelineEngine(model, config, mesh, device, beat)
