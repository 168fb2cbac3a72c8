"""Prompts into a cache of latents and decoding steps over it, with the weights laid out for them.

Shape suffixes: N rows under way, T places of the cache, D hidden, H heads, C latent rank, R rotated dimensions, K = C +
R: all that the cache keeps of a token and layer (DeepSeek-V2 report 2.1.2); Q query rank, X = qk_nope_head_dim, V =
v_head_dim; P different prompts, S their length, and where whole prompts lie one behind the other T = P * S tokens; E
routed experts, F expert width, O output and I input width of a linear layer.

The keys' and values' up-projections are absorbed into the query and the output: a step reads the latents alone. A step
of a small model is many small operations, whose calls cost as much as their products: so there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from model import native
from model.attention import MultiHeadLatentAttention, RMSNorm
from model.moe import MixtureOfExperts, SwiGLU, grouped_matmul
from model.precision import compute_dtype
from model.rope import Rotation
from model.transformer import DecoderLayer, Transformer

PLACES = 32  # the cache grows by so many: oneDNN prepares a kernel for every new length
CALL_FLOPS = 1 << 24  # FLOPs that take a CPU about as long as calling an expert's three products
NEAR = 1 << 19  # numbers of an expert that a core's second cache holds: our kernel reads them for every 8 rows
FOLDED = 1.25  # numbers in the product of two matrices, over those in both, up to which the product takes their place


class LatentCache:
    """Latents and rotated keys of the rows under way, which lie first and close together.

    Attributes:
        lengths: tokens of each row.
        keys_LNTK: a tensor per layer, in one piece up to any number of rows: torch copies strided factors of a product.
            Pairs of rotated dimensions lie side by side.
        bias_N1T: 0 where a row has a token, -inf elsewhere.
        turn_TP: cos + i sin of every place's angles, complex64.
    """

    def __init__(self, model: Transformer, max_rows: int) -> None:
        config = model.config
        weight = model.embed_tokens.weight
        width = config.kv_lora_rank + config.qk_rope_head_dim
        self.lengths: list[int] = []
        self._model = model
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
        device = new_NTK.device
        self.bias_N1T = new_NTK.new_full((len(new_NTK), 1, need), -torch.inf)
        for place, length in enumerate(self.lengths):
            self.bias_N1T[place, :, :length] = 0
        by = self._model.rotation(torch.arange(need, device=device)[None])
        self.turn_TP = torch.complex(by.cos_BSP[0], by.sin_BSP[0])

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

    def drop(self, place: int) -> None:
        """Ends a row; the last one moves into its place."""
        last = len(self.lengths) - 1
        if place < last:
            for tensor in (*self.keys_LNTK, self.bias_N1T):
                tensor[place] = tensor[last]
            self.lengths[place] = self.lengths[last]
        self.lengths.pop()


class Decoder:
    """The model's weights in the dtype that its layers compute in, fused and packed for single tokens.

    Made once for a call of the generator, and partly a copy: the model must not change while it is in use. It takes up
    to `max_rows` rows at once.
    """

    def __init__(self, model: Transformer, max_rows: int) -> None:
        self._embed, self._rotation = model.embed_tokens.weight, model.rotation
        dtype = compute_dtype(self._embed)
        with torch.autocast(self._embed.device.type, enabled=False):
            self._layers = [_Layer(layer, dtype, max_rows) for layer in model.blocks()]
            head = torch.float32 if model.float32_head else dtype
            self._norm, self._head = _Norm(model.norm, head), _Linear(model.lm_head.weight.to(head), max_rows)

    def step(self, tokens_N: Tensor, cache: LatentCache) -> Tensor:
        """Feeds every row its newest token; the residual stream after the last layer (N, D)."""
        position_N, place_N = cache.extend()
        at = _At(place_N, position_N + 1, cache.turn_TP[position_N], cache.bias_N1T[: len(place_N)])
        with torch.autocast(tokens_N.device.type, enabled=False):
            x_ND = F.embedding(tokens_N, self._embed)
            for layer, keys_NTK in zip(self._layers, cache.keys_LNTK, strict=True):
                x_ND = layer(x_ND, keys_NTK, at)
        return x_ND

    def prompts(self, tokens_PS: Tensor, own_N: Tensor, cache: LatentCache, new: slice) -> Tensor:
        """Runs prompts side by side, padded on the right where nothing looks.

        The last layer has one query a row to answer, and its step does that.

        Args:
            tokens_PS: different prompts.
            own_N: the prompt of each new row.
            cache: takes their latents.
            new: the rows' places, of `LatentCache.add`.

        Returns:
            The residual stream of the rows' last tokens (N, D).
        """
        count, length = tokens_PS.shape
        device = tokens_PS.device
        turn_SP, by = cache.turn_TP[:length], self._rotation(torch.arange(length, device=device)[None])
        x_PSD = F.embedding(tokens_PS, self._embed)
        for depth, layer in enumerate(self._layers):
            keys_PSK, x_PSD = layer.prompts(x_PSD, turn_SP, by, depth == len(self._layers) - 1)
            cache.fill(depth, new, keys_PSK if count == len(own_N) else keys_PSK[own_N])
        last_N, keys_NTK = torch.tensor(cache.lengths[new], device=device) - 1, cache.keys_LNTK[-1][new]
        place_N = last_N + torch.arange(len(own_N), device=device) * keys_NTK.shape[1]
        at = _At(place_N, last_N + 1, cache.turn_TP[last_N], cache.bias_N1T[new])
        with torch.autocast(device.type, enabled=False):
            return self._layers[-1](x_PSD[own_N, last_N], keys_NTK, at)

    def logits(self, x_ND: Tensor) -> Tensor:
        """The next token's logits (N, vocabulary), float32, of the residual stream."""
        with torch.autocast(x_ND.device.type, enabled=False):
            return self._head(self._norm(x_ND)).float()


class _At(NamedTuple):
    """Where the new tokens stand: see `LatentCache`."""

    place_N: Tensor
    seen_N: Tensor
    turn_NP: Tensor
    bias_N1T: Tensor


class _Layer:
    def __init__(self, layer: DecoderLayer, dtype: torch.dtype, max_rows: int) -> None:
        self._norm, self._mlp_norm = (
            _Norm(norm, dtype) for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self._attend = _Attention(layer.self_attn, dtype, max_rows)
        self._mlp: Callable[[Tensor], Tensor]
        if isinstance(layer.mlp, SwiGLU):
            self._mlp = _Gated(*_matrices(layer.mlp, dtype), max_rows)
        else:
            self._mlp = _mixture(layer.mlp, dtype, max_rows)
        self._layer = layer

    def prompts(self, x_PSD: Tensor, turn_SP: Tensor, by: Rotation, keys_only: bool) -> tuple[Tensor, Tensor]:
        """What the cache keeps of whole prompts (P, S, K), and the residual stream, untouched if only keys count."""
        layer = self._layer
        if self._attend.takes_prompts:
            with torch.autocast("cpu", enabled=False):
                x_TD = x_PSD.flatten(0, 1)
                keys_TK, y_TD = self._attend.prompts(self._norm(x_TD), turn_SP, keys_only)
            keys_PSK = keys_TK.unflatten(0, x_PSD.shape[:2])
            y_PSD = None if y_TD is None else y_TD.view_as(x_PSD)
        else:
            attention, normed = layer.self_attn, layer.input_layernorm(x_PSD)
            latent = attention.latent(normed, by)
            keys_PSK = torch.cat([latent[0], latent[1].unflatten(-1, (2, -1)).mT.flatten(-2)], dim=-1)
            y_PSD = None if keys_only else attention.attend(attention.query_latent(normed), latent, by, None)[0]
        if y_PSD is None:
            return keys_PSK, x_PSD
        x_PSD = x_PSD + y_PSD
        if isinstance(self._mlp, _NativeExperts) and self._mlp.near:
            return keys_PSK, x_PSD + self._mlp(self._mlp_norm(x_PSD.flatten(0, 1))).view_as(x_PSD)
        normed = layer.post_attention_layernorm(x_PSD)
        y_PSD = layer.mlp.mix(normed)[0] if isinstance(layer.mlp, MixtureOfExperts) else layer.mlp(normed)
        return keys_PSK, x_PSD + y_PSD

    def __call__(self, x_ND: Tensor, keys_NTK: Tensor, at: _At) -> Tensor:
        x_ND = x_ND + self._attend(self._norm(x_ND), keys_NTK, at)
        return x_ND + self._mlp(self._mlp_norm(x_ND))


class _Norm:
    """RMSNorm in float32, without what a gradient needs."""

    def __init__(self, norm: RMSNorm, dtype: torch.dtype, scale: float = 1.0) -> None:
        self._weight, self._eps, self._dtype = norm.weight.float() * scale, norm.eps, dtype
        self._kernels = _native(norm.weight, dtype)

    def __call__(self, x: Tensor) -> Tensor:
        if self._kernels is not None and x.dtype in (torch.bfloat16, torch.float32):
            return self._kernels.norm(x, self._weight, self._eps)
        return F.rms_norm(x.float(), self._weight.shape, self._weight, self._eps).to(self._dtype)


class _Linear:
    """x @ w^T. A CPU's bfloat16 weight lies as oneDNN's kernel reads it, which otherwise sorts it in every call; what
    follows the product by element happens in the same pass. They are the operators that torch.compile puts in."""

    def __init__(self, weight_OI: Tensor, max_rows: int) -> None:
        bf16 = weight_OI.device.type == "cpu" and weight_OI.dtype == torch.bfloat16
        self._packed = bf16 and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self._weight = weight_OI.contiguous()
        if self._packed:
            self._weight = torch.ops.mkldnn._reorder_linear_weight(self._weight, max_rows)

    def __call__(self, x_NI: Tensor) -> Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x_NI, self._weight, None, "none", [], "")
        return F.linear(x_NI, self._weight)

    def silu(self, x_NI: Tensor) -> Tensor:
        """silu(x @ w^T)."""
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x_NI, self._weight, None, "swish", [], "")
        return F.silu(F.linear(x_NI, self._weight), inplace=True)

    def times(self, x_NI: Tensor, other_NO: Tensor) -> Tensor:
        """x @ w^T * other."""
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise.binary(x_NI, other_NO, self._weight, None, "mul")
        return F.linear(x_NI, self._weight).mul_(other_NO)


class _Attention:
    """Attention of one new token per row over the cache, whose latents serve as keys and as values.

    Two linear layers lie on either side of the latents, the queries' before the keys' up-projection and o_proj behind
    the values'. Where their product is hardly larger than the two, it takes their place.
    """

    def __init__(self, attention: MultiHeadLatentAttention, dtype: torch.dtype, max_rows: int) -> None:
        a = attention
        self._heads, self._nope, self._rope = a.heads, a.nope, a.rope
        self._norm_kv, self._rank = _Norm(a.kv_a_layernorm, dtype), a.kv_a_layernorm.weight.numel()
        down, self._query_rank = a.kv_a_proj_with_mqa.weight, 0
        self._scaled: Callable[[Tensor], Tensor] = lambda x_ND: x_ND * a.scale
        if a.has_query_latent:
            down, self._query_rank = torch.cat([a.q_a_proj.weight, down]), a.q_a_layernorm.weight.numel()
            # the softmax's scale lies in the norm, which multiplies in float32 anyway
            self._scaled = _Norm(a.q_a_layernorm, dtype, a.scale)
        self._down = _Linear(down.to(dtype), max_rows)
        query_OQ, up_OC, out_DO = (layer.weight.to(dtype) for layer in (a.query_heads, a.kv_b_proj, a.o_proj))
        key_HXC, value_HVC = up_OC.unflatten(0, (a.heads, -1)).split([a.nope, a.value], dim=1)
        self._native = _native(a.o_proj.weight, dtype)
        self._plain: tuple[Tensor, ...] = (query_OQ, up_OC, out_DO) if self.takes_prompts else ()  # may be copies
        self._key_HXC = self._value_HCV = None
        whole = a.heads * (self._rank + a.rope) * query_OQ.shape[1]
        if whole <= FOLDED * (query_OQ.numel() + key_HXC.numel()):
            nope_HXQ, rope_HRQ = query_OQ.unflatten(0, (a.heads, -1)).split([a.nope, a.rope], dim=1)
            query_OQ = torch.cat([key_HXC.mT @ nope_HXQ, rope_HRQ], dim=1).flatten(0, 1)
        else:
            self._key_HXC = key_HXC.contiguous()
        if a.heads * self._rank * len(out_DO) <= FOLDED * (out_DO.numel() + value_HVC.numel()):
            out_HDV = out_DO.unflatten(1, (a.heads, -1)).transpose(0, 1)
            out_DO = (out_HDV @ value_HVC).transpose(0, 1).flatten(1)
        else:
            self._value_HCV = value_HVC.mT.contiguous()
        self._query, self._out = _Linear(query_OQ, max_rows), _Linear(out_DO, max_rows)

    @property
    def takes_prompts(self) -> bool:
        """Whether `prompts` works here: it needs our own kernels."""
        return self._native is not None

    def _read(self, x_ND: Tensor, turn_NP: Tensor) -> tuple[Tensor, Tensor]:
        """What the queries are read off, not normed, and what the cache keeps: the keys' latents and rotated keys."""
        down_NO = self._down(x_ND)
        latent_NC, rope_NR = down_NO[:, self._query_rank :].split([self._rank, self._rope], dim=1)
        latent_NC.copy_(self._norm_kv(latent_NC))
        self._turn(rope_NR[:, None], turn_NP)
        return down_NO[:, : self._query_rank] if self._query_rank else x_ND, down_NO[:, self._query_rank :]

    def prompts(self, x_TD: Tensor, turn_SP: Tensor, keys_only: bool) -> tuple[Tensor, Tensor | None]:
        """Causal attention of whole prompts, one behind the other: what the cache keeps (T, K), and the output (T, D).

        Longer than a step's, they multiply with keys and values of each head.
        """
        assert self._native is not None
        count, turn_TP = len(x_TD) // len(turn_SP), turn_SP.repeat(len(x_TD) // len(turn_SP), 1)
        latent_TQ, keys_TK = self._read(x_TD, turn_TP)
        if keys_only:
            return keys_TK, None
        query_OQ, up_OC, out_DO = self._plain
        q_THQ = F.linear(self._scaled(latent_TQ), query_OQ).unflatten(-1, (self._heads, -1))
        self._turn(q_THQ[..., self._nope :], turn_TP)
        up_THO = F.linear(keys_TK[:, : self._rank], up_OC).unflatten(-1, (self._heads, -1))
        q, up, rotated = (t.unflatten(0, (count, -1)) for t in (q_THQ, up_THO, keys_TK[:, self._rank :]))
        return keys_TK, F.linear(self._native.prompts(q, up, rotated).flatten(0, 1).flatten(1), out_DO)

    def __call__(self, x_ND: Tensor, keys_NTK: Tensor, at: _At) -> Tensor:
        latent_NQ, new_NK = self._read(x_ND, at.turn_NP)
        keys_NTK.view(-1, keys_NTK.shape[2]).index_copy_(0, at.place_N, new_NK)
        q_NHK = self._queries(self._scaled(latent_NQ))
        self._turn(q_NHK[..., self._rank :], at.turn_NP)
        if self._native is not None and self._heads % native.HEADS == 0:
            y_NHC = self._native.attend(q_NHK, keys_NTK, at.seen_N, self._rank)
        else:
            seen_NTK = keys_NTK[: len(x_ND)]
            p_NHT = torch.bmm(q_NHK, seen_NTK.mT).add_(at.bias_N1T).softmax(-1)
            y_NHC = torch.bmm(p_NHT, seen_NTK)[..., : self._rank]
        if self._value_HCV is not None:
            y_NHC = torch.bmm(y_NHC.transpose(0, 1), self._value_HCV).transpose(0, 1)
        return self._out(y_NHC.flatten(1))

    def _queries(self, latent_NQ: Tensor) -> Tensor:
        """What meets the latents and the rotated keys, not turned yet."""
        q_NHO = self._query(latent_NQ).unflatten(-1, (self._heads, -1))
        if self._key_HXC is None:
            return q_NHO
        nope_NHX, rope_NHR = q_NHO.split([self._nope, self._rope], dim=-1)
        latent_NHC = torch.bmm(nope_NHX.transpose(0, 1), self._key_HXC).transpose(0, 1)
        return torch.cat([latent_NHC, rope_NHR], dim=-1)

    def _turn(self, x_NHR: Tensor, turn_NP: Tensor) -> None:
        """Turns each neighbouring pair of the last dimension by its angle, in place; computed in float32."""
        if self._native is not None:
            return self._native.turn(x_NHR, turn_NP)
        pairs_NHP2 = x_NHR.to(torch.float32, copy=True, memory_format=torch.contiguous_format).unflatten(-1, (-1, 2))
        turned_NHP = torch.view_as_complex(pairs_NHP2) * turn_NP[:, None]
        x_NHR.copy_(torch.view_as_real(turned_NHP).flatten(-2))
        return None


def _matrices(mlp: SwiGLU, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    gate_FD, up_FD, down_DF = (layer.weight.to(dtype) for layer in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    return gate_FD, up_FD, down_DF


class _Gated:
    """down(silu(gate(x)) * up(x)), its inner width cut into equal parts with a weight each where weights are given."""

    def __init__(self, gate_FD: Tensor, up_FD: Tensor, down_DF: Tensor, max_rows: int) -> None:
        self._gate, self._up, self._down = (_Linear(weight, max_rows) for weight in (gate_FD, up_FD, down_DF))

    def __call__(self, x_ND: Tensor, weights_NE: Tensor | None = None) -> Tensor:
        h_NF = self._up.times(x_ND, self._gate.silu(x_ND))
        if weights_NE is not None:
            h_NF.unflatten(-1, (weights_NE.shape[1], -1)).mul_(weights_NE[..., None])
        return self._down(h_NF)


def _mixture(mlp: MixtureOfExperts, dtype: torch.dtype, max_rows: int) -> Callable[[Tensor], Tensor]:
    """The routed and shared experts, in the form that suits the machine."""
    gate_EFD = mlp.experts.gate_EFD
    kernels = _native(gate_EFD, dtype)
    if kernels is not None and not any(size % native.LANES for size in gate_EFD.shape[1:]):
        return _NativeExperts(mlp, dtype, kernels)
    # on a CPU every row runs through an expert sooner than the expert is called for its own rows
    if gate_EFD.device.type == "cpu" and max_rows * 6 * gate_EFD[0].numel() <= CALL_FLOPS:
        return _AllExperts(mlp, dtype, max_rows)
    return _ChosenExperts(mlp, dtype, max_rows)


def _native(weight: Tensor, dtype: torch.dtype) -> native.Kernels | None:
    """Our own kernels, where they serve the weight's device and the dtype."""
    return native.kernels() if weight.device.type == "cpu" and dtype == torch.bfloat16 else None


class _NativeExperts:
    """Each expert, the shared ones among them, for the rows that chose it."""

    def __init__(self, mlp: MixtureOfExperts, dtype: torch.dtype, kernels: native.Kernels) -> None:
        gate_EFD, up_EFD, down_EDF = (weight.to(dtype) for weight in mlp.experts.matrices())
        gate_SD, up_SD, down_DS = _matrices(mlp.shared_experts, dtype)
        gate, up = (
            torch.cat([routed, shared.unflatten(0, (-1, routed.shape[1]))])
            for routed, shared in ((gate_EFD, gate_SD), (up_EFD, up_SD))
        )
        down = torch.cat([down_EDF, down_DS.unflatten(1, (-1, down_EDF.shape[2])).transpose(0, 1)])
        self._weights = [native.packed(weight) for weight in (gate, up, down)]
        self._router, self._kernels, self._shared = mlp.gate, kernels, len(gate) - len(gate_EFD)
        self._router_ED = mlp.gate.weight.float().contiguous()
        self.near = 3 * gate_EFD[0].numel() <= NEAR

    def __call__(self, x_ND: Tensor) -> Tensor:
        gate = self._router
        found = (self._router_ED, gate.e_score_correction_bias, gate.top_k, gate.scaling, self._shared)
        return self._kernels.mix(x_ND, *self._kernels.route(x_ND, *found), *self._weights).to(x_ND.dtype)


class _AllExperts:
    """Every expert for every row, as one wide network with the shared experts at its end; those not chosen weigh 0."""

    def __init__(self, mlp: MixtureOfExperts, dtype: torch.dtype, max_rows: int) -> None:
        gate_EFD, up_EFD, down_EDF = (weight.to(dtype) for weight in mlp.experts.matrices())
        gate_SD, up_SD, down_DS = _matrices(mlp.shared_experts, dtype)
        self._router, self._dtype = mlp.gate, dtype
        self._routed, self._shared = len(gate_EFD), len(gate_SD) // gate_EFD.shape[1]
        self._experts = _Gated(
            torch.cat([gate_EFD.flatten(0, 1), gate_SD]),
            torch.cat([up_EFD.flatten(0, 1), up_SD]),
            torch.cat([down_EDF.transpose(0, 1).flatten(1), down_DS], dim=1),
            max_rows,
        )

    def __call__(self, x_ND: Tensor) -> Tensor:
        routing = self._router(x_ND)
        weights_NE = routing.weights_TK.new_ones(len(x_ND), self._routed + self._shared)
        weights_NE[:, : self._routed] = 0
        weights_NE.scatter_(1, routing.experts_TK, routing.weights_TK)
        return self._experts(x_ND, weights_NE.to(self._dtype))


class _ChosenExperts:
    """Each expert for the rows that chose it."""

    def __init__(self, mlp: MixtureOfExperts, dtype: torch.dtype, max_rows: int) -> None:
        gate_EFD, up_EFD, down_EDF = (weight.to(dtype) for weight in mlp.experts.matrices())
        self._router = mlp.gate
        self._inner_EDF, self._down_EFD = torch.cat([gate_EFD, up_EFD], dim=1).mT, down_EDF.mT
        self._shared = _Gated(*_matrices(mlp.shared_experts, dtype), max_rows)

    def __call__(self, x_ND: Tensor) -> Tensor:
        routing = self._router(x_ND)
        rows, top_k = routing.experts_TK.shape
        chosen, order = routing.experts_TK.flatten().sort(stable=True)
        ends_E = chosen.bincount(minlength=len(self._down_EFD)).cumsum(0, dtype=torch.int32)
        gate, up = grouped_matmul(x_ND.index_select(0, order // top_k), self._inner_EDF, ends_E).chunk(2, dim=-1)
        h = (F.silu(gate) * up).mul_(routing.weights_TK.flatten()[order, None])
        y = x_ND.new_empty(rows * top_k, x_ND.shape[1])
        y.index_copy_(0, order, grouped_matmul(h, self._down_EFD, ends_E))
        return self._shared(x_ND) + y.unflatten(0, (rows, top_k)).sum(1)
