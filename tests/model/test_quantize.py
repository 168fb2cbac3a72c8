"""INT4: laws of the grid, parity with compressed-tensors, the straight-through gradient."""

from __future__ import annotations

import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.convert import from_hf_state, to_hf_state
from model.footprint import MemoryConfig
from model.quantize import (
    GROUP,
    QuantizationError,
    compress,
    compress_experts,
    decompress_experts,
    dequantize,
    fake_quantize,
    fake_quantize_experts,
    is_routed_expert,
    pack,
    quantization_config,
    quantize,
    unpack,
)
from model.sizes import model_preset
from model.transformer import Transformer

ct_pack = pytest.importorskip("compressed_tensors.compressors.pack_quantized.helpers")
ct_quantization = pytest.importorskip("compressed_tensors.quantization")


def weights(seed: int, *shape: int, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


shapes = st.tuples(st.integers(1, 5), st.integers(1, 4).map(lambda groups: groups * GROUP))


@given(shape=shapes, seed=st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_pack_is_theirs_bit_for_bit_and_unpack_its_inverse(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-8, 8, shape, generator=generator, dtype=torch.int8)
    words = pack(values)
    assert words.dtype == torch.int32
    assert words.shape == (shape[0], shape[1] // 8)
    assert torch.equal(words, ct_pack.pack_to_int32(values, 4))
    assert torch.equal(unpack(words), values)


@given(shape=shapes, seed=st.integers(0, 2**31), exponent=st.integers(-12, 6))
@settings(max_examples=40, deadline=None)
def test_each_value_is_within_half_a_step_but_where_the_grid_ends(shape, seed, exponent):
    weight = weights(seed, *shape, scale=2.0**exponent)
    values, scale = quantize(weight)
    assert values.min() >= -8
    assert values.max() <= 7
    step = scale.float().repeat_interleave(GROUP, dim=-1)
    error = (values.float() * step - weight).abs()
    # the positive end of a symmetric grid lies at 7 steps, the largest weight at 7.5 (of the unrounded scale)
    reach = torch.where(weight > 7.5 * step, weight - 7 * step, step / 2)
    assert (error <= reach * (1 + 1e-5)).all()


def test_scale_and_values_are_those_of_compressed_tensors():
    args = ct_quantization.QuantizationArgs(num_bits=4, type="int", symmetric=True, strategy="group", group_size=GROUP)
    weight = weights(1, 24, 160).to(torch.bfloat16)
    groups = weight.unflatten(-1, (-1, GROUP))
    theirs, _ = ct_quantization.utils.calculate_qparams(groups.amin(-1), groups.amax(-1), args)
    values, scale = quantize(weight)
    assert scale.dtype == torch.bfloat16
    assert torch.equal(scale, theirs)
    expected = ct_quantization.quantize(
        x=weight.float(), scale=scale.float(), zero_point=None, args=args, dtype=torch.int8
    )
    assert torch.equal(values, expected)


def test_torchaos_fake_quantiser_is_ours_but_for_its_reciprocal():
    """It multiplies by the rounded 1 / scale where we divide, as compressed-tensors and serving kernels do: one weight
    in 20,000 lands on the neighbouring step."""
    qat = pytest.importorskip("torchao.quantization.qat", reason="torchao is not installed: pip install torchao")
    granularity = pytest.importorskip("torchao.quantization").PerGroup(GROUP)
    theirs = qat.IntxFakeQuantizer(qat.IntxFakeQuantizeConfig(torch.int4, granularity))
    weight = weights(1, 512, 1024).to(torch.bfloat16)
    served, (values, scale) = theirs(weight), quantize(weight)
    assert torch.equal(theirs.scale, scale.float())
    groups, step = weight.float().unflatten(-1, (-1, GROUP)), scale.float()[..., None]
    steps = (groups * (1.0 / step)).round().clamp(-8, 7)
    assert torch.equal(served, dequantize(steps.flatten(-2), scale))
    apart = (steps.flatten(-2) - values).abs()
    assert apart.max() <= 1
    assert 0 < (apart > 0).float().mean() < 2e-4
    plain = qat.IntxFakeQuantizer(qat.IntxFakeQuantizeConfig(torch.int4, granularity, scale_precision=torch.bfloat16))
    single = weights(2, 512, 1024)
    plain(single)
    assert torch.equal(plain.scale, quantize(single)[1])


def test_their_decompressor_reads_what_we_write():
    from compressed_tensors.compressors.pack_quantized import PackedQuantizationCompressor

    group = quantization_config()["config_groups"]["group_0"]
    scheme = ct_quantization.QuantizationScheme.model_validate(group)
    name = "model.layers.1.mlp.experts.0.up_proj.weight"
    stored = compress(name, weights(2, 8, 96))
    local = {key.rpartition(".")[2]: tensor for key, tensor in stored.items()}
    theirs = PackedQuantizationCompressor.decompress(local, scheme)["weight"]
    ours = decompress_experts(stored)[name]
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(ours, theirs)


def test_their_configuration_class_accepts_ours_and_leaves_out_what_k2_ignores():
    config = quantization_config()
    ct_quantization.QuantizationConfig.model_validate(config)
    patterns = [entry.removeprefix("re:") for entry in config["ignore"]]

    def ignored(module: str) -> bool:
        return any(re.match(pattern, module) for pattern in patterns)

    assert ignored("lm_head")
    assert ignored("model.layers.3.self_attn.kv_b_proj")
    assert ignored("model.layers.0.mlp.gate_proj")
    assert ignored("model.layers.3.mlp.shared_experts.up_proj")
    assert not ignored("model.layers.3.mlp.experts.17.down_proj")


@given(seed=st.integers(0, 2**31), dtype=st.sampled_from([torch.float32, torch.bfloat16]))
@settings(max_examples=25, deadline=None)
def test_training_sees_exactly_what_is_exported(seed, dtype):
    weight = weights(seed, 3, 4, 64).to(dtype)  # three stacked experts
    seen = fake_quantize(weight)
    assert seen.dtype == dtype
    for expert in range(3):
        name = f"model.layers.1.mlp.experts.{expert}.gate_proj.weight"
        exported = decompress_experts(compress(name, weight[expert]))[name]
        assert torch.equal(seen[expert], exported.to(dtype))


def test_the_gradient_passes_straight_through():
    weight = weights(3, 4, 64).requires_grad_()
    upstream = weights(4, 4, 64)
    (fake_quantize(weight) * upstream).sum().backward()
    assert torch.equal(weight.grad, upstream)


def test_every_group_has_a_scale_of_its_own():
    weight = torch.cat([weights(5, 2, GROUP), 1000 * weights(6, 2, GROUP)], dim=1)
    values, scale = quantize(weight)
    relative = (dequantize(values, scale, torch.float32) - weight).norm(dim=1) / weight.norm(dim=1)
    assert (relative < 0.15).all()
    small = dequantize(values, scale, torch.float32)[:, :GROUP]
    assert (small - weight[:, :GROUP]).abs().max() < weight[:, :GROUP].abs().max() / 7


def test_a_group_of_zeros_stays_zero():
    values, scale = quantize(torch.zeros(1, GROUP))
    assert not values.any()
    assert scale.item() > 0
    assert not fake_quantize(torch.zeros(1, GROUP)).any()


@pytest.mark.parametrize("width", [1, 31, 33, 80])
def test_a_width_that_does_not_divide_is_refused_by_name(width):
    with pytest.raises(QuantizationError, match=rf"experts\.3\.down_proj\.weight has an input width of {width}"):
        compress("model.layers.2.mlp.experts.3.down_proj.weight", torch.ones(4, width))


def test_a_broken_weight_is_refused_by_name():
    weight = torch.ones(2, GROUP)
    weight[1, 5] = float("nan")
    with pytest.raises(QuantizationError, match=r"model\.x\.weight holds NaN"):
        compress("model.x.weight", weight)


def test_only_routed_experts_are_packed():
    routed = "model.layers.1.mlp.experts.11.gate_proj.weight"
    others = (
        "model.embed_tokens.weight",
        "lm_head.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.gate.e_score_correction_bias",
        "model.layers.1.mlp.shared_experts.down_proj.weight",
        "model.layers.1.self_attn.q_a_proj.weight",
        "model.norm.weight",
    )
    assert is_routed_expert(routed)
    assert not any(is_routed_expert(name) for name in others)
    tensors = {name: torch.ones(4, GROUP) for name in (routed, *others)}
    stored = dict(compress_experts(tensors.items()))
    stem = routed.removesuffix("weight")
    assert set(stored) == {*others, stem + "weight_packed", stem + "weight_scale", stem + "weight_shape"}
    assert stored[stem + "weight_shape"].tolist() == [4, GROUP]
    assert set(decompress_experts(stored)) == set(tensors)


def test_a_cut_or_altered_checkpoint_is_refused():
    stored = compress("a.weight", weights(7, 4, 64))
    with pytest.raises(QuantizationError, match="without its weight_scale"):
        decompress_experts({name: tensor for name, tensor in stored.items() if "scale" not in name})
    with pytest.raises(QuantizationError, match="altered"):
        decompress_experts(stored | {"a.weight_shape": torch.tensor([4, 32])})
    with pytest.raises(QuantizationError, match=r"a\.weight_packed comes beside a\.weight"):
        decompress_experts(stored | {"a.weight": torch.zeros(4, 64)})
    for stray in ("weight_scale", "weight_shape"):
        with pytest.raises(QuantizationError, match=rf"b\.{stray} comes without its weight_packed"):
            decompress_experts(stored | {f"b.{stray}": torch.zeros(3)})


def logits(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    return model.logits(model(tokens).hidden_BSD)


@pytest.mark.parametrize("recompute", [False, True])
def test_a_fake_quantised_model_is_the_exported_one_and_trains_its_own_parameters(recompute):
    model = Transformer(model_preset("tiny"), seed=3)
    parameters = dict(model.named_parameters())
    names = list(model.state_dict())
    tokens = torch.randint(0, 512, (2, 24), generator=torch.Generator().manual_seed(0))
    plain = logits(model, tokens)
    fake_quantize_experts(model)
    fake_quantize_experts(model)  # twice changes nothing
    assert list(model.state_dict()) == names
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    seen = logits(model, tokens)
    assert not torch.equal(seen, plain)

    served = Transformer(model.config, seed=4)
    from_hf_state(served, decompress_experts(dict(compress_experts(to_hf_state(model).items()))))
    assert torch.equal(logits(served, tokens), seen)

    # the gradient is the served model's, handed to the unrounded weights, also where the forward is computed again
    model.memory = MemoryConfig(recompute=("layers",) if recompute else ())
    logits(model, tokens).square().mean().backward()
    logits(served, tokens).square().mean().backward()
    for name, parameter in served.named_parameters():
        assert torch.equal(parameters[name].grad, parameter.grad), name


def test_a_model_whose_experts_do_not_divide_is_refused():
    model = Transformer(model_preset("tiny", moe_intermediate_size=48), seed=0)
    with pytest.raises(QuantizationError, match=r"down_EDF has an input width of 48"):
        fake_quantize_experts(model)
