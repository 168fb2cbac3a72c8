"""Parity with transformers' DeepSeek-V3, an independent implementation: logits, loss and gradients."""

from __future__ import annotations

import random

import pytest
import torch
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

from model.config import ModelConfig, YarnConfig
from model.convert import load_hf, save_hf, to_hf_state
from model.sizes import model_preset
from model.transformer import Transformer, routers

pytestmark = pytest.mark.usefixtures("forms")


def hf_config(config: ModelConfig) -> DeepseekV3Config:
    """Without a padding id, whose embedding transformers would not train."""
    return DeepseekV3Config(**config.to_hf() | {"pad_token_id": None}, experts_implementation="eager")


def reference(model: Transformer) -> DeepseekV3ForCausalLM:
    """transformers' network with the model's weights (its experts are stacked as well, gate and up fused)."""
    theirs = DeepseekV3ForCausalLM(hf_config(model.config)).float()
    state = to_hf_state(model)
    fused = {}
    for name in theirs.state_dict():
        prefix, _, last = name.rpartition(".")
        experts = range(model.config.n_routed_experts)
        if last == "gate_up_proj":
            gate_up = [(f"{prefix}.{e}.gate_proj.weight", f"{prefix}.{e}.up_proj.weight") for e in experts]
            fused[name] = torch.stack([torch.cat([state[gate], state[up]]) for gate, up in gate_up])
        elif last == "down_proj" and prefix.endswith("experts"):
            fused[name] = torch.stack([state[f"{prefix}.{e}.down_proj.weight"] for e in experts])
        else:
            fused[name] = state[name]
    theirs.load_state_dict(fused, strict=True)
    return theirs


def random_config(seed: int) -> ModelConfig:
    draw = random.Random(seed)
    experts = draw.randint(2, 9)
    layers = draw.randint(1, 3)
    window = draw.choice([64, 4096])
    yarn = None
    if draw.random() < 0.5:
        slow = draw.choice([1.0, 1.0, 2.0])
        yarn = YarnConfig(
            factor=draw.choice([1.5, 4.0, 32.0]),
            original_max_position_embeddings=window,
            beta_fast=slow * draw.choice([1, 8, 32]),
            beta_slow=slow,
            mscale=draw.choice([1.0, 0.7]),
            mscale_all_dim=draw.choice([1.0, 0.4]),
        )
    return ModelConfig(
        vocab_size=draw.randint(40, 90),
        hidden_size=draw.randint(12, 40),
        num_hidden_layers=layers,
        first_k_dense_replace=draw.randint(0, layers),
        intermediate_size=draw.randint(8, 40),
        n_routed_experts=experts,
        num_experts_per_tok=draw.randint(1, experts),
        n_shared_experts=draw.randint(1, 2),
        moe_intermediate_size=draw.randint(4, 24),
        routed_scaling_factor=draw.uniform(0.5, 3),
        num_attention_heads=draw.randint(1, 5),
        q_lora_rank=draw.randint(4, 24),
        kv_lora_rank=draw.randint(4, 24),
        qk_nope_head_dim=draw.randint(2, 12),
        qk_rope_head_dim=2 * draw.randint(1, 6),
        v_head_dim=draw.randint(2, 30),  # also wider than the keys
        rope_theta=draw.choice([10_000.0, 50_000.0]),
        rms_norm_eps=draw.choice([1e-6, 1e-5]),
        initializer_range=0.2,  # large enough for every path to matter
        rope_scaling=yarn,
        max_position_embeddings=window,
        bos_token_id=0,
        eos_token_id=1,
        pad_token_id=2,
    )


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Within 1e-4 of the largest value; the floor is for what is 0 but for rounding (a router's gradient at K = 1)."""
    return bool((ours - theirs).abs().max() <= 1e-4 * theirs.abs().max() + 1e-8)


@pytest.mark.parametrize("routing", ["free", "pinned"])
@pytest.mark.parametrize("seed", range(22))
def test_logits_loss_and_gradients_equal_transformers(seed, routing):
    """Free: each network chooses experts by itself. Pinned: both are told whom each token visits, by a bias of one row
    per token, so that a near tie cannot decide and experts without tokens occur. The last six seeds have no latent of
    queries."""
    torch.manual_seed(seed)
    config = random_config(seed)
    if seed >= 16:
        config = config.replace(q_lora_rank=None)
    model = Transformer(config, seed=seed)
    for router in routers(model):
        router.e_score_correction_bias.uniform_(-0.2, 0.2)
    for name, parameter in model.named_parameters():
        if name.endswith("norm.weight"):
            parameter.data.uniform_(0.5, 1.5)
    theirs = reference(model)
    tokens = torch.randint(0, config.vocab_size, (3, 29))
    if routing == "pinned":
        gates = [module for module in theirs.modules() if isinstance(module, DeepseekV3TopkRouter)]
        for ours, gate in zip(routers(model), gates, strict=True):
            few = torch.rand(tokens.numel(), config.n_routed_experts).topk(config.num_experts_per_tok).indices
            pinned_TE = torch.zeros(tokens.numel(), config.n_routed_experts).scatter_(1, few, 9.0)
            ours.e_score_correction_bias = gate.e_score_correction_bias = pinned_TE

    want = theirs(input_ids=tokens, labels=tokens)
    want.loss.backward()
    hidden = model(tokens).hidden_BSD
    targets = torch.cat([tokens[:, 1:], torch.full((3, 1), -100)], dim=1)
    loss = model.loss(hidden, targets)
    loss.backward()

    assert close(model.logits(hidden), want.logits)
    assert close(loss, want.loss)
    given = dict(theirs.named_parameters())
    for name, parameter in model.named_parameters():
        full = name if name.startswith("lm_head") else f"model.{name}"
        if full.endswith(("gate_EFD", "up_EFD")):
            gate, up = given[f"{full.rpartition('.')[0]}.gate_up_proj"].grad.chunk(2, dim=1)
            grad = gate if full.endswith("gate_EFD") else up
        elif full.endswith("down_EDF"):
            grad = given[full.replace("down_EDF", "down_proj")].grad
        else:
            grad = given[full].grad
        assert close(parameter.grad, grad), name


def test_latent_norms_keep_their_own_epsilon():
    """With a huge rms_norm_eps only the residual stream's norms may change, as in transformers."""
    model = Transformer(model_preset("tiny", rms_norm_eps=0.5))
    tokens = torch.arange(20)[None]
    assert close(model.logits(model(tokens).hidden_BSD), reference(model)(input_ids=tokens).logits)


@pytest.fixture(params=["plain", "yarn", "no latent of queries"])
def config(request: pytest.FixtureRequest) -> ModelConfig:
    config = model_preset("tiny", initializer_range=0.2)
    changed = {"yarn": config.with_yarn(4.0), "no latent of queries": config.replace(q_lora_rank=None)}
    return changed.get(request.param, config)


@pytest.mark.filterwarnings("ignore")
def test_transformers_reads_our_folder(config, tmp_path):
    """Every tensor of the written folder is taken, none is missed, and the logits are ours."""
    model = Transformer(config, seed=5)
    save_hf(model, tmp_path, torch.float32, shard_bytes=200_000)
    theirs, told = DeepseekV3ForCausalLM.from_pretrained(
        tmp_path, config=hf_config(config), dtype=torch.float32, output_loading_info=True
    )
    assert {kind: names for kind, names in told.items() if names} == {}
    tokens = torch.arange(30)[None]
    assert close(model.logits(model(tokens).hidden_BSD), theirs(input_ids=tokens).logits)


@pytest.mark.filterwarnings("ignore")
def test_we_read_the_folder_that_transformers_writes(config, tmp_path):
    theirs = reference(Transformer(config, seed=6))
    with torch.no_grad():
        for name, tensor in theirs.state_dict().items():
            tensor.uniform_(0.5, 1.5) if name.endswith("norm.weight") else tensor.normal_(0, 0.2)
    theirs.save_pretrained(tmp_path, max_shard_size="200KB")
    model = load_hf(tmp_path)
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    assert model.config.rope_scaling == config.rope_scaling
    tokens = torch.arange(30)[None]
    want = theirs(input_ids=tokens, labels=tokens)
    hidden = model(tokens).hidden_BSD
    assert close(model.logits(hidden), want.logits)
    assert close(model.loss(hidden[:, :-1], tokens[:, 1:]), want.loss)
    again = reference(model).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in theirs.state_dict().items())
