"""Prompts into a cache of latents, and decoding steps over it.

Shape suffixes: N rows under way, T places of the cache, D hidden, H heads, C latent rank, R rotated dimensions, K = C +
R: all that the cache keeps of a token and layer (DeepSeek-V2 report 2.1.2); X = qk_nope_head_dim, V = v_head_dim; P
different prompts, S their length.

The keys' and values' up-projections are absorbed into the query and the output: a step reads the latents alone.
"""

from __future__ import annotations

import copy
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from model.kernels.table import operation
from model.moe import MixtureOfExperts
from model.precision import compute_dtype
from model.rope import Rotation
from model.transformer import DecoderLayer, Transformer

PLACES = 32  # the cache grows by so many: oneDNN prepares a kernel for every new length


class LatentCache:
    """Latents and rotated keys of the rows under way, which lie first and close together.

    Attributes:
        lengths: tokens of each row.
        keys_LNTK: a tensor per layer, in one piece up to any number of rows: torch copies strided factors of a product.
        bias_N1T: 0 where a row has a token, -inf elsewhere.
    """

    def __init__(self, model: Transformer, max_rows: int) -> None:
        config = model.config
        weight = model.embed_tokens.weight
        width = config.kv_lora_rank + config.qk_rope_head_dim
        self.lengths: list[int] = []
        # zeros: what a row has not written yet is multiplied by a weight of 0, and 0 times garbage may be NaN
        none_NTK = weight.new_zeros(max_rows, 0, width, dtype=compute_dtype(weight))
        self.keys_LNTK = [none_NTK] * config.num_hidden_layers
        self._fit()

    def _fit(self) -> None:
        """As many places as the longest row needs, rounded up; fewer again where it needs less than half."""
        have = self.keys_LNTK[0].shape[1]
        need = -(-max(self.lengths, default=1) // PLACES) * PLACES
        if have // 2 <= need <= have:
            return
        kept, rows = min(have, need), len(self.lengths)
        for depth, old_NTK in enumerate(self.keys_LNTK):
            new_NTK = old_NTK.new_zeros(len(old_NTK), need, old_NTK.shape[2])
            new_NTK[:rows, :kept] = old_NTK[:rows, :kept]
            self.keys_LNTK[depth] = new_NTK
        self.bias_N1T = new_NTK.new_full((len(new_NTK), 1, need), -torch.inf)
        for place, length in enumerate(self.lengths):
            self.bias_N1T[place, :, :length] = 0

    def add(self, lengths: list[int]) -> slice:
        """Room for new rows of these lengths, after the present ones."""
        new = slice(len(self.lengths), len(self.lengths) + len(lengths))
        self.lengths += lengths
        self._fit()
        for place, length in zip(range(new.start, new.stop), lengths, strict=True):
            self.bias_N1T[place] = -torch.inf
            self.bias_N1T[place, :, :length] = 0
        return new

    def fill(self, depth: int, new: slice, keys_NSK: Tensor) -> None:
        """Writes a layer's latents and rotated keys of new rows."""
        self.keys_LNTK[depth][new, : keys_NSK.shape[1]] = keys_NSK

    def extend(self) -> tuple[Tensor, Tensor]:
        """Room for one more token in every row: its position, and its place among the cache's N x T."""
        positions = self.lengths
        self.lengths = [length + 1 for length in positions]
        self._fit()
        device, places = self.bias_N1T.device, self.bias_N1T.shape[2]
        position_N = torch.tensor(positions, device=device)
        place_N = position_N + torch.arange(0, len(positions) * places, places, device=device)
        self.bias_N1T.view(-1).index_fill_(0, place_N, 0)
        return position_N, place_N

    def clear(self, place: int) -> None:
        """Forgets what a row wrote: NaN would reach, times 0, whoever gets the place next."""
        for keys_NTK in self.keys_LNTK:
            keys_NTK[place] = 0

    def drop(self, place: int) -> None:
        """Ends a row; the last one moves into its place."""
        last = len(self.lengths) - 1
        if place < last:
            for tensor in (*self.keys_LNTK, self.bias_N1T):
                tensor[place] = tensor[last]
            self.lengths[place] = self.lengths[last]
        self.lengths.pop()


class Decoder(Protocol):
    """What runs prompts and single tokens of a model over its cache; the model must not change while it is in use."""

    def step(self, tokens_N: Tensor, cache: LatentCache) -> Tensor:
        """Feeds every row its newest token; the residual stream after the last layer (N, D)."""

    def prompts(self, tokens_PS: Tensor, own_N: Tensor, cache: LatentCache, new: slice) -> Tensor:
        """Runs prompts side by side, padded on the right where nothing looks.

        Args:
            tokens_PS: different prompts.
            own_N: the prompt of each new row.
            cache: takes their latents.
            new: the rows' places, of `LatentCache.add`.

        Returns:
            The residual stream of the rows' last tokens (N, D).
        """

    def logits(self, x_ND: Tensor) -> Tensor:
        """The next token's logits (N, vocabulary), float32, of the residual stream."""


@operation
def decoder(model: Transformer) -> Decoder:
    """A decoder in the dtype that the model's layers compute in."""
    return PlainDecoder(model)


class PlainDecoder:
    """The model's own layers, one token at a time."""

    def __init__(self, model: Transformer) -> None:
        dtype = compute_dtype(model.embed_tokens.weight)
        same = model.embed_tokens.weight.dtype == dtype
        self.model = model if same else copy.deepcopy(model).to(dtype)
        self.head = torch.float32 if model.float32_head else dtype

    def step(self, tokens_N: Tensor, cache: LatentCache) -> Tensor:
        """As `Decoder.step`."""
        position_N, place_N = cache.extend()
        bias_N1T = cache.bias_N1T[: len(tokens_N)]
        with torch.autocast(tokens_N.device.type, enabled=False):
            by = self.model.rotation(position_N[:, None])
            x_N1D = F.embedding(tokens_N[:, None], self.model.embed_tokens.weight)
            for layer, keys_NTK in zip(self.model.blocks(), cache.keys_LNTK, strict=True):
                x_N1D = _step(layer, x_N1D, by, keys_NTK[: len(tokens_N)], place_N, bias_N1T)
        return x_N1D[:, 0]

    def prompts(self, tokens_PS: Tensor, own_N: Tensor, cache: LatentCache, new: slice) -> Tensor:
        """As `Decoder.prompts`. The last layer has one query a row to answer: a step of the prompts' last tokens."""
        device, blocks = tokens_PS.device, self.model.blocks()
        last_N, keys_NTK = torch.tensor(cache.lengths[new], device=device) - 1, cache.keys_LNTK[-1][new]
        place_N = last_N + torch.arange(len(own_N), device=device) * keys_NTK.shape[1]
        with torch.autocast(device.type, enabled=False):
            by = self.model.rotation(torch.arange(tokens_PS.shape[1], device=device)[None])
            x_PSD = F.embedding(tokens_PS, self.model.embed_tokens.weight)
            for depth, layer in enumerate(blocks):
                attention, normed = layer.self_attn, layer.input_layernorm(x_PSD)
                latent = attention.latent(normed, by)
                cache.fill(depth, new, torch.cat(latent, dim=-1)[own_N])
                if depth < len(blocks) - 1:
                    x_PSD = x_PSD + attention.attend(attention.query_latent(normed), latent, by, None)[0]
                    x_PSD = x_PSD + _feed_forward(layer, x_PSD)
            by, x_N1D = self.model.rotation(last_N[:, None]), x_PSD[own_N, last_N][:, None]
            return _step(blocks[-1], x_N1D, by, keys_NTK, place_N, cache.bias_N1T[new])[:, 0]

    def logits(self, x_ND: Tensor) -> Tensor:
        """As `Decoder.logits`."""
        with torch.autocast(x_ND.device.type, enabled=False):
            return F.linear(self.model.norm(x_ND, self.head), self.model.lm_head.weight.to(self.head)).float()


def _step(
    layer: DecoderLayer, x_N1D: Tensor, by: Rotation, keys_NTK: Tensor, place_N: Tensor, bias_N1T: Tensor
) -> Tensor:
    """A layer for one new token per row, whose latent goes to its place among the N x T of the cache."""
    a, normed = layer.self_attn, layer.input_layernorm(x_N1D)
    new_N1K = torch.cat(a.latent(normed, by), dim=-1)
    keys_NTK.view(-1, keys_NTK.shape[2]).index_copy_(0, place_N, new_N1K[:, 0])
    # the latents serve as keys and as values
    key_HXC, value_HVC = a.kv_b_proj.weight.unflatten(0, (a.heads, -1)).split([a.nope, a.value], dim=1)
    nope_N1HX, rope_N1HR = a.queries(a.query_latent(normed), by)
    q_NHK = torch.cat([torch.einsum("nshx,hxc->nhc", nope_N1HX, key_HXC), rope_N1HR[:, 0]], dim=-1)
    p_NHT = (q_NHK @ keys_NTK.mT * a.scale + bias_N1T).softmax(-1)
    y_NHC = p_NHT @ keys_NTK[..., : key_HXC.shape[-1]]
    y_NHV = torch.einsum("nhc,hvc->nhv", y_NHC, value_HVC)
    x_N1D = x_N1D + a.o_proj(y_NHV.flatten(1))[:, None]
    return x_N1D + _feed_forward(layer, x_N1D)


def _feed_forward(layer: DecoderLayer, x: Tensor) -> Tensor:
    normed = layer.post_attention_layernorm(x)
    return layer.mlp.mix(normed)[0] if isinstance(layer.mlp, MixtureOfExperts) else layer.mlp(normed)
