"""Rotary positions, plain and stretched by YaRN (arXiv 2309.00071), in the layout of K2's weights.

Shape suffixes: B batch, S sequence, H heads, R rotated dimensions, P = R/2 pairs.

The weights pair neighbouring dimensions, (0, 1), (2, 3), ...; the rotated pairs leave as two halves, (0, 2, ..., 1, 3,
...). Queries and keys are permuted alike, so that their products are those of the interleaved layout.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from model.config import ModelConfig
from model.kernels.table import operation


class Rotation(NamedTuple):
    """Cosines and sines of every position's angles, float32: one per pair of rotated dimensions."""

    cos_BSP: Tensor
    sin_BSP: Tensor


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """Radians per position of each pair, float32 (P,) on the CPU.

    Under YaRN a pair that turns more than beta_fast times within the original window keeps its frequency, one that
    turns less than beta_slow times is slowed down by the factor, and between them lies a linear ramp over the pairs.
    """
    dims = config.qk_rope_head_dim
    with torch.device("cpu"):
        frequency_P = 1.0 / config.rope_theta ** (torch.arange(0, dims, 2, dtype=torch.float32) / dims)
        yarn = config.rope_scaling
        if yarn is None:
            return frequency_P

        def pair_that_turns(times: float) -> float:
            window = yarn.original_max_position_embeddings
            return dims * math.log(window / (times * 2 * math.pi)) / (2 * math.log(config.rope_theta))

        low = max(math.floor(pair_that_turns(yarn.beta_fast)), 0)
        high = min(math.ceil(pair_that_turns(yarn.beta_slow)), dims - 1)
        width = high - low or 0.001  # the reference's guard against a ramp without width
        slowed_P = ((torch.arange(dims // 2, dtype=torch.float32) - low) / width).clamp(0, 1)
        return frequency_P / yarn.factor * slowed_P + frequency_P * (1 - slowed_P)


def _mscale(factor: float, weight: float) -> float:
    return 0.1 * weight * math.log(factor) + 1.0


def rotation(config: ModelConfig, positions_BS: Tensor) -> Rotation:
    """Cosines and sines for integer positions (B, S)."""
    inverse_P = inverse_frequencies(config).to(positions_BS.device)
    angle_BSP = positions_BS[..., None].float() * inverse_P
    yarn = config.rope_scaling
    scale = _mscale(yarn.factor, yarn.mscale) / _mscale(yarn.factor, yarn.mscale_all_dim) if yarn else 1.0
    return Rotation(angle_BSP.cos() * scale, angle_BSP.sin() * scale)


@operation
def rotate_pairs(x_BSHR: Tensor, cos_BSP: Tensor, sin_BSP: Tensor) -> Tensor:
    """Each neighbouring pair of the last dimension turned by its position's angle, in float32: (even, odd) into
    (even cos - odd sin, odd cos + even sin)."""
    cos, sin = cos_BSP[:, :, None], sin_BSP[:, :, None]
    even, odd = x_BSHR[..., 0::2], x_BSHR[..., 1::2]
    return torch.cat([even * cos - odd * sin, odd * cos + even * sin], dim=-1).to(x_BSHR.dtype)


def softmax_scale(config: ModelConfig) -> float:
    """What multiplies q . k before softmax: 1/sqrt(d), and under YaRN mscale^2 as well (1.813 at factor 32)."""
    scale = config.qk_head_dim**-0.5
    yarn = config.rope_scaling
    return scale * _mscale(yarn.factor, yarn.mscale_all_dim) ** 2 if yarn else scale
