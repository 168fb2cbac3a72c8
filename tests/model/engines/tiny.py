"""A Qwen2 of two small layers with random weights, as a GGUF, and something that it was taught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter
from safetensors.torch import save_file
from tokenizers import pre_tokenizers
from transformers import Qwen2Config, Qwen2Model

from model.engines.qwen import MATRICES

MERGES = [
    ("t", "h"),
    ("th", "e"),
    ("Ġ", "the"),
    ("i", "n"),
    ("Ġ", "in"),
    ("Ġ", "a"),
    ("a", "n"),
    ("<", "|"),
    ("|", ">"),
]
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
WORDS = [*sorted(pre_tokenizers.ByteLevel.alphabet()), *("".join(pair) for pair in MERGES), *SPECIAL]
LAYERS, WIDTH, INNER, HEADS, KEYS, RANK = 2, 32, 48, 4, 2, 3

PLACES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
"""A layer's names in a GGUF -> in transformers."""


def peer() -> Qwen2Model:
    """transformers' own, every weight of it drawn."""
    config = Qwen2Config(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        intermediate_size=INNER,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=KEYS,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        attn_implementation="eager",
    )
    model = Qwen2Model(config).eval()
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            mean = 1.0 if "norm" in name else 0.0
            weight.copy_(mean + torch.randn(weight.shape, generator=draw) * 0.2)
    return model


def write(path: Path, tensors: dict[str, Any], settings: dict[str, Any] | None = None) -> Path:
    """A GGUF; a tensor is an array of float32, or (its blocks as bytes, their kind)."""
    writer = GGUFWriter(str(path), "qwen2")
    for name, value in (settings or {}).items():
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}[type(value)](name, value)
    for name, tensor in tensors.items():
        data, kind = tensor if isinstance(tensor, tuple) else (tensor, GGMLQuantizationType.F32)
        writer.add_tensor(name, np.ascontiguousarray(data), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


SETTINGS = {
    "qwen2.block_count": LAYERS,
    "qwen2.embedding_length": WIDTH,
    "qwen2.attention.head_count": HEADS,
    "qwen2.attention.head_count_kv": KEYS,
    "qwen2.rope.freq_base": 10_000.0,
    "qwen2.attention.layer_norm_rms_epsilon": 1e-6,
    "tokenizer.ggml.pre": "qwen2",
    "tokenizer.ggml.tokens": WORDS,
    "tokenizer.ggml.merges": [" ".join(pair) for pair in MERGES],
}


def base(path: Path, **settings: Any) -> Path:
    """The model of `peer`."""
    weights = {name: weight.detach().numpy() for name, weight in peer().named_parameters()}
    tensors = {"token_embd.weight": weights["embed_tokens.weight"], "output_norm.weight": weights["norm.weight"]}
    for number in range(LAYERS):
        for name, place in PLACES.items():
            for kind in ("weight", "bias"):
                if (weight := weights.get(f"layers.{number}.{place}.{kind}")) is not None:
                    tensors[f"blk.{number}.{name}.{kind}"] = weight
    return write(path, tensors, SETTINGS | settings)


def taught(folder: Path, width: int = WIDTH, layers: int = LAYERS) -> list[Path]:
    """What such a model may have been taught, drawn, in two parts."""
    draw = torch.Generator().manual_seed(1)
    shapes = dict.fromkeys(MATRICES, (width, width))
    shapes |= dict.fromkeys(("attn_k", "attn_v"), (width * KEYS // HEADS, width))
    shapes |= {"ffn_gate": (INNER, width), "ffn_up": (INNER, width), "ffn_down": (width, INNER)}
    tensors = {
        "head.weight": torch.randn(2, width, generator=draw),
        "head.bias": torch.randn(2, generator=draw),
        "pair": torch.tensor([0.5, 1.0, 2.0, 3.0, 4.0]),
        "layers": torch.tensor(layers),
    }
    for number in range(layers):
        for name, (rows, columns) in shapes.items():
            for side, shape in (("down", (RANK, columns)), ("up", (rows, RANK))):
                numbers = torch.randint(-127, 128, shape, generator=draw)
                tensors[f"{number}.{name}.{side}"] = numbers.to(torch.int8)
                tensors[f"{number}.{name}.{side}_scale"] = torch.full((RANK,), 1e-3)
    folder.mkdir(parents=True, exist_ok=True)
    names = sorted(tensors)
    parts = [folder / "taught-01-of-02.safetensors", folder / "taught-02-of-02.safetensors"]
    for part, some in zip(parts, (names[::2], names[1::2]), strict=True):
        save_file({name: tensors[name] for name in some}, part)
    return parts
