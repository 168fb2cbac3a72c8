"""What vLLM 0.32 leaves out on a CPU when it is given new weights: it packs experts for its kernel where it loads a
model, and not where it reloads one, so that the kernel reads unpacked ones (reload_weights and checkpoint-engine
alike). vLLM's workers import this (`--worker-extension-cls tests.training.rl.vllm_on_cpu.Packing`)."""

from __future__ import annotations

from typing import Any

try:
    from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import UnquantizedFusedMoEMethod as Experts
except ImportError:  # in a test's own process, where there is nothing to mend
    pass
else:
    _first = Experts._setup_kernel

    def _every_time(self: Any, layer: Any, **weights: Any) -> None:
        reloaded = self.moe_kernel is not None
        _first(self, layer, **weights)
        if reloaded:
            self.moe_kernel.fused_experts.process_weights_after_loading(layer)

    Experts._setup_kernel = _every_time


class Packing:
    """vLLM takes a class; what is above is all there is to it."""
