"""Qwen2, read and not generated from: the states of every token of a text, from a GGUF.

Only the lower layers are there, as many as are asked for: the upper ones turn what was understood into the next word.

Legend: B texts, S tokens, D dimension, H query heads, K key heads, G query heads of a key head, E dimension of a head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from torch import Tensor
from torch.nn import functional

from model.engines.engine import EngineError
from model.engines.gguf import Gguf

MATRICES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
BIASES = ("attn_q", "attn_k", "attn_v")
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Where a text is cut before it is looked up: words, single digits, punctuation (the vocabulary's own rule)."""


@dataclass(frozen=True)
class _Layer:
    matrices: dict[str, Tensor]
    biases: dict[str, Tensor]
    attention_norm_D: Tensor
    inner_norm_D: Tensor


class Qwen:
    """The lower `layers` of a Qwen2. Raises EngineError for a GGUF of another kind of model."""

    def __init__(
        self, file: Gguf, layers: int, changes: Mapping[str, Tensor | None], kind: torch.dtype, device: str = "cpu"
    ) -> None:
        """`changes` are added to the matrices of their names (`3.attn_q`); `kind` is what is multiplied in."""
        settings = file.settings
        if settings.get("general.architecture") != "qwen2" or settings.get("tokenizer.ggml.pre") != "qwen2":
            raise EngineError(f"{file.path} is no Qwen2: the check of fidelity was trained on one")
        try:
            self.width, self._heads = settings["qwen2.embedding_length"], settings["qwen2.attention.head_count"]
            self._keys, self._base = settings["qwen2.attention.head_count_kv"], settings["qwen2.rope.freq_base"]
            self._epsilon = settings["qwen2.attention.layer_norm_rms_epsilon"]
            self._vocabulary, self._merges = settings["tokenizer.ggml.tokens"], settings["tokenizer.ggml.merges"]
            if not 0 < layers <= settings["qwen2.block_count"]:
                raise EngineError(f"{file.path} has {settings['qwen2.block_count']} layers, not {layers}")
        except KeyError as error:
            raise EngineError(f"{file.path} does not say its {error}") from None
        self._to: dict[str, Any] = {"dtype": kind, "device": device}
        self.words = file.tensor("token_embd.weight").to(**self._to)
        self.layers = [self._layer(file, number, changes) for number in range(layers)]
        self._norm_D = file.tensor("output_norm.weight").to(**self._to)

    def _layer(self, file: Gguf, number: int, changes: Mapping[str, Tensor | None]) -> _Layer:
        matrices = {}
        for name in MATRICES:
            whole = file.tensor(f"blk.{number}.{name}.weight")
            if (change := changes[f"{number}.{name}"]) is not None:
                if whole.shape != change.shape:
                    raise EngineError(f"{file.path} is of another size than the model that the check was trained on")
                whole += change
            matrices[name] = whole.to(**self._to)
        biases = {name: file.tensor(f"blk.{number}.{name}.bias").to(**self._to) for name in BIASES}
        norms = (file.tensor(f"blk.{number}.{name}_norm.weight").to(**self._to) for name in ("attn", "ffn"))
        return _Layer(matrices, biases, *norms)

    def tokenizer(self) -> Tokenizer:
        """Text -> tokens with their places in characters. A text that spells a special token is only text."""
        words = {text: number for number, text in enumerate(self._vocabulary)}
        made = Tokenizer(models.BPE(vocab=words, merges=[_pair(merge) for merge in self._merges]))
        made.normalizer = normalizers.NFC()
        cut = pre_tokenizers.Split(Regex(WORDS), "isolated")
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        return made

    def product(self, number: int, name: str, x_BSD: Tensor) -> Tensor:
        """`x_BSD` times a matrix of a layer, with its bias; what learns changes of the matrices puts its own here."""
        layer = self.layers[number]
        return functional.linear(x_BSD, layer.matrices[name], layer.biases.get(name))

    def states(self, ids_BS: Tensor, seen_BSS: Tensor | None = None, places_BS: Tensor | None = None) -> Tensor:
        """float32 [B, S, D] of every token; each sees those before it, or those that `seen_BSS` says, at the places
        that `places_BS` gives. Texts are filled up at their ends."""
        length = ids_BS.shape[1]
        x_BSD = self.words[ids_BS]
        turns = self._turns(torch.arange(length, device=ids_BS.device) if places_BS is None else places_BS[:, None])
        if seen_BSS is None:
            hidden = torch.full((length, length), float("-inf"), **self._to).triu(1)
        else:
            hidden = torch.zeros(seen_BSS.shape, **self._to).masked_fill(~seen_BSS, float("-inf"))[:, None, None]
        for number, layer in enumerate(self.layers):
            y_BSD = functional.rms_norm(x_BSD, (self.width,), layer.attention_norm_D, self._epsilon)
            x_BSD = x_BSD + self._attend(number, y_BSD, turns, hidden)
            y_BSD = functional.rms_norm(x_BSD, (self.width,), layer.inner_norm_D, self._epsilon)
            gate = functional.silu(self.product(number, "ffn_gate", y_BSD))
            x_BSD = x_BSD + self.product(number, "ffn_down", gate * self.product(number, "ffn_up", y_BSD))
        return functional.rms_norm(x_BSD, (self.width,), self._norm_D, self._epsilon).float()

    def _attend(self, number: int, y_BSD: Tensor, turns: tuple[Tensor, Tensor], hidden: Tensor) -> Tensor:
        batch, length, _ = y_BSD.shape
        groups = self._heads // self._keys
        q_BSD, k_BSD, v_BSD = (self.product(number, name, y_BSD) for name in BIASES)
        q_BHSE = _turned(q_BSD.view(batch, length, self._heads, -1).transpose(1, 2), *turns)
        k_BKSE = _turned(k_BSD.view(batch, length, self._keys, -1).transpose(1, 2), *turns)
        v_BKSE = v_BSD.view(batch, length, self._keys, -1).transpose(1, 2)
        size = q_BHSE.shape[-1]
        scores = q_BHSE.reshape(batch, self._keys, groups * length, size) @ k_BKSE.transpose(-1, -2) * size**-0.5
        share = torch.softmax(scores.view(batch, self._keys, groups, length, length) + hidden, -1)
        y_BHSE = (share.view(batch, self._keys, groups * length, length) @ v_BKSE).view(
            batch, self._heads, length, size
        )
        return self.product(number, "attn_output", y_BHSE.transpose(1, 2).reshape(batch, length, -1))

    def _turns(self, places: Tensor) -> tuple[Tensor, Tensor]:
        size = self.width // self._heads
        angles = places[..., None] * self._base ** (-torch.arange(0, size, 2, device=places.device) / size)
        both = torch.cat([angles, angles], dim=-1)
        return both.cos().to(**self._to), both.sin().to(**self._to)


def _turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    one, other = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-other, one], dim=-1) * sin


def _pair(merge: str) -> tuple[str, str]:
    one, _, other = merge.partition(" ")
    return one, other
