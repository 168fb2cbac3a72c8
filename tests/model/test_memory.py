"""What is kept otherwise than autograd would: the same bits recomputed, FP8's error, nothing counted twice."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.footprint import K2_MEMORY, TILE, MemoryConfig
from model.memory import Keep, from_fp8, to_fp8
from model.moe import Experts
from model.quantize import fake_quantize_experts
from model.sizes import model_preset
from model.transformer import Transformer, routers, update_router_bias
from tests.kept import bytes_kept
from tests.model.test_footprint import memories


def network(**changes: Any) -> Transformer:
    return Transformer(model_preset("tiny", initializer_range=0.1, **changes), seed=1)


def tokens(seed: int = 0) -> Tensor:
    return torch.randint(0, 512, (2, 40), generator=torch.Generator().manual_seed(seed))


def step(model: Transformer, memory: MemoryConfig, autocast: bool = False) -> tuple[Any, list[Tensor]]:
    """Forward and backward over two packed documents and padding; the output and the gradients."""
    model.memory = memory
    model.zero_grad()
    ids = torch.tensor([[0] * 25 + [1] * 15, [0] * 30 + [-1] * 10])
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        out = model(tokens(), document_ids_BS=ids, max_logits=True)
        loss = model.loss(out.hidden_BSD, tokens(1)) + out.aux_loss
    loss.backward()
    return out, [p.grad for p in model.parameters()]


def distance(found: list[Tensor], wanted: list[Tensor]) -> float:
    """Relative, over all numbers of all tensors."""
    apart = sum(float((a.double() - b.double()).square().sum()) for a, b in zip(found, wanted, strict=True))
    return math.sqrt(apart / sum(float(b.double().square().sum()) for b in wanted))


@settings(max_examples=30)
@given(memory=memories(), autocast=st.booleans())
def test_forwards_are_untouched_and_recomputed_gradients_are_the_same_bits(memory, autocast):
    model = network()
    plain, wanted = step(model, MemoryConfig(), autocast)
    out, found = step(model, memory, autocast)
    assert torch.equal(out.hidden_BSD, plain.hidden_BSD)
    assert torch.equal(out.max_logits_LH, plain.max_logits_LH)
    assert torch.equal(out.expert_counts_LE, plain.expert_counts_LE)
    assert out.expert_counts_LE.sum(1).tolist() == [70 * 2] * 2  # every real token once, in both mixture layers
    if memory.fp8:
        assert 1e-4 < distance(found, wanted) < 0.06
    else:
        assert all(torch.equal(mine, other) for mine, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("memory", [K2_MEMORY, MemoryConfig(recompute=("layers",), offload=True)])
def test_the_bias_moves_once_a_batch_under_recomputation(memory):
    """Two batches of two micro-batches, as a trainer does it: the biases are those without any switch."""
    biases = []
    for switches in (MemoryConfig(), memory):
        model = network()
        for _ in range(2):
            counts = sum(step(model, switches)[0].expert_counts_LE for _ in range(2))
            assert int(counts.sum()) == 2 * 2 * 70 * 2
            update_router_bias(model, counts, 0.001)
        biases.append(torch.stack([router.e_score_correction_bias for router in routers(model)]))
    assert torch.equal(*biases)
    assert float(biases[0].abs().max()) == pytest.approx(0.002)


@pytest.mark.parametrize("memory", [K2_MEMORY, MemoryConfig(recompute=("dispatch", "mla_up"), offload=True)])
def test_a_graph_may_be_gone_through_twice(memory):
    model = network()
    model.memory = memory
    out = model(tokens())
    loss = model.loss(out.hidden_BSD, tokens(1))
    weights = list(model.parameters())
    first = torch.autograd.grad(loss, weights, retain_graph=True)
    again = torch.autograd.grad(loss, weights)
    assert all(torch.equal(one, two) for one, two in zip(first, again, strict=True))


def test_nothing_is_left_after_the_backward():
    model = network()
    model.memory = K2_MEMORY

    def whole() -> None:
        model.loss(model(tokens()).hidden_BSD, tokens(1)).backward()

    whole()  # gradients exist from here on
    assert bytes_kept(whole) == 0


def test_without_gradients_nothing_is_marked():
    model = network()
    model.memory = K2_MEMORY
    with torch.no_grad():
        assert bytes_kept(lambda: model(tokens()).hidden_BSD) == 2 * 40 * 64 * 4


def test_int4_training_goes_through_every_switch():
    """The experts of quantisation-aware training inherit the marks."""
    model = network()
    fake_quantize_experts(model)
    _, wanted = step(model, MemoryConfig())
    _, found = step(model, MemoryConfig(recompute=("norms", "swiglu", "mla_up", "moe_down", "dispatch"), offload=True))
    assert all(torch.equal(mine, other) for mine, other in zip(found, wanted, strict=True))


# ------------------------------------------------------------------------------------------------------------- FP8


@given(
    width=st.integers(1, 300),
    rows=st.integers(1, 4),
    exponent=st.integers(-30, 30),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
    seed=st.integers(0, 10**6),
)
def test_fp8_is_within_its_rounding_tile_by_tile(width, rows, exponent, dtype, seed):
    """E4M3: three bits after the leading one, and steps of 2^-9 below its smallest normal number."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, width, generator=draw) * torch.randn(rows, width, generator=draw).mul(3).exp()
    x = (x * 2.0**exponent).to(dtype)
    stored = to_fp8(x)
    assert stored.values.dtype == torch.float8_e4m3fn
    assert stored.scales.shape == (rows, -(-width // TILE))
    back = from_fp8(stored)
    assert back.dtype == dtype
    assert back.is_contiguous()
    for start in range(0, width, TILE):
        exact, rounded = (t[:, start : start + TILE].double() for t in (x, back))
        largest = exact.abs().amax(1, keepdim=True)
        allowed = torch.maximum(exact.abs() / 16, largest / 448 * 2.0**-10) + exact.abs() * torch.finfo(dtype).eps
        assert ((rounded - exact).abs() <= allowed * (1 + 1e-6)).all()


@pytest.mark.parametrize("largest", [5e-36, 1e-37, 1e-40, 600 * 2.0**-149, 2.0**-149])
def test_fp8_of_numbers_that_are_next_to_nothing_is_next_to_nothing(largest):
    """Their largest over 448 is no normal number, or none at all."""
    x = torch.full((1, 128), largest)
    x[0, 1:3] = torch.tensor([0.0, -largest / 2])
    assert ((from_fp8(to_fp8(x)) - x).abs() <= torch.maximum(x.abs() / 16, torch.tensor(2.0**-136))).all()


def test_fp8_keeps_zeros_and_what_is_not_finite():
    zeros = torch.zeros(2, 130, dtype=torch.bfloat16)
    assert torch.equal(from_fp8(to_fp8(zeros)), zeros)
    for bad in (math.nan, math.inf, -math.inf):
        x = torch.ones(1, 256)
        x[0, 3] = bad
        back = from_fp8(to_fp8(x))
        assert not back[0, 3].isfinite()
        assert torch.equal(back[0, 128:], x[0, 128:])  # the other tile knows nothing of it


def reference(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, weights: Tensor, counts: list[int]) -> Tensor:
    """The experts' formula, expert by expert: w * down(silu(gate x) * up x)."""
    parts = []
    for e, rows in enumerate(torch.arange(len(x)).split(counts)):
        inner = F.silu(x[rows] @ gate[e].T) * (x[rows] @ up[e].T)
        parts.append((inner @ down[e].T) * weights[rows, None])
    return torch.cat(parts)


@pytest.mark.parametrize(
    ("memory", "allowed"),
    [
        (MemoryConfig(), 1e-6),
        (MemoryConfig(recompute=("swiglu", "moe_down"), offload=True), 1e-6),
        (MemoryConfig(fp8=("swiglu_inputs",)), 0.04),
        (MemoryConfig(recompute=("swiglu", "moe_down"), fp8=("swiglu_inputs",)), 0.04),
    ],
)
def test_experts_equal_their_formula_in_float64(memory, allowed):
    """Outputs exactly, gradients as near as the storage lets them be."""
    config = model_preset("tiny", hidden_size=136, moe_intermediate_size=264, n_routed_experts=4)
    draw = torch.Generator().manual_seed(0)
    experts = Experts(config)
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.1, generator=draw)
    counts = [300, 0, 31, 90]
    x = torch.randn(sum(counts), 136, generator=draw).requires_grad_()
    weights = torch.rand(sum(counts), generator=draw).requires_grad_()
    dy = torch.randn(x.shape, generator=draw)
    with Keep(memory, experts) as keep:
        y = experts(x, weights, torch.tensor(counts), keep)
    inputs = [x, *experts.parameters(), weights]
    found = torch.autograd.grad(y, inputs, dy)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    wanted = reference(*exact, counts)
    torch.testing.assert_close(y.double(), wanted, atol=1e-5, rtol=1e-5)
    for mine, other in zip(found, torch.autograd.grad(wanted, exact, dy.double()), strict=True):
        assert distance([mine], [other]) < allowed


# ------------------------------------------------------------------------------------------------------ the marks


def test_a_view_is_refused_where_it_could_not_be_found_again():
    whole = torch.randn(4, 256, requires_grad=True) * 1.0
    keep = Keep(MemoryConfig(fp8=("swiglu_inputs",)))
    with pytest.raises(ValueError, match=r"swiglu_inputs.*\(4, 128\) is a view"):
        keep.in_fp8("swiglu_inputs", whole[:, 128:])


def test_a_storage_that_died_is_not_taken_for_another():
    """Addresses are used again; marks are not."""
    keep = Keep(MemoryConfig(recompute=("norms",)))
    x = torch.randn(64, 64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    total = torch.zeros(())
    with keep:
        for _ in range(50):
            keep.recomputed("norms", torch.neg, x)  # marked, dropped at once, its memory free for the next line
            total = total + (x * 3).square().sum()
    (found,) = torch.autograd.grad(total, x)
    torch.testing.assert_close(found, 50 * 18 * x)


def test_bytes_kept_counts_storages_once_and_only_new_ones():
    old = torch.randn(1000)
    assert bytes_kept(lambda: old.view(10, 100).T) == 0
    assert bytes_kept(lambda: torch.ones(100)[:3]) == 400
    assert bytes_kept(lambda: (torch.ones(100).sum(), None)) == 4
    assert bytes_kept(lambda: [(a := torch.ones(10)), a.view(2, 5), a + 1]) == 80


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="copies to the host need a CUDA device")
@pytest.mark.parametrize("memory", [MemoryConfig(offload=True), K2_MEMORY.model_copy(update={"fp8": ()})])
def test_offloaded_activations_come_back_on_a_gpu(memory):
    model = Transformer(model_preset("laptop", initializer_range=0.05), seed=1).cuda()
    text = torch.randint(0, 8192, (8, 256), generator=torch.Generator().manual_seed(0)).cuda()
    results, peaks = [], []
    for model.memory in (MemoryConfig(), memory):
        model.zero_grad()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        with torch.autocast("cuda", torch.bfloat16):
            loss = model.loss(model(text).hidden_BSD, text)
        torch.cuda.synchronize()
        peaks.append(torch.cuda.memory_allocated() - before)
        loss.backward()
        results.append([p.grad.clone() for p in model.parameters()])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other)
    assert peaks[1] < 0.8 * peaks[0]
