"""RMSNorm in one pass against float64; what is not a number stays so."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from model.kernels.rms_norm import gradients, normed, rms_norm
from tests.model.kernels.numbers import ROUNDING, drawn


@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equals_float64(dtype, out):
    """Of a residual stream in either dtype; 300 rows are added up in three groups."""
    x, dy = drawn(3, 100, 336).to(dtype).requires_grad_(), drawn(3, 100, 336, seed=1).to(out)
    weight = torch.randn(336, generator=torch.Generator().manual_seed(2)).to(dtype).requires_grad_()
    y = rms_norm(x, weight, 1e-5, out)
    exact_x, exact_w = (t.detach().double().requires_grad_() for t in (x, weight))
    exact = F.rms_norm(exact_x, (336,), exact_w, 1e-5)
    assert y.dtype == out
    near = {torch.float32: 1e-5, torch.bfloat16: ROUNDING}
    torch.testing.assert_close(y.double(), exact, rtol=near[out], atol=1e-6)
    found = torch.autograd.grad(y, (x, weight), dy)
    wanted = torch.autograd.grad(exact, (exact_x, exact_w), dy.double())
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        off = near[dtype] * float(other.abs().max())
        torch.testing.assert_close(mine.double(), other, rtol=near[dtype], atol=off)


def test_what_is_not_a_number_stays_so():
    for bad in (torch.nan, -torch.nan):
        x = drawn(4, 32)
        x[2, 7] = bad
        y, inverse = normed(x, torch.ones(32), 1e-6, torch.bfloat16)
        assert y.isnan().any(1).tolist() == inverse[:, 0].isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("bits", [-1, 0x7FFFFFFF, 0x7F800001, 0x7FC00000])
def test_no_nan_that_a_float32_can_hold_is_rounded_away(bits):
    """Memory of all ones is NaN; rounding to bfloat16 carried it to 0."""
    nan = torch.tensor([bits], dtype=torch.int32).view(torch.float32)
    x, weight = torch.ones(2, 32), torch.ones(32)
    x[1, 3] = weight[5] = nan
    y, inverse = normed(x, torch.ones(32), 1e-6, torch.bfloat16)
    assert y.isnan().sum(1).tolist() == [0, 32]
    y, _ = normed(x[:1], weight, 1e-6, torch.bfloat16)
    assert y.isnan().nonzero().tolist() == [[0, 5]]
    dx, _ = gradients(torch.ones(2, 32).bfloat16(), x.bfloat16(), weight, inverse)
    assert dx.isnan().all()
