"""The whole network: loss heads, recomputation, seeds, windows, precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model import head
from model.config import YarnConfig
from model.footprint import MemoryConfig
from model.head import token_cross_entropy, token_log_probs
from model.sizes import model_preset
from model.transformer import Transformer

pytestmark = pytest.mark.usefixtures("forms")


def tokens(rows: int = 2, length: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 512, (rows, length), generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(1, 30),
    vocabulary=st.integers(2, 40),
    chunk=st.integers(1, 200),
    size=st.sampled_from([1.0, 30.0, 300.0]),
    reduction=st.sampled_from(["mean", "sum"]),
)
def test_chunked_loss_equals_torch(seed, count, vocabulary, chunk, size, reduction):
    draw = torch.Generator().manual_seed(seed)
    hidden = (torch.randn(count, 6, generator=draw) * size).requires_grad_()
    weight = torch.randn(vocabulary, 6, generator=draw).requires_grad_()
    targets = torch.randint(0, vocabulary, (count,), generator=draw)
    targets[torch.rand(count, generator=draw) < 0.3] = -100
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "CHUNK_NUMBERS", chunk)
        loss = token_cross_entropy(hidden, weight, targets, -100, reduction)
    want = F.cross_entropy((hidden @ weight.T).double(), targets, reduction="sum")
    want = want / (targets != -100).sum().clamp(min=1) if reduction == "mean" else want
    torch.testing.assert_close(loss.double(), want, atol=1e-4, rtol=1e-5)
    ours, theirs = torch.autograd.grad(3 * loss, (hidden, weight)), torch.autograd.grad(3 * want, (hidden, weight))
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, atol=1e-4 * size, rtol=1e-4)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 20), chunk=st.integers(1, 100), heat=st.floats(0.2, 3))
def test_log_probs_equal_torch(seed, count, chunk, heat):
    draw = torch.Generator().manual_seed(seed)
    hidden = torch.randn(count, 6, generator=draw).requires_grad_()
    weight = torch.randn(9, 6, generator=draw).requires_grad_()
    targets, up = torch.randint(0, 9, (count,), generator=draw), torch.randn(count, generator=draw)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(head, "CHUNK_NUMBERS", chunk)
        ours = token_log_probs(hidden, weight, targets, heat)
        mine = torch.autograd.grad(ours, (hidden, weight), up)
    want = (hidden @ weight.T / heat).log_softmax(-1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(ours, want, atol=1e-5, rtol=1e-5)
    for one, other in zip(mine, torch.autograd.grad(want, (hidden, weight), up), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_a_batch_without_targets_has_loss_and_gradient_zero():
    model = Transformer(model_preset("tiny"))
    loss = model.loss(model(tokens()).hidden_BSD, torch.full((2, 40), -100))
    loss.backward()
    assert loss == 0
    assert model.lm_head.weight.grad.abs().sum() == 0


def test_recomputation_changes_neither_gradients_nor_counts():
    outputs = []
    for recompute in (False, True):
        model = Transformer(model_preset("tiny", initializer_range=0.1), seed=1)
        model.memory = MemoryConfig(recompute=("layers",) if recompute else ())
        out = model(tokens(), max_logits=True)
        (model.loss(out.hidden_BSD, tokens(seed=1)) + out.aux_loss).backward()
        outputs.append((out, [p.grad for p in model.parameters()]))
    (plain, grads), (again, same) = outputs
    assert torch.equal(plain.expert_counts_LE, again.expert_counts_LE)
    assert again.expert_counts_LE.sum(1).tolist() == [2 * 40 * 2] * 2
    assert torch.equal(plain.max_logits_LH, again.max_logits_LH)
    for mine, other in zip(grads, same, strict=True):
        torch.testing.assert_close(mine, other)


def test_the_auxiliary_loss_is_alpha_times_the_layers_sum():
    out = Transformer(model_preset("tiny"))(tokens())
    assert 0.0019 < out.aux_loss.item() < 0.004  # two mixture layers near balance
    assert Transformer(model_preset("tiny", aux_loss_alpha=0.0))(tokens()).aux_loss == 0
    dense = Transformer(model_preset("tiny", first_k_dense_replace=3))(tokens())
    assert dense.aux_loss == 0
    assert dense.expert_counts_LE.shape == (0, 8)


def test_seeds_name_the_weights():
    config = model_preset("tiny")
    one, same, other = (Transformer(config, seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["lm_head.weight"], other["lm_head.weight"])
    assert not torch.equal(one["layers.1.mlp.experts.gate_EFD"], one["layers.1.mlp.experts.up_EFD"])
    drawn = torch.cat([one[name].flatten() for name in one if one[name].dim() > 1])
    assert abs(float(drawn.std()) - 0.02) < 2e-4
    assert abs(float(drawn.mean())) < 2e-4
    assert all((one[name] == 1).all() for name in one if name.endswith("norm.weight"))
    deeper = Transformer(model_preset("tiny", num_hidden_layers=4), seed=1).state_dict()
    assert torch.equal(deeper["layers.2.self_attn.o_proj.weight"], one["layers.2.self_attn.o_proj.weight"])


def test_pieces_make_the_whole():
    """Parts of the network, cut anywhere, have its names and weights, and together its results, to the bit."""
    config = model_preset("tiny", num_hidden_layers=5)
    whole = Transformer(config, seed=1)
    parts = [Transformer(config, seed=1, layers=layers) for layers in ((0, 1, 3), (2, 4))]
    states = [part.state_dict() for part in parts]
    assert [*states[0], *states[1]] != list(whole.state_dict())
    assert sorted([*states[0], *states[1]]) == sorted(whole.state_dict())
    assert all(torch.equal(value, whole.state_dict()[name]) for state in states for name, value in state.items())
    documents = torch.arange(40)[None].expand(2, -1) // 15
    want = whole(tokens(), document_ids_BS=documents, max_logits=True)
    x_BSD, outputs = None, []
    for part, layers in ((0, range(2)), (1, range(2, 3)), (0, range(3, 4)), (1, range(4, 5))):
        outputs.append(parts[part](tokens(), document_ids_BS=documents, max_logits=True, layers=layers, x_BSD=x_BSD))
        x_BSD = outputs[-1].hidden_BSD
    assert torch.equal(x_BSD, want.hidden_BSD)
    assert torch.equal(torch.cat([each.max_logits_LH for each in outputs]), want.max_logits_LH)
    assert torch.equal(torch.cat([each.expert_counts_LE for each in outputs]), want.expert_counts_LE)
    torch.testing.assert_close(sum(each.aux_loss for each in outputs), want.aux_loss)
    assert parts[1].held == (2, 4)
    with pytest.raises(KeyError, match="2"):
        parts[0](tokens(), layers=range(1, 3))


def test_set_yarn_keeps_the_weights_and_equals_a_model_built_so():
    model = Transformer(model_preset("tiny"), seed=1)
    with pytest.raises(ValueError, match=r"300 tokens.*256.*set_yarn"):
        model(tokens(1, 300))
    model.set_yarn(YarnConfig(factor=4, original_max_position_embeddings=256), 1024)
    built = Transformer(model_preset("tiny").with_yarn(4), seed=1)
    assert model.config == built.config
    assert torch.equal(model(tokens(1, 300)).hidden_BSD, built(tokens(1, 300)).hidden_BSD)
    model.set_yarn(None, 256)
    assert torch.equal(model(tokens()).hidden_BSD, Transformer(model_preset("tiny"), seed=1)(tokens()).hidden_BSD)


def test_the_future_is_invisible():
    model = Transformer(model_preset("tiny", initializer_range=0.1))
    before = tokens(1, 40)
    after = before.clone()
    after[0, 25:] = 7
    torch.testing.assert_close(model(before).hidden_BSD[:, :25], model(after).hidden_BSD[:, :25])
    assert not torch.allclose(model(before).hidden_BSD[:, 25:], model(after).hidden_BSD[:, 25:])


def test_rows_do_not_mix():
    model = Transformer(model_preset("tiny", initializer_range=0.1))
    both = tokens(2, 30)
    torch.testing.assert_close(model(both).hidden_BSD[1:], model(both[1:]).hidden_BSD, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16_stays_near_float32(autocast):
    """Autocast over float32 weights, and weights in bfloat16: loss within bfloat16's rounding, gradients aligned."""
    exact = Transformer(model_preset("tiny", initializer_range=0.05), seed=1)
    model = Transformer(model_preset("tiny", initializer_range=0.05), seed=1)
    if not autocast:
        model = model.to(torch.bfloat16)
    losses = []
    for one, on in ((exact, False), (model, autocast)):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=on):
            out = one(tokens(4, 64), max_logits=True)
            loss = one.loss(out.hidden_BSD, tokens(4, 64, seed=1)) + out.aux_loss
        loss.backward()
        losses.append(loss)
    torch.testing.assert_close(*losses, atol=0.02, rtol=0.005)
    assert losses[1].dtype == torch.float32
    for name in ("lm_head.weight", "layers.1.self_attn.o_proj.weight", "layers.1.mlp.shared_experts.up_proj.weight"):
        mine, other = (dict(one.named_parameters())[name].grad.float().flatten() for one in (model, exact))
        assert F.cosine_similarity(mine, other, dim=0) > 0.99


def test_training_lowers_the_loss():
    """Thirty steps of AdamW on a repeating text, whose next token is certain."""
    model = Transformer(model_preset("tiny", vocab_size=32), seed=0)
    text = torch.arange(33).remainder(32).repeat(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(30):
        out = model(text[:, :-1])
        loss = model.loss(out.hidden_BSD, text[:, 1:]) + out.aux_loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] > 3.3
    assert losses[-1] < 0.5
