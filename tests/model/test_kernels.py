"""The kernels of one pass, bfloat16 on a CPU, against torch in float64; whatever the threads, the same bits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model import kernels
from model.attention import RMSNorm
from model.head import fused_cross_entropy
from model.moe import swiglu
from model.softmax_attention import causal_attention, document_mask

ROUNDING = 2**-8  # half of bfloat16's last place, twice: of a number and of its parts


def drawn(*shape: int, seed: int = 0, size: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * size).bfloat16()


def close(mine: Tensor, exact: Tensor, by: float = ROUNDING, noise: float = 1e-30) -> None:
    """As near as `by` of the largest number, and `noise`."""
    torch.testing.assert_close(mine.double(), exact.double(), rtol=by, atol=by * float(exact.abs().max()) + noise)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 3),
    heads=st.integers(1, 3),
    seq=st.integers(1, 300),
    widths=st.tuples(st.integers(1, 50), st.integers(1, 40)),
    packed=st.booleans(),
    size=st.sampled_from([0.5, 4.0]),
)
def test_attention_in_bfloat16_equals_float64(seed, batch, heads, seq, widths, packed, size):
    q, k = drawn(2, batch, heads, seq, widths[0], seed=seed, size=size).unbind()
    v, dy = drawn(2, batch, heads, seq, widths[1], seed=seed + 1).unbind()
    ids = torch.randint(-1, 2, (batch, seq)).sort(descending=True).values if packed else None
    # the queries times the scale are rounded to bfloat16: a power of two leaves them exact
    scale, found = 0.125, []
    for dtype in (torch.bfloat16, torch.float64):
        mask = None if ids is None else document_mask(ids, dtype)
        inputs = [t.to(dtype, copy=True).requires_grad_() for t in (q, k, v)]
        y, maxima = causal_attention(*inputs, scale, mask, max_logits=True)
        y.backward(dy.to(dtype))
        found.append((y.detach(), maxima, *(t.grad for t in inputs)))
    # a logit is rounded too, so that p is off by a share of the largest logit
    loose = ROUNDING * (2 + float(found[1][1].abs().nan_to_num(posinf=0).max()))
    # gradients of logits are differences of rounded numbers: where one key is all, of equal ones
    dz = ROUNDING * float((dy.double() @ v.double().mT).abs().max()) * scale * seq**0.5
    noise = (1e-30, 1e-30, dz * float(k.abs().max()), dz * float(q.abs().max()), 1e-30)
    for mine, exact, off in zip(*found, noise, strict=True):
        close(mine, exact, 2 * loose, off)


def test_maxima_are_of_the_logits_that_softmax_sees():
    q, k = drawn(2, 1, 2, 200, 16, size=3).unbind()
    _, maxima = causal_attention(q, k, k, 0.25, None, max_logits=True)
    logits = (q * 0.25) @ k.mT
    seen = torch.ones(200, 200, dtype=torch.bool).tril()
    assert torch.equal(maxima, logits.masked_fill(~seen, -torch.inf).amax((0, 2, 3)).float())
    k[0, 1, 150, 3] = -torch.nan
    _, maxima = causal_attention(q, k, k, 0.25, None, max_logits=True)
    assert maxima[0].isfinite()
    assert maxima[1].isnan()


@pytest.mark.parametrize("size", [0.1, 3.0, 40.0])
def test_cross_entropy_equals_float64(size):
    """At 40 the logits spread over 300: what is small is 0, what is large overflows nowhere."""
    logits, targets = drawn(37, 1000, size=size), torch.randint(0, 1000, (37,))
    targets[5] = -1
    exact = logits.double().requires_grad_()
    wanted = F.cross_entropy(exact, targets, ignore_index=-1, reduction="none")
    wanted.sum().backward()
    loss = kernels.cross_entropy(logits, targets)
    torch.testing.assert_close(loss.double(), wanted.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(logits.double(), exact.grad, rtol=ROUNDING, atol=1e-5)
    assert loss[5] == 0
    assert not logits[5].any()


def test_the_loss_of_several_chunks_equals_that_of_one(monkeypatch):
    hidden, weight = drawn(50, 24).requires_grad_(), drawn(300, 24, seed=1).requires_grad_()
    targets = torch.randint(0, 300, (50,), generator=torch.Generator().manual_seed(2))
    targets[::7] = -100
    found = []
    for numbers in (1 << 23, 300 * 8):
        monkeypatch.setattr("model.head.CHUNK_NUMBERS", numbers)
        loss = fused_cross_entropy(hidden, weight, targets)
        found.append((loss.detach(), *torch.autograd.grad(loss, (hidden, weight))))
    for whole, chunks in zip(*found, strict=True):
        close(chunks, whole)
    exact_h, exact_w = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    exact = F.cross_entropy(exact_h @ exact_w.T, targets)
    for mine, other in zip(found[0], (exact.detach(), *torch.autograd.grad(exact, (exact_h, exact_w))), strict=True):
        close(mine, other, 4 * ROUNDING)


def test_swiglu_equals_float64():
    """Gates up to 100 on both sides: the exponential overflows to infinity and underflows to 0."""
    gate, up, dy = drawn(3, 40, 96).unbind()
    gate[0] = torch.linspace(-100, 100, 96)
    found = []
    for dtype in (torch.bfloat16, torch.float64):
        inputs = [t.to(dtype, copy=True).requires_grad_() for t in (gate, up)]
        y = swiglu(*inputs) if dtype == torch.bfloat16 else F.silu(inputs[0]) * inputs[1]
        found.append((y.detach(), *torch.autograd.grad(y, inputs, dy.to(dtype))))
    for mine, exact in zip(*found, strict=True):
        torch.testing.assert_close(mine.double(), exact, rtol=ROUNDING, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_equals_float64(dtype):
    """Of a residual stream in either dtype; 300 rows are added up in three groups."""
    x, dy = drawn(3, 100, 336).to(dtype).requires_grad_(), drawn(3, 100, 336, seed=1)
    norm = RMSNorm(336, 1e-5).to(dtype)
    norm.weight.data.normal_(generator=torch.Generator().manual_seed(2))
    y = norm(x, torch.bfloat16)
    exact_x, exact_w = (t.detach().double().requires_grad_() for t in (x, norm.weight))
    exact = F.rms_norm(exact_x, (336,), exact_w, 1e-5)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y.double(), exact, rtol=ROUNDING, atol=1e-6)
    found, wanted = torch.autograd.grad(y, (x, norm.weight), dy), torch.autograd.grad(exact, (exact_x, exact_w), dy)
    for mine, other in zip(found, wanted, strict=True):
        assert mine.dtype == dtype
        close(mine, other)


def test_what_is_not_a_number_stays_so():
    for bad in (torch.nan, -torch.nan):
        gate = drawn(4, 32)
        gate[2, 7] = bad
        assert kernels.silu_times(gate, torch.ones_like(gate)).isnan().nonzero().tolist() == [[2, 7]]
        y, inverse = kernels.rms_norm(gate, torch.ones(32), 1e-6)
        assert y.isnan().any(1).tolist() == inverse[:, 0].isnan().tolist() == [False, False, True, False]
        loss = kernels.cross_entropy(gate, torch.zeros(4, dtype=torch.int64))
        assert loss.isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("bits", [-1, 0x7FFFFFFF, 0x7F800001, 0x7FC00000])
def test_no_nan_that_a_float32_can_hold_is_rounded_away(bits):
    """Memory of all ones is NaN; rounding to bfloat16 carried it to 0."""
    nan = torch.tensor([bits], dtype=torch.int32).view(torch.float32)
    x, weight = torch.ones(2, 32), torch.ones(32)
    x[1, 3] = weight[5] = nan
    y, inverse = kernels.rms_norm(x, torch.ones(32), 1e-6)
    assert y.isnan().sum(1).tolist() == [0, 32]
    y, _ = kernels.rms_norm(x[:1], weight, 1e-6)
    assert y.isnan().nonzero().tolist() == [[0, 5]]
    dx, _ = kernels.rms_norm_backward(torch.ones(2, 32).bfloat16(), x.bfloat16(), weight, inverse)
    assert dx.isnan().all()


def test_a_target_beyond_the_vocabulary_is_refused_before_anything_is_written():
    logits = drawn(4, 32)
    before = logits.clone()
    with pytest.raises(IndexError, match=r"target 32 .* vocabulary of 32"):
        kernels.cross_entropy(logits, torch.tensor([0, 32, -1, 5]))
    assert torch.equal(logits, before)


def test_a_kernel_that_cannot_be_kept_on_disk_is_compiled_all_the_same(monkeypatch):
    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])  # as where no folder can be written
    y = torch.ones(2, 3)
    kernels._kernel(kernels._divide_rows.py_func)(0, 2, y.numpy(), torch.tensor([2.0, 4.0]).numpy())
    assert y.tolist() == [[0.5] * 3, [0.25] * 3]


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(kernels, "FEW", 1)
    q, k, v = drawn(3, 2, 3, 150, 24).unbind()
    x, weight = drawn(700, 48), torch.rand(48)
    found = []
    for number in (1, 3):
        with threads(number):
            inputs = [t.clone().requires_grad_() for t in (q, k, v)]
            y, maxima = causal_attention(*inputs, 0.3, None, max_logits=True)
            y.backward(v)
            _, inverse = kernels.rms_norm(x, weight, 1e-6)
            found.append((maxima, y, *(t.grad for t in inputs), *kernels.rms_norm_backward(x, x, weight, inverse)))
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)


def test_other_dtypes_devices_and_nothing_at_all_are_left_to_torch():
    x = drawn(3, 4)
    assert kernels.takes(x, x)
    assert not any(kernels.takes(x, other) for other in (x.float(), x.half(), x.to("meta"), x[:0]))
    assert kernels.takes_rows(x.float(), torch.bfloat16)
    assert not kernels.takes_rows(x, torch.float32)
    assert not kernels.takes_rows(x.double(), torch.bfloat16)
