"""checkpoint-engine without a GPU: the library's own ranks, workers and sockets, with memory that processes share in
the place of a GPU's. Only what it asks of a device is replaced, in whoever imports this: the ranks that hand weights
over, and vLLM's workers (`--worker-extension-cls tests.training.rl.engine_on_cpu.OnCpu`)."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from checkpoint_engine import pin_memory, ps, worker
from checkpoint_engine.worker import VllmColocateWorkerExtension

FREE = 24 << 20
"""Bytes that a GPU is said to have free: buckets of a few MB."""


def _nothing(*_: Any) -> None:
    pass


class Cpu:
    """In the place of `DeviceManager`."""

    device_type, backend = "cpu", "gloo"
    device_module = SimpleNamespace(
        device_count=lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        get_device_properties=lambda index: SimpleNamespace(uuid=f"of-test-{index}"),
        mem_get_info=lambda: (FREE, FREE),
        memory_allocated=lambda: 0,
        memory_reserved=lambda: 0,
        **dict.fromkeys(("set_device", "synchronize", "empty_cache", "ipc_collect"), _nothing),
    )


class _Torch:
    """torch, where nothing can be pinned."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *given: Any, pin_memory: bool = False, **more: Any) -> torch.Tensor:
        return torch.empty(*given, **more)


def shared(buffer: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """In the place of `reduce_tensor`, whose handle of a tensor on the CPU would be a copy."""
    return opened, tuple(buffer.untyped_storage()._share_filename_cpu_())


def opened(*handle: Any) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8).set_(torch.UntypedStorage._new_shared_filename_cpu(*handle))


ps.DeviceManager = worker.DeviceManager = Cpu
ps.reduce_tensor = shared
pin_memory.torch = _Torch()


class OnCpu(VllmColocateWorkerExtension):
    """vLLM's worker, which calls its device by the identifier of `Cpu`."""

    _device_uuid = "GPU-of-test-0"
