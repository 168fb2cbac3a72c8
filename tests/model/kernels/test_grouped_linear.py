"""Linear layers of experts, each over its own rows: rounded up on a CPU, in one kernel on a GPU."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model.kernels.grouped_linear import one_kernel, padded, padded_product
from tests.model.kernels.numbers import ROUNDING, close, drawn


@pytest.mark.parametrize("loads", [[3, 0, 16, 1], [8, 8, 0], [1], [17, 2], [0, 0], [70, 5, 33]])
def test_padded_groups_equal_float64(loads):
    x, w = drawn(sum(loads), 24).requires_grad_(), drawn(len(loads), 40, 24, seed=1).requires_grad_()
    dy = drawn(sum(loads), 40, seed=2)
    y = padded(x, w, torch.tensor(loads))
    found = (y, *torch.autograd.grad(y, (x, w), dy))
    exact = [t.detach().double().requires_grad_() for t in (x, w)]
    groups = zip(exact[0].split(loads), exact[1].unbind(), strict=True)
    wanted = torch.cat([F.linear(rows, weight) for rows, weight in groups])
    for mine, other in zip(found, (wanted, *torch.autograd.grad(wanted, exact, dy.double())), strict=True):
        assert mine.shape == other.shape
        if mine.numel():
            close(mine, other.detach(), 2 * ROUNDING)


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any),
    widths=st.tuples(st.sampled_from([8, 16, 40]), st.sampled_from([8, 24])),
)
def test_the_grouped_kernel_is_given_what_it_takes(counts, widths):
    """A GPU's path as far as a CPU can tell: of widths that are multiples of 8, torch's own check for CUDA (that of the
    meta device) takes every product, any number of rows included; and torch's reference of the kernel agrees."""
    inner, outer = widths
    a, dy = drawn(sum(counts), inner), drawn(sum(counts), outer, seed=1)
    w, given = drawn(len(counts), outer, inner, seed=2), torch.tensor(counts)
    for left, right in ((a, w.mT), (dy, w), (dy.mT, a)):
        shape = one_kernel(left.to("meta"), right.to("meta"), given.to("meta")).shape
        found, wanted = one_kernel(left, right, given), padded_product(left, right, given)
        assert shape == found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, atol=0.15, rtol=0.02)
