"""Pipeline parallelism: the layers of one copy of the model on several ranks, under 1F1B or interleaved 1F1B.

The schedules are torch.distributed.pipelining's (docs/pretraining.md says why). Between ranks travels the residual
stream alone, and its gradient: every pipeline rank of one data index reads the same samples, so tokens, documents and
targets are where they are needed. A layer's balance loss enters its gradient where it arises, and its maxima and counts
stay there; the cross-entropy comes from the rank that holds the head.

Shape suffixes: B samples, S tokens of a sample, D hidden, L layers that this rank holds, H heads, E experts.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

from model.transformer import Transformer
from training.config import PretrainConfig
from training.engine import Engine, Sums
from training.loader import Batch
from training.mesh import Mesh
from training.parallel import lost
from training.samples import IGNORED, PADDING

log = logging.getLogger(__name__)

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
        held, dense = engine.layers, engine.config.model.first_k_dense_replace
        row = held.index(layers.start)
        self.rows = slice(row, row + len(layers))
        row = sum(layer >= dense for layer in held[:row])
        self.mixtures = slice(row, row + sum(layer >= dense for layer in layers))

    def forward(self, x: Tensor, tokens_BS: Tensor, documents_BS: Tensor | None = None) -> Tensor:
        """The residual stream after the layers, normed after the last of all; sums and maxima go to the engine's."""
        engine, training = self.engine, torch.is_grad_enabled()
        engine.beat("a micro-batch")
        with engine.precision():
            output = engine.model(
                tokens_BS,
                document_ids_BS=documents_BS,
                max_logits=training,
                layers=self.layers,
                x_BSD=x if self.layers.start else None,
            )
        if not training:
            return output.hidden_BSD
        sums, aux_loss = engine.sums, output.aux_loss * engine.aux_weight
        sums.aux_loss += aux_loss.detach().double()
        sums.max_logits_LH[self.rows] = torch.maximum(sums.max_logits_LH[self.rows], output.max_logits_LH)
        sums.expert_counts_LE[self.mixtures] += output.expert_counts_LE
        return _WithLoss.apply(output.hidden_BSD, aux_loss)


class PipelineEngine(Engine):
    """Runs a batch through a network whose layers lie on the ranks of `mesh.pipeline`."""

    def __init__(
        self, model: Transformer, config: PretrainConfig, mesh: Mesh, device: torch.device, beat: Callable[[str], None]
    ) -> None:
        """`model` holds the layers of this rank's pieces; `beat` hears of every piece's forward."""
        super().__init__(model, config, mesh, device, beat)
        # a step that fails is logged with the whole schedule, hundreds of lines of every rank; the error says enough
        logging.getLogger(ScheduleInterleaved1F1B.__module__).setLevel(logging.CRITICAL)
        self._pieces = mesh.layout.layers(config.model)
        self._schedules: dict[tuple[int, int], Schedule] = {}
        self.sums = self._zeros()
        self.targets, self.aux_weight = 1.0, 0.0
        for stage in config.stages.stages:
            most, count = self._micro_batches(stage.batch)
            if count > most and mesh.world.rank == 0:
                log.warning(
                    "stage %r: %d micro-batches a rank become %d, filled up with padding, because %d pipeline ranks of "
                    "%d pieces each need them; a smaller run.micro_batch or a larger batch makes them useful",
                    *(stage.name, most, count, mesh.layout.pipeline, mesh.layout.virtual),
                )

    def train(self, batch: Batch, targets: float, samples: int) -> Sums:
        """Forwards and backwards over `batch`, this rank's share of a global batch; gradients are added up."""
        self.sums, self.targets = self._zeros(), targets
        # a sample of padding has a balance loss of 0, and the mean is over all samples of a micro-batch
        self.aux_weight = self.config.run.micro_batch / samples
        self._run(batch, samples, backward=True)
        return self.sums

    @torch.no_grad()
    def evaluate(self, batch: Batch, samples: int) -> Tensor:
        """Cross-entropy summed over the targets of `batch`, this rank's share of `samples`, as `Sums.nll`."""
        self.sums = self._zeros()
        self._run(batch, samples, backward=False)
        return self.sums.nll

    def _run(self, batch: Batch, samples: int, backward: bool) -> None:
        count = self._micro_batches(samples)[1]
        more = count * self.config.run.micro_batch - len(batch.tokens_BS)
        tokens_BS = self._filled(batch.tokens_BS, more, 0)
        inputs: dict[str, Any] = {"tokens_BS": tokens_BS}
        if self.config.separate_documents or more:
            ids_BS = batch.document_ids_BS if self.config.separate_documents else torch.zeros_like(batch.tokens_BS)
            inputs["documents_BS"] = self._filled(ids_BS, more, PADDING)
        schedule = self._schedule(count, tokens_BS.shape[1])
        first = (tokens_BS,) if self.mesh.pipeline.rank == 0 else ()
        targets_BS = self._filled(batch.targets_BS, more, IGNORED)
        try:
            (schedule.step if backward else schedule.eval)(*first, target=targets_BS, return_outputs=False, **inputs)
        except RuntimeError as error:
            if error.__cause__ is not None:  # what a piece raised; torch adds its inputs
                raise error.__cause__ from None
            if type(error) is RuntimeError or isinstance(error, dist.DistError):
                raise lost(error) from error
            raise

    def _micro_batches(self, samples: int) -> tuple[int, int]:
        """Those of the largest share of `samples`, and as many as all ranks run."""
        most = math.ceil(math.ceil(samples / self.mesh.data.size) / self.config.run.micro_batch)
        return most, self.mesh.layout.micro_batches(most)

    def _filled(self, values_BS: Tensor, more: int, value: int) -> Tensor:
        return F.pad(values_BS, (0, 0, 0, more), value=value).to(self.device)

    def _schedule(self, count: int, length: int) -> Schedule:
        """The schedule of so many micro-batches of rows of `length` tokens."""
        if (count, length) in self._schedules:
            return self._schedules[count, length]
        # shapes told beforehand: torch would else find them by a forward on what memory holds, and send them pickled
        shape = (self.config.run.micro_batch, length, self.config.model.hidden_size)
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
        self._schedules[count, length] = made
        return made

    def _loss(self, hidden_BSD: Tensor, targets_BS: Tensor) -> Tensor:
        """A micro-batch's share of the mean cross-entropy, on the rank that holds the head."""
        with self.precision():
            nll = self.model.loss(hidden_BSD, targets_BS, IGNORED, reduction="sum")
        self.sums.nll += nll.detach().double()
        return nll / self.targets
