"""What the kernels of one pass share: threads, and functions that are a part of them."""

from __future__ import annotations

import torch

from model.kernels import blockwise_attention, one_pass
from model.kernels.rms_norm import gradients, normed
from tests.model.kernels.numbers import drawn, threads


def test_a_change_of_what_kernels_share_compiles_them_anew(monkeypatch, tmp_path):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path))
    y, by = torch.ones(2, 3).numpy(), torch.ones(2).numpy()

    def hits() -> int:
        compiled = one_pass.kernel(blockwise_attention._divide_rows.py_func)
        compiled(0, 2, y, by)
        return sum(compiled.stats.cache_hits.values())

    assert [hits(), hits()] == [0, 1]
    monkeypatch.setattr(blockwise_attention, "widen", one_pass.usual)  # another function of the compiler's own kind
    assert [hits(), hits()] == [0, 1]


def test_threads_change_no_bit(monkeypatch):
    monkeypatch.setattr(one_pass, "FEW", 1)
    q, k, v = drawn(3, 2, 3, 150, 24).unbind()
    x, weight = drawn(700, 48), torch.rand(48)
    found = []
    for number in (1, 3):
        with threads(number):
            inputs = [t.clone().requires_grad_() for t in (q, k, v)]
            y, maxima = blockwise_attention.causal_attention(*inputs, 0.3, None, max_logits=True)
            y.backward(v)
            _, inverse = normed(x, weight, 1e-6, torch.bfloat16)
            found.append((maxima, y, *(t.grad for t in inputs), *gradients(x, x, weight, inverse)))
    for one, three in zip(*found, strict=True):
        assert torch.equal(one, three)
