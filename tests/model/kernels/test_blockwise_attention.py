"""Attention by blocks in bfloat16 against float64; float32's is held to it in tests/model/test_attention.py."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.attention import document_mask
from model.kernels.blockwise_attention import causal_attention
from tests.model.kernels.numbers import ROUNDING, close, drawn


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
def test_equals_float64(seed, batch, heads, seq, widths, packed, size):
    q, k = drawn(2, batch, heads, seq, widths[0], seed=seed, size=size).unbind()
    v, dy = drawn(2, batch, heads, seq, widths[1], seed=seed + 1).unbind()
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(-1, 2, (batch, seq), generator=draw).sort(descending=True).values if packed else None
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
