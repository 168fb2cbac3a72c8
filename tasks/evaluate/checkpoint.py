"""Released checkpoints: writing a folder of the Hugging Face layout, in bf16 or with INT4 experts, and reading one."""

from __future__ import annotations

from pathlib import Path

from model.convert import load_hf, save_hf
from model.transformer import Transformer


class ReleaseError(RuntimeError):
    """A checkpoint that must not be published or can't be read; the message names the file or tensor."""


def write_checkpoint(model: Transformer, folder: Path, int4: bool, max_shard_bytes: int) -> None:
    """`save_hf`. Raises ReleaseError for what cannot be released."""
    try:
        save_hf(model, folder, shard_bytes=max_shard_bytes, int4=int4)
    except ValueError as error:
        raise ReleaseError(f"{error}; it is not released") from error


def read_checkpoint(folder: Path) -> Transformer:
    """The model of a released folder in float32, as `load_hf` reads it.

    Raises:
        ReleaseError: a file is missing, cut short or altered, or the tensors are not those of the configuration.
    """
    try:
        return load_hf(folder).eval()
    except (FileNotFoundError, ValueError) as error:
        raise ReleaseError(f"{folder} cannot be read as a released checkpoint: {error}") from error
