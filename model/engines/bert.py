"""BERT's encoder, reading one text at a time.

A plain forward pass: transformers' own computes the same and takes 155 MB and 2.5 CPU-seconds to import.

Legend: S tokens of the text, D dimension, H heads, E dimension of a head (D = H * E).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Affine(NamedTuple):
    """The weight and the bias of a projection or of a normalisation."""

    weight: Tensor
    bias: Tensor


class Layer(NamedTuple):
    """One layer, in the order of its use."""

    attend: Affine
    """Queries, keys and values in one."""
    gather: Affine
    gathered: Affine
    widen: Affine
    narrow: Affine
    narrowed: Affine


class Bert:
    """The network, from its tensors by name and its `config.json`. Use under `torch.inference_mode`."""

    def __init__(self, tensors: Mapping[str, Tensor], config: Mapping[str, Any]) -> None:
        if (kind := (config["hidden_act"], config.get("position_embedding_type", "absolute"))) != ("gelu", "absolute"):
            raise ValueError(f"this reads BERT with gelu and absolute positions, not {' and '.join(kind)}")
        self._tensors = tensors
        self._heads, self._epsilon = config["num_attention_heads"], config["layer_norm_eps"]
        self._words = tensors["embeddings.word_embeddings.weight"]
        # A text is one segment: the kind of its tokens is always the first.
        kind_D = tensors["embeddings.token_type_embeddings.weight"][0]
        self._places = tensors["embeddings.position_embeddings.weight"] + kind_D
        self._embedded = self._affine("embeddings.LayerNorm")
        self._layers = [self._layer(f"encoder.layer.{number}") for number in range(config["num_hidden_layers"])]
        del self._tensors

    def _affine(self, name: str) -> Affine:
        return Affine(self._tensors[f"{name}.weight"], self._tensors[f"{name}.bias"])

    def _layer(self, name: str) -> Layer:
        parts = [self._affine(f"{name}.attention.self.{part}") for part in ("query", "key", "value")]
        return Layer(
            Affine(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts])),
            self._affine(f"{name}.attention.output.dense"),
            self._affine(f"{name}.attention.output.LayerNorm"),
            self._affine(f"{name}.intermediate.dense"),
            self._affine(f"{name}.output.dense"),
            self._affine(f"{name}.output.LayerNorm"),
        )

    def layers(self, ids: list[int]) -> list[Tensor]:
        """float32 [S, D] of the embeddings and after every layer. At most as many tokens as the network has places."""
        states_SD = self._norm(self._words[ids] + self._places[: len(ids)], self._embedded)
        found = [states_SD]
        for layer in self._layers:
            mixed_3HSE = (
                functional.linear(states_SD, *layer.attend).unflatten(1, (3, self._heads, -1)).permute(1, 2, 0, 3)
            )
            heads_HSE = functional.scaled_dot_product_attention(*mixed_3HSE.unsqueeze(1))[0]
            taken_SD = functional.linear(heads_HSE.transpose(0, 1).flatten(1), *layer.gather)
            states_SD = self._norm(states_SD + taken_SD, layer.gathered)
            wide_SD = functional.gelu(functional.linear(states_SD, *layer.widen))
            states_SD = self._norm(states_SD + functional.linear(wide_SD, *layer.narrow), layer.narrowed)
            found.append(states_SD)
        return found

    def _norm(self, states_SD: Tensor, to: Affine) -> Tensor:
        return functional.layer_norm(states_SD, to.weight.shape, *to, self._epsilon)
