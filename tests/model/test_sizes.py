"""The ladder of sizes: K2 to the last field, what the names promise, and what a size refuses."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from model.config import INT4_GROUP, ModelConfig, parameter_count
from model.sizes import LADDER, MODEL_PRESETS, Size, model_preset


def test_the_ladder_ends_at_k2_itself():
    assert LADDER["k2"].config() == ModelConfig()


@pytest.mark.parametrize("name", [name for name in LADDER if name != "k2"])
def test_a_name_is_the_number_of_parameters(name):
    promised = float(name[:-1]) * {"m": 1e6, "b": 1e9}[name[-1]]
    assert parameter_count(MODEL_PRESETS[name]).total == pytest.approx(promised, rel=0.1)


def test_a_larger_size_is_larger_in_everything_that_costs():
    counts = [parameter_count(size.config()) for size in LADDER.values()]
    for attribute in ("total", "active"):
        numbers = [getattr(count, attribute) for count in counts]
        assert numbers == sorted(numbers)


def test_the_sizes_cut_for_machines_are_what_their_recipes_count_on():
    assert parameter_count(MODEL_PRESETS["tiny"]).total < 1_000_000
    assert 3e6 <= parameter_count(MODEL_PRESETS["laptop"]).active <= 10e6
    assert 0.25e9 <= parameter_count(MODEL_PRESETS["gpu"]).active <= 0.35e9
    smaller = parameter_count(model_preset("laptop", vocab_size=4096))
    assert smaller.active < parameter_count(MODEL_PRESETS["laptop"]).active


@given(
    unit=st.integers(16, 2048),
    head_dim=st.sampled_from([16, 32, 64, 128]),
    layers=st.integers(2, 80),
    experts=st.integers(8, 512),
    top_k=st.integers(1, 8),
)
def test_every_size_keeps_k2s_proportions(unit, head_dim, layers, experts, top_k):
    assume(8 * unit % head_dim == 0)
    assume(18 * unit // (top_k + 1) >= INT4_GROUP)
    size = Size(unit=unit, head_dim=head_dim, layers=layers, experts=experts, top_k=top_k)
    config = size.config()
    assert config.num_attention_heads * config.v_head_dim * 7 == config.hidden_size * 8
    assert config.intermediate_size * 7 == config.hidden_size * 18
    visited = (config.num_experts_per_tok + config.n_shared_experts) * config.moe_intermediate_size
    assert config.intermediate_size - (top_k + 1) * INT4_GROUP < visited <= config.intermediate_size
    assert config.moe_intermediate_size % INT4_GROUP == 0
    assert (config.kv_lora_rank, config.qk_rope_head_dim) == (4 * head_dim, head_dim // 2)
    assert config.q_lora_rank <= config.hidden_size / 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head_dim": 48}, "head_dim = 48.*128.*not divide"),
        ({"top_k": 9, "experts": 16}, "top_k = 9: 18 x unit = 288 leaves each of 10 experts less than 32"),
        ({"experts": 1}, "experts"),
        ({"experts": 2, "top_k": 4}, "num_experts_per_tok = 4.*n_routed_experts"),
        ({"vocabulary": 100}, "vocabulary of 100"),
        ({"layer": 3}, "layer"),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_name(changes, words):
    chosen = {"unit": 16, "head_dim": 16, "layers": 3, "experts": 8, "top_k": 2, "vocabulary": 1024} | changes
    with pytest.raises(ValueError, match=words):
        Size.model_validate(chosen).config()


def test_every_field_of_a_size_is_described():
    assert [name for name, field in Size.model_fields.items() if not field.description] == []


def test_sizes_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        LADDER["1m"].unit = 32


def test_unknown_preset_lists_the_known():
    with pytest.raises(KeyError, match=r"tiny, laptop, gpu, 1m, 10m.*k2"):
        model_preset("huge")
