"""Pretraining: gated token shards in, the base model out, through every stage of the plan."""

from __future__ import annotations

from flows.dag import dag
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.training import train


@stage("pretrain")
def pretrain(request: Request) -> Artifact:
    """Warm-up, constant, cosine, annealing and long context with MuonClip, in a process the launcher supervises."""
    preset = load_preset(request)
    plan = dag(request, preset)
    plan.tokens_gate.require()
    inputs = {"tokens": plan.tokens.require(), "tokenizer": plan.tokenizer.require()}
    return train("training.pretrain", plan.base, inputs, preset.execution)
