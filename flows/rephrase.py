"""Rephrase: knowledge rewritten in many styles and mathematics as learning notes, each segment held to its source."""

from __future__ import annotations

from flows.dag import dag
from flows.preset import load_preset
from flows.request import Request
from flows.stage import stage
from tasks.artifact import Artifact
from tasks.gate import gate
from tasks.rephrase.tasks import rewrite


@stage("rephrase")
def rephrase(request: Request) -> Artifact:
    """Documents chosen by seed, rewritten segment by segment, checked for fidelity, and the gate."""
    preset = load_preset(request)
    plan = dag(request, preset)
    plan.corpus_gate.require()
    rewrites = rewrite(plan.rewrites, plan.corpus.require(), preset.execution)
    gate(plan.rewrites_gate, plan.rewrites)
    return rewrites
