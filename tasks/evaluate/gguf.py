"""A released folder as one GGUF for llama.cpp (its architecture `deepseek2`), in float32.

    python -m tasks.evaluate.gguf FOLDER FILE.gguf

Text must become the tokens of training: llama.cpp splits it by expressions of its own, so that a tokenizer for which it
has none is refused. Needs the package `gguf` (the extra `judge`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from model.attention import LATENT_EPS
from model.config import ModelConfig
from model.convert import to_hf_state
from tasks.evaluate.checkpoint import ReleaseError, read_checkpoint
from tasks.tokens.tokenizer import words

SPLIT = "ufakzeka"
"""llama.cpp's name for an expression with one digit a word and no English contractions. Where it makes one word of two
of ours (Chinese behind a letter), no merge joins them, because none was learned across words."""
ATTENTION = {
    "q_a_proj": "attn_q_a", "q_a_layernorm": "attn_q_a_norm", "q_b_proj": "attn_q_b", "o_proj": "attn_output",
    "kv_a_proj_with_mqa": "attn_kv_a_mqa", "kv_a_layernorm": "attn_kv_a_norm",
}  # fmt: skip


def export(folder: Path, file: Path) -> None:
    """Write `file`. Raises ReleaseError where llama.cpp could not read the folder's model as it was trained."""
    try:
        from gguf import GGUFWriter
    except ImportError:
        raise ReleaseError("writing a GGUF needs the package `gguf`: run `pip install 'openk2[judge]'`") from None
    model = read_checkpoint(folder)
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    if words(1) not in json.dumps(tokenizer["pre_tokenizer"], ensure_ascii=False).replace("\\\\", "\\"):
        raise ReleaseError(
            f"llama.cpp has no expression that splits text as {folder / 'tokenizer.json'} does: only tokenizers whose "
            "digits are words of their own (tokenizer.digits = 1) can be exported"
        )
    if model.config.q_lora_rank is None:
        raise ReleaseError(
            "llama.cpp knows queries without a latent (q_lora_rank null) of DeepSeek-V2-Lite's depth alone"
        )
    if model.config.rms_norm_eps != LATENT_EPS:
        raise ReleaseError(
            f"llama.cpp takes rms_norm_eps ({model.config.rms_norm_eps:g}) for the norms of latents too, which were "
            f"trained with {LATENT_EPS:g}: only models whose rms_norm_eps is that can be exported"
        )
    yarn = model.config.rope_scaling
    if yarn and yarn.mscale != yarn.mscale_all_dim:
        raise ReleaseError(f"llama.cpp has one mscale, and this model's are {yarn.mscale} and {yarn.mscale_all_dim}")
    writer = GGUFWriter(file, "deepseek2")
    _settings(writer, model.config)
    _vocabulary(writer, model.config, tokenizer)
    for name, tensor in _tensors(model.config, to_hf_state(model)):
        writer.add_tensor(name, tensor.detach().float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _settings(writer: Any, config: ModelConfig) -> None:
    from gguf import ExpertGatingFuncType, RopeScalingType

    writer.add_name("openk2")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_vocab_size(config.vocab_size)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    # attention as llama.cpp computes it: one head of keys and values, the latent with the part that is rotated
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(1)
    writer.add_q_lora_rank(config.q_lora_rank)
    writer.add_kv_lora_rank(config.kv_lora_rank)
    writer.add_key_length(config.kv_lora_rank + config.qk_rope_head_dim)
    writer.add_value_length(config.kv_lora_rank)
    writer.add_key_length_mla(config.qk_nope_head_dim + config.qk_rope_head_dim)
    writer.add_value_length_mla(config.v_head_dim)
    writer.add_rope_dimension_count(config.qk_rope_head_dim)
    writer.add_rope_freq_base(config.rope_theta)
    if yarn := config.rope_scaling:
        writer.add_rope_scaling_type(RopeScalingType.YARN)
        writer.add_rope_scaling_factor(yarn.factor)
        writer.add_rope_scaling_orig_ctx_len(yarn.original_max_position_embeddings)
        writer.add_rope_scaling_yarn_log_mul(0.1 * yarn.mscale_all_dim)
        # of this architecture llama.cpp does not read them: who runs it has to give them (docs/release.md)
        writer.add_rope_scaling_yarn_beta_fast(yarn.beta_fast)
        writer.add_rope_scaling_yarn_beta_slow(yarn.beta_slow)
    writer.add_leading_dense_block_count(config.first_k_dense_replace)
    writer.add_expert_count(config.n_routed_experts)
    writer.add_expert_used_count(config.num_experts_per_tok)
    writer.add_expert_shared_count(config.n_shared_experts)
    writer.add_expert_feed_forward_length(config.moe_intermediate_size)
    writer.add_expert_weights_scale(config.routed_scaling_factor)
    writer.add_expert_weights_norm(True)
    writer.add_expert_gating_func(ExpertGatingFuncType.SIGMOID)


def _vocabulary(writer: Any, config: ModelConfig, tokenizer: dict[str, Any]) -> None:
    from gguf import TokenType

    special = {one["id"]: one["content"] for one in tokenizer["added_tokens"]}
    texts = {number: text for text, number in tokenizer["model"]["vocab"].items()} | special
    kinds = [
        TokenType.CONTROL if one in special else TokenType.NORMAL if one in texts else TokenType.UNUSED
        for one in range(config.vocab_size)
    ]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(SPLIT)
    writer.add_token_list([texts.get(one, f"[unused {one}]") for one in range(config.vocab_size)])
    writer.add_token_types(kinds)
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in merges])
    writer.add_bos_token_id(config.bos_token_id)
    writer.add_eos_token_id(config.eos_token_id)
    writer.add_pad_token_id(config.pad_token_id)
    writer.add_add_bos_token(False)


def _tensors(config: ModelConfig, state: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """By llama.cpp's names: what makes keys and values in two and by head, that of keys transposed; experts stacked."""
    yield "token_embd.weight", state["model.embed_tokens.weight"]
    yield "output_norm.weight", state["model.norm.weight"]
    yield "output.weight", state["lm_head.weight"]
    for layer in range(config.num_hidden_layers):
        ours, theirs = f"model.layers.{layer}", f"blk.{layer}"
        yield f"{theirs}.attn_norm.weight", state[f"{ours}.input_layernorm.weight"]
        yield f"{theirs}.ffn_norm.weight", state[f"{ours}.post_attention_layernorm.weight"]
        for name, called in ATTENTION.items():
            yield f"{theirs}.{called}.weight", state[f"{ours}.self_attn.{name}.weight"]
        both = state[f"{ours}.self_attn.kv_b_proj.weight"].unflatten(0, (config.num_attention_heads, -1))
        keys, values = both.split([config.qk_nope_head_dim, config.v_head_dim], dim=1)
        yield f"{theirs}.attn_k_b.weight", keys.transpose(1, 2)
        yield f"{theirs}.attn_v_b.weight", values
        dense = layer < config.first_k_dense_replace
        if not dense:
            yield f"{theirs}.ffn_gate_inp.weight", state[f"{ours}.mlp.gate.weight"]
            yield f"{theirs}.exp_probs_b.bias", state[f"{ours}.mlp.gate.e_score_correction_bias"]
        for name in ("gate", "up", "down"):
            if dense:
                yield f"{theirs}.ffn_{name}.weight", state[f"{ours}.mlp.{name}_proj.weight"]
                continue
            of = [state[f"{ours}.mlp.experts.{one}.{name}_proj.weight"] for one in range(config.n_routed_experts)]
            yield f"{theirs}.ffn_{name}_exps.weight", torch.stack(of)
            yield f"{theirs}.ffn_{name}_shexp.weight", state[f"{ours}.mlp.shared_experts.{name}_proj.weight"]


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python -m tasks.evaluate.gguf FOLDER FILE.gguf")
    try:
        export(Path(sys.argv[1]), Path(sys.argv[2]))
    except ReleaseError as error:
        sys.exit(str(error))
