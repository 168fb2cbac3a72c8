"""The experts: routing, balance, grouped products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model.moe import MixtureOfExperts, grouped_linear, sequence_balance_loss
from model.sizes import model_preset
from model.transformer import Transformer, routers, update_router_bias

pytestmark = pytest.mark.usefixtures("forms")


def mixture(**changes) -> MixtureOfExperts:
    model = Transformer(model_preset("tiny", initializer_range=0.3, **changes), seed=4)
    moe = model.blocks()[1].mlp
    assert isinstance(moe, MixtureOfExperts)
    return moe


def test_equals_a_sum_over_experts_written_out():
    moe = mixture(routed_scaling_factor=1.7)
    moe.gate.e_score_correction_bias.uniform_(-0.5, 0.5, generator=torch.Generator().manual_seed(0))
    x = torch.randn(2, 9, 64, generator=torch.Generator().manual_seed(1))
    y, _, counts = moe(x)
    want, load = torch.zeros_like(x), torch.zeros(8, dtype=torch.int64)
    experts = moe.experts
    for b in range(2):
        for s in range(9):
            scores = (moe.gate.weight @ x[b, s]).sigmoid()
            chosen = (scores + moe.gate.e_score_correction_bias).argsort(descending=True)[:2].tolist()
            for e in chosen:
                inner = F.silu(experts.gate_EFD[e] @ x[b, s]) * (experts.up_EFD[e] @ x[b, s])
                want[b, s] += 1.7 * scores[e] / scores[chosen].sum() * (experts.down_EDF[e] @ inner)
                load[e] += 1
    torch.testing.assert_close(y, want + moe.shared_experts(x), atol=1e-5, rtol=1e-4)
    assert torch.equal(counts, load)


def test_the_bias_steers_the_choice_and_never_the_weight():
    moe = mixture(num_experts_per_tok=8)  # all experts are chosen, so only weights could differ
    x = torch.randn(1, 6, 64, generator=torch.Generator().manual_seed(2))
    before = moe(x)[0]
    moe.gate.e_score_correction_bias.uniform_(-5, 5)
    torch.testing.assert_close(moe(x)[0], before)
    few = mixture()
    few.gate.e_score_correction_bias[3] = 9.0
    assert (few.gate(x[0]).experts_TK == 3).any(-1).all()


def test_given_experts_are_taken_and_weighed_by_the_routers_own_scores():
    router = mixture().gate
    x = torch.randn(3, 64, generator=torch.Generator().manual_seed(3))
    own, forced = router(x), torch.tensor([[5, 1], [-1, -1], [0, 7]], dtype=torch.int16)
    found = router(x, forced)
    assert found.experts_TK.tolist() == [[5, 1], own.experts_TK[1].tolist(), [0, 7]]
    scores = (x @ router.weight.T).sigmoid().gather(1, found.experts_TK)
    torch.testing.assert_close(found.weights_TK, scores / scores.sum(-1, keepdim=True) * router.scaling)
    found.weights_TK[:, 0].sum().backward()
    assert router.weight.grad is not None
    assert router.weight.grad[[0, 1, 5, 7]].abs().sum(1).gt(0).all()


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 150), min_size=1, max_size=6),
    widths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_grouped_layers_equal_those_of_the_groups(counts, widths, dtype):
    inner, outer = widths
    draw = torch.Generator().manual_seed(sum(counts))
    x = torch.randn(sum(counts), inner, generator=draw).to(dtype).requires_grad_()
    w = torch.randn(len(counts), outer, inner, generator=draw).to(dtype).requires_grad_()
    dy = torch.randn(sum(counts), outer, generator=draw).to(dtype)
    y = grouped_linear(x, w, torch.tensor(counts))
    dx, dw = torch.autograd.grad(y, (x, w), dy)
    close = {"atol": 1e-4, "rtol": 1e-4} if dtype != torch.bfloat16 else {"atol": 0.15, "rtol": 0.02}
    assert y.shape == (sum(counts), outer)
    start = 0
    for e, count in enumerate(counts):
        part = slice(start, start + count)
        torch.testing.assert_close(y[part], x[part] @ w[e].T, **close)
        torch.testing.assert_close(dx[part], dy[part] @ w[e], **close)
        torch.testing.assert_close(dw[e], dy[part].T @ x[part], **close)
        start += count


def test_balance_loss_equals_the_formula():
    """DeepSeek-V3 report, eqs. 17 to 20, with loops; the choice is by unbiased scores."""
    scores = torch.rand(3 * 11, 5, generator=torch.Generator().manual_seed(0))
    total = 0.0
    for b in range(3):
        part = scores[b * 11 : (b + 1) * 11].double()
        f = torch.zeros(5).double()
        for row in part:
            f[row.argsort(descending=True)[:2]] += 5 / (2 * 11)
        total += float((f * (part / part.sum(1, keepdim=True)).mean(0)).sum())
    torch.testing.assert_close(sequence_balance_loss(scores, 2, 3).double(), torch.tensor(total / 3).double())


def test_balance_loss_is_one_at_balance_and_more_at_collapse():
    even = torch.eye(4).repeat(4, 1) * 0.5 + 0.25
    assert sequence_balance_loss(even, 1, 1) == pytest.approx(1.0)
    assert sequence_balance_loss(torch.tensor([[0.9, 0.1, 0.1, 0.1]]).repeat(16, 1), 1, 1) > 2.9


def test_balance_loss_ignores_padding():
    scores = torch.rand(2 * 8, 4, generator=torch.Generator().manual_seed(1))
    real = torch.ones(2, 8).bool()
    real[1, 5:] = False
    short = (sequence_balance_loss(scores[:8], 2, 1) + sequence_balance_loss(scores[8:13], 2, 1)) / 2
    torch.testing.assert_close(sequence_balance_loss(scores, 2, 2, real), short)


def test_balance_loss_pushes_the_overloaded_expert_down():
    logits = torch.tensor([[2.0, 0.0, 0.0, 0.0]]).repeat(8, 1).requires_grad_()
    sequence_balance_loss(logits.sigmoid(), 1, 1).backward()
    assert (logits.grad[:, 0] > 0).all()
    assert (logits.grad[:, 1:] < 0).all()


def test_router_scores_and_gradients_equal_float64():
    moe = mixture()
    x = torch.randn(30, 64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    up = torch.randn(30, 8, generator=torch.Generator().manual_seed(4))
    exact = [t.detach().double().requires_grad_() for t in (x, moe.gate.weight)]
    wanted = 1 / (1 + (-(exact[0] @ exact[1].T)).exp())
    with torch.autocast("cpu", torch.bfloat16):
        scores = moe.gate(x).scores_TE
    torch.testing.assert_close(scores.double(), wanted, atol=1e-6, rtol=1e-5)
    found = torch.autograd.grad(scores, (x, moe.gate.weight), up)
    for mine, other in zip(found, torch.autograd.grad(wanted, exact, up.double()), strict=True):
        torch.testing.assert_close(mine.double(), other, atol=1e-5, rtol=1e-4)


def test_bias_update_follows_the_sign_rule():
    model = Transformer(model_preset("tiny"))
    counts = torch.tensor([[8, 0, 4, 4, 4, 4, 4, 4], [5, 4, 4, 4, 4, 4, 4, 3]])
    update_router_bias(model, counts, 0.001)
    update_router_bias(model, counts, 0.002)
    first, second = (router.e_score_correction_bias for router in routers(model))
    torch.testing.assert_close(first, torch.tensor([-0.003, 0.003, 0, 0, 0, 0, 0, 0]))
    torch.testing.assert_close(second, torch.tensor([-0.003, 0, 0, 0, 0, 0, 0, 0.003]))
    with pytest.raises(ValueError, match=r"\(1, 8\).*\(2, 8\)"):
        update_router_bias(model, counts[:1], 0.001)


def test_bias_updates_balance_the_load():
    """From a router that prefers some experts, the sign rule alone brings the loads together."""
    model = Transformer(model_preset("tiny", num_hidden_layers=2), seed=0)
    moe = model.blocks()[1].mlp
    x = torch.randn(4, 128, 64, generator=torch.Generator().manual_seed(0)) + 1.0
    moe.gate.weight.data[:3] += 0.02

    def imbalance() -> float:
        counts = moe(x)[2]
        return float(counts.max() / counts.float().mean())

    start = imbalance()
    for _ in range(600):
        update_router_bias(model, moe(x)[2][None], 0.001)
    assert start > 2
    assert imbalance() < 1.15


@pytest.mark.parametrize("cast", [lambda m: m.to(torch.bfloat16), lambda m: m.bfloat16(), lambda m: m.half()])
def test_the_bias_stays_float32_whatever_the_model_becomes(cast):
    model = Transformer(model_preset("tiny"))
    values = torch.arange(8) * 0.0011 + 0.5
    for router in routers(model):
        router.e_score_correction_bias.copy_(values)
    model = cast(model)
    assert model.blocks()[1].mlp.gate.weight.dtype != torch.float32
    for router in routers(model):
        assert torch.equal(router.e_score_correction_bias, values)
    assert "layers.1.mlp.gate.e_score_correction_bias" in model.state_dict()
