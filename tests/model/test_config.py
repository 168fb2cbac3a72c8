"""The configuration: what it refuses, K2's own numbers, config.json both ways, closed formulas against tensors."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import torch
from pydantic import ValidationError

from model.config import ModelConfig, YarnConfig, flops_per_token, parameter_count
from model.sizes import MODEL_PRESETS, model_preset
from model.transformer import Transformer
from tests.model.test_parity import random_config


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"first_k_dense_replace": 4}, "first_k_dense_replace = 4.*num_hidden_layers"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok = 9.*n_routed_experts"),
        ({"qk_rope_head_dim": 7}, "qk_rope_head_dim = 7.*even"),
        ({"eos_token_id": 512}, "eos_token_id = 512.*512"),
        ({"vocab_size": 2}, "pad_token_id = 2"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"num_heads": 4}, "num_heads"),
        (
            {"rope_scaling": {"factor": 2, "original_max_position_embeddings": 100}},
            "max_position_embeddings = 256.*200",
        ),
        (
            {"rope_scaling": {"factor": 2, "original_max_position_embeddings": 4096}},
            "max_position_embeddings = 256.*below original_max_position_embeddings.*4096",
        ),
        (
            {"rope_scaling": {"factor": 200, "original_max_position_embeddings": 6}},
            "original_max_position_embeddings = 6.*7 tokens at least",
        ),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"q_lora_rank": 0}, "q_lora_rank"),
        ({"kv_lora_rank": -1}, "kv_lora_rank"),
        ({"n_routed_experts": 0}, "n_routed_experts"),
        ({"rope_scaling": {"factor": 8, "beta_fast": 1, "beta_slow": 2}}, "beta_fast.*beta_slow"),
        ({"rope_scaling": {"factor": 1}}, "factor"),
        ({"num_hidden_layers": 20_000}, "num_hidden_layers\n.*equal to 1024"),
        ({"hidden_size": 10**12}, "hidden_size\n.*equal to 1048576"),
        ({"n_routed_experts": 10**9}, "n_routed_experts\n.*equal to 1048576"),
        ({"vocab_size": 10**400}, "vocab_size\n.*equal to 2147483648"),
        (
            {
                "max_position_embeddings": 10**400,
                "rope_scaling": {"factor": 2, "original_max_position_embeddings": 10**400},
            },
            "original_max_position_embeddings\n.*equal to 2147483648",
        ),
    ],
)
def test_refuses_the_impossible_by_name(changes, words):
    with pytest.raises(ValidationError, match=words):
        model_preset("tiny", **changes)


def test_every_field_is_described():
    for config in (ModelConfig, YarnConfig):
        assert [name for name, field in config.model_fields.items() if not field.description] == []


def test_with_yarn_leaves_the_original_alone():
    k2 = MODEL_PRESETS["k2"]
    released = k2.with_yarn(32)
    assert k2.rope_scaling is None
    assert released.max_position_embeddings == 131_072
    assert released.rope_scaling == YarnConfig(factor=32, original_max_position_embeddings=4096)
    assert released.with_yarn(64) == k2.with_yarn(64)  # counted from the original window, not the stretched one
    assert released.with_yarn(64).max_position_embeddings == 262_144


def test_k2_config_json_has_the_released_values():
    released = MODEL_PRESETS["k2"].with_yarn(32).to_hf()
    facts = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "aux_loss_alpha": 0.001,
        "bos_token_id": 163584,
        "eos_token_id": 163585,
        "first_k_dense_replace": 1,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "max_position_embeddings": 131072,
        "model_type": "deepseek_v3",  # K2's own says kimi_k2, and brings the code for it
        "moe_intermediate_size": 2048,
        "n_group": 1,
        "n_routed_experts": 384,
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "num_attention_heads": 64,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 64,
        "num_nextn_predict_layers": 0,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "rms_norm_eps": 1e-6,
        "rope_theta": 50000.0,
        "routed_scaling_factor": 2.827,
        "scoring_func": "sigmoid",
        "seq_aux": True,
        "tie_word_embeddings": False,
        "topk_group": 1,
        "topk_method": "noaux_tc",
        "torch_dtype": "bfloat16",
        "v_head_dim": 128,
        "vocab_size": 163840,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "ep_size": 1,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "moe_layer_freq": 1,
        "pad_token_id": 163839,
        "pretraining_tp": 1,
        "transformers_version": "4.48.3",
        "use_cache": True,
    }
    assert {name: released[name] for name in released.keys() - {"rope_scaling"}} == facts
    yarn = {"type": "yarn", "factor": 32, "original_max_position_embeddings": 4096}
    assert released["rope_scaling"] == yarn | {"beta_fast": 1, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1}


@pytest.mark.parametrize("seed", range(20))
def test_config_json_round_trip(seed):
    config = random_config(seed)
    assert ModelConfig.from_hf(config.to_hf()) == config


def test_queries_without_a_latent_are_read_written_and_counted():
    """Moonlight's shape: 16B parameters, 3B of them active."""
    moonlight = ModelConfig(
        q_lora_rank=None,
        hidden_size=2048,
        num_hidden_layers=27,
        intermediate_size=11_264,
        n_routed_experts=64,
        num_experts_per_tok=6,
        n_shared_experts=2,
        moe_intermediate_size=1408,
        num_attention_heads=16,
    )
    released = json.loads(json.dumps(moonlight.to_hf()))
    assert released["q_lora_rank"] is None
    assert ModelConfig.from_hf(released) == moonlight
    count = parameter_count(moonlight)
    assert (round(count.total / 1e9), round(count.active / 1e9)) == (16, 3)
    with torch.device("meta"):
        model = Transformer(moonlight.replace(num_hidden_layers=3))
    assert sum(map(torch.numel, model.state_dict().values())) == parameter_count(model.config).total
    del released["q_lora_rank"]  # unlike null, this says nothing
    with pytest.raises(ValueError, match="lacks q_lora_rank"):
        ModelConfig.from_hf(released)


def test_reads_the_spelling_of_transformers_5():
    config = model_preset("tiny").with_yarn(4)
    theirs = config.to_hf()
    rope = theirs.pop("rope_scaling")
    theirs["rope_parameters"] = rope | {"rope_type": rope.pop("type"), "rope_theta": theirs.pop("rope_theta")}
    assert ModelConfig.from_hf(theirs) == config
    theirs["rope_parameters"] |= {"truncate": True, "partial_rotary_factor": 1.0, "attention_factor": None}
    assert ModelConfig.from_hf(theirs | {"rope_interleave": True}) == config


def test_a_file_may_name_no_padding_and_several_ends():
    """DeepSeek-V3 has no padding token, and some chat models end with any of several tokens."""
    theirs = model_preset("tiny").to_hf() | {"eos_token_id": [1, 7]}
    del theirs["pad_token_id"]
    config = ModelConfig.from_hf(theirs)
    assert (config.eos_token_id, config.pad_token_id) == (1, 1)


YARN = {"type": "yarn", "factor": 2, "original_max_position_embeddings": 128}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "llama"}, "model_type"),
        ({"n_group": 8}, "n_group"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"scoring_func": "softmax"}, "scoring_func"),
        ({"num_key_value_heads": 2}, "num_key_value_heads"),
        ({"rope_theta": None}, "lacks rope_theta"),
        ({"routed_scaling_factor": None, "rms_norm_eps": None}, "lacks routed_scaling_factor, rms_norm_eps"),
        ({"first_k_dense_replace": None}, "lacks first_k_dense_replace"),
        ({"rope_scaling": {"type": "yarn", "factor": 2}}, "lacks original_max_position_embeddings"),
        ({"qk_head_dim": 32}, "qk_head_dim = 32.*24"),
        ({"num_attention_heads": 5, "num_key_value_heads": 4}, r"num_key_value_heads = 4.*\(5\)"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"num_nextn_predict_layers": 1}, "num_nextn_predict_layers"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "linear"),
        ({"rope_scaling": "yarn"}, "rope_scaling = 'yarn'"),
        ({"rope_scaling": YARN | {"attention_factor": 2.0}}, r"attention_factor = 2\.0"),
        ({"rope_scaling": YARN | {"truncate": False}}, "truncate = False"),
        ({"rope_scaling": YARN | {"mscale_all_dim": 1}}, "lacks mscale"),
        (
            {"rope_scaling": YARN | {"mscale": 1, "mscale_all_dim": 1e308}},
            "mscale_all_dim: .*less than or equal to 100",
        ),
        ({"rope_scaling": YARN | {"mscale": 1e308, "mscale_all_dim": 1}}, "mscale: .*less than or equal to 100"),
        ({"rope_scaling": YARN | {"factor": 1e308}}, "factor: .*less than or equal to 2147483648"),
        ({"rope_scaling": YARN | {"mscale": 0.7}}, r"mscale = 0\.7 without mscale_all_dim"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        (
            {"rope_parameters": {"rope_type": "default", "rope_theta": 123.0}},
            r"rope_theta = 50000\.0 and 123",
        ),
        ({"rope_interleave": False}, "rope_interleave"),
        ({"eos_token_id": []}, "eos_token_id"),
        ({"qk_nope_head_dim": "16"}, "^qk_nope_head_dim: Input should be a valid integer; it has '16'$"),
    ],
)
def test_refuses_other_networks(changes, words):
    with pytest.raises(ValueError, match=words):
        ModelConfig.from_hf(model_preset("tiny").to_hf() | changes)


def test_k2_counts_exactly():
    count = parameter_count(MODEL_PRESETS["k2"])
    assert count.total == 1_026_408_232_448
    assert count.trainable == 1_026_408_209_408
    assert round(count.active / 1e9, 2) == 32.86
    assert sum(count.components.values()) == count.total


@pytest.mark.parametrize("config", [*MODEL_PRESETS.values(), *map(random_config, range(5))])
def test_counts_equal_the_tensors(config):
    with torch.device("meta"):
        model = Transformer(config)
    count = parameter_count(config)
    assert count.trainable == sum(p.numel() for p in model.parameters())
    assert count.total == sum(t.numel() for t in model.state_dict().values())


def test_flops_equal_the_products_of_a_forward(monkeypatch):
    """torch counts the products; with blocks of one query attention takes exactly the causal pairs."""
    from torch.utils.flop_counter import FlopCounterMode

    monkeypatch.setattr("model.kernels.blockwise_attention.BLOCK_QUERIES", 1)
    model = Transformer(MODEL_PRESETS["tiny"])
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model.logits(model(torch.arange(57)[None]).hidden_BSD)
    assert counter.get_total_flops() == 57 * flops_per_token(model.config, 57, training=False)
    assert flops_per_token(model.config, 57) == 3 * flops_per_token(model.config, 57, training=False)


def test_imports_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; import model.config as c, model.describe, model.sizes; "
        "c.parameter_count(c.ModelConfig())"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
