"""The decoding kernels in C against float64; skipped in bfloat16 where the CPU has no AVX512-BF16."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model.generate import Generator, requests_for
from model.kernels import native
from model.quantize import GROUP, round_to_int4
from model.sizes import model_preset
from model.transformer import Transformer

EXACT = {torch.bfloat16: 1.0, torch.float32: 1e-3}
"""How exact the results are, as a share of what bfloat16's rounding allows."""


@pytest.fixture(scope="module", params=[torch.bfloat16, torch.float32], ids=["bfloat16", "float32"])
def kernels(request) -> native.Kernels:
    found = native.kernels(request.param)
    if found is None:
        pytest.skip("no AVX512-BF16 or AVX2, or no C compiler")
    return found


def close(found: torch.Tensor, wanted: torch.Tensor, kernels: native.Kernels, atol: float, rtol: float) -> None:
    exact = EXACT[kernels.dtype]
    torch.testing.assert_close(found.double(), wanted.double(), atol=atol * exact, rtol=rtol * exact)


def drawn(kernels: native.Kernels, seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(kernels.dtype)


@settings(max_examples=30, deadline=None)
@given(
    count=st.integers(1, 3),
    outs=st.sampled_from([16, 48]),
    ins=st.sampled_from([2, 6, 30, 32, 50]),
    turned=st.booleans(),
)
def test_weights_lie_as_the_products_read_them(kernels, count, outs, ins, turned):
    """Rows side by side, number by number or pair by pair, whatever the strides; parts one behind the other."""
    lanes, pair = native._LANES[kernels.dtype]
    whole = drawn(kernels, ins, count, ins, outs + 16).mT if turned else drawn(kernels, ins, count, outs + 16, ins)
    parts = (whole[:, :outs], whole[:1, 16:])
    wanted = torch.cat(parts).unflatten(1, (-1, lanes)).unflatten(-1, (-1, pair)).transpose(2, 3)
    assert torch.equal(kernels.packed(*parts), wanted)


@pytest.mark.parametrize("experts", [1, 5])
def test_a_part_that_is_made_on_the_way_lies_as_one_that_was_made_before(kernels, experts, monkeypatch):
    first, other = drawn(kernels, 1, experts, 16, 32), drawn(kernels, 2, 2, 16, 32)
    monkeypatch.setattr(native, "SOME", 2 * first[0].nbytes)  # two experts at a time
    found = kernels.packed(first.double(), other, seen=lambda weight: (2 * weight).to(kernels.dtype))
    assert torch.equal(found, kernels.packed(2 * first, other))


@settings(max_examples=100, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    kind=st.sampled_from(["drawn", "any bits", "ties", "bfloat16"]),
    exponent=st.integers(-42, 36),
    spoilt=st.sampled_from([0.0, -0.0, math.inf, -math.inf, math.nan]),
)
def test_int4_is_that_of_the_plain_form_bit_for_bit(kernels, seed, kind, exponent, spoilt):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 5, 64, generator=generator) * 10.0**exponent
    if kind == "any bits":
        weight = torch.randint(-(2**31), 2**31, weight.shape, generator=generator).int().view(torch.float32)
    elif kind == "ties":  # of steps of a quarter
        weight = torch.randint(-15, 16, weight.shape, generator=generator) / 8
        weight[..., ::GROUP] = 7.5 / 4
    elif kind == "bfloat16":
        weight = weight.bfloat16().float()
    weight[0, 0, :GROUP], weight[0, 1, 3] = spoilt, spoilt
    found, wanted = kernels.round_int4(weight), inspect.unwrap(round_to_int4)(weight)
    assert torch.equal(found.isnan(), wanted.isnan())
    bits = [
        torch.nan_to_num(each, nan=0.0, posinf=math.inf, neginf=-math.inf).view(torch.int32) for each in (found, wanted)
    ]
    assert torch.equal(*bits)


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 5),
    heads=st.sampled_from([4, 8, 20]),
    sizes=st.one_of(  # AMX takes multiples of 32
        st.tuples(st.integers(1, 80), st.integers(2, 20), st.integers(1, 70)),
        st.tuples(st.sampled_from([32, 96]), st.sampled_from([32, 64]), st.sampled_from([32, 64, 128])),
    ),
    seed=st.integers(0, 1000),
)
def test_attention_is_softmax_over_each_rows_own_places(kernels, rows, heads, sizes, seed):
    rank, rotated, places = sizes
    seen_N = torch.randint(1, places + 1, (rows,), generator=torch.Generator().manual_seed(seed))
    q_NHK, keys_NTK = (
        drawn(kernels, seed, rows, heads, rank + rotated),
        drawn(kernels, seed + 1, rows, places, rank + rotated),
    )
    found = kernels.attend(q_NHK, keys_NTK, seen_N, rank)
    z_NHT = q_NHK.double() @ keys_NTK.double().mT
    p_NHT = z_NHT.masked_fill(torch.arange(places) >= seen_N[:, None, None], -math.inf).softmax(-1)
    wanted = p_NHT @ keys_NTK[..., :rank].double()
    close(found, wanted, kernels, atol=0.01, rtol=0.02)
    keys_NTK[torch.arange(places) >= seen_N[:, None]] = math.nan  # what a row has not written is never read
    assert torch.equal(found, kernels.attend(q_NHK, keys_NTK, seen_N, rank))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(0, 70),
    batch=st.integers(1, 3),
    outs=st.sampled_from([16, 48]),
    ins=st.sampled_from([2, 30, 32, 64, 112]),
    wide=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_rows_are_multiplied_with_their_part_of_the_weights(kernels, rows, batch, outs, ins, wide, seed):
    """x and y are parts of wider rows, whose other numbers are neither read nor written."""
    if kernels.dtype == torch.bfloat16 and not kernels.multiplies:
        pytest.skip("no AMX")
    x, w = drawn(kernels, seed, rows, batch, ins + 8), drawn(kernels, seed + 1, batch, outs, ins)
    x[..., ins:] = math.nan
    y = torch.zeros(rows, batch, outs + 8, dtype=torch.float32 if wide else kernels.dtype)
    kernels.multiply(x[..., :ins], kernels.packed(w), y[..., :outs])
    wanted = torch.einsum("nbi,boi->nbo", x[..., :ins].double(), w.double())
    torch.testing.assert_close(y[..., :outs].double(), wanted, atol=1e-4 if wide else 0.05, rtol=1e-5 if wide else 0.01)
    assert not y[..., outs:].any()


@settings(max_examples=30, deadline=None)
@given(
    rows=st.integers(1, 40),
    experts=st.integers(2, 9),
    hidden=st.sampled_from([16, 48, 64]),
    inner=st.sampled_from([16, 32, 80]),
    seed=st.integers(0, 1000),
)
def test_experts_are_those_chosen_by_their_weights(kernels, rows, experts, hidden, inner, seed):
    x_ND, stream = drawn(kernels, seed, rows, hidden), torch.Generator().manual_seed(seed)
    gate, up = (drawn(kernels, seed + place, experts, inner, hidden) / hidden**0.5 for place in (1, 2))
    down = drawn(kernels, seed + 3, experts, hidden, inner) / inner**0.5
    chosen_NK = torch.rand(rows, experts, generator=stream).topk(2).indices
    weights_NK = torch.rand(rows, 2, generator=stream)
    packed = [kernels.packed(weight) for weight in (gate, up, down)]
    found = kernels.mix(x_ND, chosen_NK, weights_NK, *packed)
    g, u, d = (weight.double() for weight in (gate, up, down))
    h = F.silu(torch.einsum("nd,efd->nef", x_ND.double(), g)) * torch.einsum("nd,efd->nef", x_ND.double(), u)
    share_NE = torch.zeros(rows, experts).scatter_(1, chosen_NK, weights_NK)
    wanted = torch.einsum("nef,edf,ne->nd", h, d, share_NE.double())
    close(found, wanted, kernels, atol=0.02, rtol=0.02)
    alone = [kernels.mix(x_ND[n : n + 1], chosen_NK[n : n + 1], weights_NK[n : n + 1], *packed) for n in range(rows)]
    assert torch.equal(found, torch.cat(alone))  # company changes no bit


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 3),
    length=st.integers(1, 40),
    heads=st.integers(1, 3),
    nope=st.integers(1, 70),
    rope=st.integers(1, 20),
    value=st.integers(1, 70),
    seed=st.integers(0, 1000),
)
def test_prompts_attend_causally_to_their_own_tokens(kernels, count, length, heads, nope, rope, value, seed):
    q_PSHQ, up_PSHO = (
        drawn(kernels, seed, count, length, heads, nope + rope),
        drawn(kernels, seed + 1, count, length, heads, nope + value),
    )
    rotated_PSR = drawn(kernels, seed + 2, count, length, rope + 3)[..., 3:]  # columns of a wider tensor
    found = kernels.prompts(q_PSHQ, up_PSHO, rotated_PSR)
    key, v_PSHV = up_PSHO.double().split([nope, value], dim=-1)
    k_PSHQ = torch.cat([key, rotated_PSR.double()[:, :, None].expand(-1, -1, heads, -1)], dim=-1)
    z_PHSS = torch.einsum("pshq,pthq->phst", q_PSHQ.double(), k_PSHQ)
    p_PHSS = z_PHSS.masked_fill(torch.ones(length, length).triu(1).bool(), -math.inf).softmax(-1)
    close(found, torch.einsum("phst,pthv->pshv", p_PHSS, v_PSHV), kernels, atol=0.03, rtol=0.02)
    up_PSHO[:, -1] = 100  # the last token is its own query's alone
    again = kernels.prompts(q_PSHQ, up_PSHO, rotated_PSR)
    assert torch.equal(found[:, :-1], again[:, :-1])


@pytest.mark.parametrize("length", [1, 2, 5])
def test_rotated_keys_are_columns_of_a_wider_tensor_at_any_length(kernels, length):
    wide_TO = drawn(kernels, 2, 3 * length, 13)
    wide_TO[:, :5] = math.nan  # what lies between the keys is never read
    rotated_PSR = wide_TO[:, 5:].unflatten(0, (3, length))  # its length of 1 has a stride of 8
    q_PSHQ, up_PSHO = drawn(kernels, 0, 3, length, 2, 24), drawn(kernels, 1, 3, length, 2, 32)
    found = kernels.prompts(q_PSHQ, up_PSHO, rotated_PSR)
    assert torch.equal(found, kernels.prompts(q_PSHQ, up_PSHO, rotated_PSR.contiguous()))


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 9),
    experts=st.integers(1, 40),
    hidden=st.integers(1, 70),
    shared=st.integers(0, 2),
    seed=st.integers(0, 1000),
    data=st.data(),
)
def test_rows_are_routed_as_by_the_router(kernels, rows, experts, hidden, shared, seed, data):
    top = data.draw(st.integers(1, experts))
    x_ND, weight_ED = drawn(kernels, seed, rows, hidden), drawn(kernels, seed + 1, experts, hidden).float()
    bias_E = drawn(kernels, seed + 2, experts).float() / 8
    chosen, weights = kernels.route(x_ND, weight_ED, bias_E, top, 2.5, shared)
    assert chosen[:, top:].tolist() == [list(range(experts, experts + shared))] * rows
    assert (weights[:, top:] == 1).all()
    scores = (x_ND.double() @ weight_ED.double().mT).sigmoid()
    biased = scores + bias_E
    assert all(len(set(row)) == top for row in chosen[:, :top].tolist())
    wanted = biased.topk(top).values  # by value: near ties may fall otherwise
    torch.testing.assert_close(biased.gather(1, chosen[:, :top]), wanted, atol=1e-5, rtol=1e-5)
    picked = scores.gather(1, chosen[:, :top])
    shares = picked / picked.sum(-1, keepdim=True) * 2.5
    torch.testing.assert_close(weights[:, :top].double(), shares, atol=1e-5, rtol=1e-4)
    x_ND[0] = math.nan
    lost, _ = kernels.route(x_ND, weight_ED, bias_E, top, 2.5, shared)
    assert sorted(lost[0, :top].tolist()) == list(range(top))  # experts that exist, whatever the numbers
    x_ND[0] = 0
    broken = data.draw(st.integers(0, experts - 1))
    weight_ED[broken] = math.nan
    assert kernels.route(x_ND, weight_ED, bias_E, top, 2.5, shared)[1][:, :top].isnan().all()  # as by torch's topk


@pytest.mark.parametrize("wide_x", [False, True])
@pytest.mark.parametrize("size", [1, 15, 16, 40, 224])
def test_norm_and_rotation_of_columns_of_a_wider_tensor(kernels, wide_x, size):
    wide = drawn(kernels, 0, 6, size + 5)
    wide = wide.float() if wide_x else wide
    x_ND, weight_D = wide[:, 3 : size + 3], drawn(kernels, 1, size).float()
    wanted = F.rms_norm(x_ND.double(), (size,), weight_D.double(), 1e-6)
    close(kernels.norm(x_ND, weight_D, 1e-6), wanted, kernels, atol=1e-3, rtol=0.005)
    x_NHR, angle_NP = drawn(kernels, 2, 6, 3, 2 * size + 4)[..., 4:], drawn(kernels, 3, 6, size).float()
    pairs = x_NHR.double().unflatten(-1, (-1, 2)).contiguous()
    turned = torch.view_as_complex(pairs) * torch.polar(torch.ones_like(angle_NP), angle_NP)[:, None]
    kernels.turn(x_NHR, torch.polar(torch.ones_like(angle_NP), angle_NP))
    close(x_NHR, torch.view_as_real(turned).flatten(-2), kernels, atol=1e-3, rtol=0.005)


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_threads_change_no_bit(kernels, threads):
    q_NHK, keys_NTK, seen_N = drawn(kernels, 0, 7, 4, 40), drawn(kernels, 1, 7, 33, 40), torch.arange(1, 8)
    x_ND, chosen_NK, weights_NK = drawn(kernels, 2, 7, 32), torch.arange(7)[:, None] % 3, torch.ones(7, 1)
    weights = [kernels.packed(drawn(kernels, place, 3, 32, 32)) for place in (3, 4, 5)]
    prompts = (drawn(kernels, 6, 5, 9, 2, 24), drawn(kernels, 7, 5, 9, 2, 32), drawn(kernels, 8, 5, 9, 8))
    found = []
    for count in (1, 3):
        torch.set_num_threads(count)
        attended = (kernels.attend(q_NHK, keys_NTK, seen_N, 32), kernels.prompts(*prompts))
        found.append((*attended, kernels.mix(x_ND, chosen_NK, weights_NK, *weights)))
        if kernels.multiplies:
            found[-1] += (kernels.multiply(x_ND[:, None], weights[0][:1], x_ND.new_empty(7, 1, 32)),)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_generation_with_the_kernels_is_the_training_forward(kernels):
    model = Transformer(model_preset("tiny", vocab_size=60, initializer_range=0.1), seed=3).to(kernels.dtype)
    asked = requests_for([[place + 1] * (place % 7 + 1) for place in range(12)], max_new_tokens=40, seed=1)
    errors = []
    for request, one in zip(asked, Generator(model, max_rows=5).generate(asked), strict=True):
        tokens = torch.tensor([[*request.prompt, *one.tokens]])
        with torch.no_grad():
            wanted = model.log_probs(model(tokens[:, :-1]).hidden_BSD, tokens[:, 1:])[0, len(request.prompt) - 1 :]
        errors += (torch.tensor(one.log_probs) - wanted).abs().tolist()
    assert sorted(errors)[len(errors) // 2] < 0.05 * EXACT[kernels.dtype]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_logit_that_is_not_finite_spoils_its_head_and_no_other(kernels, value):
    q_NHK, keys_NTK, seen_N = drawn(kernels, 0, 2, 4, 40), drawn(kernels, 1, 2, 7, 40).abs(), torch.tensor([5, 7])
    q_NHK[1, 2, 35] = value
    found = kernels.attend(q_NHK, keys_NTK, seen_N, 32)
    assert found.isnan().all(-1).nonzero().tolist() == [[1, 2]]
    assert int(found.isnan().sum()) == 32


@pytest.fixture
def nowhere(monkeypatch, tmp_path) -> Iterator[Path]:
    """A cache that has nothing yet, on a CPU that has what the kernels need."""
    monkeypatch.setattr(native, "_serves", lambda dtype: True)
    monkeypatch.setenv("OPENK2_CACHE", str(tmp_path / "cache"))
    native.kernels.cache_clear()
    yield tmp_path
    native.kernels.cache_clear()


def test_without_a_compiler_one_line_says_so(nowhere, monkeypatch, caplog):
    monkeypatch.setenv("CC", "no-such-compiler")
    assert native.kernels(torch.float32) is None
    assert [record.message for record in caplog.records if "no C compiler" in record.message]


def test_a_compiler_that_refuses_is_quoted_and_leaves_nothing(nowhere, monkeypatch, caplog):
    refuses = nowhere / "old-cc"
    refuses.write_text("#!/bin/sh\necho unknown option: $1 >&2\nexit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setenv("CC", f"{refuses} -pipe")  # options of the compiler's own are allowed
    assert native.kernels(torch.float32) is None
    assert [record.message for record in caplog.records if "unknown option: -pipe" in record.message]
    assert not list((nowhere / "cache").iterdir())


def test_a_compiler_that_speaks_in_another_encoding_is_quoted(nowhere, monkeypatch, caplog):
    compiler = nowhere / "compiler"
    compiler.write_text("#!/bin/sh\nprintf '\\377 bad' >&2\nexit 1\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    assert native.kernels(torch.float32) is None
    assert "\ufffd bad" in caplog.text


@pytest.mark.skipif(not native._serves(torch.float32), reason="no AVX2")
def test_a_library_that_was_cut_short_is_built_once_more(nowhere):
    library = native._built(torch.float32)
    library.write_bytes(b"")
    assert native.kernels(torch.float32) is not None
    assert library.stat().st_size


def test_without_a_home_one_line_says_so(nowhere, monkeypatch, caplog):
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")  # as pathlib does for a user that nobody knows

    monkeypatch.delenv("OPENK2_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert native.kernels(torch.float32) is None
    assert [record.message for record in caplog.records if "home directory" in record.message]
