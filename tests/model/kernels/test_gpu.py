"""Attention by documents on a GPU, as far as a CPU can tell: the blocks, and torch's own arithmetic over them.

FlexAttention trains on GPUs only. Its public function refuses a CPU before anything is computed; behind the refusal
lies the reference that its kernels are held to, and these tests take that. The kernel itself runs under `-m gpu`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.attention.flex_attention as torch_flex
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask

from model.attention import causal_attention, document_mask
from model.kernels.gpu import BLOCK, block_mask, blockwise_attention, causal_blocks


def visible(ids_BS: Tensor, shared: bool) -> Tensor:
    """Who sees whom, query by query."""
    rows, seq = ids_BS.shape
    seen = torch.zeros(rows, seq, seq, dtype=torch.bool)
    for q in range(seq):
        query, key = ids_BS[:, q : q + 1], ids_BS[:, : q + 1]
        seen[:, q, : q + 1] = (query == key) | ((key == 0) & (query > 0) & shared)
    return seen


def dense(number: Tensor, indices: Tensor) -> Tensor:
    """(B, N, N) flags of the listed blocks."""
    flags = torch.zeros(indices[:, 0].shape, dtype=torch.bool)
    for b, q in torch.cartesian_prod(torch.arange(len(flags)), torch.arange(flags.shape[1])).tolist():
        flags[b, q, indices[b, 0, q, : number[b, 0, q]].long()] = True
    return flags


def documents(lengths: list[int], padding: int) -> Tensor:
    ids = [torch.full((length,), place) for place, length in enumerate(lengths)]
    return torch.cat([*ids, torch.full((padding,), -1)])


@settings(max_examples=25, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=5),
    padding=st.integers(0, 150),
    shared=st.booleans(),
    shuffled=st.booleans(),
)
def test_blocks_hold_every_visible_pair(lengths, padding, shared, shuffled):
    ids = documents(lengths, padding)
    if shuffled:
        ids = ids[torch.randperm(len(ids), generator=torch.Generator().manual_seed(len(ids)))]
    ids_BS, seq = ids[None], len(ids)
    blocks = block_mask(ids_BS, shared)
    part = dense(blocks.kv_num_blocks, blocks.kv_indices)
    whole = dense(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    at = torch.arange(seq)
    mod = blocks.mask_mod(torch.tensor(0), torch.tensor(0), at[:, None], at[None])
    seen = visible(ids_BS, shared)
    assert torch.equal(mod, seen[0])
    assert not (part & whole).any()
    fill = -seq % BLOCK
    padded = torch.nn.functional.pad(seen, (0, fill, 0, fill))
    tiles = padded.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK)).transpose(2, 3)
    assert not (tiles.any(-1).any(-1) & ~(part | whole)).any()  # none is left out
    inside = torch.nn.functional.pad(torch.ones_like(seen), (0, fill, 0, fill))
    inside = inside.unflatten(2, (-1, BLOCK)).unflatten(1, (-1, BLOCK)).transpose(2, 3)
    assert (tiles | ~inside)[whole].all()  # what is entered without looking is visible throughout
    if not (shuffled or padding):
        assert torch.equal(part | whole, tiles.any(-1).any(-1))  # and none in vain


@pytest.fixture
def without_refusal(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """FlexAttention's reference arithmetic on a CPU, gradients and maxima included."""
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)
    monkeypatch.setattr(
        torch_flex,
        "_apply_kernel_options",
        lambda *_: {"OUTPUT_LOGSUMEXP": True, "OUTPUT_MAX": True, "BACKEND": "AUTO", "PRESCALE_QK": False},
    )
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("kind", ["causal", "documents", "tree"])
def test_outputs_maxima_and_gradients_equal_float64(without_refusal, kind):
    draw = torch.Generator().manual_seed(5)
    seq, scale = 300, 0.4
    q, k = torch.randn(2, 2, 3, seq, 24, generator=draw)
    v = torch.randn(2, 3, seq, 16, generator=draw)
    ids = torch.stack([documents([150, 1, 130], 19), documents([40, 260], 0)])
    blocks: BlockMask = causal_blocks(seq, ids.device) if kind == "causal" else block_mask(ids, kind == "tree")
    seen = visible(torch.zeros_like(ids) if kind == "causal" else ids, kind == "tree")[:, None]
    real = torch.ones_like(ids).bool() if kind == "causal" else ids >= 0
    ours, exact = ([t.to(dtype, copy=True).requires_grad_() for t in (q, k, v)] for dtype in (q.dtype, torch.float64))
    y, maxima = blockwise_attention(*ours, scale, blocks, real, max_logits=True)
    logits = (exact[0] @ exact[1].mT * scale).masked_fill(~seen, -torch.inf)
    want = logits.softmax(-1) @ exact[2]
    torch.testing.assert_close(y.double(), want, atol=1e-5, rtol=1e-4)
    most = logits.masked_fill(~real[:, None, :, None], -torch.inf).amax((0, 2, 3))
    torch.testing.assert_close(maxima.double(), most, atol=1e-5, rtol=1e-5)
    dy = torch.randn(y.shape, generator=draw)
    y.backward(dy)
    want.backward(dy.double())
    for mine, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(mine.grad.double(), other.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_the_public_function_takes_our_blocks():
    """Without gradients and maxima a CPU may go through the front door."""
    draw = torch.Generator().manual_seed(6)
    q, k = torch.randn(2, 2, 2, 200, 8, generator=draw)
    ids = torch.stack([documents([90, 100], 10), documents([200], 0)])
    with torch.no_grad():
        y, maxima = blockwise_attention(q, k, q, 0.5, block_mask(ids), ids >= 0, max_logits=False)
    want, _ = causal_attention(q, k, q, 0.5, document_mask(ids))
    torch.testing.assert_close(y, want, atol=1e-5, rtol=1e-4)
    assert maxima is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="FlexAttention's kernels need a CUDA device")
@pytest.mark.parametrize("packed", [False, True])
def test_the_kernel_equals_the_cpu(packed):
    draw = torch.Generator().manual_seed(7)
    q, k = torch.randn(2, 2, 4, 700, 192, generator=draw)
    v = torch.randn(2, 4, 700, 128, generator=draw)
    ids = torch.stack([documents([300, 350], 50), documents([700], 0)])
    results = []
    for device, dtype in (("cpu", torch.float32), ("cuda", torch.bfloat16)):
        inputs = [t.to(device, dtype).requires_grad_() for t in (q, k, v)]
        mask = document_mask(ids.to(device)) if packed else None
        y, maxima = causal_attention(*inputs, 0.07, mask, max_logits=True)
        y.float().sum().backward()
        results.append([y.float().cpu(), maxima.cpu(), *(t.grad.float().cpu() for t in inputs)])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, atol=0.05, rtol=0.05)
