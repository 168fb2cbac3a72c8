"""One decoding step over a cache of latents, with the weights laid out for it.

Shape suffixes: N rows under way, T places of the cache, D hidden, H heads, C latent rank, R rotated dimensions, K = C +
R: all that the cache keeps of a token and layer (DeepSeek-V2 report 2.1.2); Q query rank, X = qk_nope_head_dim, V =
v_head_dim; E routed experts, F expert width, O output and I input width of a linear layer.

The keys' and values' up-projections are absorbed into the query and the output: a step reads the latents alone. A step
of a small model is many small operations, whose calls cost as much as their products: so there are few of them.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from model.attention import MultiHeadLatentAttention, RMSNorm
from model.moe import Experts, MixtureOfExperts, Router, SwiGLU, grouped_matmul
from model.precision import compute_dtype
from model.transformer import DecoderLayer, Transformer

PLACES = 32  # the cache grows by so many: oneDNN prepares a kernel for every new length
CALL_FLOPS = 1 << 24  # FLOPs that take a CPU about as long as calling an expert's three products


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

    def fill(self, depth: int, new: slice, latent: tuple[Tensor, Tensor]) -> None:
        """Writes a layer's latents (N, S, C) and rotated keys, halves apart (N, S, R), of new rows."""
        latent_NSC, rope_NSR = latent
        side_by_side_NSR = rope_NSR.unflatten(-1, (2, -1)).mT.flatten(-2)
        keys_NSK = self.keys_LNTK[depth][new, : latent_NSC.shape[1]]
        keys_NSK[..., : latent_NSC.shape[2]] = latent_NSC
        keys_NSK[..., latent_NSC.shape[2] :] = side_by_side_NSR

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
    """A copy of the model's weights in the dtype that its layers compute in, fused and packed for single tokens.

    Made once for a call of the generator: what changes in the model afterwards changes nothing here.
    """

    def __init__(self, model: Transformer, max_rows: int) -> None:
        self._embed = model.embed_tokens
        self._dtype = compute_dtype(model.embed_tokens.weight)
        self._layers = [_Layer(layer, self._dtype, max_rows) for layer in model.blocks()]

    def step(self, tokens_N: Tensor, cache: LatentCache) -> Tensor:
        """Feeds every row its newest token; the residual stream after the last layer (N, D)."""
        position_N, place_N = cache.extend()
        rows = len(position_N)
        turn_NP = cache.turn_TP[position_N]
        bias_N1T = cache.bias_N1T[:rows]
        with torch.autocast(tokens_N.device.type, enabled=False):
            x_ND = self._embed(tokens_N)
            for layer, keys_NTK in zip(self._layers, cache.keys_LNTK, strict=True):
                x_ND = layer(x_ND, keys_NTK, place_N, turn_NP, bias_N1T)
        return x_ND


class _Layer:
    def __init__(self, layer: DecoderLayer, dtype: torch.dtype, max_rows: int) -> None:
        self._norm = _Norm(layer.input_layernorm, dtype)
        self._attend = _Attention(layer.self_attn, dtype, max_rows)
        self._mlp_norm = _Norm(layer.post_attention_layernorm, dtype)
        self._mlp: Callable[[Tensor], Tensor]
        if isinstance(layer.mlp, SwiGLU):
            gate, up, down = (p.weight.to(dtype) for p in (layer.mlp.gate_proj, layer.mlp.up_proj, layer.mlp.down_proj))
            self._mlp = _Gated(gate, up, down, max_rows)
        else:
            self._mlp = _mixture(layer.mlp, dtype, max_rows)

    def __call__(self, x_ND: Tensor, keys_NTK: Tensor, place_N: Tensor, turn_NP: Tensor, bias_N1T: Tensor) -> Tensor:
        x_ND = x_ND + self._attend(self._norm(x_ND), keys_NTK, place_N, turn_NP, bias_N1T)
        return x_ND + self._mlp(self._mlp_norm(x_ND))


class _Norm:
    """RMSNorm in float32, in one call."""

    def __init__(self, norm: RMSNorm, dtype: torch.dtype) -> None:
        self._weight, self._eps, self._dtype = norm.weight.float(), norm.eps, dtype

    def __call__(self, x: Tensor) -> Tensor:
        return F.rms_norm(x.float(), self._weight.shape, self._weight, self._eps).to(self._dtype)


class _Linear:
    """x @ w^T, with the weight in the order in which a CPU's bfloat16 kernel reads it (a fifth of the time)."""

    def __init__(self, weight_OI: Tensor, max_rows: int) -> None:
        self._packed = weight_OI.device.type == "cpu" and weight_OI.dtype == torch.bfloat16 and _packs()
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI.contiguous(), max_rows) if self._packed else weight_OI

    def __call__(self, x_NI: Tensor) -> Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x_NI, self._weight, None, "none", [], "")
        return F.linear(x_NI, self._weight)

    def silu(self, x_NI: Tensor) -> Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise(x_NI, self._weight, None, "swish", [], "")
        return F.silu(F.linear(x_NI, self._weight))

    def times(self, x_NI: Tensor, other_NO: Tensor) -> Tensor:
        if self._packed:
            return torch.ops.mkldnn._linear_pointwise.binary(x_NI, other_NO, self._weight, None, "mul")
        return F.linear(x_NI, self._weight).mul_(other_NO)


def _packs() -> bool:
    return torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


class _Attention:
    """Attention of one new token per row over the cache, whose latents serve as keys and as values."""

    def __init__(self, attention: MultiHeadLatentAttention, dtype: torch.dtype, max_rows: int) -> None:
        a = attention
        self._rank = a.kv_a_layernorm.weight.numel()
        self._query_rank = a.q_a_layernorm.weight.numel()
        self._heads = a.heads
        self._norm_q, self._norm_kv = _Norm(a.q_a_layernorm, dtype), _Norm(a.kv_a_layernorm, dtype)
        down_OI = torch.cat([a.q_a_proj.weight, a.kv_a_proj_with_mqa.weight]).to(dtype)
        self._down = _Linear(down_OI, max_rows)
        up_HOC = a.kv_b_proj.weight.to(dtype).unflatten(0, (a.heads, -1)).float()
        key_HXC, value_HVC = up_HOC.split([a.nope, a.value], dim=1)
        query_HOQ = a.q_b_proj.weight.to(dtype).unflatten(0, (a.heads, -1)).float() * a.scale
        nope_HXQ, rope_HRQ = query_HOQ.split([a.nope, a.rope], dim=1)
        self._query = _Linear(torch.cat([key_HXC.mT @ nope_HXQ, rope_HRQ], dim=1).flatten(0, 1).to(dtype), max_rows)
        out_HDV = a.o_proj.weight.to(dtype).unflatten(1, (a.heads, -1)).transpose(0, 1).float()
        self._out = _Linear((out_HDV @ value_HVC).transpose(0, 1).flatten(1).to(dtype), max_rows)

    def __call__(self, x_ND: Tensor, keys_NTK: Tensor, place_N: Tensor, turn_NP: Tensor, bias_N1T: Tensor) -> Tensor:
        down_NO = self._down(x_ND)
        new_NK = down_NO[:, self._query_rank :]
        latent_NC, rope_NR = new_NK[:, : self._rank], new_NK[:, self._rank :]
        latent_NC.copy_(self._norm_kv(latent_NC))
        _turn(rope_NR, turn_NP)
        keys_NTK.flatten(0, 1).index_copy_(0, place_N, new_NK)
        q_NHK = self._query(self._norm_q(down_NO[:, : self._query_rank])).unflatten(-1, (self._heads, -1))
        _turn(q_NHK[..., self._rank :], turn_NP[:, None])
        seen_NTK = keys_NTK[: len(x_ND)]
        p_NHT = torch.bmm(q_NHK, seen_NTK.mT).add_(bias_N1T).softmax(-1)
        y_NHC = torch.bmm(p_NHT, seen_NTK)[..., : self._rank]
        return self._out(y_NHC.flatten(1))


def _turn(x: Tensor, turn: Tensor) -> None:
    """Turns each neighbouring pair of the last dimension by its angle, in place; computed in float32."""
    pairs = x.to(torch.float32, copy=True, memory_format=torch.contiguous_format).unflatten(-1, (-1, 2))
    x.copy_(torch.view_as_real(torch.view_as_complex(pairs) * turn).flatten(-2))


class _Gated:
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, gate_FD: Tensor, up_FD: Tensor, down_DF: Tensor, max_rows: int) -> None:
        self._gate, self._up, self._down = (_Linear(w, max_rows) for w in (gate_FD, up_FD, down_DF))

    def __call__(self, x_ND: Tensor) -> Tensor:
        return self._down(self.inner(x_ND))

    def inner(self, x_ND: Tensor) -> Tensor:
        return self._up.times(x_ND, self._gate.silu(x_ND))

    def scaled(self, x_ND: Tensor, weights_NE: Tensor) -> Tensor:
        h_NEF = self.inner(x_ND).unflatten(-1, (weights_NE.shape[1], -1))
        return self._down(h_NEF.mul_(weights_NE[..., None]).flatten(1))


def _mixture(mlp: MixtureOfExperts, dtype: torch.dtype, max_rows: int) -> Callable[[Tensor], Tensor]:
    gate_EFD, up_EFD, down_EDF = (w.to(dtype) for w in mlp.experts.matrices())
    shared = mlp.shared_experts
    s_gate, s_up, s_down = (p.weight.to(dtype) for p in (shared.gate_proj, shared.up_proj, shared.down_proj))
    count = s_gate.shape[0] // gate_EFD.shape[1]
    everything = _Gated(
        torch.cat([gate_EFD.flatten(0, 1), s_gate]),
        torch.cat([up_EFD.flatten(0, 1), s_up]),
        torch.cat([down_EDF.transpose(0, 1).flatten(1), s_down], dim=1),
        max_rows,
    )

    def run(x_ND: Tensor) -> Tensor:
        routing = mlp.gate(x_ND)
        weights_NE = routing.weights_TK.new_zeros(len(x_ND), len(gate_EFD) + count)
        weights_NE[:, len(gate_EFD) :] = 1
        weights_NE.scatter_(1, routing.experts_TK, routing.weights_TK)
        return everything.scaled(x_ND, weights_NE.to(dtype))

    return run
