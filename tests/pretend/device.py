"""A GPU as far as a CPU can tell: tensors that say they lie on one, and whose numbers lie in the CPU's memory.

Code under `pretended()` takes what the table of kernels has for GPUs, and is refused what a GPU would refuse: tensors
of two devices in one operation, and operations that repeat themselves only on CPUs while torch is told to be
deterministic. `waits` says where the CPU would wait for the GPU. It tells neither how fast anything is, nor whether a
kernel compiles.
"""

from __future__ import annotations

import contextlib
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from unittest.mock import patch

import torch
import torch.cuda.amp.common
import torch.nn.attention.flex_attention as torch_flex
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map

import model.kernels.gpu as gpu_kernels

HOUSE = str(Path(__file__).resolve().parents[2])
aten = torch.ops.aten
MOVES = {aten.copy_.default, aten._to_copy.default, aten.lift_fresh.default, aten._pin_memory.default}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default, aten._index_put_impl_.default}
"""They take indices on the CPU."""
WAITING = {
    *(aten._local_scalar_dense.default, aten.nonzero.default, aten.bincount.default, aten.masked_select.default),
    *(aten.equal.default, aten._unique2.default),
}
FLOAT_SUMS = {aten.cumsum.default, aten.cumsum_.default, aten.cumprod.default, aten.logcumsumexp.default}
"""Refused on GPUs under `torch.use_deterministic_algorithms`, of floats."""


class OnGpu(Tensor):
    """A tensor that says it lies on a GPU; `kept` are its numbers."""

    kept: Tensor

    @staticmethod
    def __new__(cls, kept: Tensor) -> Self:
        made = Tensor._make_wrapper_subclass(
            cls, kept.shape, kept.stride(), kept.storage_offset(), dtype=kept.dtype, device="cuda:0"
        )
        made.kept = kept
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"{func} outside of `pretended`")

    def tolist(self) -> Any:
        return self.cpu().tolist()  # torch's own refuses subclasses

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return f"OnGpu({tuple(self.shape)}, {self.dtype})"


class Pretended(TorchDispatchMode):
    """Runs every operation on the numbers themselves, once it is one that a GPU would take."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        leaves, _ = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        gpu = [tensor for tensor in tensors if isinstance(tensor, OnGpu)]
        asked = kwargs.get("device")
        there = bool(gpu) if asked is None else torch.device(asked).type == "cuda"
        kwargs.pop("pin_memory", None)
        if not gpu and not there:
            return func(*args, **kwargs)
        self._refuse(func, tensors, gpu)
        if func in WAITING or (func is aten._to_copy.default and gpu and not there) or self._reads_back(func, args):
            self.waits[_place()] += 1
        if asked is not None:
            kwargs["device"] = torch.device("cpu")
        kwargs.pop("pin_memory", None)
        inner_args, inner_kwargs = tree_map(_kept, (args, kwargs))
        result = func(*inner_args, **inner_kwargs)
        if (
            isinstance(args[0] if args else None, Tensor)
            and func is aten.copy_.default
            and not isinstance(args[0], OnGpu)
        ):
            return args[0]
        if not there:
            return result
        wrapped = tree_map(lambda leaf: OnGpu(leaf) if isinstance(leaf, Tensor) else leaf, result)
        return return_and_correct_aliasing(func, args, kwargs, wrapped) if gpu else wrapped

    def _refuse(self, func: Any, tensors: list[Tensor], gpu: list[OnGpu]) -> None:
        if gpu and func not in MOVES | INDEXED and any(t.dim() for t in tensors if not isinstance(t, OnGpu)):
            shapes = [(str(t.device), tuple(t.shape)) for t in tensors]
            raise RuntimeError(f"{func}: tensors of two devices: {shapes}")
        if torch.are_deterministic_algorithms_enabled() and func in FLOAT_SUMS and tensors[0].is_floating_point():
            raise RuntimeError(f"{func} does not have a deterministic implementation")

    @staticmethod
    def _reads_back(func: Any, args: Any) -> bool:
        if func is aten.copy_.default:
            return isinstance(args[1], OnGpu) and not isinstance(args[0], OnGpu)
        if func in INDEXED:
            return any(
                isinstance(index, Tensor) and (index.dtype == torch.bool or not index.is_cuda) for index in args[1]
            )
        return False


def _kept(leaf: Any) -> Any:
    return leaf.kept if isinstance(leaf, OnGpu) else leaf


def _place() -> str:
    """Where our own code asked."""
    ours = [
        frame
        for frame in traceback.extract_stack()
        if frame.filename.startswith(HOUSE) and "/pretend/" not in frame.filename
    ]
    return f"{ours[-1].filename.removeprefix(HOUSE + '/')}:{ours[-1].lineno}" if ours else "torch"


def _attention(q: Tensor, k: Tensor, v: Tensor, scale: float, block_mask: Any, return_aux: Any) -> Any:
    """FlexAttention's arithmetic: its own reference takes torch's fake tensors only."""
    rows, heads, seq, _ = q.shape
    places = [torch.arange(size, device=q.device) for size in (rows, heads, seq, seq)]
    seen = block_mask.mask_mod(
        *(each.view([-1 if at == dim else 1 for at in range(4)]) for dim, each in enumerate(places))
    )
    logits = ((q @ k.mT).float() * scale).masked_fill(~seen, -torch.inf)
    y = logits.softmax(-1).to(v.dtype) @ v
    return y if return_aux is None else (y, torch_flex.AuxOutput(max_scores=logits.amax(-1)))


class _Stream:
    """Streams and events, in a world where everything happens at once."""

    def __init__(self, *given: Any, **named: Any) -> None: ...
    def wait_stream(self, other: Any) -> None: ...
    def wait_event(self, event: Any) -> None: ...
    def record(self, stream: Any = None) -> None: ...
    def synchronize(self) -> None: ...


@contextlib.contextmanager
def pretended() -> Iterator[Pretended]:
    """As on a machine with one GPU."""
    lifted = torch._C._only_lift_cpu_tensors()
    overwrites = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # `parameter.data = ` would keep the old numbers
    torch._C._set_only_lift_cpu_tensors(True)  # tensors of Python numbers reach the mode as well
    with contextlib.ExitStack() as stack:
        for where, name, value in (
            (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
            (torch.cuda, "is_bf16_supported", lambda *_: True),
            (torch.cuda, "_lazy_init", lambda: None),
            (torch.cuda, "set_device", lambda _: None),
            (torch.cuda, "max_memory_allocated", lambda *_: 0),
            (torch.cuda, "Stream", _Stream),
            (torch.cuda, "Event", _Stream),
            (torch.cuda, "current_stream", _Stream),
            (torch.cuda, "stream", lambda _: contextlib.nullcontext()),
            (Tensor, "record_stream", lambda *_: None),
            (gpu_kernels, "_compiled", lambda: _attention),
        ):
            stack.enter_context(patch.object(where, name, value))
        try:
            yield stack.enter_context(Pretended())
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)
            torch.__future__.set_overwrite_module_params_on_conversion(overwrites)
