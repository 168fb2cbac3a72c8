"""The engine that a layout asks for."""

from __future__ import annotations

from collections.abc import Callable

import torch

from model.transformer import Transformer
from training.engine import Engine
from training.mesh import Mesh


def engine(model: Transformer, mesh: Mesh, device: torch.device, dtype: str, beat: Callable[[str], None]) -> Engine:
    """One that computes the whole model on this rank, or a part of it in a pipeline."""
    if mesh.pipeline.size == 1:
        return Engine(model, mesh, device, dtype, beat)
    from training.pipeline import PipelineEngine  # a second and a half of imports

    return PipelineEngine(model, mesh, device, dtype, beat)
