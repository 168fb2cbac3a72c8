"""Pipeline parallelism: the layers of one copy of the model on several ranks, under 1F1B or interleaved 1F1B.

The schedules are torch.distributed.pipelining's (docs/pretraining.md says why). Between ranks travels the residual
stream alone, and its gradient: every pipeline rank of one data index has the same micro-batches, so tokens, documents
and targets are where they are needed. A layer's balance loss enters its gradient where it arises, and its maxima and
counts stay there; the loss comes from the rank that holds the head.

Shape suffixes: B samples, S tokens of a sample, D hidden, L layers that this rank holds, H heads, E experts.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from model.transformer import Transformer
from training.engine import Engine, MicroBatch, Sums, filled_up, most_of
from training.mesh import Mesh
from training.parallel import lost
from training.samples import PADDING

Schedule = Schedule1F1B | ScheduleInterleaved1F1B


class _WithLoss(torch.autograd.Function):
    """x, from whose backward on `loss` has a gradient of one: a loss that no later piece sees."""

    @staticmethod
    def forward(ctx: Any, x_BSD: Tensor, loss: Tensor) -> Tensor:
        ctx.save_for_backward(loss)
        return x_BSD.view_as(x_BSD)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (loss,) = ctx.saved_tensors
        return grads[0], torch.ones_like(loss)


class _Stage(PipelineStage):
    """A stage that has memory for a tensor from when its receiving begins until the piece has taken it.

    torch allocates a buffer for every micro-batch and direction of an update beforehand and keeps them
    (pytorch/pytorch#136380): for K2 on 2,048 ranks, 128 micro-batches of 4,096 tokens, 30 GB a piece.
    """

    def _setup_forward_recv_info(self, num_microbatches: int, has_backward: bool) -> None:
        with self._on_meta():
            super()._setup_forward_recv_info(num_microbatches, has_backward)

    def _setup_backward_recv_info(self, num_microbatches: int) -> None:
        with self._on_meta():
            super()._setup_backward_recv_info(num_microbatches)

    @contextlib.contextmanager
    def _on_meta(self) -> Iterator[None]:
        device, self.device = self.device, torch.device("meta")
        try:
            yield
        finally:
            self.device = device

    def _place(self, received: tuple[Any, ...], device: torch.device) -> None:
        for info in received:
            if info.buffer is not None:
                info.buffer = torch.empty_like(info.buffer, device=device, requires_grad=False)

    def get_fwd_recv_ops(self, fwd_chunk_id: int) -> list[dist.P2POp]:
        self._place(self.args_recv_info[fwd_chunk_id], self.device)
        return super().get_fwd_recv_ops(fwd_chunk_id)

    def get_bwd_recv_ops(self, bwd_chunk_id: int) -> list[dist.P2POp]:
        if self.has_backward:
            self._place(self.grad_recv_info[bwd_chunk_id], self.device)
        return super().get_bwd_recv_ops(bwd_chunk_id)

    def forward_one_chunk(self, fwd_chunk_id: int, *args: Any, **kwargs: Any) -> Any:
        output = super().forward_one_chunk(fwd_chunk_id, *args, **kwargs)
        self._place(self.args_recv_info[fwd_chunk_id], torch.device("meta"))  # the graph holds what it needs
        return output

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)
        if self.has_backward:
            self._place(self.grad_recv_info[bwd_chunk_id], torch.device("meta"))
        else:
            del self.fwd_cache[bwd_chunk_id]  # torch keeps what an evaluation computed until the next one


class _Piece(nn.Module):
    """Some consecutive layers, as a stage calls them: with the residual stream, unless they are the first."""

    def __init__(self, engine: PipelineEngine, layers: range) -> None:
        super().__init__()
        self.engine, self.layers = engine, layers
        held, dense = engine.layers, engine.model.config.first_k_dense_replace
        row = held.index(layers.start)
        self.rows = slice(row, row + len(layers))
        row = sum(layer >= dense for layer in held[:row])
        self.mixtures = slice(row, row + sum(layer >= dense for layer in layers))

    def forward(self, x: Tensor, number_B: Tensor) -> Tensor:
        """The residual stream after the layers, normed after the last of all; sums and maxima go to the engine's.

        `number_B` is the number of the micro-batch, for each of its rows.
        """
        engine, training = self.engine, torch.is_grad_enabled()
        part = engine.parts[int(number_B[0])]
        engine.beat("a micro-batch")
        with engine.precision():
            output = engine.model(
                part.tokens_BS.to(engine.device),
                **engine.places(part),
                max_logits=training,
                layers=self.layers,
                x_BSD=x if self.layers.start else None,
            )
        if not training:
            return output.hidden_BSD
        sums, aux_loss = engine.sums, output.aux_loss * part.aux_weight
        sums.aux_loss += aux_loss.detach().double()
        sums.max_logits_LH[self.rows] = torch.maximum(sums.max_logits_LH[self.rows], output.max_logits_LH)
        sums.expert_counts_LE[self.mixtures] += output.expert_counts_LE
        return _WithLoss.apply(output.hidden_BSD, aux_loss)


class PipelineEngine(Engine):
    """Runs micro-batches through a network whose layers lie on the ranks of `mesh.pipeline`, all of which are given the
    same ones. Of their losses only the rank that holds the head knows."""

    def __init__(
        self, model: Transformer, mesh: Mesh, device: torch.device, dtype: str, beat: Callable[[str], None]
    ) -> None:
        """`model` holds the layers of this rank's pieces; `beat` hears of every piece's forward."""
        super().__init__(model, mesh, device, dtype, beat)
        # a step that fails is logged with the whole schedule, hundreds of lines of every rank; the error says enough
        logging.getLogger(ScheduleInterleaved1F1B.__module__).setLevel(logging.CRITICAL)
        self._pieces = mesh.layout.layers(model.config)
        self._schedules: dict[tuple[int, int, int], Schedule] = {}
        self.sums = self._zeros()
        self.parts: list[MicroBatch] = []
        """The micro-batches under way, all of one shape."""
        self._given: list[MicroBatch] = []

    def train(self, parts: Sequence[MicroBatch]) -> Sums:
        """Forwards and backwards over this rank's micro-batches of a global batch; gradients are added up."""
        self._run(parts, backward=True)
        return self.sums

    @torch.no_grad()
    def evaluate(self, parts: Sequence[MicroBatch]) -> Sums:
        """Losses and measures of this rank's micro-batches."""
        self._run(parts, backward=False)
        return self.sums

    def _run(self, parts: Sequence[MicroBatch], backward: bool) -> None:
        most = max(1, most_of(len(parts), self.mesh, self.device))  # a rank may have no samples
        count = self.mesh.layout.micro_batches(most)
        self.sums, self._given = self._zeros(), filled_up(parts, count)
        rows, length = (max(part.tokens_BS.shape[at] for part in self._given) for at in (0, 1))
        self.parts = [_of_shape(part, rows, length) for part in self._given]
        schedule = self._schedule(count, rows, length)
        number_B = torch.arange(count).repeat_interleave(rows)
        tokens_BS = torch.cat([part.tokens_BS for part in self.parts]).to(self.device)
        first = (tokens_BS,) if self.mesh.pipeline.rank == 0 else ()
        step = schedule.step if backward else schedule.eval
        try:
            step(*first, target=number_B, return_outputs=False, number_B=number_B)
        except RuntimeError as error:
            if error.__cause__ is not None:  # what a piece raised; torch adds its inputs
                raise error.__cause__ from None
            if type(error) is RuntimeError or isinstance(error, dist.DistError):
                raise lost(error) from error
            raise

    def _schedule(self, count: int, rows: int, length: int) -> Schedule:
        """The schedule of so many micro-batches of `rows` of `length` tokens."""
        if (count, rows, length) in self._schedules:
            return self._schedules[count, rows, length]
        # shapes told beforehand: torch would else find them by a forward on what memory holds, and send them pickled
        shape = (rows, length, self.model.config.hidden_size)
        dtype = next(self.model.parameters()).dtype
        x_BSD = torch.empty(shape, dtype=dtype, device="meta", requires_grad=True)
        tokens_BS = torch.empty(shape[:2], dtype=torch.int64, device="meta")
        ranks = self.mesh.pipeline
        stages = [
            _Stage(
                _Piece(self, layers),
                index,
                len(self._pieces),
                self.device,
                input_args=x_BSD if index else tokens_BS,
                output_args=x_BSD,
                group=ranks.group,
            )
            for index, layers in enumerate(self._pieces)
            if index % ranks.size == ranks.rank
        ]
        if self.mesh.layout.virtual == 1:
            made: Schedule = Schedule1F1B(stages[0], count, loss_fn=self._loss, scale_grads=False)
        else:
            made = ScheduleInterleaved1F1B([*stages], count, loss_fn=self._loss, scale_grads=False)
        self._schedules[count, rows, length] = made
        return made

    def _loss(self, hidden_BSD: Tensor, number_B: Tensor) -> Tensor:
        """A micro-batch's share of the loss, on the rank that holds the head."""
        part = self._given[int(number_B[0])]
        rows, length = part.tokens_BS.shape
        with self.precision():
            loss, measures = part.loss(self.model, hidden_BSD[:rows, :length])
        self.sums.add(loss, measures)
        return loss


def _of_shape(part: MicroBatch, rows: int, length: int) -> MicroBatch:
    """`part` filled up with padding: a pipeline's buffers have one shape for all micro-batches of an update."""
    have, width = part.tokens_BS.shape
    if (have, width) == (rows, length):
        return part

    def filled(values_BS: Tensor, value: int) -> Tensor:
        return F.pad(values_BS, (0, length - width, 0, rows - have), value=value)

    ids_BS, positions_BS, experts_BSLK = part.document_ids_BS, part.positions_BS, part.experts_BSLK
    ids_BS = torch.zeros_like(part.tokens_BS, dtype=torch.int32) if ids_BS is None else ids_BS
    return replace(
        part,
        tokens_BS=filled(part.tokens_BS, 0),
        document_ids_BS=filled(ids_BS, PADDING),
        positions_BS=None if positions_BS is None else filled(positions_BS, 0),
        experts_BSLK=None
        if experts_BSLK is None
        else F.pad(experts_BSLK, (0, 0, 0, 0, 0, length - width, 0, rows - have), value=-1),
        aux_weight=part.aux_weight * rows / have,  # a row of padding has a balance loss of 0, and the mean is over all
    )
