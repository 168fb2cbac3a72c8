"""Is every sentence of one text supported by the other? A small language model that was taught to say so.

It reads "source, rewrite" and, the other way round, "rewrite, source": what the source does not support was added or
changed, what the rewrite does not support was lost. Each sentence has its logit where it ends, each token one of its
own. The model is the lower part of Qwen2.5-Coder-0.5B-Instruct; what it was taught is a file of low-rank changes to its
matrices (8 bits, a scale for each rank), made by `benchmarks/fidelity_train.py` and added to them when they are loaded.

Legend: B texts, S tokens, D dimension, R rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from model.engines.engine import EngineError, PromptRefused
from model.engines.gguf import Gguf
from model.engines.one_thread import OneThread
from model.engines.qwen import MATRICES, Qwen

BEFORE, BETWEEN, AFTER = "Source text:\n", "\n\nIs every statement below supported by the source?\n", "\n"
"""Around the two texts, as the model was trained with them."""
LONGEST = 2048
"""Tokens of both texts together."""

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Sentence:
    """A sentence, and how sure the model is that the other text does not say it."""

    start: int
    end: int
    """Its place, in characters."""
    unsupported: float
    """Logit."""


@dataclass(frozen=True)
class Reading:
    """What the model says of a source and its rewrite."""

    lost: tuple[Sentence, ...]
    """The source's sentences."""
    unsupported: tuple[Sentence, ...]
    """The rewrite's sentences."""
    wrong: float
    """Logit of anything being lost, added or changed."""
    seconds: float
    """CPU-seconds that reading took."""


class Support:
    """The model with what it was taught. Safe to call from several threads. Raises EngineError for files that do not
    fit each other."""

    def __init__(self, base: Path, parts: Sequence[Path], threads: OneThread) -> None:
        """`base`: the GGUF; `parts`: the files of what it was taught."""
        self._threads = threads
        taught: dict[str, Tensor] = {}
        try:
            for part in parts:
                taught |= load_file(part)
            self._head = taught["head.weight"], taught["head.bias"]
            self._pair = taught["pair"].tolist()
            layers = int(taught["layers"])
            changes = {
                name: _change(taught, name)
                for name in (f"{number}.{name}" for number in range(layers) for name in MATRICES)
            }
        except (OSError, SafetensorError, KeyError, RuntimeError, ValueError) as error:
            raise EngineError(f"the weights of the check of fidelity cannot be read: {error}") from None
        self._model = Qwen(Gguf(base), layers, changes, torch.float32)
        self._tokenizer = self._model.tokenizer()
        self._around = [self._tokenizer.encode(text).ids for text in (BEFORE, BETWEEN, AFTER)]

    def read(self, source: str, lost: Spans, rewrite: str, unsupported: Spans) -> Reading:
        """The verdict on a pair; `lost` and `unsupported` are the places of the two texts' sentences. The same for the
        same pair, whatever was read before. Raises PromptRefused for texts that are too long."""
        return self._threads.run(self._read, source, lost, rewrite, unsupported)

    def _read(self, source: str, lost: Spans, rewrite: str, unsupported: Spans) -> Reading:
        began = time.thread_time()
        forward, token = self._way(source, rewrite, unsupported)
        back, other = self._way(rewrite, source, lost)
        scores = [max((sentence.unsupported for sentence in side), default=0.0) for side in (forward, back)]
        bias, *weights = self._pair
        wrong = bias + sum(w * s for w, s in zip(weights, (*scores, token, other), strict=True))
        return Reading(back, forward, wrong, time.thread_time() - began)

    def _way(self, premise: str, text: str, spans: Spans) -> tuple[tuple[Sentence, ...], float]:
        """The sentences of `text`, judged by `premise`, and the highest logit of any of its tokens."""
        before, between, after = self._around
        found = self._tokenizer.encode(text)
        if not found.ids:
            return (), 0.0
        head = [*before, *self._tokenizer.encode(premise).ids, *between]
        ids = [*head, *found.ids, *after]
        if len(ids) > LONGEST:
            raise PromptRefused(f"source and rewrite have {len(ids)} tokens together; {LONGEST} can be read")
        states_SD = self._model.states(torch.tensor([ids]))[0, len(head) : len(head) + len(found.ids)]
        logits_S2 = functional.linear(states_SD, *self._head)
        sentences, token = [], 0
        for start, end in spans:
            while token + 1 < len(found.ids) and found.offsets[token + 1][0] < end:
                token += 1
            sentences.append(Sentence(start, end, float(logits_S2[token, 1])))
        return tuple(sentences), float(logits_S2[:, 0].max())


def _change(taught: dict[str, Tensor], name: str) -> Tensor:
    """[rows, columns]: what is added to a matrix."""
    down_RD = taught[f"{name}.down"].float() * taught[f"{name}.down_scale"][:, None]
    up_DR = taught[f"{name}.up"].float() * taught[f"{name}.up_scale"]
    return up_DR @ down_RD
