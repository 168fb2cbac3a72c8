"""Released checkpoints: writing a folder of the Hugging Face layout, in bf16 or with INT4 experts, and reading one."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from model.config import ModelConfig
from model.convert import INDEX, check_tokenizer, from_hf_state, read_config, read_tensors, to_hf_state
from model.quantize import compress_experts, decompress_experts, quantization_config, served_dtype
from model.transformer import Transformer

CONFIG = "config.json"


class ReleaseError(RuntimeError):
    """A checkpoint that must not be published or can't be read; the message names the file or tensor."""


def write_checkpoint(model: Transformer, folder: Path, int4: bool, max_shard_bytes: int) -> None:
    """Write config.json and weights, one shard in memory at a time; the same model gives the same bytes.

    The routed experts are quantised from the float32 weights, as training saw them, not from their bf16 rounding.

    Raises:
        ReleaseError: a tensor holds NaN or infinite values.
        QuantizationError: an expert's width does not divide by 32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [*folder.glob("*.safetensors"), folder / INDEX]:
        stale.unlink(missing_ok=True)
    state = to_hf_state(model)
    tensors = compress_experts(state.items()) if int4 else iter(state.items())
    weight_map, total = _write_shards(_stored(tensors), folder, max_shard_bytes)
    if len(set(weight_map.values())) > 1:
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})
    quantization = {"quantization_config": quantization_config()} if int4 else {}
    write_json(folder / CONFIG, model.config.to_hf(dtype="bfloat16") | quantization)


def read_checkpoint(folder: Path) -> Transformer:
    """The model of a released folder in float32; INT4 experts come dequantised, as bf16 numbers.

    Raises:
        ReleaseError: a file is missing, cut short or altered, or the tensors are not those of the configuration.
    """
    try:
        config = read_config(folder)
        shape = ModelConfig.from_hf(config)
        check_tokenizer(folder, shape)
        with torch.device("meta"):
            model = Transformer(shape)
        model = model.float().to_empty(device="cpu")
        tensors = read_tensors(folder)
        packed = bool(config.get("quantization_config"))
        from_hf_state(model, decompress_experts(dict(tensors)) if packed else tensors)
    except (FileNotFoundError, ValueError) as error:
        raise ReleaseError(f"{folder} cannot be read as a released checkpoint: {error}") from error
    return model.eval()


def write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _stored(tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Each tensor in the dtype it is stored in; what `compress` made stays as it is."""
    for name, tensor in tensors:
        if name.endswith(("weight_packed", "weight_scale", "weight_shape")):
            yield name, tensor.contiguous()
            continue
        kept = tensor.to(served_dtype(name), copy=True).contiguous()
        if not torch.isfinite(kept).all():
            raise ReleaseError(f"{name} holds NaN or infinite values in {kept.dtype}: the checkpoint is not released")
        yield name, kept


def _write_shards(
    tensors: Iterable[tuple[str, Tensor]], folder: Path, max_shard_bytes: int
) -> tuple[dict[str, str], int]:
    """Write the stream, closing a shard before it grows over the limit; tensor -> file, and the bytes of all."""
    shards: list[list[str]] = []
    pending: dict[str, Tensor] = {}
    filled = total = 0

    def flush() -> None:
        save_file(pending, folder / f"shard-{len(shards):05d}.safetensors", metadata={"format": "pt"})
        shards.append(list(pending))
        pending.clear()

    for name, tensor in tensors:
        if pending and filled + tensor.nbytes > max_shard_bytes:
            flush()
            filled = 0
        pending[name] = tensor
        filled += tensor.nbytes
        total += tensor.nbytes
    flush()
    # only now the count is known that Hugging Face's names carry
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number + 1:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"shard-{number:05d}.safetensors").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    return weight_map, total
