"""Whether what was written is what was trained: read back through transformers, and held against our own forward."""

from __future__ import annotations

import io
import logging
from contextlib import ExitStack, redirect_stderr
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter

from model.convert import as_served, read_tensors
from model.moe import Router, Routing
from model.quantize import decompress_experts
from model.transformer import Transformer, routers
from tasks.evaluate.checkpoint import ReleaseError, read_checkpoint

log = logging.getLogger(__name__)

TOLERANCE = 1e-3  # of the largest logit: two float32 implementations differ by 1e-6 to 1e-5, a wrong weight by 0.1
TIE = 1e-4
"""Scores of experts that are nearer are a tie, which two implementations may break differently: their scores differ by
1e-7 to 1e-6, and training moves the bias of the selection by 1e-3 at a time."""

Choice = tuple[Tensor, Tensor]
"""A router's: the experts of each token (TK), and what every expert was worth to it, with the bias (TE)."""


@torch.no_grad()
def verify(model: Transformer, bf16: Path, int4: Path, tokens: int) -> dict[str, Any]:
    """Hold both folders against the trained `model`.

    Both: transformers, reading the folder by itself, chooses our experts and gives our logits. bf16: read back, it is
    the rounding of the model. int4: the dequantised tensors, and with them the logits, equal the quantisation-aware
    forward exactly.

    Raises:
        ReleaseError: they do not.
    """
    seed = torch.Generator().manual_seed(0)
    length = min(tokens, model.config.max_position_embeddings)
    tokens_BS = torch.randint(0, model.config.vocab_size, (2, length), generator=seed)
    ours, choices = _forward(read_checkpoint(bf16), tokens_BS)
    if not torch.equal(ours, _forward(as_served(model, int4=False), tokens_BS)[0]):
        raise ReleaseError(f"{bf16.name} read back is not the bf16 rounding of the trained model: it is not released")
    difference = _difference(bf16, ours, choices, tokens_BS)
    ours, choices = _forward(as_served(model, int4=True), tokens_BS)
    if not torch.equal(_forward(read_checkpoint(int4), tokens_BS)[0], ours):
        raise ReleaseError(
            f"{int4.name} dequantised is not the model that was trained with INT4 weights in its forward"
        )
    packed = sum(name.endswith("weight_packed") for name, _ in read_tensors(int4))
    expected = 3 * model.config.num_moe_layers * model.config.n_routed_experts
    if packed != expected or set(decompress_experts(dict(read_tensors(int4)))) != {n for n, _ in read_tensors(bf16)}:
        raise ReleaseError(f"{int4.name} packs {packed} matrices of {expected} expected, or its names are not bf16's")
    difference = max(difference, _difference(int4, ours, choices, tokens_BS))
    log.info("both checkpoints read back as trained; transformers differs by %.1e of the largest logit", difference)
    return {
        "tokens": tokens_BS.numel(),
        "transformers_difference": difference,
        "transformers_tolerance": TOLERANCE,
        "int4_equals_training_forward": True,
        "int4_matrices": packed,
    }


def through_transformers(folder: Path) -> Any:
    """The folder as transformers loads it by itself, all of it multiplied in float32.

    Of an INT4 folder it keeps the dequantised experts in bf16 whatever dtype was asked for, and would multiply them in
    bf16: what is measured here are the weights, which float32 holds as they are.
    """
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    for parameter in model.parameters():
        parameter.data = parameter.data.float()
    return model.eval()


def _difference(folder: Path, ours: Tensor, choices: list[Choice], tokens_BS: Tensor) -> float:
    """The largest difference of transformers' logits from ours, as a share of the largest.

    Each router has to choose as ours did but for ties, and then every token goes where ours went: behind a tie that was
    broken differently the logits of that token, and of those that attend to it, differ by 0.1 and prove nothing.

    Raises:
        ReleaseError: a router chose others, or the difference is over `TOLERANCE`.
    """
    with redirect_stderr(io.StringIO()):  # progress bars of two libraries, for a second's work
        theirs = through_transformers(folder)
        gates = [module for module in theirs.modules() if isinstance(module, DeepseekV3TopkRouter)]
        for layer, (gate, choice) in enumerate(zip(gates, choices, strict=True)):
            gate.register_forward_hook(partial(_as_chosen, f"mixture layer {layer} of {folder.name}", choice))
        logits_BSV = theirs(tokens_BS).logits
    difference = float((ours - logits_BSV).abs().max() / ours.abs().max().clamp(min=1e-12))
    if not difference <= TOLERANCE:
        raise ReleaseError(
            f"transformers' logits of {folder.name} differ from ours by {difference:.1e} of the largest: the "
            "checkpoint or its config.json is wrong, and it is not released"
        )
    return float(f"{difference:.1e}")


def _as_chosen(place: str, choice: Choice, gate: Any, given: Any, said: tuple[Tensor, Tensor, Tensor]) -> Any:
    """What transformers' router says where its choice is ours, with its own weights; ReleaseError where it chose
    experts that were worth less."""
    experts_TK, worth_TE = choice
    lost_T = worth_TE.gather(1, experts_TK).amin(-1) - worth_TE.gather(1, said[2]).amin(-1)
    if not lost_T.max() <= TIE:
        raise ReleaseError(
            f"in {place} transformers chooses other experts than our router, worth {lost_T.max():.1e} less: the "
            "checkpoint or its config.json is wrong, and it is not released"
        )
    gate.e_score_correction_bias = torch.zeros_like(worth_TE).scatter_(1, experts_TK, 9.0)  # scores are below 1
    return gate.forward(*given)


def _forward(model: Transformer, tokens_BS: Tensor) -> tuple[Tensor, list[Choice]]:
    """The logits, and what the routers chose, first layer first."""
    choices: list[Choice] = []

    def keep(router: Router, _: Any, routing: Routing) -> None:
        choices.append((routing.experts_TK, routing.scores_TE + router.e_score_correction_bias))

    with ExitStack() as hooks:
        for router in routers(model):
            hooks.enter_context(router.register_forward_hook(keep))
        return model.logits(model(tokens_BS).hidden_BSD), choices
