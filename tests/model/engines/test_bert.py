"""Our forward pass of BERT beside transformers' own."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertConfig, BertModel

from model.engines.bert import Bert

CONFIG = BertConfig(
    vocab_size=50,
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=40,
    max_position_embeddings=16,
    initializer_range=0.5,
)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 49), min_size=1, max_size=16), st.integers(0, 3))
def test_every_layer_is_what_transformers_makes_of_it(ids: list[int], seed: int) -> None:
    torch.manual_seed(seed)
    theirs = BertModel(CONFIG, add_pooling_layer=False).eval()
    with torch.inference_mode():
        for parameter in theirs.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)  # biases and norms too, which begin as 0 and 1
        expected = theirs(torch.tensor([ids]), output_hidden_states=True).hidden_states
        found = Bert(theirs.state_dict(), CONFIG.to_dict()).layers(ids)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("change", [{"hidden_act": "relu"}, {"position_embedding_type": "relative_key"}])
def test_another_kind_of_bert_is_refused(change: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"gelu and absolute positions, not .*rel"):
        Bert({}, CONFIG.to_dict() | change)
