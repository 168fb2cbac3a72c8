"""The experts: routing, balance, grouped products."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model.moe import MixtureOfExperts, _aligned, grouped_matmul, sequence_balance_loss
from model.sizes import model_preset
from model.transformer import Transformer, routers, update_router_bias


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


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 150), min_size=1, max_size=6),
    widths=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float64]),
)
def test_grouped_products_equal_products_of_the_groups(counts, widths, dtype):
    inner, outer = widths
    draw = torch.Generator().manual_seed(sum(counts))
    a = torch.randn(sum(counts), inner, generator=draw).to(dtype)
    dy = torch.randn(sum(counts), outer, generator=draw).to(dtype)
    w = torch.randn(len(counts), outer, inner, generator=draw).to(dtype)
    ends = torch.tensor(counts).cumsum(0, dtype=torch.int32)
    rows, sums = grouped_matmul(a, w.mT, ends), grouped_matmul(dy.mT, a, ends)
    start = 0
    close = {"atol": 1e-4, "rtol": 1e-4} if dtype != torch.bfloat16 else {"atol": 0.15, "rtol": 0.02}
    assert rows.shape == (sum(counts), outer)
    assert sums.shape == (len(counts), outer, inner)
    for e, count in enumerate(counts):
        part = slice(start, start + count)
        torch.testing.assert_close(rows[part], a[part] @ w[e].T, **close)
        torch.testing.assert_close(sums[e], dy[part].T @ a[part], **close)
        start += count


@settings(max_examples=60, deadline=None)
@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any),
    widths=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_the_grouped_kernel_is_given_what_it_takes(counts, widths, dtype):
    """A GPU's path as far as a CPU can tell: what is called aligned, torch's own check for CUDA (that of the meta
    device) takes, any number of tokens included; and torch's reference of the kernel gives the loop's products."""
    inner, outer = widths
    draw = torch.Generator().manual_seed(sum(counts))
    a, dy = (torch.randn(sum(counts), width, generator=draw).to(dtype) for width in widths)
    w = torch.randn(len(counts), outer, inner, generator=draw).to(dtype)
    ends = torch.tensor(counts).cumsum(0, dtype=torch.int32)
    for left, right in ((a, w.mT), (dy, w), (dy.mT, a)):
        if not _aligned(left, right):
            assert dtype == torch.float32 or inner % 8 or outer % 8
            continue
        shape = F.grouped_mm(left.to("meta"), right.to("meta"), offs=ends.to("meta")).shape
        found, wanted = F.grouped_mm(left, right, offs=ends), grouped_matmul(left, right, ends)
        assert shape == found.shape == wanted.shape
        torch.testing.assert_close(found, wanted, atol=0.15, rtol=0.02)


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


@pytest.mark.parametrize("loads", [[3, 0, 16, 1], [8, 8, 0], [1], [17, 2]])
def test_few_rows_an_expert_are_multiplied_like_many(loads):
    """Up to 16 rows go in one batch of padded groups in bfloat16, more group by group."""
    draw = torch.Generator().manual_seed(0)
    a = torch.randn(sum(loads), 24, generator=draw).bfloat16()
    b = torch.randn(len(loads), 24, 40, generator=draw).bfloat16()
    ends = torch.tensor(loads).cumsum(0, dtype=torch.int32)
    want = torch.cat([rows.double() @ w.double() for rows, w in zip(a.split(loads), b.unbind(), strict=True)])
    assert torch.allclose(grouped_matmul(a, b, ends).double(), want, rtol=2**-8, atol=1e-2)
