"""Rotary positions: the laws of a rotation, and YaRN against the paper's formula written out in another way."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import YarnConfig
from model.rope import inverse_frequencies, rotate_pairs, rotation, softmax_scale
from model.sizes import MODEL_PRESETS, model_preset


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    config = model_preset("tiny", qk_rope_head_dim=x.numel())
    return rotate_pairs(x.view(1, 1, 1, -1), *rotation(config, torch.tensor([[position]]))).flatten()


@settings(max_examples=40, deadline=None)
@given(pairs=st.integers(1, 8), first=st.integers(0, 3000), second=st.integers(0, 3000), shift=st.integers(0, 3000))
def test_products_depend_on_the_distance_alone(pairs, first, second, shift):
    draw = torch.Generator().manual_seed(pairs)
    q, k = torch.randn(2, 2 * pairs, generator=draw)
    here = turned(q, first) @ turned(k, second)
    there = turned(q, first + shift) @ turned(k, second + shift)
    assert abs(here - there) < 2e-3 * q.norm() * k.norm()
    torch.testing.assert_close(turned(q, first).norm(), q.norm())


def test_neighbours_turn_together_as_complex_numbers():
    x = torch.tensor([1.0, 0.0, 0.0, 2.0])
    z = np.array([1 + 0j, 0 + 2j]) * np.exp(1j * 7 * np.array([1.0, 50_000.0 ** -(2 / 4)]))
    np.testing.assert_allclose(turned(x, 7).numpy(), np.concatenate([z.real, z.imag]), rtol=1e-5)


def test_yarn_keeps_fast_pairs_slows_slow_ones_and_ramps_between():
    config = MODEL_PRESETS["k2"]
    plain = inverse_frequencies(config).double()
    yarn = YarnConfig(factor=32, original_max_position_embeddings=4096, beta_fast=32, beta_slow=1)
    slowed = inverse_frequencies(config.replace(rope_scaling=yarn, max_position_embeddings=131_072)).double()
    turns = 4096 * plain / (2 * math.pi)
    share = slowed / plain
    assert torch.allclose(share[turns > 40], torch.ones(1).double())
    assert torch.allclose(share[turns < 0.7], torch.full((1,), 1 / 32).double())
    assert (share.diff() <= 1e-9).all()
    assert ((share > 1 / 32 + 1e-6) & (share < 1 - 1e-6)).sum() > 5


def test_k2_ramp_is_one_pair_wide():
    """beta_fast = beta_slow = 1: a pair either turns once within 4,096 tokens and stays, or is slowed 32 times."""
    config = MODEL_PRESETS["k2"]
    share = inverse_frequencies(config.with_yarn(32)) / inverse_frequencies(config)
    turns = 4096 * inverse_frequencies(config) / (2 * math.pi)
    assert torch.allclose(share[turns >= 1], torch.ones(1))
    assert torch.allclose(share[turns < 0.999], torch.full((1,), 1 / 32))


def test_softmax_scale_of_the_recipe():
    config = MODEL_PRESETS["k2"]
    for factor, times in ((8, 1.459), (32, 1.813), (64, 2.005)):
        assert round(softmax_scale(config.with_yarn(factor)) * 192**0.5, 3) == times
    assert softmax_scale(config) == 192**-0.5


def test_positions_far_out_stay_exact():
    """float32 angles at 131,071 agree with float64 to what float32 can hold."""
    config = MODEL_PRESETS["k2"].with_yarn(32)
    by = rotation(config, torch.tensor([[131_071]]))
    exact = 131_071 * inverse_frequencies(config).double()
    assert (by.cos_BSP[0, 0] - exact.cos()).abs().max() < 0.01
