"""Checkpoints in the Hugging Face layout of Kimi K2 and DeepSeek-V3, both ways.

Ours differs in two things only: Hugging Face prefixes all but the head with `model.`, and keeps every expert's three
linear layers apart where ours are stacked. The stacked slices are views: nothing is copied until a file is written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from model.config import ModelConfig
from model.transformer import Transformer

INDEX = "model.safetensors.index.json"
_STACKS = {"gate_EFD": "gate_proj", "up_EFD": "up_proj", "down_EDF": "down_proj"}
_STACK = re.compile(r"(.*\.mlp\.experts)\.(gate_EFD|up_EFD|down_EDF)$")
_SHOWN = 8  # names per kind of fault in an error


def to_hf_state(model: Transformer) -> dict[str, Tensor]:
    """The model's tensors under their Hugging Face names, in the model's order; views, detached."""
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        full = name if name.startswith("lm_head.") else f"model.{name}"
        if stacked := _STACK.match(full):
            for expert, slice_ in enumerate(tensor):
                state[f"{stacked[1]}.{expert}.{_STACKS[stacked[2]]}.weight"] = slice_
        else:
            state[full] = tensor
    return state


@torch.no_grad()
def from_hf_state(model: Transformer, tensors: Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]) -> None:
    """Copies Hugging Face tensors into the model, cast to its dtypes.

    Args:
        model: takes the values; on an error some of them have been written already.
        tensors: a state, or a stream of names and tensors where a state would not fit into memory.

    Raises:
        ValueError: names every tensor that is missing, unknown, given twice, of another shape, or holds NaN or Inf.
    """
    wanted = to_hf_state(model)
    faults: dict[str, list[str]] = {"unknown": [], "given twice": [], "of another shape": [], "not finite": []}
    seen: set[str] = set()
    for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
        if name not in wanted:
            faults["unknown"].append(name)
        elif name in seen:
            faults["given twice"].append(name)
        elif tensor.shape != wanted[name].shape:
            faults["of another shape"].append(f"{name} {tuple(tensor.shape)} for {tuple(wanted[name].shape)}")
        elif not torch.isfinite(tensor).all():
            faults["not finite"].append(name)
        else:
            wanted[name].copy_(tensor)
        seen.add(name)
    faults["missing"] = [name for name in wanted if name not in seen]
    told = [
        f"{len(names)} {fault}: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        for fault, names in faults.items()
        if names
    ]
    if told:
        raise ValueError("the tensors do not fit the model: " + "; ".join(told))


def save_hf(
    model: Transformer, path: str | Path, dtype: torch.dtype = torch.bfloat16, shard_bytes: int = 4 << 30
) -> None:
    """Writes config.json, safetensors shards and their index; the same model gives the same bytes.

    Args:
        model: what to write.
        path: a folder, made if need be; shards of an earlier checkpoint in it are removed.
        dtype: dtype of the weights; the routers' correction biases stay float32.
        shard_bytes: a shard is closed before it exceeds this, unless one tensor alone does.

    Raises:
        ValueError: a tensor holds NaN or Inf, before or after the cast; it is named.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    for old in folder.glob("model-*-of-*.safetensors"):
        old.unlink()

    def kept(name: str) -> torch.dtype:
        return torch.float32 if name.endswith("e_score_correction_bias") else dtype

    state = to_hf_state(model)
    shards: list[list[str]] = [[]]
    filled, total = 0, 0
    for name, tensor in state.items():
        size = tensor.numel() * kept(name).itemsize
        if shards[-1] and filled + size > shard_bytes:
            shards.append([])
            filled = 0
        shards[-1].append(name)
        filled += size
        total += size
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        # a copy of each tensor: the slices of a stack share memory, which safetensors refuses
        part = {name: state[name].to("cpu", kept(name), copy=True).contiguous() for name in names}
        for name, tensor in part.items():
            if not torch.isfinite(tensor).all():
                raise ValueError(f"{name} holds NaN or Inf in {kept(name)}: the checkpoint is not written")
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(names, file)
    config = model.config.to_hf(dtype=str(dtype).removeprefix("torch."))
    _write_json(folder / "config.json", config)
    # the index last: a folder without it is no checkpoint
    _write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def _write_json(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_hf(path: str | Path, dtype: torch.dtype = torch.float32, device: str | torch.device = "cpu") -> Transformer:
    """Reads a folder written by `save_hf` or downloaded from Hugging Face, one tensor at a time.

    Raises:
        FileNotFoundError: the folder lacks config.json or weights.
        ValueError: the config is not K2's architecture, the weights are quantised, the folder's tokenizer has ids
            beyond the vocabulary, or the tensors do not fit (see `from_hf_state`).
    """
    folder = Path(path)
    told = read_config(folder)
    config = ModelConfig.from_hf(told)
    if method := (told.get("quantization_config") or {}).get("quant_method"):
        raise ValueError(f"{folder} holds weights quantised by {method!r}: have them dequantised to bf16 first")
    check_tokenizer(folder, config)
    with torch.device("meta"):
        model = Transformer(config)
    model = model.to(dtype).to_empty(device=device)
    from_hf_state(model, read_tensors(folder))
    return model


def read_config(folder: Path) -> dict[str, Any]:
    """The folder's config.json.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is no JSON object.
    """
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} has no config.json: give the folder of a Hugging Face checkpoint")
    return _read_json(folder / "config.json")


def check_tokenizer(folder: Path, config: ModelConfig) -> None:
    """ValueError where the folder's tokenizer.json cannot be read, or has ids beyond the vocabulary."""
    file = folder / "tokenizer.json"
    if file.is_file():
        try:
            tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{file} is no tokenizer ({error}): write or fetch it again") from None
        largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
        if largest >= config.vocab_size:
            raise ValueError(
                f"vocab_size = {config.vocab_size} in {folder}: its tokenizer.json has ids up to {largest}; the folder "
                "mixes the files of two models"
            )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is no JSON ({error}): write or fetch it again") from None
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no JSON object: write or fetch it again")
    return content


def read_tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) of every weight file of the folder, as it is stored.

    Raises:
        FileNotFoundError: a weight file is missing.
        ValueError: a file or the index is cut short or broken, or two files hold one tensor.
    """
    files = ["model.safetensors"]
    if (folder / INDEX).is_file():
        weight_map = _read_json(folder / INDEX).get("weight_map")
        if (
            not isinstance(weight_map, dict)
            or not weight_map
            or not all(isinstance(name, str) for name in weight_map.values())
        ):
            raise ValueError(f"{folder / INDEX} has no weight_map: write or fetch it again")
        files = sorted(set(weight_map.values()))
    seen: set[str] = set()
    for file in files:
        if not (folder / file).is_file():
            raise FileNotFoundError(f"{folder} lacks {file}: the checkpoint is incomplete; write or fetch it again")
        try:
            with safe_open(folder / file, framework="pt") as tensors:
                for name in tensors.keys():  # noqa: SIM118 - a safetensors handle is no mapping
                    if name in seen:
                        raise ValueError(f"{folder / file}: {name} is given twice: write or fetch the folder again")
                    seen.add(name)
                    yield name, tensors.get_tensor(name)
        except SafetensorError as error:
            raise ValueError(f"{folder / file} is cut short or broken ({error}): fetch it again") from error
