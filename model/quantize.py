"""INT4 weight-only quantisation (W4A16) of the routed experts, as Kimi K2 Thinking is released.

One convention serves training and export: groups of 32 along the input width, symmetric, scale = amax / 7.5 rounded to
bf16, values in -8..7, and a weight that serving sees as bf16(value x scale). `fake_quantize` in a training forward and
`compress` on the way out compute the same numbers bit for bit; `pack` writes the `pack-quantized` layout of
compressed-tensors, which vLLM and transformers read.

Shapes: O output width, I input width, G = I / 32 groups; `...` leading dimensions such as stacked experts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from model.config import INT4_GROUP
from model.kernels.table import operation
from model.moe import Experts

GROUP = INT4_GROUP
LOW, HIGH = -8, 7
PER_WORD = 8  # 4-bit values in one int32
PACKED = ("weight_packed", "weight_scale", "weight_shape")
_ROUTED_EXPERT = re.compile(r"\.mlp\.experts\.\d+\.(gate|up|down)_proj\.weight$")


class QuantizationError(ValueError):
    """A weight that INT4 groups of 32 can't hold; the message names it."""


def is_routed_expert(name: str) -> bool:
    """Whether a tensor of the Hugging Face layout is a routed expert's matrix: what K2 quantises, and all of it."""
    return _ROUTED_EXPERT.search(name) is not None


def quantize(weight_OI: Tensor, name: str = "weight") -> tuple[Tensor, Tensor]:
    """The INT4 values and scales of a weight.

    The division runs in float32 whatever the weight's dtype, by the bf16 scale that is stored.

    Args:
        weight_OI: [..., O, I], floating.
        name: how an error calls the weight.

    Returns:
        values int8 in -8..7, [..., O, I]; scales bf16, [..., O, G]. A group of zeros has scale eps(bf16), as in
        compressed-tensors.

    Raises:
        QuantizationError: I is no multiple of 32.
    """
    _check_width(weight_OI, name)
    steps, scale = _steps(weight_OI)
    return steps.flatten(-2).to(torch.int8), scale


def _steps(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """The values as floats, [..., O, G, 32], and the scales."""
    width = weight_OI.shape[-1]
    groups = weight_OI.detach().float().unflatten(-1, (width // GROUP, GROUP))
    # ten times as fast on a CPU as torch.linalg.vector_norm, the same bits, and no copy of the magnitudes
    amax = torch.maximum(groups.amax(-1), -groups.amin(-1))
    scale = (amax / ((HIGH - LOW) / 2)).to(torch.bfloat16)
    scale = torch.where(scale == 0, torch.finfo(torch.bfloat16).eps, scale)
    steps = (groups / scale.float().unsqueeze(-1)).clamp_(LOW, HIGH).round_()  # halves to even
    return steps.add_(0.0), scale  # no -0, which integers do not have


def dequantize(values_OI: Tensor, scale_OG: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """The weight that serving multiplies with: bf16(value x scale), [..., O, I], then cast to `dtype`."""
    groups = values_OI.float().unflatten(-1, (scale_OG.shape[-1], GROUP))
    return (groups * scale_OG.float().unsqueeze(-1)).flatten(-2).to(torch.bfloat16).to(dtype)


@operation
def round_to_int4(weight_OI: Tensor) -> Tensor:
    """`dequantize(*quantize(weight_OI))` in the weight's dtype, without the way through int8, which every step of
    training would go. The width is a multiple of 32."""
    steps, scale = _steps(weight_OI)
    return steps.mul_(scale.float().unsqueeze(-1)).to(torch.bfloat16).flatten(-2).to(weight_OI.dtype)


class _FakeQuantize(torch.autograd.Function):
    """Quantise and dequantise forward; backward the identity (straight-through estimator).

    A function of its own: `w + (q - w).detach()` would be off by a rounding, and so not what is exported.
    """

    @staticmethod
    def forward(ctx: Any, weight_OI: Tensor, name: str) -> Tensor:
        _check_width(weight_OI, name)
        return round_to_int4(weight_OI.detach())

    @staticmethod
    def backward(ctx: Any, grad_OI: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad_OI, None


def fake_quantize(weight_OI: Tensor, name: str = "weight") -> Tensor:
    """`weight_OI` as INT4 serving will see it, in its own dtype, with the gradient passed straight through."""
    result: Tensor = _FakeQuantize.apply(weight_OI, name)
    return result


def fake_quantize_experts(model: nn.Module) -> None:
    """Let the forward of every routed expert of `model` see INT4 weights from now on; the parameters, and what is
    trained, stay the unrounded ones.

    Raises:
        QuantizationError: a width does not divide by 32.
    """
    for module in model.modules():
        if isinstance(module, Experts):
            for name, parameter in module.named_parameters():
                _check_width(parameter, f"the experts' {name}")
            module.view = fake_quantize


def viewed(model: nn.Module) -> bool:
    """Whether the forward of some routed expert sees other weights than its parameters."""
    return any(isinstance(module, Experts) and module.view is not None for module in model.modules())


@torch.no_grad()
def seen_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of `model` with every routed expert's weights as the forward sees them; the rest shares its memory."""
    state = model.state_dict()
    for place, module in model.named_modules():
        if isinstance(module, Experts) and module.view is not None:
            names = ("gate_EFD", "up_EFD", "down_EDF")
            state |= {f"{place}.{name}": weight for name, weight in zip(names, module.matrices(), strict=True)}
    return state


def pack(values_OI: Tensor) -> Tensor:
    """int8 values in -8..7, [..., O, I], as int32 words [..., O, I / 8]: offset by 8, the first value lowest."""
    nibbles = (values_OI.to(torch.int32) - LOW).unflatten(-1, (-1, PER_WORD))
    words = torch.zeros(nibbles.shape[:-1], dtype=torch.int32, device=values_OI.device)
    for place in range(PER_WORD):
        words |= nibbles[..., place] << (4 * place)
    return words


def unpack(words: Tensor) -> Tensor:
    """The int8 values [..., O, I] of packed words [..., O, I / 8]; the inverse of `pack`."""
    places = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device)
    return (((words.unsqueeze(-1) >> places) & 0xF) + LOW).flatten(-2).to(torch.int8)


def compress(name: str, weight_OI: Tensor) -> dict[str, Tensor]:
    """One linear layer's weight `X.weight` [O, I] as `X.weight_packed`, `X.weight_scale`, `X.weight_shape`.

    Raises:
        QuantizationError: the width does not divide, or a value is NaN or infinite.
    """
    if not torch.isfinite(weight_OI).all():
        raise QuantizationError(f"{name} holds NaN or infinite values: the checkpoint is broken; do not release it")
    values, scale = quantize(weight_OI, name)
    stem = name.removesuffix("weight")
    tensors = (pack(values), scale, torch.tensor(weight_OI.shape))
    return {stem + suffix: tensor for suffix, tensor in zip(PACKED, tensors, strict=True)}


def compress_experts(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) pairs of the Hugging Face layout with the routed experts in INT4, the rest as it came."""
    for name, tensor in tensors:
        if is_routed_expert(name):
            yield from compress(name, tensor).items()
        else:
            yield name, tensor


def decompress_experts(tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.bfloat16) -> dict[str, Tensor]:
    """The Hugging Face layout of a `pack-quantized` checkpoint with every packed weight dequantised to `dtype`.

    Raises:
        QuantizationError: a packed weight lacks its scale, is there unpacked as well, or what is recorded of it does
            not fit its words; or a scale or a shape belongs to no packed weight.
    """
    plain = {name: tensor for name, tensor in tensors.items() if not name.endswith(PACKED)}
    stems = [name.removesuffix("weight_packed") for name in tensors if name.endswith("weight_packed")]
    known = {stem + suffix for stem in stems for suffix in PACKED}
    if stray := [name for name in tensors if name.endswith(PACKED) and name not in known]:
        raise QuantizationError(f"{stray[0]} comes without its weight_packed: the checkpoint was altered")
    for stem in stems:
        name = f"{stem}weight_packed"
        if f"{stem}weight" in plain:
            raise QuantizationError(f"{name} comes beside {stem}weight: the checkpoint was altered")
        scale, shape = (tensors.get(stem + suffix) for suffix in PACKED[1:])
        if scale is None or shape is None:
            raise QuantizationError(f"{name} comes without its weight_scale or weight_shape: the checkpoint was cut")
        words = tensors[name]
        if words.dtype != torch.int32 or words.dim() != 2 or shape.dim() != 1 or not scale.is_floating_point():
            raise QuantizationError(
                f"{name} is {words.dtype} of {words.dim()} dimensions, with a weight_scale of {scale.dtype} and a "
                f"weight_shape of {shape.dim()}, where int32 of 2, floats and 1 belong: the checkpoint was altered"
            )
        values = unpack(words)
        groups = (*values.shape[:-1], values.shape[-1] // GROUP)
        if tuple(shape.tolist()) != tuple(values.shape) or tuple(scale.shape) != groups:
            raise QuantizationError(
                f"{name} unpacks to {tuple(values.shape)}, recorded as {tuple(shape.tolist())} with scales "
                f"{tuple(scale.shape)}: the checkpoint was altered"
            )
        plain[f"{stem}weight"] = dequantize(values, scale, dtype)
    return plain


def quantization_config() -> dict[str, Any]:
    """The `quantization_config` of config.json: compressed-tensors, INT4 on every linear layer but those K2 ignores."""
    return {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "input_activations": None,
                "output_activations": None,
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "symmetric": True,
                    "strategy": "group",
                    "group_size": GROUP,
                    "dynamic": False,
                    "observer": "minmax",
                },
            }
        },
        # K2-Thinking: attention, shared experts, the dense layer and the head stay in bf16
        "ignore": [
            "lm_head",
            r"re:.*self_attn.*",
            r"re:.*shared_experts.*",
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
        ],
        "kv_cache_scheme": None,
    }


def _check_width(weight_OI: Tensor, name: str) -> None:
    width = weight_OI.shape[-1]
    if width % GROUP:
        raise QuantizationError(
            f"{name} has an input width of {width}, no multiple of {GROUP}: INT4 groups would not fill it; "
            f"choose hidden_size and moe_intermediate_size divisible by {GROUP}"
        )
