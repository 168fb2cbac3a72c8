"""Attention: the blockwise kernel and its maxima against float64, packed documents against separate forwards."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from model.attention import RMSNorm, causal_attention, document_mask
from model.kernels import blockwise_attention
from model.sizes import model_preset
from model.transformer import Transformer

pytestmark = pytest.mark.usefixtures("forms")


def naive(q: Tensor, k: Tensor, v: Tensor, scale: float, ids_BS: Tensor | None) -> tuple[Tensor, Tensor]:
    seq = q.shape[2]
    seen = torch.ones(seq, seq).tril().bool()[None, None]
    real = torch.ones(len(q), seq).bool()
    if ids_BS is not None:
        seen = seen & (ids_BS[:, None, :, None] == ids_BS[:, None, None, :])
        real = ids_BS >= 0
    logits = (q.double() @ k.double().mT * scale).masked_fill(~seen, -torch.inf)
    counted = logits.masked_fill(~real[:, None, :, None], -torch.inf)
    return logits.softmax(-1) @ v.double(), counted.amax((0, 2, 3))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 5),
    heads=st.integers(1, 3),
    seq=st.integers(1, 40),
    keys=st.integers(1, 9),
    values=st.integers(1, 9),
    packed=st.booleans(),
    block=st.integers(1, 17),
)
def test_blocks_equal_float64(seed, batch, heads, seq, keys, values, packed, block):
    draw = torch.Generator().manual_seed(seed)
    q, k = torch.randn(2, batch, heads, seq, keys, generator=draw)
    v = torch.randn(batch, heads, seq, values, generator=draw)
    ids = torch.randint(-1, 2, (batch, seq), generator=draw).sort(descending=True).values if packed else None
    mask = None if ids is None else document_mask(ids)
    dy = torch.randn(v.shape, generator=draw)
    ours, theirs = ([t.clone().requires_grad_() for t in (q, k, v)] for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blockwise_attention, "BLOCK_QUERIES", block)
        patch.setattr(blockwise_attention, "BLOCK_LOGITS", 4 * block * heads * seq // 2)
        y, maxima = causal_attention(*ours, 0.7, mask, max_logits=True)
        y.backward(dy)
    want, most = naive(*theirs, 0.7, ids)
    want.backward(dy.double())
    torch.testing.assert_close(y.double(), want, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(maxima.double(), most, atol=1e-5, rtol=1e-5)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine.grad, other.grad.float(), atol=1e-4, rtol=1e-4)


def test_the_largest_logit_may_lie_anywhere_softmax_looks():
    """One planted product decides the maximum where it is visible, and not a hair where it is masked."""
    seq = 300
    ids = torch.cat([torch.zeros(150), torch.ones(140), torch.full((10,), -1)]).long()[None]
    for query, key, seen, seen_packed in (
        (0, 0, True, True),
        (299, 299, True, False),  # padding
        (149, 0, True, True),
        (150, 0, True, False),  # another document
        (10, 11, False, False),  # the future
        (289, 150, True, True),
    ):
        q, k = torch.zeros(2, 1, 2, seq, 4)
        q[0, 1, query, 0], k[0, 1, key, 0] = 3.0, 5.0
        for mask, visible in ((None, seen), (document_mask(ids), seen_packed)):
            _, maxima = causal_attention(q, k, k, 0.5, mask, max_logits=True)
            assert maxima.tolist() == [0.0, 7.5 if visible else 0.0], (query, key)


def test_maxima_below_zero_and_not_a_number():
    q, k = torch.ones(1, 2, 5, 3), -torch.ones(1, 2, 5, 3)
    k[0, 1, 4, 2] = torch.nan
    _, maxima = causal_attention(q, k, k, 1.0, None, max_logits=True)
    assert maxima[0] == -3
    assert maxima[1].isnan()


@pytest.mark.parametrize("yarn", [False, True])
def test_model_maxima_equal_a_reference_from_the_weights(yarn):
    """Queries and keys taken through the layer's own linear layers in float64, mscale included."""
    config = model_preset("tiny", initializer_range=0.2)
    config = config.with_yarn(32) if yarn else config
    model = Transformer(config, seed=2).double()
    tokens = torch.randint(0, 512, (3, 50), generator=torch.Generator().manual_seed(0))
    seen: list[tuple[Tensor, Tensor]] = []
    layer = model.blocks()[2].self_attn
    layer.o_proj.register_forward_pre_hook(lambda *_: None)
    original = layer.attend
    layer.attend = lambda q, kv, by, *rest: (seen.append((layer.queries(q, by), kv)), original(q, kv, by, *rest))[1]
    out = model(tokens, max_logits=True)
    (q_nope, q_rope), (latent, k_rope) = seen[0]
    k_nope = layer.kv_b_proj(latent).unflatten(-1, (4, 32))[..., :16]
    logits = torch.einsum("bshn,bthn->bhst", q_nope, k_nope) + torch.einsum("bshr,btr->bhst", q_rope, k_rope)
    logits = logits * (24**-0.5 * (1.8132618 if yarn else 1.0))
    visible = torch.ones(50, 50).tril().bool()
    want = logits.masked_fill(~visible, -torch.inf).amax((0, 2, 3))
    torch.testing.assert_close(out.max_logits_LH[2].double(), want, rtol=1e-5, atol=1e-6)
    assert out.max_logits_LH.shape == (3, 4)
    assert model(tokens).max_logits_LH is None


def test_packed_documents_equal_separate_forwards():
    model = Transformer(model_preset("tiny", initializer_range=0.1), seed=1)
    draw = torch.Generator().manual_seed(3)
    lengths = [1, 17, 40, 5]
    documents = [torch.randint(0, 512, (1, length), generator=draw) for length in lengths]
    packed = torch.cat([*documents, torch.zeros(1, 7, dtype=torch.int64)], dim=1)
    ids = torch.cat([torch.full((1, n), place) for place, n in enumerate(lengths)] + [torch.full((1, 7), -1)], dim=1)
    positions = torch.cat([torch.arange(n) for n in [*lengths, 7]])[None]
    out = model(packed, document_ids_BS=ids, positions_BS=positions, max_logits=True)
    start = 0
    alone = [model(document, max_logits=True) for document in documents]
    for length, one in zip(lengths, alone, strict=True):
        torch.testing.assert_close(out.hidden_BSD[:, start : start + length], one.hidden_BSD, atol=1e-5, rtol=1e-4)
        start += length
    most = torch.stack([one.max_logits_LH for one in alone]).amax(0)
    torch.testing.assert_close(out.max_logits_LH, most, atol=1e-5, rtol=1e-5)
    assert torch.equal(out.expert_counts_LE, sum(one.expert_counts_LE for one in alone))  # padding counts nowhere


@pytest.mark.parametrize("width", [1, 7, 64])
def test_rms_norm_equals_torch(width):
    draw = torch.Generator().manual_seed(width)
    x = torch.randn(3, 5, width, generator=draw).requires_grad_()
    norm = RMSNorm(width, 1e-5)
    norm.weight.data.normal_(generator=draw)
    dy = torch.randn(x.shape, generator=draw)
    ours = torch.autograd.grad(norm(x), (x, norm.weight), dy)
    other = torch.nn.functional.rms_norm(x, (width,), norm.weight, 1e-5)
    torch.testing.assert_close(norm(x), other)
    for mine, theirs in zip(ours, torch.autograd.grad(other, (x, norm.weight), dy), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
