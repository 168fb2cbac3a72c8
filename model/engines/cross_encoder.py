"""A cross-encoder for a text and its rewriting: multilingual-e5-small, adapted to say what either lacks of the other.

Both texts are read at once, so that every token sees both. Three heads: one for the pair (is anything lost, added or
changed), and for every token whether it is lost (a source's) or unsupported (a rewriting's). The adaptation is a file
of low-rank changes to the encoder's matrices (rows and columns of 8 bits with a scale each), new norms and the heads,
made by `benchmarks/fidelity_train.py`. It is added to the encoder when that is loaded and costs nothing afterwards.

Legend: S tokens, D dimension, R rank.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from model.engines.bert import Bert
from model.engines.e5 import BEGIN, E5, END
from model.engines.engine import EngineError
from model.engines.one_thread import OneThread

SCALE = 2.0  # of the low-rank changes, as they were trained
GAP = 2
"""Ends between the two texts: XLM-RoBERTa's way to separate them, whose vocabulary this is."""


@dataclass(frozen=True)
class Token:
    """One token and how sure the network is that the other text lacks it."""

    start: int
    end: int
    """Its place, in characters."""
    lacking: float
    """Logit."""


@dataclass(frozen=True)
class Reading:
    """What the network says of a pair."""

    wrong: float
    """Logit of something being lost, added or changed."""
    source: tuple[Token, ...]
    rewrite: tuple[Token, ...]
    seconds: float
    """CPU-seconds that reading it took."""


class CrossEncoder:
    """The adapted network. Safe to call from several threads. Raises EngineError for weights that do not fit."""

    def __init__(self, weights: Path, threads: OneThread, base: E5 | None = None) -> None:
        self._base, self._threads = base or E5(), threads
        self._tokenizer = self._base.tokenizer()
        try:
            changes = load_file(weights)
            tensors = adapted(self._base.tensors(), changes)
            self._token, self._pair = ((changes[f"{name}.weight"].float(), changes[f"{name}.bias"].float())
                                       for name in ("token", "pair"))  # fmt: skip
        except (OSError, SafetensorError, KeyError, RuntimeError) as error:
            raise EngineError(f"{weights.name} does not fit multilingual-e5-small: {error}") from None
        self._model = Bert(
            tensors,
            {
                "hidden_act": "gelu",
                "num_attention_heads": self._base.heads,
                "layer_norm_eps": self._base.epsilon,
                "num_hidden_layers": self._base.depth,
            },
        )

    @property
    def longest(self) -> int:
        """Tokens of either text that can be read; of a longer one the rest is not."""
        return self._base.places - 1 - GAP

    def read(self, source: str, rewrite: str) -> Reading:
        """The verdict on a pair."""
        return self._threads.run(self._read, source, rewrite)

    def _read(self, source: str, rewrite: str) -> Reading:
        began = time.thread_time()
        one, other = (self._tokenizer.encode(text) for text in (source, rewrite))
        first, second = one.ids[: self.longest], other.ids[: self.longest]
        states_SD = self._model.layers(
            self._base.embed([BEGIN, *first, END]), self._base.embed([END, *second, END])
        )[-1]  # fmt: skip
        tokens_S2 = functional.linear(states_SD, *self._token)
        pooled = torch.cat([states_SD[0], states_SD.amax(dim=0)])
        wrong = float(functional.linear(pooled, *self._pair))
        middle = len(first) + GAP + 1
        return Reading(
            wrong,
            _tokens(one.offsets, tokens_S2[1 : 1 + len(first), 0]),
            _tokens(other.offsets, tokens_S2[middle : middle + len(second), 1]),
            time.thread_time() - began,
        )


def adapted(tensors: dict[str, Tensor], changes: dict[str, Tensor]) -> dict[str, Tensor]:
    """The encoder's tensors with the low-rank `changes` added and the others put in their place."""
    found = dict(tensors)
    for name, change in changes.items():
        if name.endswith(".down"):
            matrix = name.removesuffix(".down")
            down_RD = change.float() * changes[f"{matrix}.down_scale"].float()[:, None]
            up_DR = changes[f"{matrix}.up"].float() * changes[f"{matrix}.up_scale"].float()[:, None]
            found[matrix] = tensors[matrix] + SCALE * up_DR @ down_RD
        elif name in tensors:
            if change.shape != tensors[name].shape:
                raise KeyError(f"{name} has the shape {tuple(change.shape)}")
            found[name] = change.float()
    return found


def _tokens(places: list[tuple[int, int]], logits_S: Tensor) -> tuple[Token, ...]:
    return tuple(Token(start, end, logit) for (start, end), logit in zip(places, logits_S.tolist(), strict=False))
