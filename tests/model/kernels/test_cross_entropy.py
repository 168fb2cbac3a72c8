"""The loss whose gradients come with the forward, against float64 and against itself in chunks."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from model.head import token_cross_entropy
from model.kernels.cross_entropy import cross_entropy, in_one_pass
from tests.model.kernels.numbers import ROUNDING, close, drawn


@pytest.mark.parametrize("size", [0.1, 3.0, 40.0])
def test_one_pass_equals_float64(size):
    """At 40 the logits spread over 300: what is small is 0, what is large overflows nowhere."""
    logits, targets = (
        drawn(37, 1000, size=size),
        torch.randint(0, 1000, (37,), generator=torch.Generator().manual_seed(3)),
    )
    targets[5] = -1
    exact = logits.double().requires_grad_()
    wanted = F.cross_entropy(exact, targets, ignore_index=-1, reduction="none")
    wanted.sum().backward()
    loss = in_one_pass(logits, targets)
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
        loss = token_cross_entropy(hidden, weight, targets)
        found.append((loss.detach(), *torch.autograd.grad(loss, (hidden, weight))))
    for whole, chunks in zip(*found, strict=True):
        close(chunks, whole)
    exact_h, exact_w = hidden.detach().double().requires_grad_(), weight.detach().double().requires_grad_()
    exact = F.cross_entropy(exact_h @ exact_w.T, targets)
    for mine, other in zip(found[0], (exact.detach(), *torch.autograd.grad(exact, (exact_h, exact_w))), strict=True):
        close(mine, other, 4 * ROUNDING)


def test_a_target_beyond_the_vocabulary_is_refused_before_anything_is_written():
    logits = drawn(4, 32)
    before = logits.clone()
    with pytest.raises(IndexError, match=r"target 32 .* vocabulary of 32"):
        in_one_pass(logits, torch.tensor([0, 32, -1, 5]))
    assert torch.equal(logits, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_negative_target_that_is_not_ignored_is_refused_as_by_the_plain_form(dtype):
    with pytest.raises(IndexError, match="target -5 is no id"):
        cross_entropy(torch.ones(3, 4), torch.ones(6, 4), torch.tensor([-100, 1, -5]), -100, dtype)


def test_what_is_not_a_number_stays_so():
    logits = drawn(4, 32)
    logits[2, 7] = torch.nan
    assert in_one_pass(logits, torch.zeros(4, dtype=torch.int64)).isnan().tolist() == [False, False, True, False]
