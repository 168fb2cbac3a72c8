"""Prompts into a cache of latents, and decoding steps over it.

Shape suffixes: N rows under way, T places of the cache, D hidden, H heads, C latent rank, R rotated dimensions, K = C +
R: all that attention reads of a token and layer (DeepSeek-V2 report 2.1.2); X = qk_nope_head_dim, V = v_head_dim; P
different prompts, S their length; A experts of a token.

The keys' and values' up-projections are absorbed into the query and the output: a step reads the latents alone.
"""

from __future__ import annotations

import copy
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

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
        experts_LNTA: the experts that each mixture layer chose, int16, -1 where it was not asked: of a prompt the last
            layer takes the last token alone. None for dense layers, and where nobody wants to know.
    """

    def __init__(self, model: Transformer, max_rows: int, routes: bool = False) -> None:
        config = model.config
        weight = model.embed_tokens.weight
        width = config.kv_lora_rank + config.qk_rope_head_dim
        self.lengths: list[int] = []
        # zeros: what a row has not written yet is multiplied by a weight of 0, and 0 times garbage may be NaN
        none_NTK = weight.new_zeros(max_rows, 0, width, dtype=compute_dtype(weight))
        self.keys_LNTK = [none_NTK] * config.num_hidden_layers
        none_NTA = weight.new_zeros(max_rows, 0, config.num_experts_per_tok, dtype=torch.int16)
        self.experts_LNTA = [
            none_NTA if routes and depth >= config.first_k_dense_replace else None
            for depth in range(config.num_hidden_layers)
        ]
        self._fit()

    def _fit(self) -> None:
        """As many places as the longest row needs, rounded up; fewer again where it needs less than half."""
        have = self.keys_LNTK[0].shape[1]
        need = -(-max(self.lengths, default=1) // PLACES) * PLACES
        if have // 2 <= need <= have:
            return
        kept, rows = min(have, need), len(self.lengths)

        def fitted(old: Tensor, value: int) -> Tensor:
            new = old.new_full((len(old), need, old.shape[2]), value)
            new[:rows, :kept] = old[:rows, :kept]
            return new

        self.keys_LNTK = [fitted(keys_NTK, 0) for keys_NTK in self.keys_LNTK]
        self.experts_LNTA = [None if one is None else fitted(one, -1) for one in self.experts_LNTA]
        self.bias_N1T = self.keys_LNTK[0].new_full((len(self.keys_LNTK[0]), 1, need), -torch.inf)
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
        for experts_NTA in self.experts_LNTA:
            if experts_NTA is not None:
                experts_NTA[new] = -1
        return new

    def fill(self, depth: int, new: slice, keys_NSK: Tensor) -> None:
        """Writes a layer's latents and rotated keys of new rows."""
        self.keys_LNTK[depth][new, : keys_NSK.shape[1]] = keys_NSK

    def route(self, depth: int, new: slice, experts_NSA: Tensor | None) -> None:
        """Writes the experts of new rows, where they are wanted."""
        experts_NTA = self.experts_LNTA[depth]
        if experts_NTA is not None and experts_NSA is not None:
            experts_NTA[new, : experts_NSA.shape[1]] = experts_NSA.short()

    def route_step(self, depth: int, rows: slice, place_N: Tensor, experts_NA: Tensor | None) -> None:
        """Writes the experts of one token of each row, at its place among the rows' N x T, where they are wanted."""
        experts_NTA = self.experts_LNTA[depth]
        if experts_NTA is not None and experts_NA is not None:
            experts_NTA[rows].view(-1, experts_NA.shape[1]).index_copy_(0, place_N, experts_NA.short())

    def routes(self, place: int) -> Tensor | None:
        """The experts of a row's tokens (T, L, A) on the CPU, of the mixture layers; None unless wanted."""
        kept = [one[place, : self.lengths[place]] for one in self.experts_LNTA if one is not None]
        return torch.stack(kept, dim=1).cpu() if kept else None

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
            for tensor in (*self.keys_LNTK, *self.experts_LNTA, self.bias_N1T):
                if tensor is not None:
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
        self.model = model if same else _copied(model, dtype)
        self.head = torch.float32 if model.float32_head else dtype

    def step(self, tokens_N: Tensor, cache: LatentCache) -> Tensor:
        """As `Decoder.step`."""
        position_N, place_N = cache.extend()
        rows = slice(0, len(tokens_N))
        with torch.autocast(tokens_N.device.type, enabled=False):
            by = self.model.rotation(position_N[:, None])
            x_N1D = F.embedding(tokens_N[:, None], self.model.embed_tokens.weight)
            for depth, layer in enumerate(self.model.blocks()):
                x_N1D = _step(layer, x_N1D, by, cache, depth, rows, place_N)
        return x_N1D[:, 0]

    def prompts(self, tokens_PS: Tensor, own_N: Tensor, cache: LatentCache, new: slice) -> Tensor:
        """As `Decoder.prompts`. The last layer has one query a row to answer: a step of the prompts' last tokens."""
        device, blocks = tokens_PS.device, self.model.blocks()
        last_N = torch.tensor(cache.lengths[new], device=device) - 1
        place_N = last_N + torch.arange(len(own_N), device=device) * cache.bias_N1T.shape[2]
        with torch.autocast(device.type, enabled=False):
            by = self.model.rotation(torch.arange(tokens_PS.shape[1], device=device)[None])
            x_PSD = F.embedding(tokens_PS, self.model.embed_tokens.weight)
            for depth, layer in enumerate(blocks):
                attention, normed = layer.self_attn, layer.input_layernorm(x_PSD)
                latent = attention.latent(normed, by)
                cache.fill(depth, new, torch.cat(latent, dim=-1)[own_N])
                if depth < len(blocks) - 1:
                    x_PSD = x_PSD + attention.attend(attention.query_latent(normed), latent, by, None)[0]
                    y_PSD, experts_PSA = _feed_forward(layer, x_PSD)
                    x_PSD = x_PSD + y_PSD
                    cache.route(depth, new, None if experts_PSA is None else experts_PSA[own_N])
            by, x_N1D = self.model.rotation(last_N[:, None]), x_PSD[own_N, last_N][:, None]
            return _step(blocks[-1], x_N1D, by, cache, len(blocks) - 1, new, place_N)[:, 0]

    def logits(self, x_ND: Tensor) -> Tensor:
        """As `Decoder.logits`."""
        with torch.autocast(x_ND.device.type, enabled=False):
            return F.linear(self.model.norm(x_ND, self.head), self.model.lm_head.weight.to(self.head)).float()


def _copied(model: Transformer, dtype: torch.dtype) -> Transformer:
    """The model in `dtype`, weight by weight: a copy that is cast afterwards is there in both dtypes, which the plan of
    memory does not count (`training.workload`)."""
    with torch.inference_mode(False):  # within it nothing that is made becomes a parameter
        cast = {id(weight): nn.Parameter(weight.detach().to(dtype), False) for weight in model.parameters()}
        return copy.deepcopy(model, cast)  # type: ignore[arg-type]  # a memo holds what stands for an object


def _step(
    layer: DecoderLayer, x_N1D: Tensor, by: Rotation, cache: LatentCache, depth: int, rows: slice, place_N: Tensor
) -> Tensor:
    """A layer for one new token per row, whose latent goes to its place among the N x T of the cache's `rows`."""
    a, normed = layer.self_attn, layer.input_layernorm(x_N1D)
    keys_NTK = cache.keys_LNTK[depth][rows]
    new_N1K = torch.cat(a.latent(normed, by), dim=-1)
    keys_NTK.view(-1, keys_NTK.shape[2]).index_copy_(0, place_N, new_N1K[:, 0])
    # the latents serve as keys and as values
    key_HXC, value_HVC = a.kv_b_proj.weight.unflatten(0, (a.heads, -1)).split([a.nope, a.value], dim=1)
    nope_N1HX, rope_N1HR = a.queries(a.query_latent(normed), by)
    q_NHK = torch.cat([torch.einsum("nshx,hxc->nhc", nope_N1HX, key_HXC), rope_N1HR[:, 0]], dim=-1)
    p_NHT = (q_NHK @ keys_NTK.mT * a.scale + cache.bias_N1T[rows]).softmax(-1)
    y_NHC = p_NHT @ keys_NTK[..., : key_HXC.shape[-1]]
    y_NHV = torch.einsum("nhc,hvc->nhv", y_NHC, value_HVC)
    x_N1D = x_N1D + a.o_proj(y_NHV.flatten(1))[:, None]
    y_N1D, experts_N1A = _feed_forward(layer, x_N1D)
    cache.route_step(depth, rows, place_N, None if experts_N1A is None else experts_N1A[:, 0])
    return x_N1D + y_N1D


def _feed_forward(layer: DecoderLayer, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """Its output, and the experts that were chosen (..., A)."""
    normed = layer.post_attention_layernorm(x)
    return mixed(layer.mlp, normed) if isinstance(layer.mlp, MixtureOfExperts) else (layer.mlp(normed), None)


def mixed(mlp: MixtureOfExperts, x_BSD: Tensor) -> tuple[Tensor, Tensor]:
    """A mixture's output, and the experts that its router chose (B, S, A)."""
    y_BSD, routing, _ = mlp.mix(x_BSD)
    return y_BSD, routing.experts_TK.unflatten(0, x_BSD.shape[:2])
