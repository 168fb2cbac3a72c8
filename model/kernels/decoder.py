"""`model.decode` with the C kernels of `native.py`, in bfloat16 or float32, the weights laid out for them.

Shape suffixes: N rows under way, T places of the cache, D hidden, H heads, C latent rank, R rotated dimensions, K = C +
R: all that the cache keeps of a token and layer (DeepSeek-V2 report 2.1.2); Q query rank, X = qk_nope_head_dim, V =
v_head_dim; P different prompts, S their length, and where whole prompts lie one behind the other T = P * S tokens; E
routed experts, A of them for a token, F expert width.

A step of a small model is many small operations, whose calls cost as much as their products: so there are few of them.
In the cache pairs of rotated dimensions lie side by side.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import MultiHeadLatentAttention, RMSNorm
from model.decode import LatentCache, mixed
from model.kernels import native
from model.moe import MixtureOfExperts, SwiGLU
from model.precision import compute_dtype
from model.transformer import DecoderLayer, Transformer

NEAR = 1 << 20  # bytes of an expert that a core's second cache holds: our kernel reads them for every 8 rows


def decoder(model: Transformer) -> NativeDecoder:
    """`model.decode.decoder`."""
    return NativeDecoder(model)


class NativeDecoder:
    """The model's weights in the dtype that it computes in, fused and packed for single tokens; partly a copy."""

    def __init__(self, model: Transformer) -> None:
        self._embed, self._rotation = model.embed_tokens.weight, model.rotation
        self._turn_TP = torch.empty(0, 0)
        dtype = compute_dtype(model.embed_tokens.weight)
        self._head_dtype = torch.float32 if model.float32_head else dtype
        self._final_norm = model.norm
        kernels = native.kernels(dtype)
        assert kernels is not None  # the table asked
        with torch.autocast("cpu", enabled=False):
            self._head = _Weights(model.lm_head.weight[None], kernels, self._head_dtype)
            self._layers = [_Layer(layer, kernels) for layer in model.blocks()]

    def step(self, tokens_N: Tensor, cache: LatentCache) -> Tensor:
        """As `Decoder.step`."""
        position_N, place_N = cache.extend()
        at = _At(place_N, position_N + 1, self._turns(cache)[position_N])
        with torch.autocast("cpu", enabled=False):
            x_ND = F.embedding(tokens_N, self._embed)
            for depth, layer in enumerate(self._layers):
                x_ND, experts_NA = layer(x_ND, cache.keys_LNTK[depth], at)
                cache.route_step(depth, slice(0, len(tokens_N)), place_N, experts_NA)
        return x_ND

    def prompts(self, tokens_PS: Tensor, own_N: Tensor, cache: LatentCache, new: slice) -> Tensor:
        """As `Decoder.prompts`. The last layer has one query a row to answer, and its step does that."""
        count, length = tokens_PS.shape
        turn_SP = self._turns(cache)[:length]
        x_PSD = F.embedding(tokens_PS, self._embed)
        for depth, layer in enumerate(self._layers):
            keys_PSK, x_PSD, experts_PSA = layer.prompts(x_PSD, turn_SP, depth == len(self._layers) - 1)
            cache.fill(depth, new, keys_PSK if count == len(own_N) else keys_PSK[own_N])
            cache.route(depth, new, None if experts_PSA is None else experts_PSA[own_N])
        last_N, keys_NTK = torch.tensor(cache.lengths[new]) - 1, cache.keys_LNTK[-1][new]
        place_N = last_N + torch.arange(len(own_N)) * keys_NTK.shape[1]
        at = _At(place_N, last_N + 1, self._turns(cache)[last_N])
        with torch.autocast("cpu", enabled=False):
            x_ND, experts_NA = self._layers[-1](x_PSD[own_N, last_N], keys_NTK, at)
        cache.route_step(len(self._layers) - 1, new, place_N, experts_NA)
        return x_ND

    def _turns(self, cache: LatentCache) -> Tensor:
        """cos + i sin of the angles of every place that the cache has, complex64 (T, P)."""
        places = cache.bias_N1T.shape[2]
        if len(self._turn_TP) < places:
            by = self._rotation(torch.arange(places)[None])
            self._turn_TP = torch.complex(by.cos_BSP[0], by.sin_BSP[0])
        return self._turn_TP

    def logits(self, x_ND: Tensor) -> Tensor:
        """As `Decoder.logits`."""
        with torch.autocast("cpu", enabled=False):
            return self._head.rows(self._final_norm(x_ND, self._head_dtype), torch.float32)


class _At(NamedTuple):
    """Where the new tokens stand: see `LatentCache`."""

    place_N: Tensor
    seen_N: Tensor
    turn_NP: Tensor


class _Layer:
    def __init__(self, layer: DecoderLayer, kernels: native.Kernels) -> None:
        self._norm, self._mlp_norm = (
            _Norm(norm, kernels) for norm in (layer.input_layernorm, layer.post_attention_layernorm)
        )
        self._attend = _Attention(layer.self_attn, kernels)
        self._mlp = _Dense(layer.mlp, kernels) if isinstance(layer.mlp, SwiGLU) else _Experts(layer.mlp, kernels)
        self._layer = layer

    def prompts(self, x_PSD: Tensor, turn_SP: Tensor, keys_only: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """What the cache keeps of whole prompts (P, S, K), the residual stream, untouched if only keys count, and the
        experts (P, S, A) that were chosen."""
        layer = self._layer
        with torch.autocast("cpu", enabled=False):
            keys_TK, y_TD = self._attend.prompts(self._norm(x_PSD.flatten(0, 1)), turn_SP, keys_only)
        keys_PSK = keys_TK.unflatten(0, x_PSD.shape[:2])
        if y_TD is None:
            return keys_PSK, x_PSD, None
        x_PSD = x_PSD + y_TD.view_as(x_PSD)
        if self._mlp.near:
            y_TD, experts_TA = self._mlp(self._mlp_norm(x_PSD.flatten(0, 1)))
            experts_PSA = None if experts_TA is None else experts_TA.unflatten(0, x_PSD.shape[:2])
            return keys_PSK, x_PSD + y_TD.view_as(x_PSD), experts_PSA
        normed = layer.post_attention_layernorm(x_PSD)
        mlp = layer.mlp
        y_PSD, experts_PSA = mixed(mlp, normed) if isinstance(mlp, MixtureOfExperts) else (mlp(normed), None)
        return keys_PSK, x_PSD + y_PSD, experts_PSA

    def __call__(self, x_ND: Tensor, keys_NTK: Tensor, at: _At) -> tuple[Tensor, Tensor | None]:
        x_ND = x_ND + self._attend(self._norm(x_ND), keys_NTK, at)
        y_ND, experts_NA = self._mlp(self._mlp_norm(x_ND))
        return x_ND + y_ND, experts_NA


class _Weights:
    """B weights (O, I) that rows are multiplied with: few of them by our kernel, where it can."""

    def __init__(self, weight_BOI: Tensor, kernels: native.Kernels, dtype: torch.dtype | None = None) -> None:
        self._weight_BOI, self._kernels = weight_BOI.to(dtype or kernels.dtype).contiguous(), kernels
        outs, ins = weight_BOI.shape[1:]
        same = self._weight_BOI.dtype == kernels.dtype
        fits = kernels.multiplies and same and not (outs % native.TILE or ins % 2)
        self._packed = kernels.packed(self._weight_BOI) if fits else None

    def rows(self, x_NI: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The products with the only weight (N, O)."""
        weight_OI, dtype = self._weight_BOI[0], dtype or self._kernels.dtype
        if self._packed is None or len(x_NI) > self._kernels.multiplies:
            return F.linear(x_NI, weight_OI).to(dtype)
        y_NO = torch.empty(len(x_NI), len(weight_OI), dtype=dtype)
        self._kernels.multiply(x_NI[:, None], self._packed, y_NO[:, None])
        return y_NO

    def each(self, x_NBI: Tensor, y_NBO: Tensor) -> Tensor:
        """The products of each weight with its own part of a row, written to y."""
        if self._packed is None or len(x_NBI) > self._kernels.multiplies:
            return y_NBO.copy_(torch.bmm(x_NBI.transpose(0, 1), self._weight_BOI.mT).transpose(0, 1))
        return self._kernels.multiply(x_NBI, self._packed, y_NBO)


class _Norm:
    """RMSNorm of numbers in the kernels' dtype or float32, in theirs."""

    def __init__(self, norm: RMSNorm, kernels: native.Kernels, scale: float = 1.0) -> None:
        self._weight, self._eps, self._kernels = norm.weight.float() * scale, norm.eps, kernels

    def __call__(self, x: Tensor) -> Tensor:
        return self._kernels.norm(x, self._weight, self._eps)


class _Attention:
    """Attention of one new token per row over the cache, whose latents serve as keys and as values."""

    def __init__(self, attention: MultiHeadLatentAttention, kernels: native.Kernels) -> None:
        a = attention
        self._heads, self._nope, self._rope, self._value_size = a.heads, a.nope, a.rope, a.value
        self._kernels = kernels
        self._query_rank, self._rank = a.q_a_layernorm.weight.numel(), a.kv_a_layernorm.weight.numel()
        # the softmax's scale lies in the norm, which multiplies in float32 anyway
        self._norm_q, self._norm_kv = _Norm(a.q_a_layernorm, kernels, a.scale), _Norm(a.kv_a_layernorm, kernels)
        down_OD = torch.cat([a.q_a_proj.weight, a.kv_a_proj_with_mqa.weight])
        self._down, self._query, self._out = (
            _Weights(weight[None], kernels) for weight in (down_OD, a.q_b_proj.weight, a.o_proj.weight)
        )
        self._up_OC = a.kv_b_proj.weight.to(kernels.dtype)
        key_HXC, value_HVC = self._up_OC.unflatten(0, (a.heads, -1)).split([a.nope, a.value], dim=1)
        self._key, self._value = _Weights(key_HXC.mT, kernels), _Weights(value_HVC, kernels)

    def _read(self, x_ND: Tensor, turn_NP: Tensor) -> tuple[Tensor, Tensor]:
        """The queries' latents, not normed, and what the cache keeps: the keys' latents and rotated keys."""
        down_NO = self._down.rows(x_ND)
        latent_NC, rope_NR = down_NO[:, self._query_rank :].split([self._rank, self._rope], dim=1)
        latent_NC.copy_(self._norm_kv(latent_NC))
        self._kernels.turn(rope_NR[:, None], turn_NP)
        return down_NO[:, : self._query_rank], down_NO[:, self._query_rank :]

    def prompts(self, x_TD: Tensor, turn_SP: Tensor, keys_only: bool) -> tuple[Tensor, Tensor | None]:
        """Causal attention of whole prompts, one behind the other: what the cache keeps (T, K), and the output (T, D).

        Longer than a step's, they multiply with keys and values of each head.
        """
        count, turn_TP = len(x_TD) // len(turn_SP), turn_SP.repeat(len(x_TD) // len(turn_SP), 1)
        latent_TQ, keys_TK = self._read(x_TD, turn_TP)
        if keys_only:
            return keys_TK, None
        q_THQ = self._query.rows(self._norm_q(latent_TQ)).unflatten(-1, (self._heads, -1))
        self._kernels.turn(q_THQ[..., self._nope :], turn_TP)
        up_THO = F.linear(keys_TK[:, : self._rank], self._up_OC).unflatten(-1, (self._heads, -1))
        q, up, rotated = (t.unflatten(0, (count, -1)) for t in (q_THQ, up_THO, keys_TK[:, self._rank :]))
        y_THV = self._kernels.prompts(q, up, rotated).flatten(0, 1)
        return keys_TK, self._out.rows(y_THV.flatten(1))

    def __call__(self, x_ND: Tensor, keys_NTK: Tensor, at: _At) -> Tensor:
        latent_NQ, new_NK = self._read(x_ND, at.turn_NP)
        keys_NTK.view(-1, keys_NTK.shape[2]).index_copy_(0, at.place_N, new_NK)
        q_NHO = self._query.rows(self._norm_q(latent_NQ)).unflatten(-1, (self._heads, -1))
        nope_NHX, rope_NHR = q_NHO.split([self._nope, self._rope], dim=-1)
        self._kernels.turn(rope_NHR, at.turn_NP)
        q_NHK = torch.empty(len(x_ND), self._heads, self._rank + self._rope, dtype=x_ND.dtype)
        self._key.each(nope_NHX, q_NHK[..., : self._rank])
        q_NHK[..., self._rank :] = rope_NHR
        y_NHC = self._kernels.attend(q_NHK, keys_NTK, at.seen_N, self._rank)
        y_NHV = self._value.each(y_NHC, y_NHC.new_empty(len(x_ND), self._heads, self._value_size))
        return self._out.rows(y_NHV.flatten(1))


def _matrices(mlp: SwiGLU, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    gate_FD, up_FD, down_DF = (layer.weight.to(dtype) for layer in (mlp.gate_proj, mlp.up_proj, mlp.down_proj))
    return gate_FD, up_FD, down_DF


class _Dense:
    """down(silu(gate(x)) * up(x))."""

    near = False

    def __init__(self, mlp: SwiGLU, kernels: native.Kernels) -> None:
        self._gate, self._up, self._down = (_Weights(weight[None], kernels) for weight in _matrices(mlp, kernels.dtype))

    def __call__(self, x_ND: Tensor) -> tuple[Tensor, None]:
        h_NF = F.silu(self._gate.rows(x_ND), inplace=True).mul_(self._up.rows(x_ND))
        return self._down.rows(h_NF), None


class _Experts:
    """Each expert, the shared ones among them, for the rows that chose it."""

    def __init__(self, mlp: MixtureOfExperts, kernels: native.Kernels) -> None:
        experts, view = mlp.experts, mlp.experts.view
        gate_SD, up_SD, down_DS = _matrices(mlp.shared_experts, kernels.dtype)
        routed, inner = experts.gate_EFD.shape[:2]

        def seen(weight: Tensor) -> Tensor:
            return (weight if view is None else view(weight, "the experts")).to(kernels.dtype)

        made = None if view is None and experts.gate_EFD.dtype == kernels.dtype else seen
        self._weights = [
            kernels.packed(experts.gate_EFD, gate_SD.unflatten(0, (-1, inner)), seen=made),
            kernels.packed(experts.up_EFD, up_SD.unflatten(0, (-1, inner)), seen=made),
            kernels.packed(experts.down_EDF, down_DS.unflatten(1, (-1, inner)).transpose(0, 1), seen=made),
        ]
        self._router, self._kernels, self._shared = mlp.gate, kernels, len(self._weights[0]) - routed
        self._router_ED = mlp.gate.weight.float().contiguous()
        self.near = 3 * self._weights[0][0].nbytes <= NEAR

    def __call__(self, x_ND: Tensor) -> tuple[Tensor, Tensor]:
        gate = self._router
        found = (self._router_ED, gate.e_score_correction_bias, gate.top_k, gate.scaling, self._shared)
        chosen_NA, weights_NA = self._kernels.route(x_ND, *found)
        y_ND = self._kernels.mix(x_ND, chosen_NA, weights_NA, *self._weights).to(x_ND.dtype)
        return y_ND, chosen_NA[:, : gate.top_k]
