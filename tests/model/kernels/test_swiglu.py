"""silu(gate) * up that keeps its inputs alone, against float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from model.kernels.swiglu import silu_times
from tests.model.kernels.numbers import ROUNDING, drawn


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_equals_float64(dtype):
    """Gates up to 100 on both sides: the exponential overflows to infinity and underflows to 0."""
    gate, up, dy = drawn(3, 40, 96).to(dtype).unbind()
    gate[0] = torch.linspace(-100, 100, 96)
    mine, exact = ([t.to(kind, copy=True).requires_grad_() for t in (gate, up)] for kind in (dtype, torch.float64))
    y, wanted = silu_times(*mine), F.silu(exact[0]) * exact[1]
    near = {"rtol": 2 * ROUNDING if dtype == torch.bfloat16 else 1e-5, "atol": 1e-6}  # torch rounds twice
    torch.testing.assert_close(y.double(), wanted, **near)
    found = torch.autograd.grad(y, mine, dy)
    for one, other in zip(found, torch.autograd.grad(wanted, exact, dy.double()), strict=True):
        torch.testing.assert_close(one.double(), other, **near)
