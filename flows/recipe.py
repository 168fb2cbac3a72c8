"""The recipe: raw documents in, a served agentic model out. One flow per stage; read it top to bottom."""

from __future__ import annotations

from flows.corpus import corpus
from flows.posttrain import posttrain
from flows.pretrain import pretrain
from flows.release import release
from flows.rephrase import rephrase
from flows.report import report
from flows.request import Request
from flows.stage import stage
from flows.tokens import tokens
from tasks.artifact import Artifact


@stage("recipe")
def recipe(request: Request) -> Artifact:
    """Kimi K2's recipe from end to end. A stage whose artifact exists is skipped; a gate that fails ends the run."""
    corpus(request)  # sources -> extraction, quality rules, deduplication -> gate
    rephrase(request)  # knowledge rewritten, mathematics as learning notes, each segment held to its source -> gate
    tokens(request)  # tokenizer, shards, held-out split -> gate
    pretrain(request)  # MuonClip: warm-up, constant, cosine, annealing, long context with YaRN -> base model
    posttrain(request)  # dialogues -> SFT -> RL with verifiable rewards -> INT4 quantisation-aware training
    release(request)  # bf16 and INT4 checkpoints in Hugging Face layout, evaluated
    return report(request)  # one page, from manifests alone
