"""Is every sentence of one text supported by the other? A small language model that was taught to say so.

It reads "source, rewrite" and, the other way round, "rewrite, source": what the source does not support was added or
changed, what the rewrite does not support was lost. Each sentence has its logit where it ends, each token one of its
own. The model is the lower part of Qwen2.5-Coder-0.5B-Instruct; what it was taught is a file of low-rank changes to its
matrices (8 bits, a scale for each rank), made by `benchmarks/fidelity_train.py` and added to them when they are loaded.

Legend: S tokens, D dimension, R rank.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional

from model.engines.engine import EngineError, PromptRefused
from model.engines.gguf import Gguf
from model.engines.one_thread import OneThread
from model.engines.qwen import MATRICES, Qwen
from model.engines.weights import FIDELITY_TOKENS
from model.precision import dtype_of

BEFORE, BETWEEN, AFTER = "Source text:\n", "\n\nIs every statement below supported by the source?\n", "\n"
"""Around the two texts, as the model was trained with them."""

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class Asked:
    """A text behind the premise that must support it, in tokens."""

    ids: list[int]
    first: int
    """Where the text begins."""
    places: list[tuple[int, int]]
    """Where each of the text's tokens stands in it, in characters."""
    ends: list[int]
    """The last token of every sentence, counted from `first`; none of a text without a token."""


class Prompts:
    """How the model is asked, in training and after it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before, self._between, self._after = (tokenizer.encode(text).ids for text in (BEFORE, BETWEEN, AFTER))

    def ask(self, premise: str, text: str, sentences: Spans) -> Asked:
        """`sentences` are the places of the text's."""
        found = self._tokenizer.encode(text)
        head = [*self._before, *self._tokenizer.encode(premise).ids, *self._between]
        ends, token = [], 0
        for _, end in sentences if found.ids else ():
            while token + 1 < len(found.ids) and found.offsets[token + 1][0] < end:
                token += 1
            ends.append(token)
        return Asked([*head, *found.ids, *self._after], len(head), found.offsets, ends)


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

    def __init__(self, base: Path, parts: Sequence[Path], threads: OneThread, precision: str = "float32") -> None:
        """`base`: the GGUF; `parts`: the files of what it was taught; `precision`: of its products, `auto` for what
        this CPU multiplies fast."""
        self._threads = threads
        try:
            taught = joined(parts)
            self._head = taught["head.weight"], taught["head.bias"]
            self._pair = taught["pair"].tolist()
            layers = int(taught["layers"])
            changes = {}
            for name in (f"{number}.{name}" for number in range(layers) for name in MATRICES):
                down_RD, up_DR = factors(taught, name)
                changes[name] = up_DR @ down_RD
        except (OSError, SafetensorError, KeyError, RuntimeError, ValueError) as error:
            raise EngineError(f"the weights of the check of fidelity cannot be read: {error}") from None
        self._model = Qwen(Gguf(base), layers, changes, dtype_of(precision, torch.device("cpu")))
        self._prompts = Prompts(self._model.tokenizer())

    def read(self, source: str, lost: Spans, rewrite: str, unsupported: Spans, context: str = "") -> Reading:
        """The verdict on a pair; `lost` and `unsupported` are the places of the two texts' sentences. What stands
        before the source, its `context`, supports the rewrite too, and need not be kept. The same for the same pair,
        whatever was read before. Raises PromptRefused for texts that are too long."""
        return self._threads.run(self._read, source, lost, rewrite, unsupported, context)

    def unsupported(self, premise: str, text: str, sentences: Spans) -> tuple[Sentence, ...]:
        """The sentences of `text`, whose places are given, judged by `premise`: half of what `read` does. Raises
        PromptRefused for texts that are too long."""
        return self._threads.run(self._way, premise, text, sentences)[0]

    def _read(self, source: str, lost: Spans, rewrite: str, unsupported: Spans, context: str) -> Reading:
        began = time.thread_time()
        forward, token = self._way(context + source, rewrite, unsupported)
        back, other = self._way(rewrite, source, lost)
        scores = [max((sentence.unsupported for sentence in side), default=0.0) for side in (forward, back)]
        bias, *weights = self._pair
        wrong = bias + sum(w * s for w, s in zip(weights, (*scores, token, other), strict=True))
        return Reading(back, forward, wrong, time.thread_time() - began)

    def _way(self, premise: str, text: str, spans: Spans) -> tuple[tuple[Sentence, ...], float]:
        """The sentences of `text`, judged by `premise`, and the highest logit of any of its tokens."""
        asked = self._prompts.ask(premise, text, spans)
        if not asked.places:
            return (), 0.0
        if len(asked.ids) > FIDELITY_TOKENS:
            raise PromptRefused(
                f"source and rewrite have {len(asked.ids)} tokens together; {FIDELITY_TOKENS} can be read"
            )
        states_SD = self._model.states(torch.tensor([asked.ids]))[0, asked.first : asked.first + len(asked.places)]
        logits_S2 = functional.linear(states_SD, *self._head)
        sentences = tuple(
            Sentence(start, end, float(logits_S2[token, 1]))
            for (start, end), token in zip(spans, asked.ends, strict=True)
        )
        return sentences, float(logits_S2[:, 0].max())


def joined(parts: Sequence[Path]) -> dict[str, Tensor]:
    """The tensors of all files of what was taught."""
    return {name: tensor for part in parts for name, tensor in load_file(part).items()}


def factors(taught: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """([R, columns], [rows, R]): what is added to a matrix is the second times the first."""
    down_RD = taught[f"{name}.down"].float() * taught[f"{name}.down_scale"][:, None]
    up_DR = taught[f"{name}.up"].float() * taught[f"{name}.up_scale"]
    return down_RD, up_DR
