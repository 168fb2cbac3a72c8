"""What autograd keeps between forward and backward, and in which form: recomputed, in FP8, or on the host.

The network marks tensors where it makes them (`keep.recomputed`, `keep.in_fp8`); whoever saves one of them for its
backward then gets a `_Source` that makes it again. Everything happens in hooks on saved tensors: forwards give the same
bits under every switch, recomputation the same gradients, and counts and maxima are returned once, by the one forward.

Shape suffixes: `...` leading dimensions, W width, G = ceil(W / 128) tiles.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from model.footprint import OFFLOAD_BYTES, TILE, MemoryConfig, Recomputed, StoredInFp8
from model.kernels.table import operation

FP8 = torch.float8_e4m3fn
FP8_LARGEST = torch.finfo(FP8).max  # 448
PREFETCHED = 8  # copies on their way back at once, about a layer's

Made = TypeVar("Made", bound=Tensor | tuple[Tensor, ...])


class Fp8(NamedTuple):
    """A tensor in FP8-E4M3, for storage only.

    Attributes:
        values: float8_e4m3fn (..., W): each tile over its scale, so that its largest number is 448.
        scales: float32 (..., G).
        dtype: of the tensor that it stands for.
    """

    values: Tensor
    scales: Tensor
    dtype: torch.dtype


def to_fp8(x: Tensor) -> Fp8:
    """Rounds the last dimension in tiles of 128 numbers, the last one shorter. What is not finite stays so."""
    return Fp8(*round_to_fp8(x), x.dtype)


def from_fp8(stored: Fp8) -> Tensor:
    """The tensor again, contiguous; off by at most 1/16 of a number, 2^-18 of its tile's largest, or 2^-136, whichever
    is most."""
    return expand_fp8(*stored)


@operation
def round_to_fp8(x: Tensor) -> tuple[Tensor, Tensor]:
    width = x.shape[-1]
    tiled = F.pad(x.float(), (0, -width % TILE)).unflatten(-1, (-1, TILE))
    # A quotient below the normal numbers is 0, by which nothing can be divided, or too coarse for a scale.
    scales = (tiled.abs().amax(-1, keepdim=True) / FP8_LARGEST).clamp(min=torch.finfo(torch.float32).tiny)
    return (tiled / scales).to(FP8).flatten(-2)[..., :width].contiguous(), scales[..., 0]


@operation
def expand_fp8(values: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    width = values.shape[-1]
    tiled = F.pad(values.float(), (0, -width % TILE)).unflatten(-1, (-1, TILE))
    return (tiled * scales[..., None]).flatten(-2)[..., :width].to(dtype).contiguous()


def _expander(stored: Fp8) -> Callable[[], tuple[Tensor]]:
    return lambda: (from_fp8(stored),)


class _Source:
    """Tensors that are not kept as they were: made when the first reader asks, and dropped after the last."""

    def __init__(self, make: Callable[[], tuple[Tensor, ...]]) -> None:
        self.make = make
        self.readers = self.read = 0
        self.made: tuple[Tensor, ...] | None = None

    def get(self) -> tuple[Tensor, ...]:
        made = self.made or self.make()
        self.read += 1
        self.made = made
        if self.read == self.readers:  # a second backward over the same graph begins anew
            self.read, self.made = 0, None
        return made


class _View(NamedTuple):
    """What a reader saved: a view of one of a source's tensors."""

    source: _Source
    place: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class _Entry(NamedTuple):
    alive: StorageWeakRef  # while it is held, no other storage gets the same address
    source: _Source
    place: int


class Keep:
    """One forward's policy: `with keep:` around it, the marks within."""

    def __init__(self, config: MemoryConfig, weights: nn.Module | None = None) -> None:
        """The policy of `config`; the parameters of `weights` always stay where they are."""
        self.config = config
        self._entries: dict[int, _Entry] = {}
        self._hooks = ExitStack()
        self._away: _Host | None = _Host() if config.offload else None
        parameters = weights.parameters() if weights is not None and config.offload else ()
        self._weights = {parameter.untyped_storage()._cdata for parameter in parameters}

    def __enter__(self) -> Keep:
        if self.config.acts and torch.is_grad_enabled():
            self._hooks.enter_context(saved_tensors_hooks(self._pack, self._unpack))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._hooks.close()
        self._entries.clear()  # from here on the graph alone holds the sources

    def recomputed(self, switch: Recomputed, fn: Callable[..., Made], *inputs: Tensor) -> Made:
        """fn(*inputs), whose outputs nobody keeps where the switch is on: they are computed again from the inputs.

        `fn` must give the same bits again; what it saves for its own backward it saves as ever.
        """
        outputs = fn(*inputs)
        if switch not in self.config.recompute or not torch.is_grad_enabled():
            return outputs
        kept = [self._pack(tensor) for tensor in inputs]
        kind = inputs[0].device.type
        autocast, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)

        def again() -> tuple[Tensor, ...]:
            with torch.no_grad(), torch.autocast(kind, dtype, enabled=autocast):
                made = fn(*(self._unpack(tensor) for tensor in kept))
            return (made,) if isinstance(made, Tensor) else made

        self._mark(again, *((outputs,) if isinstance(outputs, Tensor) else outputs))
        return outputs

    def in_fp8(self, switch: StoredInFp8, *tensors: Tensor) -> None:
        """Marks tensors as kept in FP8 where the switch is on.

        Raises:
            ValueError: one is not contiguous or begins within its storage: views of it could not be found again.
        """
        if switch in self.config.fp8 and torch.is_grad_enabled():
            for tensor in tensors:
                if not tensor.is_contiguous() or tensor.storage_offset():
                    raise ValueError(f"{switch}: a tensor of shape {tuple(tensor.shape)} is a view; store a whole one")
                self._mark(_expander(to_fp8(tensor.detach())), tensor)

    def _mark(self, make: Callable[[], tuple[Tensor, ...]], *outputs: Tensor) -> None:
        source = _Source(make)
        for place, tensor in enumerate(outputs):
            storage = tensor.untyped_storage()
            self._entries[storage._cdata] = _Entry(StorageWeakRef(storage), source, place)

    def _pack(self, tensor: Tensor) -> Tensor | _View:
        storage = tensor.untyped_storage()
        entry = self._entries.get(storage._cdata)
        if entry is None and self._may_leave(tensor):
            flat = tensor.detach().as_strided((storage.nbytes() // tensor.element_size(),), (1,), 0)
            self._mark(self._away.send(flat), flat)  # type: ignore[union-attr]
            entry = self._entries[storage._cdata]
        if entry is None:
            return tensor.detach()  # a node that kept its own output would never be freed
        entry.source.readers += 1
        return _View(entry.source, entry.place, tensor.size(), tensor.stride(), int(tensor.storage_offset()))

    def _unpack(self, kept: Tensor | _View) -> Tensor:
        if isinstance(kept, Tensor):
            return kept
        made = kept.source.get()[kept.place]
        return made.as_strided(kept.size, kept.stride, kept.offset)

    def _may_leave(self, tensor: Tensor) -> bool:
        storage = tensor.untyped_storage()
        large = self._away is not None and storage.nbytes() >= OFFLOAD_BYTES
        return large and storage._cdata not in self._weights and not _is_cast_weight(tensor)


def _is_cast_weight(tensor: Tensor) -> bool:
    """Whether it is a parameter in another dtype, as autocast makes them: every layer's backward asks for those."""
    node: Any = tensor.grad_fn
    while node is not None and node.name() in ("ToCopyBackward0", "TBackward0", "TransposeBackward0"):
        node = node.next_functions[0][0]
    return node is not None and node.name() == "torch::autograd::AccumulateGrad"


class _Copy:
    """One tensor on the host: `host` there, `back` on its way to the device or arrived."""

    def __init__(self, host: Tensor, device: torch.device) -> None:
        self.host, self.device = host, device
        self.back: Tensor | None = None
        self.arrived: torch.cuda.Event | None = None


class _Host:
    """Copies on a stream of their own: to the host while the forward computes, back ahead of the backward."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None
        self._sent: list[weakref.ref[_Copy]] = []

    def send(self, flat: Tensor) -> Callable[[], tuple[Tensor]]:
        """Begins the copy of a tensor; what brings it back."""
        if not flat.is_cuda:
            return lambda: (flat,)
        if self._stream is None:
            self._stream = torch.cuda.Stream(flat.device)
        copy = _Copy(torch.empty(flat.shape, dtype=flat.dtype, pin_memory=True), flat.device)
        self._stream.wait_stream(torch.cuda.current_stream(flat.device))
        with torch.cuda.stream(self._stream):
            copy.host.copy_(flat, non_blocking=True)
        flat.record_stream(self._stream)  # its memory is not given away before the copy has ended
        place = len(self._sent)
        self._sent.append(weakref.ref(copy))
        return lambda: (self._fetch(place, copy),)

    def _fetch(self, place: int, copy: _Copy) -> Tensor:
        """The tensor on its device; those that backward asks for next, the ones sent before it, set out as well."""
        for earlier in reversed(self._sent[max(0, place - PREFETCHED) : place + 1]):
            self._begin(earlier())
        back, arrived = copy.back, copy.arrived
        assert back is not None and arrived is not None  # noqa: PT018 (`_begin` has just set both)
        current = torch.cuda.current_stream(copy.device)
        current.wait_event(arrived)
        back.record_stream(current)
        copy.back = copy.arrived = None
        return back

    def _begin(self, copy: _Copy | None) -> None:
        if copy is None or copy.back is not None:
            return
        with torch.cuda.stream(self._stream):
            copy.back = copy.host.to(copy.device, non_blocking=True)
            copy.arrived = torch.cuda.Event()
            copy.arrived.record(self._stream)


PLAIN = Keep(MemoryConfig())
"""Keeps what autograd keeps."""
