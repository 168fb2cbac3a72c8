"""What the kernels of one pass share: threads."""

from __future__ import annotations

import torch

from model.kernels import blockwise_attention, one_pass
from model.kernels.rms_norm import gradients, normed
from tests.model.kernels.numbers import drawn, threads


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
