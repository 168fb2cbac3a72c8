"""The closed formulas against every storage that lives on after a forward, and the switches' refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from model.config import ModelConfig
from model.footprint import K2_MEMORY, OFFLOAD_BYTES, MemoryConfig, activation_bytes
from model.sizes import model_preset
from model.transformer import Transformer
from tests.kept import bytes_kept

SCALARS = 4 + 8  # the loss itself, and the number of targets that its mean divides by


def memories() -> st.SearchStrategy[MemoryConfig]:
    """Every sensible choice of switches."""
    parts = st.tuples(
        st.sets(st.sampled_from(["norms", "swiglu", "mla_up", "moe_down", "dispatch"])),
        st.sets(st.sampled_from(["expert_inputs", "swiglu_inputs"])),
        st.booleans(),
    ).filter(lambda drawn: not ("dispatch" in drawn[0] and "expert_inputs" in drawn[1]))
    some = parts.map(lambda drawn: MemoryConfig(recompute=tuple(drawn[0]), fp8=tuple(drawn[1]), offload=drawn[2]))
    return some | st.builds(lambda away: MemoryConfig(recompute=("layers",), offload=away), st.booleans())


def measured(config: ModelConfig, memory: MemoryConfig, rows: int, seq: int, precision: str) -> int:
    model = Transformer(config, seed=1)
    model = model.bfloat16() if precision == "bfloat16" else model
    model.memory = memory
    tokens = torch.randint(0, config.vocab_size, (rows, seq), generator=torch.Generator().manual_seed(seq))

    def forward() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            out = model(tokens, max_logits=True)
            return model.loss(out.hidden_BSD, tokens) + out.aux_loss

    return bytes_kept(forward)


@settings(max_examples=25)
@given(
    memory=memories(),
    rows=st.integers(1, 3),
    seq=st.integers(2, 70),
    dense=st.integers(0, 2),
    widths=st.tuples(st.sampled_from([64, 136]), st.sampled_from([32, 200]), st.sampled_from([16, 24])),
    shared=st.integers(1, 2),
    queries=st.sampled_from([32, None]),
    precision=st.sampled_from(["autocast", "bfloat16", "float32"]),
)
def test_formulas_equal_what_is_kept(memory, rows, seq, dense, widths, shared, queries, precision):
    hidden, inner, rank = widths
    config = model_preset(
        "tiny", first_k_dense_replace=dense, hidden_size=hidden, moe_intermediate_size=inner, kv_lora_rank=rank,
        n_shared_experts=shared, num_hidden_layers=2, q_lora_rank=queries,
    )  # fmt: skip
    found = activation_bytes(config, memory, seq, rows, precision)
    assert sum(found.components.values()) == found.device + found.host
    assert measured(config, memory, rows, seq, precision) == found.device + found.host + SCALARS


def test_offload_leaves_what_every_layer_asks_for_and_what_is_small():
    """On a CPU nothing moves: the formula alone says what would, so it is held to the hook that decides."""
    from model.memory import _Host

    config, sent = model_preset("tiny"), []
    memory = MemoryConfig(recompute=("norms",), fp8=("expert_inputs",), offload=True)
    with pytest.MonkeyPatch.context() as patch:
        send = _Host.send
        patch.setattr(
            _Host, "send", lambda self, flat: (sent.append(flat.untyped_storage().nbytes()), send(self, flat))[1]
        )
        measured(config, memory, 3, 200, "autocast")
    found = activation_bytes(config, memory, 200, 3)
    assert sum(sent) == found.host
    assert min(sent) >= OFFLOAD_BYTES
    assert found.device > found.components["weights"] > 0


def test_each_switch_takes_away_what_it_names():
    """K2, one sequence of 4,096 tokens: bytes a token of one mixture layer."""
    config = model_preset("k2", num_hidden_layers=2)
    shallow = model_preset("k2", num_hidden_layers=1)

    def layer(**switches: object) -> float:
        memory = MemoryConfig.model_validate(switches)
        two, one = (
            sum(activation_bytes(c, memory, 4096, precision="bfloat16").components.values()) for c in (config, shallow)
        )
        return (two - one) / 4096

    plain = layer()
    assert plain - layer(recompute=("norms",)) == 2 * (7168 + 7168 + 1536 + 512)
    assert plain - layer(recompute=("swiglu",)) == 2 * 9 * 2048  # eight routed experts and the shared one
    assert plain - layer(recompute=("moe_down",)) == 2 * 8 * 2048
    assert plain - layer(recompute=("dispatch",)) == 2 * 8 * 7168
    assert plain - layer(recompute=("mla_up",)) == 2 * (64 * (192 + 192 + 256) - 64)
    assert plain - layer(fp8=("expert_inputs",)) == 8 * (7168 - 4 * 56)
    assert plain - layer(fp8=("swiglu_inputs",)) == 2 * 9 * (2048 - 4 * 16)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"recompute": ("norms", "norms")}, "norms twice"),
        ({"fp8": ("swiglu_inputs", "swiglu_inputs")}, "swiglu_inputs twice"),
        ({"recompute": ("layers", "norms")}, "layers drops everything"),
        ({"recompute": ("layers",), "fp8": ("expert_inputs",)}, "layers drops everything"),
        ({"recompute": ("dispatch",), "fp8": ("expert_inputs",)}, "drops what fp8: expert_inputs would store"),
        ({"recompute": ("attention",)}, "recompute"),
        ({"fp8": ("weights",)}, "fp8"),
        ({"offload": "somewhere"}, "offload"),
        ({"compress": True}, "compress"),
    ],
)
def test_nonsense_is_refused(values, said):
    with pytest.raises(ValidationError, match=said):
        MemoryConfig.model_validate(values)
    assert not MemoryConfig().acts
    assert K2_MEMORY.acts


@given(memory=memories(), cut=st.integers(1, 4), precision=st.sampled_from(["autocast", "bfloat16", "float32"]))
def test_pieces_of_the_depth_keep_what_the_whole_keeps(memory, cut, precision):
    """Each has its own cosines and sines, and only the last one the head."""
    config = model_preset("tiny", num_hidden_layers=5, first_k_dense_replace=2)
    whole = activation_bytes(config, memory, 24, 2, precision)
    parts = [
        activation_bytes(config, memory, 24, 2, precision, layers=layers) for layers in (range(cut), range(cut, 5))
    ]
    rope = whole.components["rope"]
    assert sum(part.device + part.host for part in parts) == whole.device + whole.host + rope
    assert "head" not in parts[0].components
    assert parts[1].components["head"] == whole.components["head"]


@settings(max_examples=12)
@given(memory=memories(), precision=st.sampled_from(["autocast", "bfloat16"]), last=st.booleans())
def test_the_formula_of_a_piece_equals_what_it_keeps(memory, precision, last):
    """A piece gets the residual stream from elsewhere, and keeps it as its first layer's input."""
    config = model_preset("tiny", num_hidden_layers=4)
    layers = range(2, 4) if last else range(1, 3)
    model = Transformer(config, seed=1, layers=layers)
    model = model.bfloat16() if precision == "bfloat16" else model
    model.memory = memory
    tokens = torch.randint(0, config.vocab_size, (2, 40), generator=torch.Generator().manual_seed(1))
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32

    def forward() -> torch.Tensor:
        x_BSD = torch.randn(2, 40, config.hidden_size, dtype=dtype).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "autocast"):
            out = model(tokens, max_logits=True, x_BSD=x_BSD)
            return model.loss(out.hidden_BSD, tokens) + out.aux_loss if last else (out.hidden_BSD, out.aux_loss)

    found = activation_bytes(config, memory, 40, 2, precision, layers=layers)
    size = 2 * 40 * config.hidden_size * dtype.itemsize
    beside = SCALARS if last else size + 4  # what it gives: the stream, which the next piece counts, and its balance
    assert bytes_kept(forward) == found.device + found.host + beside


def test_weights_of_experts_held_elsewhere_are_not_copied_here():
    config = model_preset("tiny")
    all_held, half = (activation_bytes(config, MemoryConfig(), 24, experts=experts) for experts in (8, 4))
    expert = 3 * config.hidden_size * config.moe_intermediate_size
    assert all_held == activation_bytes(config, MemoryConfig(), 24)
    assert all_held.components["weights"] - half.components["weights"] == 2 * 4 * expert * config.num_moe_layers
