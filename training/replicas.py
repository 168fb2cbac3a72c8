"""What several ranks of a mesh hold alike: summed gradients, one norm of the whole, and whether they agree."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from training.expert_parallel import pieces
from training.mesh import Mesh


class Replicas:
    """One rank's part of a model. Experts are held by the ranks of `mesh.expert_data`, all else by `mesh.data`."""

    def __init__(self, model: nn.Module, mesh: Mesh) -> None:
        self.model, self.mesh, self.cuts = model, mesh, pieces(model)
        trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
        self.dense = [parameter for name, parameter in trained if name not in self.cuts]
        self.experts = [parameter for name, parameter in trained if name in self.cuts]

    def reduce_gradients(self) -> None:
        """Sum each gradient over the ranks that hold its parameter; an expert's has its whole group's tokens in it."""
        self.mesh.data.all_reduce_gradients(self.dense)
        self.mesh.expert_data.all_reduce_gradients(self.experts)

    def clip_gradients(self, most: float) -> float:
        """Shorten the whole gradient to a norm of `most`; the norm that it had, each parameter counted once."""
        device = self.dense[0].device
        squares = torch.tensor([_norm(self.dense) ** 2, _norm(self.experts) ** 2], dtype=torch.float64, device=device)
        self.mesh.expert.all_reduce(squares[1:])
        norm = self.mesh.pipeline.all_reduce(squares.sum()).sqrt()
        clip_grads_with_norm_([*self.dense, *self.experts], most, norm.float())
        return float(norm)

    def assert_equal(self) -> None:
        """Raise `RankError` unless the ranks that hold the same weights have the same numbers."""
        state = self.model.state_dict()
        self.mesh.data.assert_equal("weights", [tensor for name, tensor in state.items() if name not in self.cuts])
        self.mesh.expert_data.assert_equal("experts", [state[name] for name in self.cuts])


def _norm(parameters: Sequence[nn.Parameter]) -> float:
    return float(get_total_norm([p.grad for p in parameters if p.grad is not None]))
