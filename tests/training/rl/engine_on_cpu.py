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

from tests.training.rl.vllm_on_cpu import Packing

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


class OnCpu(VllmColocateWorkerExtension, Packing):
    """vLLM's worker, which calls its device by the identifier of `Cpu`. On a CPU vLLM keeps packed weights alone, into
    which the library's own method cannot load: they are loaded as `reload_weights` does it."""

    _device_uuid = "GPU-of-test-0"

    def update_weights_from_ipc(self, zmq_handles: dict[str, str]) -> None:
        from vllm.config import set_current_vllm_config
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        model = self.model_runner.get_model()

        def load(weights: list[tuple[str, torch.Tensor]]) -> None:
            # kept until a layer is complete, and the bucket's memory is used again before
            model.load_weights([(name, tensor.clone()) for name, tensor in weights])

        with set_current_vllm_config(self.vllm_config):
            initialize_layerwise_reload(model)
            worker.update_weights_from_ipc(
                self._zmq_ctx,
                zmq_handles[self._device_uuid],
                device_id=None,
                run=load,
                post_hook=lambda: finalize_layerwise_reload(model, self.model_config),
            )
