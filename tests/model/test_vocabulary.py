"""K2's special tokens: ids at K2's size, placement in smaller vocabularies."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.vocabulary import (
    K2_SPECIAL_IDS,
    K2_VOCABULARY,
    SPECIAL_TOKENS,
    first_special_id,
    special_ids,
    token_name,
)


def test_k2s_ids_are_those_of_the_release() -> None:
    ids = special_ids(K2_VOCABULARY)
    anchors = {
        "[BOS]": 163584,
        "[EOS]": 163585,
        "<|im_end|>": 163586,
        "<|tool_calls_section_begin|>": 163595,
        "<|tool_calls_section_end|>": 163596,
        "<|tool_call_begin|>": 163597,
        "[PAD]": 163839,
    }
    assert {name: ids[name] for name in anchors} == anchors
    assert list(ids.values()) == sorted(set(ids.values()))
    assert token_name(163589, K2_VOCABULARY) == "<|reserved_token_163589|>"
    assert token_name(163583, K2_VOCABULARY) is None


@given(st.integers(256 + len(SPECIAL_TOKENS), K2_VOCABULARY - 1))
def test_smaller_vocabularies_end_with_them_in_k2s_order(vocabulary: int) -> None:
    ids = special_ids(vocabulary)
    assert list(ids) == list(K2_SPECIAL_IDS)
    assert list(ids.values()) == list(range(vocabulary - len(SPECIAL_TOKENS), vocabulary))
    assert first_special_id(vocabulary) == min(ids.values())
    assert all(token_name(token, vocabulary) == name for name, token in ids.items())
    assert token_name(first_special_id(vocabulary) - 1, vocabulary) is None


@pytest.mark.parametrize("vocabulary", [0, 272, K2_VOCABULARY + 1])
def test_sizes_without_a_placement_are_refused(vocabulary: int) -> None:
    with pytest.raises(ValueError, match="cannot be laid out"):
        special_ids(vocabulary)


def test_the_last_256_ids_of_k2_are_special_or_reserved() -> None:
    assert K2_VOCABULARY - first_special_id(K2_VOCABULARY) == 256
