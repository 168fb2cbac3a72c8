"""Released checkpoints: writing a folder of the Hugging Face layout, in bf16 or with INT4 experts, and reading one."""

from __future__ import annotations

from pathlib import Path

from model.convert import load_hf, save_hf
from model.storage import sha256_file
from model.transformer import Transformer

CHECKSUMS = "SHA256SUMS"
READ = (".safetensors", ".safetensors.index.json", "config.json", "tokenizer.json")
"""How the names of those files end that make the model, and are checked before it is read."""


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
    _check_sums(folder)
    try:
        return load_hf(folder).eval()
    except (FileNotFoundError, ValueError) as error:
        raise ReleaseError(f"{folder} cannot be read as a released checkpoint: {error}") from error


def _check_sums(folder: Path) -> None:
    """Raise ReleaseError where a file that makes the model is not the one that the folder's checksums were taken of: a
    copy that broke off may have every file, at its full length."""
    try:
        lines = (folder / CHECKSUMS).read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return
    for line in lines:
        want, _, name = line.partition("  ")
        file = folder / name
        if file.parent == folder and name.endswith(READ) and file.is_file() and sha256_file(file) != want:
            raise ReleaseError(
                f"{file} is not the file that {CHECKSUMS} was made of: copy the folder again, or delete {CHECKSUMS} "
                "if the change is meant"
            )
