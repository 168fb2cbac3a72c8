"""The network of Kimi K2: a DeepSeek-V3 decoder of latent attention and experts (K2 report 2.3).

Shape suffixes: B batch, S sequence, T = B * S tokens, D hidden, V vocabulary, L layers, H heads, E routed experts, K
experts per token.

Parameter names, by which a trainer tells them apart (a Hugging Face name without its leading `model.`):
    embed_tokens.weight, lm_head.weight                       embeddings
    *norm.weight                                              RMSNorms, one-dimensional
    layers.N.self_attn.{q_a_proj, q_b_proj, kv_a_proj_with_mqa, kv_b_proj, o_proj}.weight     linear layers
    layers.N.self_attn.q_proj.weight                          in place of the first two without a latent of queries
    layers.N.mlp.{gate,up,down}_proj.weight, layers.N.mlp.shared_experts.{gate,up,down}_proj.weight
    layers.N.mlp.gate.weight                                  router
    layers.N.mlp.experts.{gate_EFD, up_EFD, down_EDF}         E stacked linear layers, three-dimensional
Buffers: layers.N.mlp.gate.e_score_correction_bias, float32.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from model.attention import Linear, Mask, MultiHeadLatentAttention, RMSNorm, document_mask
from model.config import ModelConfig, YarnConfig
from model.footprint import MemoryConfig
from model.head import token_cross_entropy, token_log_probs
from model.memory import PLAIN, Keep
from model.moe import Experts, MixtureOfExperts, Router, SwiGLU
from model.precision import compute_dtype
from model.rope import Rotation, rotation, softmax_scale


@dataclass(frozen=True)
class Output:
    """What one forward gives.

    Attributes:
        hidden_BSD: after the final norm; `Transformer.loss` and `.logits` read it. Of a pass that stops before the last
            layer: the residual stream, with which the next layer goes on.
        aux_loss: sequence-wise balance loss summed over the mixture layers, times aux_loss_alpha: add it to the loss.
        max_logits_LH: each layer's and head's largest attention logit as softmax sees it, float32; None unless asked.
        expert_counts_LE: tokens per expert of each mixture layer (dense layers have no row), int64.

    Rows are the layers of the pass, in order.
    """

    hidden_BSD: Tensor
    aux_loss: Tensor
    max_logits_LH: Tensor | None
    expert_counts_LE: Tensor


class DecoderLayer(nn.Module):
    """Attention, then a dense or a mixture feed-forward network, each on the normed residual stream."""

    def __init__(self, config: ModelConfig, index: int) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = MultiHeadLatentAttention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        dense = index < config.first_k_dense_replace
        self.mlp: SwiGLU | MixtureOfExperts = (
            SwiGLU(config.hidden_size, config.intermediate_size) if dense else MixtureOfExperts(config)
        )

    def forward(
        self,
        x_BSD: Tensor,
        by: Rotation,
        mask: Mask | None,
        max_logits: bool,
        keep: Keep = PLAIN,
        experts_BSK: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The new residual stream, the heads' maxima, the balance loss and the expert counts (None where dense)."""
        normed = keep.recomputed("norms", self.input_layernorm, x_BSD)
        attended, maxima_H = self.self_attn(normed, by, mask, max_logits, keep)
        x_BSD = x_BSD + attended
        normed = keep.recomputed("norms", self.post_attention_layernorm, x_BSD)
        if isinstance(self.mlp, SwiGLU):
            return x_BSD + self.mlp(normed, keep), maxima_H, None, None
        y_BSD, balance, counts_E = self.mlp(normed, mask.real_BS if mask else None, keep, experts_BSK)
        return x_BSD + y_BSD, maxima_H, balance, counts_E


class Transformer(nn.Module):
    """K2's decoder. The weights are drawn from `seed` unless it is built on the meta device.

    It may hold some layers only, as a pipeline rank does: the first brings the embedding, the last the final norm and
    the head. Parameters have the same names, and the same initial weights, as in the whole network.

    Attributes:
        config: the shape of the whole network; `set_yarn` replaces it.
        held: the layers that it holds, rising.
        memory: how a training forward keeps its activations for the backward.
        float32_head: take the final norm's output and the logits in float32 whatever the layers compute in. Sampling
            and training then agree on a token's log-probability to the rounding of the layers (docs/model.md).
    """

    def __init__(self, config: ModelConfig, *, seed: int = 0, layers: Sequence[int] | None = None) -> None:
        """The network of `config`, or these of its layers alone, rising."""
        super().__init__()
        self.config = config
        self.memory = MemoryConfig()
        self.float32_head = False
        self.held = tuple(range(config.num_hidden_layers) if layers is None else layers)
        if 0 in self.held:
            self.embed_tokens = nn.Embedding.from_pretrained(
                torch.empty(config.vocab_size, config.hidden_size), freeze=False
            )
        self.layers = nn.ModuleDict({str(index): DecoderLayer(config, index) for index in self.held})
        if config.num_hidden_layers - 1 in self.held:
            self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
            self.lm_head = Linear(config.hidden_size, config.vocab_size)
        if not next(self.parameters()).is_meta:
            self.init_weights(seed)

    def blocks(self, layers: Sequence[int] | None = None) -> list[DecoderLayer]:
        """The decoder layers, typed: these, or all that it holds."""
        return [cast(DecoderLayer, self.layers[str(index)]) for index in (self.held if layers is None else layers)]

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Draws every matrix from N(0, initializer_range); norms become 1 and correction biases 0.

        Each matrix has a stream of its own, named by (seed, parameter name), an expert's also by its index, and drawn
        in float32 on the CPU: the same weights on every device, in every order, of every subset.
        """
        held = {
            id(p): module.held for module in self.modules() if isinstance(module, Experts) for p in module.parameters()
        }
        for name, parameter in self.named_parameters():
            if parameter.dim() < 2:
                parameter.fill_(1.0)
            elif parameter.dim() == 2:
                parameter.copy_(self._drawn(parameter.shape, f"{seed}/{name}"))
            else:
                for expert, matrix in zip(held[id(parameter)], parameter, strict=True):
                    matrix.copy_(self._drawn(matrix.shape, f"{seed}/{name}/{expert}"))
        for router in routers(self):
            router.e_score_correction_bias.zero_()

    def _drawn(self, shape: torch.Size, stream: str) -> Tensor:
        digest = hashlib.sha256(stream.encode()).digest()
        generator = torch.Generator("cpu").manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        drawn = torch.empty(shape, dtype=torch.float32, device="cpu")
        return drawn.normal_(0.0, self.config.initializer_range, generator=generator)

    def set_yarn(self, rope_scaling: YarnConfig | None, max_position: int) -> None:
        """Changes the window of an existing model, its weights kept: the long-context stage's switch."""
        self.config = self.config.replace(rope_scaling=rope_scaling, max_position_embeddings=max_position)
        for layer in self.blocks():
            layer.self_attn.scale = softmax_scale(self.config)

    def rotation(self, positions_BS: Tensor) -> Rotation:
        """Cosines and sines of the positions, shared by all layers."""
        return rotation(self.config, positions_BS)

    def forward(
        self,
        tokens_BS: Tensor,
        *,
        positions_BS: Tensor | None = None,
        document_ids_BS: Tensor | None = None,
        mask: Mask | None = None,
        max_logits: bool = False,
        layers: Sequence[int] | None = None,
        x_BSD: Tensor | None = None,
        experts_BSLK: Tensor | None = None,
    ) -> Output:
        """One causal pass.

        Args:
            tokens_BS: token ids, int64.
            positions_BS: RoPE positions; 0, 1, ... along each row by default, also across packed documents.
            document_ids_BS: a token sees earlier tokens of its own id only. Ids below 0 mark padding, which enters
                neither the balance loss, nor the expert counts, nor the maxima (mask its targets yourself).
            mask: which keys each query sees, in place of document_ids_BS (responses that share a prompt, in RL).
            max_logits: also return each head's largest attention logit.
            layers: pass through these alone; all that it holds by default.
            x_BSD: the residual stream that the layer before them left; the tokens' embeddings by default.
            experts_BSLK: experts of each token in the mixture layers of the whole network, which the routers take in
                place of their own choice, and give their own weights; below 0 they choose.

        Raises:
            ValueError: the rows are longer than max_position_embeddings.
        """
        seq = tokens_BS.shape[1]
        if seq > self.config.max_position_embeddings:
            raise ValueError(
                f"a row of {seq} tokens exceeds max_position_embeddings {self.config.max_position_embeddings}: "
                "shorten it, or stretch the window with set_yarn"
            )
        if positions_BS is None:
            positions_BS = torch.arange(seq, device=tokens_BS.device)[None]
        by = self.rotation(positions_BS)
        if x_BSD is None:
            x_BSD = self.embed_tokens(tokens_BS)
        if document_ids_BS is not None:
            mask = document_mask(document_ids_BS, compute_dtype(x_BSD))
        layers = self.held if layers is None else layers
        maxima: list[Tensor] = []
        balance: list[Tensor] = []
        counts: list[Tensor] = []
        whole = "layers" in self.memory.recompute and torch.is_grad_enabled()
        with Keep(self.memory, self) as keep:
            for index, layer in zip(layers, self.blocks(layers), strict=True):
                mixture = index - self.config.first_k_dense_replace
                given = None if experts_BSLK is None or mixture < 0 else experts_BSLK[:, :, mixture]
                if whole:
                    x_BSD, *extra = checkpoint(
                        *(layer, x_BSD, by, mask, max_logits, PLAIN, given),
                        use_reentrant=False,
                        preserve_rng_state=False,
                    )
                else:
                    x_BSD, *extra = layer(x_BSD, by, mask, max_logits, keep, given)
                for kept, value in zip((maxima, balance, counts), extra, strict=True):
                    if value is not None:
                        kept.append(value)
        none_E = torch.zeros(0, self.config.n_routed_experts, dtype=torch.int64, device=x_BSD.device)
        last = layers[-1] == self.config.num_hidden_layers - 1
        return Output(
            hidden_BSD=self.final_norm(x_BSD) if last else x_BSD,
            aux_loss=self.config.aux_loss_alpha * (torch.stack(balance).sum() if balance else x_BSD.new_zeros(())),
            max_logits_LH=torch.stack(maxima) if max_logits else None,
            expert_counts_LE=torch.stack(counts) if counts else none_E,
        )

    @property
    def _head_dtype(self) -> torch.dtype | None:
        return torch.float32 if self.float32_head else None

    def final_norm(self, x_BSD: Tensor) -> Tensor:
        """The hidden state, any shape, that the head reads."""
        return self.norm(x_BSD, self._head_dtype)

    def logits(self, hidden_BSD: Tensor) -> Tensor:
        """Logits of the next token (..., V), in the hidden state's dtype."""
        if not self.float32_head:
            return self.lm_head(hidden_BSD)
        with torch.autocast(hidden_BSD.device.type, enabled=False):
            return F.linear(hidden_BSD.float(), self.lm_head.weight.float())

    def loss(self, hidden_BSD: Tensor, targets_BS: Tensor, ignore_index: int = -100, reduction: str = "mean") -> Tensor:
        """Cross-entropy in float32 over the targets that are not `ignore_index`; never holds all logits.

        Args:
            hidden_BSD: of `forward`.
            targets_BS: the token that follows each position.
            ignore_index: targets left out.
            reduction: "mean", or "sum" where the caller divides by a count over several micro-batches.
        """
        hidden_TD, targets_T = hidden_BSD.flatten(0, -2), targets_BS.flatten()
        weight_VD = self.lm_head.weight
        return token_cross_entropy(hidden_TD, weight_VD, targets_T, ignore_index, reduction, self._head_dtype)

    def log_probs(self, hidden_BSD: Tensor, targets_BS: Tensor, temperature: float = 1.0) -> Tensor:
        """log softmax(logits / temperature) at each target, float32 (B, S), differentiable; never holds all logits.

        Any target is fine where its value is not used; negative ones count as id 0.
        """
        hidden_TD, targets_T = hidden_BSD.flatten(0, -2), targets_BS.flatten()
        flat_T = token_log_probs(hidden_TD, self.lm_head.weight, targets_T, temperature, self._head_dtype)
        return flat_T.view(targets_BS.shape)


def routers(model: nn.Module) -> list[Router]:
    """The model's routers, first layer first."""
    return [module for module in model.modules() if isinstance(module, Router)]


@torch.no_grad()
def update_router_bias(model: nn.Module, expert_counts_LE: Tensor, rate: float) -> None:
    """One step of auxiliary-loss-free balancing (arXiv 2408.15664): b += rate * sign(mean count - count).

    Call it once per global batch, with the counts summed over its micro-batches and data-parallel ranks.

    Raises:
        ValueError: the counts have another shape than (mixture layers, experts).
    """
    found = routers(model)
    want = (len(found), len(found[0].weight) if found else expert_counts_LE.shape[-1])
    if tuple(expert_counts_LE.shape) != want:
        raise ValueError(f"expert counts have shape {tuple(expert_counts_LE.shape)}, the model's are {want}")
    for router, counts_E in zip(found, expert_counts_LE, strict=True):
        load_E = counts_E.to(router.e_score_correction_bias.device, torch.float64)
        router.e_score_correction_bias += rate * (load_E.mean() - load_E).sign().float()
