"""Checkpoints in the Hugging Face layout of Kimi K2 and DeepSeek-V3, both ways, in plain numbers or with INT4 experts.

Ours differs in two things only: Hugging Face prefixes all but the head with `model.`, and keeps every expert's three
linear layers apart where ours are stacked. The stacked slices are views: nothing is copied until a file is written.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tokenizers import Tokenizer
from torch import Tensor

from model.config import ModelConfig, parameter_count
from model.quantize import (
    PACKED,
    PER_WORD,
    compress_experts,
    decompress_experts,
    fake_quantize,
    is_routed_expert,
    quantization_config,
)
from model.transformer import Transformer

T = TypeVar("T")

INDEX = "model.safetensors.index.json"
_STACKS = {"gate_EFD": "gate_proj", "up_EFD": "up_proj", "down_EDF": "down_proj"}
_STACK = re.compile(r"(.*\.mlp\.experts)\.(gate_EFD|up_EFD|down_EDF)$")
_PLAIN = {torch.float64, torch.float32, torch.bfloat16, torch.float16}  # numbers that stand for themselves
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
        ValueError: names every tensor that is missing, unknown, given twice, of another shape, no plain floating-point
            numbers, or holds NaN or Inf, before or after the cast.
    """
    wanted = to_hf_state(model)
    kinds = ("unknown", "given twice", "of another shape", "quantised, or no numbers", "not finite", "missing")
    faults: dict[str, list[str]] = {kind: [] for kind in kinds}
    seen: set[str] = set()
    for name, tensor in tensors.items() if isinstance(tensors, Mapping) else tensors:
        if name.endswith(".rotary_emb.inv_freq"):
            continue  # of Moonshot's own checkpoints (NVIDIA-NeMo/Megatron-Bridge#1838); config.json says the same
        if name not in wanted:
            faults["unknown"].append(name)
        elif name in seen:
            faults["given twice"].append(name)
        elif tensor.shape != wanted[name].shape:
            faults["of another shape"].append(f"{name} {tuple(tensor.shape)} for {tuple(wanted[name].shape)}")
        elif tensor.dtype not in _PLAIN:
            faults["quantised, or no numbers"].append(f"{name} {tensor.dtype}")
        elif not torch.isfinite(wanted[name].copy_(tensor)).all():  # also where only the cast made it so
            faults["not finite"].append(name)
        seen.add(name)
    faults["missing"] = [name for name in wanted if name not in seen]
    told = [
        f"{len(names)} {fault}: {', '.join(names[:_SHOWN])}{', ...' if len(names) > _SHOWN else ''}"
        for fault, names in faults.items()
        if names
    ]
    if told:
        raise ValueError("the tensors do not fit the model: " + "; ".join(told))


def served_dtype(name: str, dtype: torch.dtype = torch.bfloat16) -> torch.dtype:
    """The dtype in which a tensor of the Hugging Face layout is stored: `dtype`, but for the routers' biases, whose
    steps of 0.001 are below the resolution of bf16."""
    return torch.float32 if name.endswith("e_score_correction_bias") else dtype


@torch.no_grad()
def as_served(model: Transformer, int4: bool) -> Transformer:
    """A plain float32 copy of `model` on the CPU that holds the numbers of its released checkpoint: rounded to bf16,
    and the routed experts to INT4 where `int4`.

    Raises:
        QuantizationError: an expert's width does not divide by 32.
        ValueError: a tensor holds NaN or infinite values.
    """

    def served(name: str, tensor: Tensor) -> Tensor:
        if int4 and is_routed_expert(name):
            return fake_quantize(tensor.float(), name)
        return tensor.to(served_dtype(name)).float()

    copy = _empty(model.config, torch.float32)
    from_hf_state(copy, ((name, served(name, tensor)) for name, tensor in to_hf_state(model).items()))
    return copy.eval()


def save_hf(
    model: Transformer,
    path: str | Path,
    dtype: torch.dtype = torch.bfloat16,
    shard_bytes: int = 4 << 30,
    int4: bool = False,
) -> None:
    """Writes config.json and weights, one shard in memory at a time; the same model gives the same bytes.

    Args:
        model: what to write.
        path: a folder, made if need be; the weights of an earlier checkpoint in it are removed.
        dtype: dtype of the weights; the routers' correction biases stay float32.
        shard_bytes: a shard is closed before it exceeds this, unless one tensor alone does.
        int4: the routed experts in INT4, rounded from the model's own numbers, as training saw them, and not from those
            in `dtype`.

    Raises:
        ValueError: a tensor holds NaN or Inf, before or after the cast; it is named.
        QuantizationError: an expert's width does not divide by 32.
    """
    folder = Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    for stale in [folder / INDEX, *folder.glob("*.safetensors")]:
        stale.unlink(missing_ok=True)
    state = to_hf_state(model)
    tensors = compress_experts(state.items()) if int4 else iter(state.items())
    shards: list[list[str]] = []
    pending: dict[str, Tensor] = {}
    filled = total = 0

    def flush() -> None:
        shards.append(list(pending))
        save_file(pending, folder / f"model-{len(shards)}.safetensors", metadata={"format": "pt"})
        pending.clear()

    for name, tensor in tensors:
        # a copy of each: the slices of a stack share memory, which safetensors refuses
        kept = tensor.to("cpu", tensor.dtype if name.endswith(PACKED) else served_dtype(name, dtype), copy=True)
        if not torch.isfinite(kept).all():
            raise ValueError(f"{name} holds NaN or infinite values in {kept.dtype}: the checkpoint is not written")
        if pending and filled + kept.nbytes > shard_bytes:
            flush()
            filled = 0
        pending[name] = kept.contiguous()
        filled += kept.nbytes
        total += kept.nbytes
    flush()
    quantised = {"quantization_config": quantization_config()} if int4 else {}
    write_json(folder / "config.json", model.config.to_hf(dtype=str(dtype).removeprefix("torch.")) | quantised)
    # only now the count is known that Hugging Face's names carry
    weight_map: dict[str, str] = {}
    for number, names in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        (folder / f"model-{number}.safetensors").rename(folder / file)
        weight_map |= dict.fromkeys(names, file)
    if len(shards) > 1:
        write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))})


def write_json(path: Path, content: Any) -> None:
    """An indented file of JSON."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def load_hf(path: str | Path, dtype: torch.dtype = torch.float32) -> Transformer:
    """Reads a folder written by `save_hf` or downloaded from Hugging Face, one tensor at a time; INT4 experts come
    dequantised, all at once, as bf16 numbers in `dtype`.

    Raises:
        FileNotFoundError: the folder lacks config.json or weights.
        ValueError: the config is not K2's architecture or describes a far larger network than the folder holds, the
            weights are quantised in another way, the folder's tokenizer has ids beyond the vocabulary, or the tensors
            do not fit (see `from_hf_state`).
    """
    folder = Path(path)
    told = read_config(folder)
    config = ModelConfig.from_hf(told)
    check_tokenizer(folder, config)
    if quantised := told.get("quantization_config"):
        method = quantised.get("quant_method") if isinstance(quantised, dict) else quantised
        if method != "compressed-tensors":
            raise ValueError(f"{folder} holds weights quantised by {method!r}: have them dequantised to bf16 first")
    # Memory is taken for what the files hold, not for what config.json says. Single tensors that are missing, or have
    # another shape, are named below.
    described, held = parameter_count(config).total, _stored_numbers(folder)
    if described > 2 * held:
        raise ValueError(
            f"config.json in {folder} describes a network of {described:,} numbers, and the files hold {held:,}: the "
            "folder is incomplete or mixes the files of two models; fetch it again"
        )
    model, tensors = _empty(config, dtype), read_tensors(folder)
    if quantised:
        tensors = iter(decompress_experts(dict(tensors)).items())
    from_hf_state(model, tensors)
    return model


def _empty(config: ModelConfig, dtype: torch.dtype) -> Transformer:
    with torch.device("meta"):
        model = Transformer(config)
    return model.to(dtype).to_empty(device="cpu")


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
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises nothing narrower, and its panics are no Exception
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
    except (ValueError, RecursionError) as error:
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
    return _every(folder, lambda file, name: file.get_tensor(name))


def _stored_numbers(folder: Path) -> int:
    """How many numbers the folder's weight files hold, by their headers. Raises as `read_tensors` does."""
    shapes = _every(folder, lambda file, name: file.get_slice(name).get_shape())
    return sum(math.prod(shape) * (PER_WORD if name.endswith(PACKED[0]) else 1) for name, shape in shapes)


def _every(folder: Path, read: Callable[[Any, str], T]) -> Iterator[tuple[str, T]]:
    """The name of every tensor of the folder, and what `read` takes of it from its open file."""
    files = ["model.safetensors"]
    if (folder / INDEX).is_file():
        weight_map = _read_json(folder / INDEX).get("weight_map")
        if (
            not isinstance(weight_map, dict)
            or not weight_map
            or not all(isinstance(name, str) and Path(name).name == name for name in weight_map.values())
        ):
            raise ValueError(f"{folder / INDEX} has no weight_map of files beside it: write or fetch it again")
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
                    yield name, read(tensors, name)
        except SafetensorError as error:
            raise ValueError(f"{folder / file} is cut short or broken ({error}): fetch it again") from error
